"""Run mpiexec, turn signals into a stop at a common iteration, and report failures.

mpiexec runs in its own session, so that Ctrl-C in a terminal does not reach it. MPICH,
Open MPI and Intel MPI pass USR1 on to every rank. The ranks then stop at the same
iteration and write their results.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from launch.console import print_message
from launch.monitor import Monitor

SAME = 0.3  # seconds; timeout(1) signals a process, then its group: one request
SKEW = 5  # seconds by which the clock of a file system may be behind
GRACE = 3  # seconds from TERM to KILL


class StopHandler:
    """A signal handler: the first signal stops the job, the second terminates it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.count = 0
        self.first: int | None = None  # the first signal
        self.has_ended_it = False  # whether it has sent TERM or KILL
        self._last = -SAME

    def __call__(self, signum: int, frame: FrameType | None = None) -> None:
        """Count a signal and act on it."""
        now = time.monotonic()
        if now - self._last < SAME:
            return
        self._last = now
        self.count += 1
        self.first = self.first or signum
        self.act()

    def act(self) -> None:
        """Send USR1 for the first signal, TERM for the second, KILL for later ones."""
        if self.process is not None and self.count == 1:
            print_message(
                "stopping at a common iteration; a second signal ends the job at once"
            )
            self.process.send_signal(signal.SIGUSR1)
        elif self.count == 2:
            self._terminate()
        elif self.count:
            self.kill()

    def end_hanging(self, why: str) -> None:
        """Terminate a job that does not end by itself."""
        print_message(f"{why}; ending the job")
        self._terminate()

    def kill(self, *_: Any) -> None:
        """Kill a job that did not end after TERM, as the handler of SIGALRM."""
        self._signal_group(signal.SIGKILL)

    def _terminate(self) -> None:
        self._signal_group(signal.SIGTERM)
        signal.alarm(GRACE)

    def _signal_group(self, signum: int) -> None:
        self.has_ended_it = True
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signum)


def run_job(
    command: list[str],
    variables: dict[str, str],
    resume: str = "",
    arguments: list[str] | None = None,
    stop: StopHandler | None = None,
    stall_seconds: int = 0,
    spread: bool = False,
) -> int:
    """Run mpiexec until it ends; return the exit code.

    INT, TERM, USR1 and HUP stop the job. After a failure, print what happened and how
    to resume: `resume` is the command when the folder is appended. Rank 0 reports its
    folder, if it runs on this host; else the `arguments` of ``dadmm.run`` name it. A
    job in which nothing happens for `stall_seconds` is ended, unless that is 0. Ranks
    of other hosts report, too, if the job is `spread`.
    """
    stop = stop or StopHandler()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, stop)
    signal.signal(signal.SIGALRM, stop.kill)
    started = time.time()
    with Monitor(stall_seconds, spread) as monitor:
        stop.process = subprocess.Popen(
            command,
            env=variables | monitor.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        stop.act()  # on a signal that arrived before the process existed
        monitor.watch(stop.process, stop.end_hanging, tolerant="--with-ft" in command)
        code = stop.process.wait()
        signal.alarm(0)
        if code:
            monitor.end_left()
        folder, since = monitor.folder, started - SKEW * spread
        if folder is None and not monitor.sees_rank_0:
            folder = named_folder(arguments or [], since)
        by_other = code < 0 and not stop.has_ended_it
        killed = signal.Signals(-code).name if by_other else ""
        code = code if code >= 0 else 128 - code
        by_user = stop.count > 1
        return report_end(code, resume, monitor, folder, by_user, since, killed)


def named_folder(arguments: list[str], since: float) -> Path | None:
    """Return the folder that arguments name, if a run began in it since this time."""
    from launch.batch import read_arguments  # it needs dadmm

    given = read_arguments(arguments)
    folder = given and (given.resume or given.config.out)
    with contextlib.suppress(OSError, ValueError):  # it does not exist
        if folder and Path(folder, "config.toml").stat().st_mtime > since:
            return Path(folder)
    return None


def has_results(folder: Path | None) -> bool:
    return folder is not None and (folder / "summary.json").exists()


def report_end(
    code: int,
    resume: str,
    monitor: Monitor,
    folder: Path | None,
    by_user: bool,
    since: float = 0.0,
    killed: str = "",
) -> int:
    """Print what happened to a failed job; return the exit code of the command.

    A run without results has failed even if mpiexec returned 0, as Open MPI does after
    it has lost a host. So has one whose rank ended without its last word, as by
    os._exit(0), before there was a folder. If a rank raised an error, the code is 1.
    The job began at `since`; `killed` is the signal by which others ended mpiexec.
    """
    last = {rank.facts.get("inside") for rank in monitor.ranks.values()}
    if code == 0 and (has_results(folder) if folder else last <= {"MPI_Finalize"}):
        return 0
    from launch import diagnosis

    code = code or 1
    if by_user or monitor.has_stalled:
        if folder is not None:
            why = "by a second signal" if by_user else "because it stood still"
            print_message(f"ended {why}; {diagnosis.resume_advice(resume, folder)}")
        return code
    ranks = diagnosis.read_ranks(folder)
    size = len(ranks) or max(monitor.said("size"), default=0)
    sure = all(map(monitor.has_seen, range(size)))
    likely = all(monitor.has_seen(rank, anywhere=True) for rank in range(size))
    first = monitor.first if size and likely else None  # else an unseen one may be it
    seen = diagnosis.Seen(
        first, sure, monitor.out_of_memory, monitor.sees_rank_0, since, killed
    )
    sentences = diagnosis.explain(resume, monitor.tail, folder, code, seen)
    if sentences and monitor.tail[-1:] not in ("", "\n"):  # after a progress line
        print(file=sys.stderr)
    for sentence in sentences:
        print_message(sentence)
    usual = code in (diagnosis.BAD_INPUT, diagnosis.NOT_CONVERGED)
    after = has_results(folder) and not usual  # an exit code of the MPI, such as 9
    return 1 if after or diagnosis.RAISED.search(monitor.tail) else code
