"""The progress of long work: a line that is rewritten, or a line a minute in a log."""

from __future__ import annotations

import os
import sys
from time import monotonic

from dadmm.core.arguments import print_out

LIVE, LOG = 0.2, 60.0  # seconds between two lines, on a terminal and elsewhere
WIDEST, NARROWEST = 20, 8  # characters of a bar


class Bar:
    """Progress with its rate, the time so far and the time that is left.

    Parameters
    ----------
    total : int
        The most there is to do.
    what : str
        Name of one unit, for the lines of a log.
    most : str
        Words before the time left, such as "at most " if work may end early. It is
        computed by the mean rate so far.

    Notes
    -----
    Ranks of mpiexec have no terminal, so ``launch/local`` sets ``DADMM_PROGRESS=live``
    if it has one.
    """

    def __init__(self, total: int, what: str, most: str = "about ") -> None:
        self._live = os.environ.get("DADMM_PROGRESS") == "live" or sys.stderr.isatty()
        self._total, self._what, self._most = total, what, most
        self._period = LIVE if self._live else LOG
        self._start = monotonic()
        self._next = self._start + self._period
        self._width = 0  # of the line on the terminal
        self._columns = 0
        if self._live:
            from shutil import get_terminal_size  # slow to import

            # a line that wraps cannot be rewritten
            self._columns = get_terminal_size().columns - 1

    def due(self) -> bool:
        """Return whether it is time for a line; False for the next 0.2 or 60 s."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + self._period
        return True

    def show(self, done: int, *details: str, before: int = 0) -> None:
        """Print a line: what is done, of it `before` the start, and details."""
        seconds = monotonic() - self._start
        rate = max(done - before, 1) / max(seconds, 1e-9)
        left = (self._total - done) / rate
        part = f"{done}/{self._total} {done / self._total:.0%}"
        numbers = [
            f"{part} in {duration(seconds)}",
            f"{rate:,.0f}/s" if rate >= 10 else _slow(rate),
            f"{self._most}{duration(left)} left",
            *details,
        ]
        if not self._live:
            print_out(f"{self._what} {', '.join(numbers)}\n", sys.stderr)
            return
        while len(text := ", ".join(numbers)) > self._columns and len(numbers) > 1:
            numbers.pop()
        if len(text) > self._columns:
            text = f"{done / self._total:.0%}"  # rather than a part of a number
        self._rewrite(self._with_bar(text, done / self._total)[: self._columns])

    def _with_bar(self, text: str, part: float) -> str:
        width = min(self._columns - len(text) - 3, WIDEST)
        if width < NARROWEST:
            return text
        return f"[{'#' * int(part * width):<{width}}] {text}"

    def _rewrite(self, text: str) -> None:
        print_out(f"{text:<{self._width}}\r", sys.stderr)
        self._width = len(text)

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self._width:
            self._rewrite("")


def _slow(rate: float) -> str:
    return f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"


def duration(seconds: float) -> str:
    """Return a time as 0:05, 12:34 or 1:02:03."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"
