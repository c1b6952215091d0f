"""Runs of a sweep on this machine, each in one process."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from launch.base.environment import say
from launch.base.run_folder import FAILURE, look, only_job, plan, status
from launch.batch.tasks import Sweep
from launch.mpi.commands import Launcher
from launch.mpi.diagnosis import NOT_CONVERGED


class Here:
    """Runs on this machine, a few at a time; a signal stops them in good order."""

    def __init__(self, sweep: Sweep, launcher: Launcher) -> None:
        self._sweep, self._launcher = sweep, launcher
        self._running: set[subprocess.Popen[bytes]] = set()
        self._signals = 0

    def __call__(self, name: str) -> int:
        """Run one task in one process; return its exit code."""
        if self._signals:
            return 128 + signal.SIGINT
        folder, sweep = self._sweep.folder / name, self._sweep
        with only_job(folder), open(sweep.folder / "logs" / f"{name}.out", "a") as log:
            (folder / FAILURE).unlink(missing_ok=True)
            python, asked = self._launcher.python, sweep.arguments(name)
            words = plan(python, asked, folder, sweep.ranks)
            if words is None:  # it was done, and failed afterwards
                return 0
            if self._signals:  # which came meanwhile
                return 128 + signal.SIGINT
            if "--resume" not in words:
                words += ["--nodes", str(sweep.ranks)]
            process = subprocess.Popen(
                [python, "-P", "-m", "dadmm.run", *words],
                env=self._launcher.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._running.add(process)
            self._tell(process)  # of a signal that came before it was added
            code = process.wait()
            self._running.discard(process)
            by_signal = self._signals and code < 0  # which was ours
            if code not in (0, NOT_CONVERGED) and not by_signal:
                sentence = f"failed with code {code}; see {log.name}\n"
                (folder / FAILURE).write_text(sentence)
        say(f"{name}: {status(look(folder))}")
        return code

    def run(self, names: list[str], at_most: int) -> list[int]:
        """Run tasks; return their exit codes."""
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self.stop)
        with ThreadPoolExecutor(at_most) as pool:
            return list(pool.map(self, names))

    def stop(self, signum: int, frame: Any) -> None:
        """Ask all runs to stop at the first signal, end them at the next."""
        self._signals += 1
        for process in list(self._running):
            self._tell(process)

    def _tell(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what the signals so far ask for; two that ask are as one."""
        if self._signals:
            ask = self._signals == 1
            process.send_signal(signal.SIGUSR1 if ask else signal.SIGKILL)
