"""Seconds of each phase of an iteration."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from dadmm.core.layout import Vector

PHASES = ("solve", "exchange", "update", "observe")


class Phase:
    """A context manager that adds up the seconds inside it."""

    def __init__(self) -> None:
        self.last = self.total = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.last = perf_counter() - self._began
        self.total += self.last


class Clock:
    """The phases of the loop: of the last iteration, and of all."""

    def __init__(self) -> None:
        self.solve, self.exchange, self.update, self.observe = self.phases = tuple(
            Phase() for _ in PHASES
        )

    @property
    def last(self) -> list[float]:
        """Seconds of each phase in the last iteration."""
        return [phase.last for phase in self.phases]

    @property
    def total(self) -> Vector:
        """Seconds of each phase so far, (4,)."""
        return np.array([phase.total for phase in self.phases])
