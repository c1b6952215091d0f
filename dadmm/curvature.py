"""How strongly a local objective bends, found by proximal steps alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dadmm.consensus import norm
from dadmm.interfaces import Problem
from dadmm.layout import Vector

HEAVY = 10.0  # the weight is this times the curvature: steps stay near theta
ROUNDS, LEAP = 20, 1e6  # weights tried to find it, and how far apart two may be
NOISE = 1e-13  # steps this short, relative to theta, are rounding


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of f_i where it descends from ``theta`` (size,).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends. It is in the units of a penalty, whatever those are, needs nobody else,
    and is NaN where nothing can be learnt: ``theta`` is optimal, or f_i breaks down.

    Where f_i bends differently in different directions the result depends on the
    weight, so that is made the same in all units: ten times the curvature that it
    finds. Lighter steps would see the far side of f_i, which may be flat.
    """
    weight, found = 1.0, math.nan
    try:
        stats = problem.expect(theta)
        for _ in range(ROUNDS):
            found, before = _bend(problem, theta, stats, weight), weight
            least, most = before / LEAP, before * LEAP
            weight = min(HEAVY * found, most) if HEAVY * found > least else least
            if abs(weight - before) <= 1e-6 * before:
                break
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return math.nan
    return found if 0.0 < found < math.inf else math.nan


def _bend(problem: Problem, theta: Vector, stats: Any, weight: float) -> float:
    """Return the curvature between two steps' ends; NaN where both stay at theta."""
    share, place = problem.layout.shared, theta.copy  # for a problem may work in place
    near = share(problem.prox(place(), stats, place(), 2.0 * weight))
    far, start = share(problem.prox(place(), stats, place(), weight)), share(theta)
    way, turn = norm(far - near), norm(2.0 * near - far - start)
    if max(way, turn) <= NOISE * max(norm(start), norm(far)):
        return math.nan
    return weight * turn / way if way > 0.0 else math.inf
