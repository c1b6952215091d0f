"""How far nodes were from the limits of the stopping rule, during a run."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.layout import Matrix, Vector

KEPT = 4  # candidates of a `CriteriaLog` in a checkpoint
TRAIL = 32  # samples of the progress of a run of any length; a power of two


class Unmet(NamedTuple):
    """The criterion furthest from its limit, in an iteration that did not meet all."""

    t: int = 0
    factor: float = math.inf  # value over limit
    criterion: int = 0  # index in `CRITERIA`
    part: int = -1  # of theta; -1 is all of it
    node: int = -1  # -1 is all nodes


class CriteriaLog:
    """How far the nodes of a process were from the limits of a rule.

    Parameters
    ----------
    patience : int
        For how many iterations in a row all criteria must be met.
    delay : int
        Number of iterations after that until the run stops.
    """

    def __init__(self, patience: int, delay: int) -> None:
        self.patience, self.delay = patience, delay
        self.held = 0  # iterations in a row in which all nodes met all criteria
        self.unmet = Unmet()  # the last iteration that was unmet
        self.trail = np.full(TRAIL, math.nan)  # the largest multiple, sampled
        self._due = 1  # the iteration of the next sample
        self._candidates: list[Unmet] = []  # unmet, then `patience` met in a row

    def enter(self, t: int, met: bool, worst: Any) -> None:
        """Add iteration ``t``; the first is 1.

        Parameters
        ----------
        t : int
        met : bool
            Whether all nodes met all criteria.
        worst : callable
            Takes the iteration ``t - 1`` and returns its `Unmet`.
        """
        if met:
            self.held += 1
            found = worst(t - 1) if self.held == 1 and t > 1 else None
            if found is not None and not found.factor < 1.0:  # else a check failed
                self.unmet = found
            if self.held == self.patience:
                while len(self._candidates) > 1 and self._counts(
                    self._candidates[1], t
                ):
                    del self._candidates[0]  # a later one will precede the stop
                self._candidates.append(self.unmet)
        else:
            self.held = 0

    def is_sampled(self, t: int) -> bool:
        """Return whether iteration ``t`` belongs to the trail.

        The trail samples one iteration out of `stride`, starting with the first.
        """
        if t != self._due:
            return False
        self._due = t + stride(t)
        return True

    def sample(self, t: int, factor: float) -> None:
        """Add a sample to the trail; when it is full, drop every other one."""
        step = stride(t)
        k = (t - 1) // step
        if step > 1 and 2 * k == TRAIL:
            self.trail[:k] = self.trail[::2].copy()
            self.trail[k:] = math.nan
        self.trail[k] = factor

    def _counts(self, unmet: Unmet, t: int) -> bool:
        return unmet.t + self.patience + self.delay <= t

    def last_unmet(self, t: int) -> Unmet:
        """Return the last unmet iteration before the stop after iteration ``t``.

        If no such iteration is known, return the last unmet iteration.
        """
        counted = [each for each in self._candidates if self._counts(each, t)]
        return counted[-1] if counted else self.unmet

    def save(self) -> Vector:
        """Return the state as numbers, for a checkpoint; always as many."""
        known = [self.unmet, *self._candidates[-KEPT:]]
        seen = [number for each in known for number in each]
        seen += [math.nan] * ((1 + KEPT) * len(Unmet._fields) - len(seen))
        return np.array([self.held, self._due, *self.trail, *seen], dtype=np.float64)

    def restore(self, saved: Matrix) -> None:
        """Continue from what was saved, with a row for each node."""
        self.held, self._due = int(saved[:, 0].min()), int(saved[0, 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # samples that are all NaN
            self.trail = np.nanmax(saved[:, 2 : 2 + TRAIL], axis=0)
        seen = saved[:, 2 + TRAIL :].reshape(len(saved), 1 + KEPT, -1)
        self.unmet = max(map(_unmet, seen[:, 0].tolist()), key=_severity)
        rows = seen[:, 1:].reshape(-1, seen.shape[2])
        found = {_unmet(row) for row in rows[~np.isnan(rows[:, 0])].tolist()}
        self._candidates = sorted(found, key=_severity)


def _unmet(numbers: Sequence[float]) -> Unmet:
    t, factor, criterion, part, node = numbers
    return Unmet(int(t), factor, int(criterion), int(part), int(node))


def _severity(unmet: Sequence[float]) -> tuple[float, float, float]:
    """Return a key: the latest is worst, then the furthest, then the first node."""
    t, factor, _, _, node = unmet
    return t, -1.0 if math.isnan(factor) else factor, -node


def merge_endings(mine: Vector, other: Vector) -> Vector:
    """Return the worst `Unmet`, and the largest factors of the trail behind it."""
    if mine is other:  # nodes of one process have one value
        return mine
    worst = max(mine[:-TRAIL].tolist(), other[:-TRAIL].tolist(), key=_severity)
    return np.array([*worst, *np.maximum(mine[-TRAIL:], other[-TRAIL:])])


def stride(t: int) -> int:
    """Return the iterations between two samples of a trail up to ``t``."""
    return max(1, 1 << (t - 1).bit_length() >> (TRAIL.bit_length() - 1))
