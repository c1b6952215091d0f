"""What batch systems say about a job, and how ranks are started within one."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from launch.base.environment import UsageError, say
from launch.mpi import hostfile
from launch.mpi.commands import Launcher, banner, script
from launch.mpi.ranks import on_hosts, outliving

LAUNCHERS = ("mpiexec", "srun")
PINS = ("auto", "yes", "no")
SLURM = "sbatch -n 20 launch/slurm.sbatch [arguments of dadmm.run]"


class Allocation(NamedTuple):
    """What a job was given."""

    system: str  # slurm or pbs
    job: str  # its number
    ranks: int
    cores: int | None  # of this host, for this job; None if nobody says
    ranks_here: int
    hostfile: str = ""


def slurm(variables: Mapping[str, str]) -> Allocation:
    """Return what Slurm says in the environment of a batch script."""
    if "SLURM_JOB_ID" not in variables:
        raise UsageError(f"not inside a Slurm job; submit: {SLURM}")
    if "SLURM_NTASKS" not in variables:
        raise UsageError(f"the job has no number of ranks; submit: {SLURM}")
    job = variables["SLURM_JOB_ID"]
    if "SLURM_ARRAY_JOB_ID" in variables:
        task = variables.get("SLURM_ARRAY_TASK_ID", "0")
        job = f"{variables['SLURM_ARRAY_JOB_ID']}_{task}"
    here = counts(variables.get("SLURM_TASKS_PER_NODE", "1"))[0]
    cores = int(variables.get("SLURM_CPUS_ON_NODE", "0")) or None
    return Allocation("slurm", job, int(variables["SLURM_NTASKS"]), cores, here)


def counts(text: str) -> list[int]:
    """Return the numbers of Slurm's short form: 10(x2),3 is 10, 10, 3."""
    found = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    return found


def pbs(variables: Mapping[str, str]) -> Allocation:
    """Return what PBS says: a file with one line per rank, the first of this host."""
    file = variables.get("PBS_NODEFILE", "")
    try:
        hosts = Path(file).read_text().split()
    except OSError:
        hosts = []
    if not hosts:
        raise UsageError("not inside a PBS job: PBS_NODEFILE is no list of hosts")
    cores = int(variables.get("NCPUS", "0")) or None
    job = variables.get("PBS_JOBID", "0").partition(".")[0]
    return Allocation("pbs", job, len(hosts), cores, hosts.count(hosts[0]), file)


SYSTEMS = {"slurm": slurm, "pbs": pbs}


def pinned(allocation: Allocation, allowed: int, wish: str = "auto") -> bool:
    """Return whether each rank is to have a core of its own.

    Only if there are enough of them, and if the cores that this process may use are
    those of the job: on a host that it shares with others, who are not kept apart,
    every job would pin its first rank to the same first core.

    Parameters
    ----------
    allocation : Allocation
    allowed : int
        Cores that the system lets this process use.
    wish : {"auto", "yes", "no"}
    """
    if wish not in PINS:
        raise UsageError(f"DADMM_PIN must be auto, yes or no, got {wish!r}")
    own = allocation.cores == allowed and allocation.ranks_here <= allowed
    return own if wish == "auto" else wish == "yes"


@contextlib.contextmanager
def start(
    allocation: Allocation, launcher: Launcher, pin: bool, job: list[str]
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Hold the command that starts a job on all ranks, and its variables."""
    wanted = launcher.variables.get("DADMM_LAUNCHER", "mpiexec")
    if wanted not in LAUNCHERS or (wanted == "srun" and allocation.system != "slurm"):
        raise UsageError(
            "DADMM_LAUNCHER must be mpiexec, or srun in a Slurm job; "
            f"got {wanted!r} in a {allocation.system} job"
        )
    ranks, said = ["-n", str(allocation.ranks)], banner(launcher.mpiexec)
    if wanted == "srun":
        bound = ["--cpu-bind=cores"] if pin else []  # else as the site likes it
        pmi = {"SLURM_MPI_TYPE": "pmix" if "Open" in said else "pmi2"}
        variables = pmi | launcher.variables
        yield ["srun", *ranks, "--kill-on-bad-exit=1", *bound, *job], variables
        return
    if not launcher.mpiexec:
        raise UsageError(
            "there is no mpiexec; load the site's MPI, or set DADMM_MPIEXEC to its "
            "mpiexec, or DADMM_LAUNCHER=srun"
        )
    options, variables = binding(said, pin)
    variables |= launcher.variables
    if not allocation.hostfile:  # an mpiexec asks Slurm by itself
        lasting = outliving(launcher.mpiexec, job)
        yield [launcher.mpiexec, *options, *lasting, *ranks, *job], variables
        return
    places = hostfile.read(allocation.hostfile)
    with on_hosts(launcher.mpiexec, places, job, variables) as command:
        yield [command[0], *options, *command[1:]], variables


def binding(banner: str, pin: bool) -> tuple[list[str], dict[str, str]]:
    """Return the options and variables by which an MPI pins ranks, or does not."""
    if "Intel" in banner:
        return [], {"I_MPI_PIN": "1" if pin else "0"}
    if "Open" in banner:
        return ["--bind-to", "core" if pin else "none"], {}
    return (["-bind-to", "core"] if pin else []), {}


def submission(allocation: Allocation, words: list[str]) -> str:
    """Return the command that submits a job as large as this one, with arguments."""
    if allocation.system == "pbs":  # which takes the ranks from the script
        given = shlex.quote(shlex.join(words))
        return f"DADMM_ARGS={given} qsub -V {shlex.quote(script('launch/pbs.sh'))}"
    ranks = ["-n", str(allocation.ranks)]
    return shlex.join(["sbatch", *ranks, script("launch/slurm.sbatch"), *words])


def requeue(allocation: Allocation) -> None:
    """Put this job back into Slurm's queue, which ends it here."""
    number = os.environ["SLURM_JOB_ID"]
    done = subprocess.run(
        ["scontrol", "requeue", number], capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        say(f"Slurm will not requeue job {allocation.job}: {done.stderr.strip()}")
