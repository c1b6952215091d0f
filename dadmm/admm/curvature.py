"""The curvature of a local objective, estimated by proximal steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dadmm.admm.consensus import norm
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Vector

LIGHT = 0.1  # weight over curvature, so that steps end near a minimum
ROUNDS, LEAP = 20, 1e6  # most weights tried, and largest ratio of two in a row
NOISE = 1e-13  # steps shorter than this, relative to theta, are rounding errors


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of f_i where it descends from ``theta`` (size,).

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
    weight, found = 1.0, math.nan
    slope, last = 0.0, (math.nan, math.nan)  # of log curvature by log weight
    try:
        stats = problem.expect(theta)
        for _ in range(ROUNDS):
            found, before = _bend(problem, theta, stats, weight), weight
            if not 0.0 < found < math.inf:  # the weight is too large or too small
                weight *= LEAP if found == math.inf else 1.0 / LEAP
                continue
            rise, run = math.log(found / last[0]), math.log(before / last[1])
            if 0.0 < rise < 0.9 * run or 0.9 * run < rise < 0.0:
                slope = rise / run
            step = math.log(LIGHT * found / weight) / (1.0 - slope)
            weight *= math.exp(min(max(step, -math.log(LEAP)), math.log(LEAP)))
            last = found, before
            if abs(step) <= 1e-8:
                break
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return math.nan
    return found if 0.0 < found < math.inf else math.nan


def _bend(problem: Problem, theta: Vector, stats: Any, weight: float) -> float:
    """Return the curvature between the ends of two steps; NaN if both stay at theta."""
    share, place = problem.layout.shared, theta.copy  # a problem may work in place
    near = share(problem.prox(place(), stats, place(), 2.0 * weight))
    far, start = share(problem.prox(place(), stats, place(), weight)), share(theta)
    way, turn = norm(far - near), norm(2.0 * near - far - start)
    if max(way, turn) <= NOISE * max(norm(start), norm(far)):
        return math.nan
    return weight * turn / way if way > 0.0 else math.inf
