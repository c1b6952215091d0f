"""An mpiexec that stops politely: INT, TERM and USR1 become USR1, then the end.

mpiexec runs in a session of its own, so that a terminal's Ctrl-C does not reach it.
MPICH, Open MPI and Intel MPI all pass USR1 on to every rank, and the ranks stop at
the same iteration and write their results.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from types import FrameType

from environment import say

SAME = 0.3  # seconds; timeout(1) signals a process and then its group: that is one
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

    def expire(self, signum: int, frame: FrameType | None) -> None:
        """Kill a job that outlived its grace."""
        self.count += 1
        self.act()


def end(process: subprocess.Popen[bytes], signum: int) -> None:
    """Signal the process group of mpiexec, and nobody else."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def run_job(
    command: list[str], variables: dict[str, str], stop: Stop | None = None
) -> int:
    """Run mpiexec until it ends, turning signals; return its exit code.

    A hang-up counts as a wish to stop, too, unless nohup is in force. USR1 is how a
    batch system warns of a time limit. A `stop` of the caller's knows what came.
    """
    stop = stop or Stop()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, stop)
    signal.signal(signal.SIGALRM, stop.expire)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
    stop.process = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, start_new_session=True
    )
    stop.act()  # on a signal that came while the job was being started
    code = stop.process.wait()
    signal.alarm(0)
    return code if code >= 0 else 128 - code
