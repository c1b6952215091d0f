"""Explain a failed job: which node failed, why if that is known, and how to resume."""

import csv
import os
import re
import shlex
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dadmm.core.documents import parse, reading
from dadmm.core.errors import DadmmError, printable
from dadmm.runs.attempt import last_checkpoint
from dadmm.runs.folder import RunFolder
from dadmm.solver.checkpoint import path_of
from launch.console import UsageError
from launch.job import has_results
from launch.monitor import TAIL

BAD_INPUT, NOT_CONVERGED = 2, 3  # exit codes of dadmm.run that need no explanation
CLEANUP = signal.SIGKILL  # with which MPICH and Intel MPI end the remaining ranks
DEADLY = (signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGABRT, signal.SIGBUS,
          signal.SIGFPE, signal.SIGSEGV, signal.SIGTERM)  # fmt: skip
UNKNOWN, MAYBE = "for an unknown reason", "was probably"
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
OUT_OF_MEMORY = "the kernel killed it when memory ran out; use fewer ranks per host"
RAISED = re.compile(r"^dadmm: rank (\d+) failed:\n", re.MULTILINE)
TRACEBACK = re.compile(r"^Traceback \(most recent call last\):\n", re.MULTILINE)
LOST_HOST = re.compile(
    r"Downstream from host (\S+) (?:exited|was)"  # Intel MPI
    r"|Remote host:\s+(\S+)\n\s+Daemon exit"  # Open MPI
    r"|lost communication with a remote daemon[^*]*?Remote daemon:.* on node (\S+)"
    r"|ssh: connect to host (\S+) port"
    r"|Connection to (\S+) closed by remote host"
    r"|Timeout, server (\S+) not responding"
    r'|unable to connect from "(\S+)" to "|Node failure on (\S+)'  # MPICH; Slurm
)

Ranks = list[dict[str, str]]


class Failure(NamedTuple):
    """What the output says about the rank that failed."""

    rank: int | None = None
    host: str = ""
    what: str = ""  # the predicate of a sentence, as "was killed by SIGKILL"
    signum: int = 0


class Seen(NamedTuple):
    """What the launch command has seen of a job."""

    first: int | None = None  # the rank that ended first, if known
    sure: bool = True  # else it is probably this one
    out_of_memory: bool = False  # the kernel has killed a process
    here: bool = True  # rank 0 would have reported the folder
    since: float = 0.0  # when the job began
    killed: str = ""  # the signal by which others ended mpiexec


def explain(
    resume: str, tail: str, folder: Path | None, code: int, seen: Seen
) -> list[str]:
    """Return sentences about a job that has ended, [] if there is nothing to add.

    `tail` is the end of the output.
    """
    if code == NOT_CONVERGED or (code == BAD_INPUT and has_results(folder)):
        return []
    if folder is not None and has_results(folder):
        place = shlex.quote(os.path.relpath(folder))
        return [
            f"a process ended with code {code} after the results had been written; "
            f"those in {place} are complete"
        ]
    advice = resume_advice(resume, folder, seen.here)
    if code == BAD_INPUT and tail.strip():  # the run has printed its error
        return [advice] if folder and has_saved(folder, seen.since) else []
    if seen.killed:  # by whom is not known
        return [f"mpiexec was killed by {seen.killed}", advice]
    tail = tail.replace("\r", "\n").replace("\0", "")
    found = cause(tail, read_ranks(folder), seen)
    return [found or f"the job failed {UNKNOWN} (exit code {code})", advice]


def has_saved(folder: Path, since: float) -> bool:
    """Return whether the newest checkpoint is of a job that began then and ended."""
    newest = path_of(folder, last_checkpoint(folder), 0)
    try:
        return not RunFolder.is_live(folder) and newest.stat().st_mtime > since
    except OSError:
        return False


def cause(tail: str, ranks: Ranks, seen: Seen) -> str:
    """Return a sentence about what happened, or "" if nothing is known."""
    first, sure, out_of_memory = seen[:3]
    if lost := lost_host(tail, ranks):
        return f"{lost}, and its ranks with it"
    # dadmm's own report is more precise than an MPI's
    found = (
        exception(tail, RAISED, ranks)
        or open_mpi(tail)
        or slurm(tail)
        or intel(tail, first if sure else None)
        or mpich(tail, out_of_memory)
        or exception(tail, TRACEBACK, ranks)  # from before dadmm runs
    )
    if found is None and first is None:
        return ""
    found = found or Failure(what=f"ended first, {UNKNOWN}")
    if found.rank is None:
        there = [rank for rank, row in enumerate(ranks) if row["host"] == found.host]
        only = there[0] if first is None and len(there) == 1 else first
        found = found._replace(rank=only)
        sure = sure or only != first or only is None
    else:
        sure = True
    hint = HINTS.get(signal.Signals(found.signum), "") if found.signum else ""
    if out_of_memory and found.signum == signal.SIGKILL:
        hint = OUT_OF_MEMORY
    who = f"{'' if sure else 'probably '}{name(found, ranks)}"
    return f"{who} {found.what}{f' ({hint})' if hint else ''}"


def read_ranks(folder: Path | None) -> Ranks:
    """Return rank, nodes, host and pid of each rank of a run, or []."""
    with suppress(DadmmError):
        text = parse(Path(folder or "", "ranks.csv"), str.splitlines, "CSV")
        rows = list(csv.DictReader(text))
        return rows if folder and all(row.get("host") for row in rows) else []
    return []


def name(found: Failure, ranks: Ranks) -> str:
    """Return the name of the rank that failed."""
    if found.rank is None:
        several = found.host and len({row["host"] for row in ranks}) > 1
        return f"an unknown rank{f' on {found.host}' if several else ''}"
    row = ranks[found.rank] if found.rank < len(ranks) else {}
    nodes, host = row.get("nodes", str(found.rank)), row.get("host", found.host)
    several = "s" * (not nodes.isdigit())
    nodes = nodes.replace(" ", ", ") if len(nodes) < 60 else f"{nodes[:50]} ..."
    return f"node{several} {nodes} (rank {found.rank}{f' on {host}' if host else ''})"


def resume_advice(resume: str, folder: Path | None, here: bool = True) -> str:
    """Return a sentence about how to resume a run, or that it must start again."""
    resume = resume or "--resume"
    if folder is None and here:
        return "the run had not started, so there is nothing to resume; start it again"
    if folder is None:
        return (
            "the folder of the run is not known on this host; if there is one, resume "
            f"with {resume} FOLDER, else start it again"
        )
    place = shlex.quote(os.path.relpath(folder))
    if iteration := last_checkpoint(folder):
        return (
            f"{place} has a checkpoint of iteration {iteration}; resume with {resume} "
            f"{place}"
        )
    return (
        f"{place} has no complete checkpoint; start again, and set a smaller "
        "--checkpoint-seconds (60 by default) to have one earlier"
    )


def by_signal(rank: int | None, host: str, signum: int, was: str = "was") -> Failure:
    """Return the failure of a rank that a signal ended."""
    known = signum in set(signal.Signals)
    word = signal.Signals(signum).name if known else f"signal {signum}"
    return Failure(rank, host, f"{was} killed by {word}", signum if known else 0)


def exception(tail: str, mark: re.Pattern[str], ranks: Ranks) -> Failure | None:
    """Return the rank of the first traceback after a mark, by its last line."""
    if not (found := mark.search(tail)):
        return None
    rank, last = None, ""
    if mark is RAISED:
        rank, last = int(found[1]), "see its message above"
    for line in tail[found.end() :].splitlines():
        if line.startswith("dadmm: "):
            break
        if re.match(r"[A-Za-z_][\w.]*(: |$)", line):  # an exception has no indent
            last = line[:300]
        elif last and not re.match(r"\s|$|Traceback|During|The above", line):
            break
    return Failure(rank, "", f"failed: {last}") if last else None


def open_mpi(tail: str) -> Failure | None:
    """Return the rank that Open MPI names, the first; its lines may wrap anywhere."""
    sentence = r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)"
    if found := re.search(sentence.replace(" ", r"\s+"), tail):
        return by_signal(int(found[1]), found[2], int(found[3]))
    found = re.search(r"Process name: \[.*,(\d+)\]\s+Exit code:\s+(\d+)", tail)
    return Failure(int(found[1]), "", f"ended with code {found[2]}") if found else None


def slurm(tail: str) -> Failure | None:
    """Return the rank that srun names first; later ones are those it ended itself."""
    if limit := re.search(r"CANCELLED AT \S+ DUE TO ([A-Z ]+[A-Z])", tail):
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
    """Return what Intel MPI, which names all ranks of a host, says of the first to end.

    If the first rank is unknown, it is the one that ended by another signal.
    """
    lines = r"RANK (\d+) PID \d+ RUNNING AT (\S+)\n=\s+KILLED BY SIGNAL: (\d+)"
    rows = [(int(r), host, int(s)) for r, host, s in re.findall(lines, tail)]
    if not rows:
        return None
    odd = [r for r in rows if (r[2] != CLEANUP if first is None else r[0] == first)]
    if first is not None and not odd:
        return Failure(first, "", f"exited by itself, {UNKNOWN}")
    return by_signal(*odd[0]) if len(odd) == 1 else by_signal(None, "", CLEANUP, MAYBE)


def mpich(tail: str, out_of_memory: bool) -> Failure | None:
    """Return what MPICH prints; the process that it names is often one it ended itself.

    Its exit string is the bitwise or of the statuses of all ranks, so that another
    signal, or an exit, is mixed with the SIGKILL of the ranks that MPICH ended.
    """
    code = re.search(r"PID \d+ RUNNING AT (\S+)\n=\s+EXIT CODE: (\d+)", tail)
    text = re.search(r"EXIT STRING: .* \(signal (\d+)\)", tail)
    host, mixed = code[1] if code else "", int(text[1]) if text else 0
    if code and text and int(code[2]) == mixed != CLEANUP:
        return by_signal(None, host, mixed)
    if mixed == CLEANUP and out_of_memory:
        return by_signal(None, host, CLEANUP, MAYBE)
    which = [signum.name for signum in DEADLY if mixed == CLEANUP | signum]
    if mixed == CLEANUP or which:
        what = " or ".join(which)
        if mixed == CLEANUP:
            what = f"{CLEANUP.name} or ended by itself"
        return Failure(None, host, f"was killed by {what} (MPICH does not tell which)")
    return Failure(host=host, what=f"ended {UNKNOWN}") if code else None


def lost_host(tail: str, ranks: Ranks) -> str:
    """Return the start of a sentence about a lost host, or ""."""
    if found := LOST_HOST.search(tail):
        return f"host {found[found.lastindex or 0]} was lost"
    if not re.search(r"\[mpiexec@.*assert \(!closed\) failed", tail):  # of MPICH
        return ""
    own = re.findall(r"\[mpiexec@([^\]]+)\]", tail)
    others = sorted({row["host"] for row in ranks} - set(own))
    which = "host" if len(others) == 1 else "one of the hosts"
    there = f"{which} {', '.join(others)} was lost"
    return there if others else "mpiexec lost the connection to a host"


def diagnose(run: str, file: str = "", resume: str = "") -> None:
    """Print the explanation of a failed run."""
    folder, tail = Path(run), ""
    if has_results(folder):
        return
    if file:
        try:
            with reading(file), open(file, "rb") as output:
                output.seek(max(0, os.fstat(output.fileno()).st_size - TAIL))
                tail = output.read().decode(errors="replace")
        except DadmmError as error:
            raise UsageError(str(error)) from None
    ranks = len(read_ranks(folder)) or "RANKS"
    resume = resume or f"./launch/local -n {ranks} --resume"
    for sentence in explain(resume, tail, folder, 1, Seen()):
        print(f"dadmm: {printable(sentence)}")
