"""Callbacks of the main job: progress, failures, and stops by signals."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

from dadmm.admm.loop import Run
from dadmm.cli.bar import Bar
from dadmm.comm.launch_link import rank_and_size
from dadmm.solver.recovery import NodeFailure


class ProgressLine:
    """A callback that shows the iteration and the residuals of the first node."""

    def __init__(self, max_iter: int) -> None:
        # a run may converge before max_iter
        self._bar = Bar(max_iter, "iteration", most="at most ")
        self._before: int | None = None  # iterations before a resume

    def __call__(self, t: int, run: Run) -> None:
        if self._before is None:
            self._before = t - 1
        if not self._bar.due():
            return
        numbers = run.work.primal, run.work.dual, run.work.objective
        primal, dual, objective = (float(run.by_node(row)[0]) for row in numbers)
        words = f"primal {primal:.1e} dual {dual:.1e}", f"f {objective:.6g}"
        self._bar.show(t, *words, before=self._before)

    def close(self) -> None:
        """Clear the line on a terminal."""
        self._bar.close()


class FailureMessages:
    """A callback that prints which nodes failed, on the lowest rank that is left."""

    def __init__(self, original_rank: int) -> None:
        self._rank = original_rank

    def __call__(self, t: int, run: Run) -> None:
        """Do nothing: failures are reported by `rewind`."""

    def rewind(self, loss: NodeFailure) -> None:
        """Print the failed nodes, and which parts of the graph continue."""
        if self._rank != loss.components[0][0]:
            return
        first, *others = [(part, len(part) == 1) for part in loss.components]
        lines = [
            f"{_names(loss.lost)} failed; {_names(first[0])} "
            f"continue{'s' * first[1]} after iteration {loss.t}"
        ]
        lines += [
            f"{_names(part)} {'has' if one else 'have'} no path to them and "
            f"continue{'s' * one} separately; results in part-{part[0]:05d}"
            for part, one in others
        ]
        for line in lines:
            print(f"dadmm: {line}", file=sys.stderr, flush=True)


def _names(nodes: Sequence[int]) -> str:
    """Return node numbers as text, such as "nodes 0-3, 5"."""
    runs: list[list[int]] = []
    for i in nodes:
        if runs and runs[-1][-1] == i - 1:
            runs[-1] = [runs[-1][0], i]
        else:
            runs.append([i])
    words = ", ".join("-".join(map(str, run)) for run in runs)
    return f"node{'s' * (len(nodes) > 1)} {words}"


class Signals:
    """A callback that stops the run after the first INT, TERM or USR1.

    All nodes stop after a common iteration, and results are written. A later INT or
    TERM ends this process at once, without results.

    One request may arrive twice: ``timeout`` signals a process and then its group, and
    a rank may get one Ctrl-C from the terminal and from mpiexec. So a signal that
    repeats the first one within ``SAME`` seconds is ignored, once. (MPICH's mpiexec
    passes on the first Ctrl-C and ends all ranks itself at the second one.)
    """

    CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    SAME = 0.3  # seconds
    SAME_FOR_A_RANK = 1.0  # among many ranks on few cores mpiexec may be late

    def __init__(self) -> None:
        self._first: float | None = None
        self._number = 0  # of the first signal
        self._repeated = False
        self._same = self.SAME_FOR_A_RANK if rank_and_size() else self.SAME
        self._before = {n: signal.signal(n, self._handle) for n in self.CAUGHT}

    def _handle(self, number: int, frame: Any) -> None:
        now = monotonic()
        if self._first is None:
            self._first, self._number = now, number
        elif number != signal.SIGUSR1:
            soon = number == self._number and now - self._first < self._same
            if self._repeated or not soon:
                os._exit(128 + number)
            self._repeated = True

    def __call__(self, t: int, run: Run) -> str | None:
        return None if self._first is None else "signal"

    def close(self, ranked: bool = False) -> None:
        """Restore the handlers; a rank then ignores a late USR1 of mpiexec."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if ranked:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
