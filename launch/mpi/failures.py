"""Find the failed rank or host in the output of dadmm, an MPI or Slurm."""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

CLEANUP = signal.SIGKILL  # with which MPICH and Intel MPI end the remaining ranks
UNKNOWN = "for an unknown reason"


class Failure(NamedTuple):
    """What the output says about the rank that failed."""

    rank: int | None = None
    host: str = ""
    what: str = ""  # the predicate of a sentence, as "was killed by SIGKILL"
    signum: int = 0


def by_signal(rank: int | None, host: str, signum: int) -> Failure:
    """Return the failure of a rank that a signal ended."""
    try:
        return Failure(
            rank, host, f"was killed by {signal.Signals(signum).name}", signum
        )
    except ValueError:
        return Failure(rank, host, f"was killed by signal {signum}")


def probably(signum: signal.Signals) -> Failure:
    """Return the failure of some rank that a signal seems to have ended."""
    return Failure(what=f"was probably killed by {signum.name}", signum=signum)


def exception(tail: str, ranks: list[dict[str, str]]) -> Failure | None:
    """Return the first rank whose traceback dadmm has printed."""
    # dadmm prints the node, which differs from the rank if ranks were placed
    mark = re.search(r"^dadmm: rank (\d+) failed:\n", tail, re.MULTILINE)
    if not mark:
        return None
    node = mark[1]
    rank = next((k for k, row in enumerate(ranks) if row["node"] == node), int(node))
    last = exception_line(tail[mark.end() :]) or "see its message above"
    return Failure(rank, "", f"failed: {last}")


def import_error(tail: str) -> Failure | None:
    """Return a traceback from before dadmm runs, as of an import."""
    mark = re.search(r"^Traceback \(most recent call last\):\n", tail, re.MULTILINE)
    last = exception_line(tail[mark.end() :]) if mark else ""
    return Failure(what=f"failed: {last}") if last else None


def exception_line(text: str) -> str:
    """Return the last line of the traceback at the start of a text."""
    last = ""
    for line in text.splitlines():
        if line.startswith("dadmm: "):
            break
        if re.match(r"[A-Za-z_][\w.]*(: |$)", line):  # an exception has no indent
            last = line[:300]
        elif last and not re.match(r"\s|$|Traceback|During|The above", line):
            break
    return last


def open_mpi(tail: str) -> Failure | None:
    """Return the rank that Open MPI names, the first; its lines may wrap anywhere."""
    found = re.search(
        r"process\s+rank\s+(\d+)\s+with\s+PID\s+\d+\s+on\s+node\s+(\S+)\s+exited\s+on\s+"
        r"signal\s+(\d+)",
        tail,
    )
    if found:
        return by_signal(int(found[1]), found[2], int(found[3]))
    found = re.search(r"Process name: \[.*,(\d+)\]\s+Exit code:\s+(\d+)", tail)
    return Failure(int(found[1]), "", f"ended with code {found[2]}") if found else None


def slurm(tail: str) -> Failure | None:
    """Return the rank that srun names first; later ones are those it ended itself."""
    limit = re.search(r"CANCELLED AT \S+ DUE TO ([A-Z ]+[A-Z])", tail)
    if limit:
        return Failure(what=f"was ended by Slurm: {limit[1].lower()}")
    found = re.search(r"srun: error: (\S+): tasks? ([\d,-]+): ([^\n]+)", tail)
    if found is None:
        return None
    host, tasks, what = found.groups()
    rank = int(tasks) if tasks.isdecimal() else None
    killed = "oom" in tail and what.startswith("Killed")
    if killed or what.startswith("Out Of Memory"):
        return Failure(rank, host, "was killed by the kernel when memory ran out")
    for signum in signal.Signals:
        if what.partition(" (core")[0] == signal.strsignal(signum):
            return by_signal(rank, host, signum)
    return Failure(rank, host, f"ended: {what}")


def intel(tail: str, first: int | None) -> Failure | None:
    """Return what Intel MPI prints about the first rank to end.

    It names all ranks of a host that a signal ended, its own SIGKILL included. If the
    first rank is unknown, it is the one that ended by another signal.
    """
    rows = re.findall(
        r"RANK (\d+) PID \d+ RUNNING AT (\S+)\n=\s+KILLED BY SIGNAL: (\d+)", tail
    )
    if not rows:
        return None
    odd = [row for row in rows if int(row[2]) != CLEANUP]
    if first is not None:
        odd = [row for row in rows if int(row[0]) == first]
        if not odd:
            return Failure(first, "", f"exited by itself, {UNKNOWN}")
    if len(odd) == 1:
        rank, host, signum = odd[0]
        return by_signal(int(rank), host, int(signum))
    return probably(CLEANUP)


def mpich(tail: str) -> Failure | None:
    """Return what MPICH prints; the process that it names is often one it ended itself.

    Its exit string is the bitwise or of the statuses of all ranks, so that another
    signal is mixed with the SIGKILL of the ranks that MPICH ended.
    """
    code = re.search(r"PID \d+ RUNNING AT \S+\n=\s+EXIT CODE: (\d+)", tail)
    text = re.search(r"EXIT STRING: .* \(signal (\d+)\)", tail)
    if code and text and code[1] == text[1] and int(code[1]) != CLEANUP:
        return by_signal(None, "", int(code[1]))
    if text and int(text[1]) == CLEANUP:
        return probably(CLEANUP)
    if text and int(text[1]) == CLEANUP | signal.SIGSEGV:
        return probably(signal.SIGSEGV)
    return Failure(what=f"ended {UNKNOWN}") if code else None


def lost_host(tail: str, ranks: list[dict[str, str]]) -> str:
    """Return the start of a sentence about a lost host, or ""."""
    for pattern in (
        r"Downstream from host (\S+) (?:exited|was)",  # Intel MPI
        r"Remote host:\s+(\S+)\n\s+Daemon exit",  # Open MPI
        r"lost communication with a remote daemon[^*]*?Remote daemon:.* on node (\S+)",
        r"ssh: connect to host (\S+) port",
        r"Connection to (\S+) closed by remote host",
        r"Timeout, server (\S+) not responding",
        r"Node failure on (\S+)",  # Slurm
    ):
        if found := re.search(pattern, tail):
            return f"host {found[1]} was lost"
    if re.search(r"\[mpiexec@.*assert \(!closed\) failed", tail):  # MPICH
        own = re.findall(r"\[mpiexec@([^\]]+)\]", tail)
        others = sorted({row["host"] for row in ranks} - set(own))
        if others:
            which = "host" if len(others) == 1 else "one of the hosts"
            return f"{which} {', '.join(others)} was lost"
        return "mpiexec lost the connection to a host"
    return ""
