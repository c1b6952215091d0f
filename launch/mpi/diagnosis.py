"""Say after a job that failed which node died, why if that is known, and how to go on.

    python launch diagnose RUN [FILE [COMMAND]]

RUN is the folder of the run, FILE what mpiexec or srun said, and COMMAND what resumes a
run when its folder follows.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from launch.base.environment import SetupError
from launch.base.run_folder import last_checkpoint
from launch.mpi.monitor import TAIL, roster

BAD_INPUT, NOT_CONVERGED = 2, 3  # exit codes of dadmm.run that speak for themselves
CLEANING = signal.SIGKILL  # with which MPICH and Intel MPI end the ranks that are left
OFTEN = {
    signal.SIGKILL: "often the kernel, when memory runs out",
    signal.SIGSEGV: "a mistake in compiled code",
    signal.SIGBUS: "often a full /dev/shm, or a full disk below a file in memory",
    signal.SIGABRT: "a library gave up, and may have said why above",
    signal.SIGILL: "code made for another processor",
    signal.SIGTERM: "somebody, or the batch system, wanted it to end",
    signal.SIGXCPU: "the limit of processor time (ulimit -t)",
    signal.SIGXFSZ: "the limit of a file's size (ulimit -f)",
}


class Found(NamedTuple):
    """Who died, as far as somebody has said so, and of what."""

    rank: int | None = None
    host: str = ""
    of: str = ""  # a sentence's end, as in "died of SIGKILL"
    signum: int = 0


def explain(
    resume: str,
    tail: str,
    folder: Path | None,
    code: int,
    first: int | None = None,
    out_of_memory: bool = False,
    here: bool = True,
) -> list[str]:
    """Return sentences on a job that has ended, none if it ended as it should.

    Parameters
    ----------
    resume : str
        The command that resumes a run when its folder follows.
    tail : str
        The end of what mpiexec, or srun, and the ranks said.
    folder : Path or None
        Of the run, if there is one.
    code : int
        The exit code of mpiexec, or srun.
    first : int, optional
        The rank that ended first, if somebody saw it.
    out_of_memory : bool
        Whether the kernel has killed somebody for memory meanwhile.
    here : bool
        Whether rank 0, which makes the folder, was on this machine.
    """
    if code == NOT_CONVERGED or (folder and (folder / "summary.json").exists()):
        return []
    advice = ways_on(resume, folder, here)
    if code == BAD_INPUT and tail.strip():  # it was said; a run in progress may go on
        return [advice] if folder and checkpoint(folder) else []
    ranks = roster(folder) if folder else []
    tail = tail.replace("\r", "\n").replace("\0", "")
    found = cause(tail, ranks, first, out_of_memory)
    return [found or f"nobody has said what happened (exit code {code})", advice]


# Who died, and why


def cause(
    tail: str, ranks: list[dict[str, str]], first: int | None, out_of_memory: bool
) -> str:
    """Return a sentence on what happened, if anything is known."""
    lost = lost_host(tail, ranks)
    if lost:
        return f"{lost}, and the ranks on it with it"
    readers: tuple[Callable[[str], Found | None], ...]
    ours = partial(exception, ranks=ranks)
    theirs = (open_mpi, slurm, partial(intel, first=first), mpich)
    readers = (ours, *theirs, before_the_run)
    found = next(filter(None, (read(tail) for read in readers)), None)
    if found is None and first is None:
        return ""
    found = found or Found(of="ended first, and nobody has said why")
    if found.rank is None:
        found = found._replace(rank=first)
    if out_of_memory and found.signum == signal.SIGKILL:
        reason = "the kernel killed it, as memory ran out: use fewer ranks on a host"
    else:
        reason = OFTEN.get(signal.Signals(found.signum), "") if found.signum else ""
    return f"{name(found, ranks)} {found.of}{f' ({reason})' if reason else ''}"


def name(found: Found, ranks: list[dict[str, str]]) -> str:
    """Return the dead in words."""
    if found.rank is None:
        return "a rank, of which nobody has said which,"
    row = ranks[found.rank] if found.rank < len(ranks) else {}
    node, host = row.get("node", str(found.rank)), row.get("host", found.host)
    return f"node {node} (rank {found.rank}{f' on {host}' if host else ''})"


def died_of(signum: int) -> str:
    """Return the end of a sentence on somebody whom a signal ended."""
    try:
        return f"died of {signal.Signals(signum).name}"
    except ValueError:
        return f"died of signal {signum}"


def by_signal(rank: int | None, host: str, signum: int) -> Found:
    """Return what is known of a rank that a signal ended."""
    known = signum in set(signal.Signals)
    return Found(rank, host, died_of(signum), signum if known else 0)


def exception(tail: str, ranks: list[dict[str, str]]) -> Found | None:
    """Return whose traceback there is: our own words come before an MPI's."""
    # a rank that was placed calls itself by its node
    mark = re.search(r"^dadmm: rank (\d+) failed:\n", tail, re.MULTILINE)
    if not mark:
        return None
    node = mark[1]
    rank = next((k for k, row in enumerate(ranks) if row["node"] == node), int(node))
    last = raised(tail[mark.end() :]) or "its words are above"
    return Found(rank, "", f"failed: {last}")


def before_the_run(tail: str) -> Found | None:
    """Return that somebody failed before it could say who it is, as in an import."""
    mark = re.search(r"^Traceback \(most recent call last\):\n", tail, re.MULTILINE)
    last = raised(tail[mark.end() :]) if mark else ""
    return Found(of=f"failed: {last}") if last else None


def raised(text: str) -> str:
    """Return the last line of the traceback with which a text begins."""
    last = ""
    for line in text.splitlines():
        if line.startswith("dadmm: "):
            break
        if re.match(r"[A-Za-z_][\w.]*(: |$)", line):  # an exception has no indent
            last = line[:300]
        elif last and not re.match(r"\s|$|Traceback|During|The above", line):
            break
    return last


def open_mpi(tail: str) -> Found | None:
    """Return whom Open MPI names, which is the first; its lines may break anywhere."""
    found = re.search(
        r"process\s+rank\s+(\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+(\S+)\s+exited\s+on\s+"
        r"signal\s+(\d+)",
        tail,
    )
    if found:
        return by_signal(int(found[1]), found[2], int(found[3]))
    found = re.search(r"Process name: \[.*,(\d+)\]\s+Exit code:\s+(\d+)", tail)
    return Found(int(found[1]), "", f"ended with code {found[2]}") if found else None


def slurm(tail: str) -> Found | None:
    """Return whom srun names first; then it ends the others, which it names, too."""
    limit = re.search(r"CANCELLED AT \S+ DUE TO ([A-Z ]+[A-Z])", tail)
    if limit:
        return Found(of=f"was ended by Slurm: {limit[1].lower()}")
    found = re.search(r"srun: error: (\S+): tasks? ([\d,-]+): ([^\n]+)", tail)
    if found is None:
        return None
    host, tasks, what = found.groups()
    rank = int(tasks) if tasks.isdecimal() else None
    killed = "oom" in tail and what.startswith("Killed")
    if killed or what.startswith("Out Of Memory"):
        return Found(rank, host, "was killed by the kernel, as memory ran out")
    for signum in signal.Signals:
        if what.partition(" (core")[0] == signal.strsignal(signum):
            return by_signal(rank, host, signum)
    return Found(rank, host, f"ended: {what}")


def intel(tail: str, first: int | None) -> Found | None:
    """Return what Intel MPI says of the first, or whom it has not ended itself.

    It names all ranks of a host that a signal ended, its own SIGKILL included.
    """
    rows = re.findall(
        r"RANK (\d+) PID \d+ RUNNING AT (\S+)\n=\s+KILLED BY SIGNAL: (\d+)", tail
    )
    if not rows:
        return None
    odd = [row for row in rows if int(row[2]) != CLEANING]
    if first is not None:
        odd = [row for row in rows if int(row[0]) == first]
        if not odd:
            return Found(first, "", "ended by itself, and has not said why")
    if len(odd) == 1:
        rank, host, signum = odd[0]
        return by_signal(int(rank), host, int(signum))
    return Found(of="died, it seems of SIGKILL", signum=CLEANING)


def mpich(tail: str) -> Found | None:
    """Return what MPICH says; the process that it names is often one it ended itself.

    Its exit string is that of all ranks' statuses, bit by bit: a signal other than
    SIGKILL is mixed with the SIGKILL of the others.
    """
    code = re.search(r"PID \d+ RUNNING AT \S+\n=\s+EXIT CODE: (\d+)", tail)
    text = re.search(r"EXIT STRING: .* \(signal (\d+)\)", tail)
    if code and text and code[1] == text[1] and int(code[1]) != CLEANING:
        return by_signal(None, "", int(code[1]))
    if text and int(text[1]) == CLEANING:
        return Found(of="died, it seems of SIGKILL", signum=CLEANING)
    if text and int(text[1]) == CLEANING | signal.SIGSEGV:
        return Found(of="died, it seems of SIGSEGV", signum=signal.SIGSEGV)
    return Found(of="died, of what nobody has said") if code else None


def lost_host(tail: str, ranks: list[dict[str, str]]) -> str:
    """Return a sentence's beginning on a host that is gone, or nothing."""
    for words in (
        r"Downstream from host (\S+) (?:exited|was)",  # Intel MPI
        r"Remote host:\s+(\S+)\n\s+Daemon exit",  # Open MPI
        r"lost communication with a remote daemon[^*]*?Remote daemon:.* on node (\S+)",
        r"ssh: connect to host (\S+) port",
        r"Connection to (\S+) closed by remote host",
        r"Timeout, server (\S+) not responding",
        r"Node failure on (\S+)",  # Slurm
    ):
        if found := re.search(words, tail):
            return f"host {found[1]} was lost"
    if re.search(r"\[mpiexec@.*assert \(!closed\) failed", tail):  # MPICH
        mine = re.findall(r"\[mpiexec@([^\]]+)\]", tail)
        others = sorted({row["host"] for row in ranks} - set(mine))
        if others:
            who = "host" if len(others) == 1 else "one of the hosts"
            return f"{who} {', '.join(others)} was lost"
        return "mpiexec lost the connection to a host"
    return ""


# How to go on


def ways_on(resume: str, folder: Path | None, here: bool = True) -> str:
    """Return a sentence on how to go on."""
    if folder is None and here:
        return "the run had not begun, so there is nothing to resume: start it again"
    if folder is None:
        return (
            "nothing is known here of a folder of the run: if it has one, resume with "
            f"{resume or '--resume'} FOLDER, else start it again"
        )
    place = shlex.quote(os.path.relpath(folder))
    iteration = checkpoint(folder)
    if not iteration:
        return (
            f"{place} has no whole checkpoint, so start again; with "
            "--checkpoint-seconds there would be one sooner"
        )
    again = f"{resume} {place}" if resume else f"--resume {place}"
    return f"{place} has a checkpoint of iteration {iteration}; resume with {again}"


def checkpoint(folder: Path) -> int:
    """Return the last iteration of which every node has left its state, 0 if none."""
    with contextlib.suppress(SetupError):  # settings that cannot be read
        return last_checkpoint(folder)
    return 0


def main(run: str, file: str = "", resume: str = "") -> int:
    """Print what there is to say about a run that has failed."""
    folder = Path(run)
    tail = ""
    if file:
        with open(file, "rb") as said:
            said.seek(max(0, os.path.getsize(file) - TAIL))
            tail = said.read().decode(errors="replace")
    resume = resume or f"./launch/local -n {len(roster(folder)) or 'RANKS'} --resume"
    for sentence in explain(resume, tail, folder, code=1):
        print(f"dadmm: {sentence}")
    return 0
