"""Slurm and PBS: what a job was given, how it starts ranks, how it is submitted."""

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from launch.base.messages import UsageError, print_message
from launch.mpi.mpiexec import (
    command_on_hosts,
    fault_tolerance,
    read_hosts,
    version_text,
)
from launch.mpi.runtime import Runtime, script_path

LAUNCHERS = ("mpiexec", "srun")
PINS = ("auto", "yes", "no")
SLURM = "sbatch -n 20 launch/slurm.sbatch [arguments of dadmm.run]"


class Allocation(NamedTuple):
    """The resources of a job."""

    system: str  # slurm or pbs
    job: str  # its number
    ranks: int
    cores: int | None  # of this job on this host; None if unknown
    ranks_here: int  # on this host
    hostfile: str = ""


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
    try:
        hosts = Path(file).read_text().split()
    except OSError:
        hosts = []
    if not hosts:
        raise UsageError("not inside a PBS job: PBS_NODEFILE names no file with hosts")
    cores = int(variables.get("NCPUS", "0")) or None
    job = variables.get("PBS_JOBID", "0").partition(".")[0]
    return Allocation("pbs", job, len(hosts), cores, hosts.count(hosts[0]), file)


SYSTEMS = {"slurm": slurm, "pbs": pbs}


def is_pinned(allocation: Allocation, allowed: int, choice: str = "auto") -> bool:
    """Return whether to pin each rank to its own core: auto, yes or no.

    Auto pins ranks if there are enough cores, and if the `allowed` number of cores,
    that the process may use, is that of the job. Otherwise two jobs on one host could
    pin their ranks to the same cores.
    """
    if choice not in PINS:
        raise UsageError(f"DADMM_PIN must be auto, yes or no, got {choice!r}")
    own = allocation.cores == allowed and allocation.ranks_here <= allowed
    return own if choice == "auto" else choice == "yes"


@contextlib.contextmanager
def start(
    allocation: Allocation, runtime: Runtime, pin: bool, job: list[str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the command that starts a job on all ranks, and its variables."""
    launcher = runtime.variables.get("DADMM_LAUNCHER", "mpiexec")
    slurm = allocation.system == "slurm"
    if launcher not in LAUNCHERS or (launcher == "srun" and not slurm):
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
    if not runtime.mpiexec:
        raise UsageError(
            "there is no mpiexec; load the site's MPI, or set DADMM_MPIEXEC to its "
            "mpiexec, or DADMM_LAUNCHER=srun"
        )
    options, variables = binding(version, pin)
    variables |= runtime.variables
    if not allocation.hostfile:  # mpiexec asks Slurm for the hosts
        options += fault_tolerance(runtime.mpiexec, job)
        yield [runtime.mpiexec, *options, *ranks, *job], variables
        return
    hosts = read_hosts(allocation.hostfile)
    with command_on_hosts(runtime.mpiexec, hosts, job, variables) as command:
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


def requeue(allocation: Allocation) -> None:
    """Put this job back into Slurm's queue, which ends it."""
    number = os.environ["SLURM_JOB_ID"]
    done = subprocess.run(
        ["scontrol", "requeue", number], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        reason = done.stderr.strip()
        print_message(f"Slurm did not requeue job {allocation.job}: {reason}")
