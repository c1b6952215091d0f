"""How strongly a local objective bends, found by proximal steps alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dadmm.admm.consensus import norm
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Vector

LIGHT = 0.1  # the weight is this times the curvature: steps end near a minimum
ROUNDS, LEAP = 20, 1e6  # weights tried to find it, and how far apart two may be
NOISE = 1e-13  # steps this short, relative to theta, are rounding


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of f_i where it descends from ``theta`` (size,).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends. It is in the units of a penalty, whatever those are, needs nobody else,
    and is NaN where nothing can be learnt: ``theta`` is optimal, or f_i breaks down.

    Where f_i bends differently in different directions and places the result depends
    on the weight, so that is made the same in all units: a tenth of the curvature that
    it finds. Such steps end near the minimum of f_i, as the solution will; heavier ones
    would see the start, which may be anywhere, and lighter ones get lost where f_i has
    no minimum of its own.
    """
    weight, found = 1.0, math.nan
    slope, last = 0.0, (math.nan, math.nan)  # of log curvature by log weight
    try:
        stats = problem.expect(theta)
        for _ in range(ROUNDS):
            found, before = _bend(problem, theta, stats, weight), weight
            if not 0.0 < found < math.inf:  # too heavy or too light to tell
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
    """Return the curvature between two steps' ends; NaN where both stay at theta."""
    share, place = problem.layout.shared, theta.copy  # for a problem may work in place
    near = share(problem.prox(place(), stats, place(), 2.0 * weight))
    far, start = share(problem.prox(place(), stats, place(), weight)), share(theta)
    way, turn = norm(far - near), norm(2.0 * near - far - start)
    if max(way, turn) <= NOISE * max(norm(start), norm(far)):
        return math.nan
    return weight * turn / way if way > 0.0 else math.inf
