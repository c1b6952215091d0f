"""Seconds of each phase of an iteration."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from dadmm.core.layout import Vector

PHASES = ("solve", "exchange", "update", "observe")


class Phase:
    """A context manager that adds up the seconds inside it."""

    last = total = began = 0.0

    def __enter__(self) -> None:
        self.began = perf_counter()

    def __exit__(self, *_: object) -> None:
        self.last = perf_counter() - self.began
        self.total += self.last


class Clock:
    """The phases of the loop: seconds of the last iteration, and of all (4,)."""

    def __init__(self) -> None:
        self.phases = tuple(Phase() for _ in PHASES)
        self.solve, self.exchange, self.update, self.observe = self.phases

    @property
    def last(self) -> list[float]:
        return [phase.last for phase in self.phases]

    @property
    def total(self) -> Vector:
        return np.array([phase.total for phase in self.phases])
