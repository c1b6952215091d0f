"""Run the tasks of a sweep on this machine, each in one process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from launch.base.messages import print_message
from launch.base.run_folder import (
    FAILED,
    job_lock,
    read_state,
    remove_failure,
    write_failure,
)
from launch.base.run_plan import plan, read_settings
from launch.batch.tasks import Sweep
from launch.mpi.diagnosis import NOT_CONVERGED
from launch.mpi.runtime import Runtime


class LocalPool:
    """Run tasks, a few at a time. The first signal stops them, the second kills them.

    Parameters
    ----------
    sweep : Sweep
    runtime : Runtime
    trust : sequence of str
        ``--trust``, or nothing.
    """

    def __init__(
        self, sweep: Sweep, runtime: Runtime, trust: Sequence[str] = ()
    ) -> None:
        self._sweep, self._runtime, self._trust = sweep, runtime, trust
        self._running: set[subprocess.Popen[bytes]] = set()
        self._signals = 0

    def run(self, names: list[str], at_most: int) -> list[int]:
        """Run tasks, `at_most` at a time; return their exit codes."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.stop)
        with ThreadPoolExecutor(at_most) as pool:
            return list(pool.map(self.run_task, names))

    def run_task(self, name: str) -> int:
        """Run one task in one process; return its exit code."""
        if self._signals:
            return 128 + signal.SIGINT
        folder, sweep = self._sweep.folder / name, self._sweep
        with job_lock(folder), sweep.open_log(name) as log:
            remove_failure(folder)
            arguments = self._plan(name)
            if arguments is None:  # it had results before it was marked as failed
                return 0
            if self._signals:
                return 128 + signal.SIGINT
            process = subprocess.Popen(
                self._runtime.run_command(arguments),
                env=self._runtime.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._running.add(process)
            self._pass_signal(process)  # one that came before the process was added
            code = process.wait()
            self._running.discard(process)
            by_signal = self._signals and code < 0  # a signal of ours ended it
            if code not in (0, NOT_CONVERGED) and not by_signal:
                sentence = f"{FAILED} {code}; see {sweep.log_file(name)}"
                write_failure(folder, sentence)
        print_message(f"{name}: {read_state(folder).label()}")
        return code

    def _plan(self, name: str) -> list[str] | None:
        sweep, trust = self._sweep, self._trust
        arguments = [*sweep.arguments(name), *trust]
        (wanted,) = read_settings(self._runtime.python, [arguments])
        planned = plan(wanted, arguments, sweep.folder / name, sweep.ranks)
        if planned is not None and "--resume" not in planned:
            planned = [*planned, "--nodes", str(sweep.ranks)]
        return planned

    def stop(self, signum: int, frame: Any) -> None:
        """Stop all runs at the first signal, kill them at the second."""
        self._signals += 1
        for process in list(self._running):
            self._pass_signal(process)

    def _pass_signal(self, process: subprocess.Popen[bytes]) -> None:
        """Send a process the signal that the signals so far ask for."""
        if self._signals:
            first = self._signals == 1
            process.send_signal(signal.SIGUSR1 if first else signal.SIGKILL)
