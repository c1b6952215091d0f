"""The curvature of local problems, measured by proximal steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dadmm.admm.local import BREAKDOWNS, Block, as_numbers
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector

LIGHT = 0.1  # weight over curvature, so that steps end near a minimum
ROUNDS, LEAP = 20, 1e6  # most weights tried, and largest ratio of two in a row
NOISE = 1e-13  # steps shorter than this, relative to theta, are rounding errors


def curvatures(
    problems: Sequence[Problem], blocks: Sequence[Block], theta: Matrix
) -> Vector:
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
    found = np.full(len(problems), np.nan)
    for block in blocks:
        rows = np.atleast_1d(np.arange(len(problems))[block.rows])
        try:
            found[rows] = _curvatures(block.problem, theta[block.rows])
        except BREAKDOWNS:
            if len(rows) > 1:
                alone = [curvature(problems[row], theta[row]) for row in rows.tolist()]
                found[rows] = alone
    return found


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of one f_i where it descends from ``theta`` (size,)."""
    try:
        return float(_curvatures(problem, theta)[0])
    except BREAKDOWNS:
        return np.nan


def _curvatures(problem: Any, theta: np.ndarray) -> np.ndarray:
    """Return the curvatures of a problem (1,), or of a stack of problems (n,).

    Each problem has its own search for the weight that fits its curvature. The slope is
    that of log curvature by log weight.
    """
    single = theta.ndim == 1
    n = 1 if single else len(theta)
    weight, slope, found = np.ones(n), np.zeros(n), np.full(n, np.nan)
    last_weight, last_found = np.full((2, n), np.nan)
    searching, stats = np.arange(n), problem.expect(theta)
    for _ in range(ROUNDS):
        bends = _bends(problem, theta, stats, weight[0] if single else weight)
        found[searching] = np.atleast_1d(bends)[searching]
        known = (found > 0.0) & (found < np.inf)
        lost = searching[~known[searching]]  # the weight is too large or too small
        weight[lost] *= np.where(found[lost] == np.inf, LEAP, 1.0 / LEAP)
        rows = searching[known[searching]]
        bend, used, before = found[rows], weight[rows], slope[rows]
        rise, run = _log(bend / last_found[rows]), _log(used / last_weight[rows])
        between = (rise > 0.0) & (rise < 0.9 * run) | (rise > 0.9 * run) & (rise < 0.0)
        slope[rows] = np.divide(rise, run, out=before, where=between)
        step = _log(LIGHT * bend / used) / (1.0 - slope[rows])
        most = math.log(LEAP)
        weight[rows] *= _exp(np.minimum(np.maximum(step, -most), most))
        last_found[rows], last_weight[rows] = bend, used
        searching = np.concatenate([lost, rows[np.abs(step) > 1e-8]])
        if not len(searching):
            break
    found[~known] = np.nan
    return found


def _bends(problem: Any, theta: np.ndarray, stats: Any, weight: Any) -> np.ndarray:
    """Return the curvature between the ends of two steps; NaN if both stay at theta."""

    def step(weight: Any) -> np.ndarray:
        # copies, because a problem may work in place, or in arrays of its own
        found = problem.prox(theta.copy(), stats, theta.copy(), weight)
        ends = as_numbers(found, theta.shape, "prox").copy()
        return problem.layout.shared(ends)  # type: ignore[no-any-return]

    near, far, start = step(2.0 * weight), step(weight), problem.layout.shared(theta)
    way, turn = _norms(far - near), _norms(2.0 * near - far - start)
    with np.errstate(divide="ignore", invalid="ignore"):
        bend = np.where(way > 0.0, weight * turn / way, np.inf)
    still = np.maximum(way, turn) <= NOISE * np.maximum(_norms(start), _norms(far))
    return np.where(still, np.nan, bend)


def _by_entry(function: Callable[[float], float], numbers: Vector) -> Vector:
    """Return a function of each number; numpy's own may differ between machines."""
    return np.array([function(x) for x in numbers.tolist()], dtype=np.float64)


_log, _exp = partial(_by_entry, math.log), partial(_by_entry, math.exp)


def _norms(rows: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.sqrt(np.vecdot(rows, rows))
    return norms
