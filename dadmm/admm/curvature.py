"""The curvature of local problems, measured by proximal steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.admm.local import BREAKDOWNS, stack_by_kind
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector

LIGHT = 0.1  # weight over curvature, so that steps end near a minimum
ROUNDS, LEAP = 20, 1e6  # most weights tried, and largest ratio of two in a row
NOISE = 1e-13  # steps shorter than this, relative to theta, are rounding errors


def curvatures(problems: Sequence[Problem], theta: Matrix) -> Vector:
    """Return the curvature of each f_i where it descends from ``theta`` (n, size).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends. It has the units of a penalty. It is NaN if it cannot be estimated:
    ``theta`` is optimal, or f_i breaks down.

    If the curvature of f_i varies, the result depends on the weight. The weight is a
    tenth of the curvature that it finds, so that the result does not depend on the
    units. Such steps end near the minimum of f_i, where the solution is too. A larger
    weight gives the curvature at the start, which may be anywhere. A smaller one fails
    if f_i has no minimum.
    """
    found = np.empty(len(problems))
    for rows, problem in stack_by_kind(problems):
        try:
            found[rows] = _curvatures(problem, theta[rows])
        except BREAKDOWNS:
            for row in rows if isinstance(rows, list) else ():
                found[row] = curvature(problems[row], theta[row])
            if not isinstance(rows, list):
                found[rows] = math.nan
    return found


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of one f_i where it descends from ``theta`` (size,)."""
    return float(curvatures([problem], theta[None])[0])


class _Search:
    """The search of one node for the weight that fits its curvature."""

    def __init__(self) -> None:
        self.weight, self.found, self.done = 1.0, math.nan, False
        self._slope = 0.0  # of log curvature by log weight
        self._last = math.nan, math.nan

    def update(self, found: float) -> None:
        before = self.weight
        self.found = found
        if not 0.0 < found < math.inf:  # the weight is too large or too small
            self.weight *= LEAP if found == math.inf else 1.0 / LEAP
            return
        rise, run = math.log(found / self._last[0]), math.log(before / self._last[1])
        if 0.0 < rise < 0.9 * run or 0.9 * run < rise < 0.0:
            self._slope = rise / run
        step = math.log(LIGHT * found / before) / (1.0 - self._slope)
        self.weight *= math.exp(min(max(step, -math.log(LEAP)), math.log(LEAP)))
        self._last = found, before
        self.done = abs(step) <= 1e-8


def _curvatures(problem: Any, theta: np.ndarray) -> np.ndarray:
    """Return the curvatures of a problem, or of a stack of problems."""
    single = theta.ndim == 1
    searches = [_Search() for _ in range(1 if single else len(theta))]
    stats = problem.expect(theta)
    for _ in range(ROUNDS):
        weights = np.array([search.weight for search in searches])
        bends = _bends(problem, theta, stats, weights[0] if single else weights)
        for search, bend in zip(searches, np.atleast_1d(bends).tolist(), strict=True):
            if not search.done:
                search.update(bend)
        if all(search.done for search in searches):
            break
    found = np.array([search.found for search in searches])
    found[~((found > 0.0) & (found < np.inf))] = np.nan
    return found[0] if single else found


def _bends(problem: Any, theta: np.ndarray, stats: Any, weight: Any) -> np.ndarray:
    """Return the curvature between the ends of two steps; NaN if both stay at theta."""
    share, place = problem.layout.shared, theta.copy  # a problem may work in place
    near = share(problem.prox(place(), stats, place(), 2.0 * weight))
    far, start = share(problem.prox(place(), stats, place(), weight)), share(theta)
    way, turn = _norms(far - near), _norms(2.0 * near - far - start)
    with np.errstate(divide="ignore", invalid="ignore"):
        bend = np.where(way > 0.0, weight * turn / way, np.inf)
    still = np.maximum(way, turn) <= NOISE * np.maximum(_norms(start), _norms(far))
    return np.where(still, np.nan, bend)


def _norms(rows: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.sqrt(np.vecdot(rows, rows))
    return norms
