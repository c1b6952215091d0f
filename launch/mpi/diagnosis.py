"""Explain a failed job: which node failed, why if that is known, and how to resume.

    python launch diagnose RUN [FILE [COMMAND]]

RUN is the folder of the run, FILE the output of mpiexec or srun, and COMMAND what
resumes a run when its folder is appended.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from launch.base.messages import SetupError
from launch.base.run_folder import last_checkpoint, read_ranks
from launch.mpi import failures
from launch.mpi.failures import UNKNOWN, Failure
from launch.mpi.monitor import TAIL

BAD_INPUT, NOT_CONVERGED = 2, 3  # exit codes of dadmm.run that need no explanation
HINTS = {
    signal.SIGKILL: "often the kernel, when memory runs out",
    signal.SIGSEGV: "an error in compiled code",
    signal.SIGBUS: "often a full /dev/shm, or a full disk under a memory-mapped file",
    signal.SIGABRT: "a library aborted; it may have printed the reason above",
    signal.SIGILL: "code compiled for another processor",
    signal.SIGTERM: "sent by a user or the batch system",
    signal.SIGXCPU: "the limit of processor time (ulimit -t)",
    signal.SIGXFSZ: "the limit of a file's size (ulimit -f)",
}


def explain(
    resume: str,
    tail: str,
    folder: Path | None,
    code: int,
    first: int | None = None,
    out_of_memory: bool = False,
    here: bool = True,
) -> list[str]:
    """Return sentences about a job that has ended, [] if there is nothing to add.

    Parameters
    ----------
    resume : str
        The command that resumes a run when its folder is appended.
    tail : str
        The end of the output of mpiexec, or srun, and the ranks.
    folder : Path or None
        The folder of the run, if it is known.
    code : int
        The exit code of mpiexec or srun.
    first : int, optional
        The rank that ended first, if the monitor saw it.
    out_of_memory : bool
        Whether the kernel has killed a process for memory meanwhile.
    here : bool
        Whether rank 0, which creates the folder, ran on this host.
    """
    if code == NOT_CONVERGED or (folder and (folder / "summary.json").exists()):
        return []
    advice = resume_advice(resume, folder, here)
    if code == BAD_INPUT and tail.strip():  # the run has printed its error
        return [advice] if folder and checkpoint(folder) else []
    ranks = read_ranks(folder) if folder else []
    tail = tail.replace("\r", "\n").replace("\0", "")
    found = cause(tail, ranks, first, out_of_memory)
    return [found or f"the job failed {UNKNOWN} (exit code {code})", advice]


def cause(
    tail: str, ranks: list[dict[str, str]], first: int | None, out_of_memory: bool
) -> str:
    """Return a sentence about what happened, or "" if nothing is known."""
    if lost := failures.lost_host(tail, ranks):
        return f"{lost}, and its ranks with it"
    readers: tuple[Callable[[str], Failure | None], ...]
    # dadmm's own report is more precise than that of an MPI
    own = partial(failures.exception, ranks=ranks)
    intel = partial(failures.intel, first=first)
    of_mpi = (failures.open_mpi, failures.slurm, intel, failures.mpich)
    readers = (own, *of_mpi, failures.import_error)
    found = next(filter(None, (read(tail) for read in readers)), None)
    if found is None and first is None:
        return ""
    found = found or Failure(what=f"ended first, {UNKNOWN}")
    if found.rank is None:
        found = found._replace(rank=first)
    if out_of_memory and found.signum == signal.SIGKILL:
        hint = "the kernel killed it when memory ran out; use fewer ranks per host"
    else:
        hint = HINTS.get(signal.Signals(found.signum), "") if found.signum else ""
    return f"{name(found, ranks)} {found.what}{f' ({hint})' if hint else ''}"


def name(found: Failure, ranks: list[dict[str, str]]) -> str:
    """Return the node, rank and host that failed."""
    if found.rank is None:
        return "an unknown rank"
    row = ranks[found.rank] if found.rank < len(ranks) else {}
    node, host = row.get("node", str(found.rank)), row.get("host", found.host)
    return f"node {node} (rank {found.rank}{f' on {host}' if host else ''})"


def resume_advice(resume: str, folder: Path | None, here: bool = True) -> str:
    """Return a sentence about how to resume a run, or that it must start again."""
    if folder is None and here:
        return "the run had not started, so there is nothing to resume; start it again"
    if folder is None:
        return (
            "the folder of the run is not known on this host; if there is one, resume "
            f"with {resume or '--resume'} FOLDER, else start it again"
        )
    place = shlex.quote(os.path.relpath(folder))
    iteration = checkpoint(folder)
    if not iteration:
        return (
            f"{place} has no complete checkpoint; start again, and set a smaller "
            "--checkpoint-seconds (60 by default) to have one earlier"
        )
    command = f"{resume} {place}" if resume else f"--resume {place}"
    return f"{place} has a checkpoint of iteration {iteration}; resume with {command}"


def checkpoint(folder: Path) -> int:
    """Return the iteration of the last complete checkpoint, or 0 without one."""
    with contextlib.suppress(SetupError):  # config.toml cannot be read
        return last_checkpoint(folder)
    return 0


def main(run: str, file: str = "", resume: str = "") -> int:
    """Print the explanation of a failed run."""
    folder = Path(run)
    tail = ""
    if file:
        with open(file, "rb") as output:
            output.seek(max(0, os.path.getsize(file) - TAIL))
            tail = output.read().decode(errors="replace")
    ranks = len(read_ranks(folder)) or "RANKS"
    resume = resume or f"./launch/local -n {ranks} --resume"
    for sentence in explain(resume, tail, folder, code=1):
        print(f"dadmm: {sentence}")
    return 0
