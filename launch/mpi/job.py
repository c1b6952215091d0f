"""An mpiexec that stops politely: INT, TERM and USR1 become USR1, then the end.

mpiexec runs in a session of its own, so that a terminal's Ctrl-C does not reach it.
MPICH, Open MPI and Intel MPI all pass USR1 on to every rank, and the ranks stop at
the same iteration and write their results. When a job has failed, the launcher says
what happened to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from launch.base.environment import say
from launch.mpi import diagnosis
from launch.mpi.monitor import Witness

SAME = 0.3  # seconds; timeout(1) signals a process and then its group: that is one
SKEW = 5  # seconds by which the clock of a file system may be behind
GRACE = 3  # seconds from TERM to KILL


class Stop:
    """A signal handler: the first signal asks the job to stop, the next ends it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.count = 0
        self.first: int | None = None  # the signal that asked
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
        """Ask at the first signal; end with TERM at the second, with KILL later."""
        if self.process is None or not self.count:
            return
        if self.count == 1:
            say("stopping at a common iteration; once more ends the job at once")
            self.process.send_signal(signal.SIGUSR1)
        elif self.count == 2:
            end(self.process, signal.SIGTERM)
            signal.alarm(GRACE)
        else:
            end(self.process, signal.SIGKILL)

    def overdue(self) -> None:
        """End an mpiexec that does not notice that a rank has ended."""
        if self.process is not None:
            say("a rank has ended, and mpiexec does not end the others: ending it")
            end(self.process, signal.SIGTERM)
            signal.alarm(GRACE)

    def expire(self, signum: int, frame: FrameType | None) -> None:
        """Kill a job that outlived its grace."""
        if self.process is not None:
            end(self.process, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], signum: int) -> None:
    """Signal the process group of mpiexec, and nobody else."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def run_job(
    command: list[str],
    variables: dict[str, str],
    resume: str = "",
    folder: Path | None = None,
    stop: Stop | None = None,
) -> int:
    """Run mpiexec until it ends, turning signals; return its exit code.

    A hang-up counts as a wish to stop, too, unless nohup is in force. USR1 is how a
    batch system warns of a time limit. After a failure it says what happened, and how
    to go on.

    Parameters
    ----------
    command : list of str
    variables : dict of str to str
    resume : str
        The command to go on with, when the run's folder follows.
    folder : Path, optional
        Of the run, if the caller knows; else rank 0 leaves word, if it is on this host.
    stop : Stop, optional
        The caller's, which then knows what signals came.
    """
    stop = stop or Stop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, stop)
    signal.signal(signal.SIGALRM, stop.expire)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
    started = time.time()
    with Witness() as witness:
        stop.process = subprocess.Popen(
            command,
            env=variables | witness.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        stop.act()  # on a signal that came while the job was being started
        outlives = "--with-ft" in command  # a run may go on without some of its ranks
        witness.watch(stop.process, (lambda: None) if outlives else stop.overdue)
        code = stop.process.wait()
        signal.alarm(0)
        code = code if code >= 0 else 128 - code
        folder = witness.folder or begun(folder, started)
        return ended(code, resume, witness, folder, stop.count > 1)


def begun(folder: Path | None, since: float) -> Path | None:
    """Return a folder if a run has begun, or gone on, in it since then."""
    if folder is not None:
        with contextlib.suppress(OSError):  # there is none
            if (folder / "config.toml").stat().st_mtime > since - SKEW:
                return folder
    return None


def ended(
    code: int, resume: str, witness: Witness, folder: Path | None, by_request: bool
) -> int:
    """Say what happened to a job that has failed; return the exit code of the launcher.

    Open MPI ends with 0 when it has lost a host, so a run without results is a failure,
    too.
    """
    if code == 0:
        if folder is None or (folder / "summary.json").exists():
            return 0
        code = 1
    if by_request:
        if folder is not None:
            say(f"ended on request; {diagnosis.ways_on(resume, folder)}")
        return code
    sentences = diagnosis.explain(
        resume,
        witness.tail,
        folder,
        code,
        witness.first,
        witness.out_of_memory,
        witness.has_seen(0),
    )
    if sentences and not witness.at_line_start:  # a line of progress, or Open MPI
        print(file=sys.stderr)
    for sentence in sentences:
        say(sentence)
    return code
