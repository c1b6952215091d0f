"""What a command shows while it works, and how signals stop a run."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import FrameType
from typing import TextIO

from dadmm.admm.loop import Run
from dadmm.core.arguments import print_out
from dadmm.core.ranks import rank_and_size
from dadmm.runs.folder import names_of_nodes
from dadmm.solver.checkpoint import NodeFailure

LIVE, LOG = 0.2, 60.0  # seconds between two lines, on a terminal and elsewhere
WIDEST, NARROWEST = 20, 10  # characters of a bar
INDENT = 15  # of the second line of an entry
SEEN = 10  # lines from which the rate of the worst criterion is computed
COLOURS = {"certified": 32, "stationary": 32, "stopped": 33, "NOT": 31}


class Bar:
    """Progress: a line that is rewritten on a terminal, in a log a line a minute."""

    def __init__(self, total: int, what: str) -> None:
        self._live = _is_terminal(sys.stderr, "DADMM_PROGRESS")
        self.total, self._what = total, what  # how many there are, of what
        self._period, self.start = LIVE if self._live else LOG, monotonic()
        self._next = self.start + self._period
        self._width = 0  # of the line on the terminal

    def due(self) -> bool:
        """Return whether it is time for a line; False for the next 0.2 or 60 s."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + self._period
        return True

    def show(self, done: int) -> None:
        """Print what is done, how fast, and the time left at the mean rate, if due."""
        if not self.due():
            return
        seconds = monotonic() - self.start
        rate, share = max(done, 1) / max(seconds, 1e-9), done / self.total
        left = f"about {duration((self.total - done) / rate)} left"
        did = f"{done}/{self.total} {share:.0%} in {duration(seconds)}"
        self.write(share, did, speed(rate), left)

    def write(self, share: float, *words: str) -> None:
        """Print a line: a bar, and as many words as fit beside it."""
        numbers = [f"{self._what} {words[0]}", *words[1:]]
        if not self._live:
            print_out(f"{', '.join(numbers)}\n", sys.stderr)
            return
        from shutil import get_terminal_size  # slow to import

        columns = get_terminal_size().columns - 1  # a line that wraps stays
        room = columns - NARROWEST - 3
        while len(text := ", ".join(numbers)) > room and len(numbers) > 1:
            numbers.pop()
        if len(text) > columns:
            text = f"{share:.0%}"  # rather than a part of a number
        width = min(columns - len(text) - 3, WIDEST)
        if width >= NARROWEST:
            text = f"[{'#' * int(share * width):<{width}}] {text}"
        text = text[:columns]
        print_out(f"{text:<{self._width}}\r", sys.stderr)
        self._width = len(text)

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self._width:
            print_out(f"{'':<{self._width}}\r", sys.stderr)


def _is_terminal(stream: TextIO | None, variable: str) -> bool:
    """Return whether a person sees a stream, which the launcher of ranks knows."""
    if rank_and_size() is not None:  # Open MPI gives each rank a terminal of its own
        return os.environ.get(variable) == "live"
    return os.environ.get(variable) == "live" or bool(stream and stream.isatty())


def speed(rate: float) -> str:
    """Return a rate as 120/s, 3.5/s or 26.7 s each."""
    if rate < 1:
        return f"{1 / rate:.1f} s each"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def duration(seconds: float) -> str:
    """Return a time as 0:05, 12:34 or 1:02:03."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    start = f"{hours:,}:{minutes:02}" if hours else f"{minutes}"
    return f"{start}:{seconds:02}"


@dataclass
class Progress:
    """A callback that shows how far the nodes are from their limits, and failed nodes.

    Its bar is the way of the worst criterion of the ``nodes`` of this process to its
    limit, on a logarithmic scale; without a limit the way to ``max_iter``.
    """

    bar: Bar | None  # of max_iter iterations
    nodes: Collection[int] = (0,)
    _before: int | None = None  # iterations before a resume
    _top: float = 0.0  # the largest logarithm of the worst
    _seen: Sequence[tuple[int, float]] = ()  # iterations, and logs of the worst

    def __call__(self, t: int, run: Run) -> None:
        if self._before is None:
            self._before = t - 1
        bar = self.bar
        if bar is None or not bar.due():
            return
        seconds = monotonic() - bar.start
        rate = (t - self._before) / max(seconds, 1e-9)
        most, ending = bar.total - t, [f"in {duration(seconds)}", speed(rate)]
        verdict = run.stopping.verdict(run.work.numbers)[:3]
        worst = max((x for row in verdict for x in row.tolist() if x == x), default=0)
        if not (run.stopping.rule.tolerance and 0.0 < worst < math.inf):  # no limit
            left = f"at most {duration(most / rate)} left"
            bar.write(t / bar.total, f"{t} of {bar.total}", left, *ending)
            return
        self._seen = [*self._seen[1 - SEEN :], (t, math.log(worst))]
        (first, above), (_, level) = self._seen[0], self._seen[-1]
        self._top = max(self._top, level)
        fall = (above - level) / max(t - first, 1)  # of the logarithm, an iteration
        needed = level / fall if fall > 0 else math.inf
        about = "about" if needed < most else "at most"
        left = f"{about} {duration(math.ceil(min(needed, most) / rate))} left"
        ratio = f"{worst:.1f}" if worst < 10 else f"{float(f'{worst:.2g}'):,.0f}"
        ratio = f"{worst:.1e}" if worst >= 1e6 else ratio
        words = [f"{ratio} times the limit", left]
        if worst <= 1:
            words = ["criteria met, until all nodes know it"]
        bar.write(1 - max(level, 0.0) / max(self._top, 1e-9), f"{t}", *words, *ending)

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self.bar is not None:
            self.bar.close()

    def rewind(self, loss: NodeFailure) -> None:
        """Print the failed nodes, and which parts of the graph continue."""
        first, *others = loss.components
        if first[0] not in self.nodes:  # the rank of this node prints
            return
        text = f"dadmm: {_named(loss.lost)} failed; {_named(first)} will continue "
        text += f"after iteration {loss.t}\n"
        for part in others:
            text += f"dadmm: {_named(part)} will continue separately, without a path "
            text += f"to them; results in part-{part[0]:05d}\n"
        print(text, end="", file=sys.stderr, flush=True)


def _named(nodes: Sequence[int]) -> str:
    return f"node{'s' * (len(nodes) > 1)} {names_of_nodes(nodes).replace(' ', ', ')}"


def laid_out(text: str) -> str:
    """Return what a run prints as a terminal shows it: whole words, and a colour."""
    if not _is_terminal(sys.stdout, "DADMM_OUTPUT"):
        return text
    from shutil import get_terminal_size
    from textwrap import fill

    wrapped = partial(
        fill, width=max(get_terminal_size().columns, NARROWEST),
        subsequent_indent=" " * INDENT, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    text = "\n".join(map(wrapped, text.split("\n")))
    word, space, rest = text.partition(" ")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if word in COLOURS and not plain:
        return f"\x1b[1;{COLOURS[word]}m{word}\x1b[0m{space}{rest}"
    return text


class Signals:
    """A callback that stops the run after the first INT, TERM or USR1.

    A later INT or TERM ends this process at once, without results. But one request may
    arrive twice, from ``timeout`` or mpiexec, which is late among many ranks.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._number = 0  # of the first signal
        self._repeated = False
        self._is_rank = rank_and_size() is not None
        self._same = 1.0 if self._is_rank else 0.3  # seconds: one request
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        self._before = {n: signal.signal(n, self._handle) for n in caught}

    def _handle(self, number: int, frame: FrameType | None) -> None:
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

    def close(self) -> None:
        """Restore the handlers; a rank then ignores a late USR1 of mpiexec."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._is_rank:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
