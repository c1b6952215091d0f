"""How much of the machine do other programs use?"""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, process_time

CORES = len(os.sched_getaffinity(0))


def busy_seconds() -> float:
    """Return the processor time that the whole machine has used since it started."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    user, nice, system, _, _, irq, soft = map(int, words[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


class Watch:
    """Measures, from its making on, what others use of the cores."""

    def __init__(self) -> None:
        self._start, self._own = perf_counter(), process_time()
        self._busy = busy_seconds()

    def own(self) -> float:
        """Return the processor time of this process."""
        return process_time() - self._own

    def share(self, own: float) -> float:
        """Return the share of the cores that others used, given what is ours."""
        others = busy_seconds() - self._busy - own
        return others / (perf_counter() - self._start) / CORES
