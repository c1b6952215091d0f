"""Start or resume a run in a job of Slurm or PBS, and print one line about its end.

The environment must exist: compute nodes often have no network, and many jobs start at
once.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from dadmm.core.documents import parse
from dadmm.core.errors import DadmmError
from dadmm.runs import attempt
from dadmm.runs.config import CommandLine, RunConfig
from dadmm.runs.folder import RunFolder
from launch import mpi
from launch.console import PRINTS, UsageError, print_message, same_problem
from launch.diagnosis import NOT_CONVERGED
from launch.job import StopHandler, run_job
from launch.mpi import Runtime, script_path, version_text

SLURM = "sbatch -n 20 launch/slurm.sbatch [arguments of dadmm.run]"


class Allocation(NamedTuple):
    """The resources of a job."""

    system: str  # slurm or pbs
    job: str  # its number
    ranks: int
    cores: int | None  # of this job on this host; None if unknown
    ranks_here: int  # on this host
    hostfile: str = ""

    @property
    def folder(self) -> Path:
        """The folder of a run without ``--out``; it is the same after a requeue."""
        return Path("runs", f"{self.system}-{self.job}")


def slurm(variables: Mapping[str, str]) -> Allocation:
    """Return the allocation that the variables of a Slurm job describe."""
    if "SLURM_JOB_ID" not in variables:
        raise UsageError(f"not inside a Slurm job; submit: {SLURM}")
    if "SLURM_NTASKS" not in variables:
        raise UsageError(f"the job has no number of ranks; submit: {SLURM}")
    job = variables["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in variables:
        task = variables.get("SLURM_ARRAY_TASK_ID", "0")
        job = f"{variables['SLURM_ARRAY_JOB_ID']}_{task}"
    here = re.match(r"\d*", variables.get("SLURM_TASKS_PER_NODE", ""))  # as 10(x2),3
    cores = int(variables.get("SLURM_CPUS_ON_NODE", "0")) or None
    ranks, ranks_here = int(variables["SLURM_NTASKS"]), int(here[0] or 1)
    return Allocation("slurm", job, ranks, cores, ranks_here)


def pbs(variables: Mapping[str, str]) -> Allocation:
    """Return the allocation of a PBS job: its file has a line per rank, ours first."""
    file = variables.get("PBS_NODEFILE", "")
    hosts: list[str] = []
    with contextlib.suppress(DadmmError):
        hosts = parse(file, str.split, "text")
    if not hosts:
        raise UsageError("not inside a PBS job: PBS_NODEFILE names no file with hosts")
    cores = int(variables.get("NCPUS", "0")) or None
    job = variables.get("PBS_JOBID", "0").partition(".")[0]
    return Allocation("pbs", job, len(hosts), cores, hosts.count(hosts[0]), file)


SYSTEMS = {"slurm": slurm, "pbs": pbs}


def run(
    system: str, arguments: list[str], name: str, runtime: Runtime, stall_seconds: int
) -> int:
    """Start or resume a run inside an allocation; return the exit code of its ranks."""
    allocation = SYSTEMS[system](os.environ)
    task = os.environ.get("SLURM_ARRAY_TASK_ID", "%a")  # of `dadmm sweep`
    arguments = [word.replace("%a", task) for word in arguments]
    if {*PRINTS, "--dry-run"} & set(arguments):
        command = runtime.run_command(arguments)
        return subprocess.call(command, env=runtime.variables)
    given, ranks = RunConfig.from_argv(arguments), allocation.ranks
    given.config.settle(ranks)
    folder = given.resume or Path(given.config.out or allocation.folder)
    if folder == allocation.folder and given.resume is None:
        arguments = [*arguments, "--out", str(folder)]
    requeued = "SLURM_RESTART_COUNT" in os.environ
    planned = attempt.plan_attempt(given, arguments, folder, ranks, requeued)
    if planned is None:
        state = attempt.read_progress(folder)
        print_message(f"nothing left to do: {describe(state)}; see {folder}")
        return NOT_CONVERGED if given.config.strict and not state.as_asked else 0
    resume = "submit the same command again"
    # it does not resume if the folder has the number of this job, or with --overwrite
    if folder == allocation.folder or given.config.overwrite:
        again = [*(["--mpi", name] if name else []), "--resume", str(folder)]
        again += same_problem(["--problem", given.config.problem])
        resume = f"run {submission(allocation, again)}"
    return run_ranks(allocation, runtime, folder, planned, resume, stall_seconds)


def run_ranks(
    allocation: Allocation,
    runtime: Runtime,
    folder: Path,
    job: list[str],
    resume: str,
    stall_seconds: int = 0,
) -> int:
    """Run the ranks to their end, and print one line about it."""
    before = attempt.last_checkpoint(folder) if "--resume" in job else 0
    if before:
        print_message(f"resuming {folder} after iteration {before}")
    allowed = len(os.sched_getaffinity(0))
    pin = is_pinned(allocation, allowed, os.environ.get("DADMM_PIN", "auto"))
    rank, stop = runtime.run_command(job), StopHandler()
    with start(allocation, runtime, pin, rank) as (command, variables):
        spread = allocation.ranks > allocation.ranks_here
        code = run_job(command, variables, "", job, stop, stall_seconds, spread)
    if RunFolder.is_live(folder):  # it was refused, as another job was faster
        return code or 1
    state = attempt.read_progress(folder)
    iteration = attempt.last_checkpoint(folder)
    if code not in (0, NOT_CONVERGED) or not state.summary:
        advice = f"{resume} to resume after iteration {iteration}"
        advice = advice if iteration else "there is no checkpoint"
        print_message(attempt.write_failure(folder, code, f"{advice}; see {folder}"))
        return code or 1
    warned = stop.first == signal.SIGUSR1
    how = "stopped before the time limit" if warned else "interrupted"
    advice = "" if state.complete else f"; {resume} to resume"
    if advice and not iteration:
        advice = "; it has no checkpoint, so the same command starts it again"
    print_message(f"{describe(state, how)}; results in {folder}{advice}")
    again = os.environ.get("DADMM_REQUEUE") == "1"
    if warned and again and state.status == "interrupted":
        requeue(allocation, state.iterations > before)
    return code


def read_arguments(arguments: list[str]) -> CommandLine | None:
    """Return the content of arguments; None if they have an error (ranks report it)."""
    with contextlib.suppress(DadmmError):
        return None if PRINTS & set(arguments) else RunConfig.from_argv(arguments)
    return None


def describe(state: attempt.Progress, interrupted: str = "interrupted") -> str:
    """Return how a run ended, and when."""
    words = {
        "max_iter": "ended at max_iter," + " not converged," * (not state.as_asked),
        "interrupted": interrupted,
    }
    status = words.get(state.status, state.label)
    return f"{status} after {state.iterations} iterations"


def is_pinned(allocation: Allocation, allowed: int, choice: str = "auto") -> bool:
    """Return whether to pin each rank to its own core: auto, yes or no.

    Auto does if the job has enough cores, and the process may use (`allowed`) no
    others: two jobs on one host must not pin their ranks to the same cores.
    """
    if choice not in ("auto", "yes", "no"):
        raise UsageError(f"DADMM_PIN must be auto, yes or no, got {choice!r}")
    own = allocation.cores == allowed and allocation.ranks_here <= allowed
    return own if choice == "auto" else choice == "yes"


@contextlib.contextmanager
def start(
    allocation: Allocation, runtime: Runtime, pin: bool, job: list[str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the command that starts a job on all ranks, and its variables."""
    launcher = runtime.variables.get("DADMM_LAUNCHER", "mpiexec")
    in_slurm = allocation.system == "slurm"
    if launcher != "mpiexec" and not (launcher == "srun" and in_slurm):
        raise UsageError(
            "DADMM_LAUNCHER must be mpiexec, or srun in a Slurm job; "
            f"got {launcher!r} in a {allocation.system} job"
        )
    ranks, version = ["-n", str(allocation.ranks)], version_text(runtime.mpiexec)
    if launcher == "srun":
        bind = ["--cpu-bind=cores"] if pin else []  # else the default of the site
        pmi = {"SLURM_MPI_TYPE": "pmix" if "Open" in version else "pmi2"}
        variables = pmi | runtime.variables
        yield ["srun", *ranks, "--kill-on-bad-exit=1", *bind, *job], variables
        return
    runtime.check()
    options, variables = binding(version, pin)
    variables |= runtime.variables
    if not allocation.hostfile:  # mpiexec asks Slurm for the hosts
        options += mpi.fault_tolerance(runtime.mpiexec, job)
        yield [runtime.mpiexec, *options, *ranks, *job], variables
        return
    hosts = mpi.read_hosts(allocation.hostfile)
    with mpi.command_on_hosts(runtime.mpiexec, hosts, job, variables) as command:
        yield [command[0], *options, *command[1:]], variables


def binding(version: str, pin: bool) -> tuple[list[str], dict[str, str]]:
    """Return the options and variables that make an MPI pin ranks, or not."""
    if "Intel" in version:
        return [], {"I_MPI_PIN": "1" if pin else "0"}
    if "Open" in version:
        return ["--bind-to", "core" if pin else "none"], {}
    return (["-bind-to", "core"] if pin else []), {}


def submission(allocation: Allocation, arguments: list[str]) -> str:
    """Return the command that submits a job of the same size with these arguments."""
    if allocation.system == "pbs":  # the script has the number of ranks
        quoted = shlex.quote(shlex.join(arguments))
        script = shlex.quote(script_path("launch/pbs.sh"))
        return f"DADMM_ARGS={quoted} qsub -V {script}"
    ranks, script = ["-n", str(allocation.ranks)], script_path("launch/slurm.sbatch")
    return shlex.join(["sbatch", *ranks, script, *arguments])


def requeue(allocation: Allocation, has_advanced: bool) -> None:
    """Put this job back into Slurm's queue, which ends it, unless it did nothing."""
    if not has_advanced:  # it would be requeued for ever
        print_message("not requeued: no iteration was done; ask for more time")
        return
    print_message(f"requeued as job {allocation.job} (DADMM_REQUEUE=1)")
    command = ["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        reason = done.stderr.strip()
        print_message(f"Slurm did not requeue job {allocation.job}: {reason}")
