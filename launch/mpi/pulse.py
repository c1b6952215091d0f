"""Whether a run goes on, as its rows tell: some are written every few seconds."""

from __future__ import annotations

import math
import time
from pathlib import Path

QUIET = 60  # seconds without rows after which we say so, then twice as many, and so on


class Pulse:
    """Notices that a run has stopped, of which no MPI tells.

    A host that vanishes without closing its connections is waited for, as is a rank
    that somebody has stopped. Nobody but the user can know how long an iteration takes,
    so a sentence is all there is.
    """

    def __init__(self) -> None:
        self._size, self._since, self._limit = -1, math.inf, QUIET

    def look(self, folder: Path | None) -> str:
        """Return what there is to say about the run in a folder, mostly nothing."""
        now = time.monotonic()
        try:
            size = (
                (folder / "parts" / "history-00000.csv").stat().st_size
                if folder
                else -1
            )
        except OSError:  # it has not begun, or writes its results
            size = -1
        if size != self._size or size < 0:
            self._size, self._since, self._limit = size, now, QUIET
        if now - self._since < self._limit:
            return ""
        quiet, self._limit = self._limit, 2 * self._limit
        return (
            f"no iteration has ended for {quiet} s: they are long, or a rank was "
            "stopped, or a host is gone without a word; Ctrl-C twice ends the job"
        )
