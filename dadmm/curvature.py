"""How strongly a local objective bends, found by proximal steps alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dadmm.consensus import norm
from dadmm.interfaces import Problem
from dadmm.layout import Vector

LIGHT = 1e-3  # the first weight is this times the curvature that it meets
SEARCH, LEAP = 20, 1e6  # how many weights are tried to find it, and how far apart
ROUNDS = 3  # from there on, each weight is the last curvature
NOISE = 1e-13  # steps this short, relative to theta, are rounding


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of f_i where it descends from ``theta`` (size,).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends, in what is shared of theta. It is in the units of a penalty, whatever
    those are, needs nobody else, and is NaN where nothing can be learnt: ``theta`` is
    optimal, or f_i breaks down.
    """
    try:
        stats = problem.expect(theta)
        weight = _light(problem, theta, stats)
        for _ in range(ROUNDS):
            weight = _bend(problem, theta, stats, weight)
            if not 0.0 < weight < math.inf:
                return math.nan
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return math.nan
    return weight


def _light(problem: Problem, theta: Vector, stats: Any) -> float:
    """Return a weight that is LIGHT times the curvature it meets.

    Where f_i bends differently in different directions the curvature depends on the
    weight; a start that is the same in all units makes the result so too.
    """
    weight = 1.0
    for _ in range(SEARCH):
        wanted, least = LIGHT * _bend(problem, theta, stats, weight), weight / LEAP
        before = weight
        weight = min(wanted, LEAP * before) if wanted > least else least
        if abs(weight - before) <= 1e-6 * before:
            break
    return weight


def _bend(problem: Problem, theta: Vector, stats: Any, weight: float) -> float:
    """Return the curvature between two steps' ends; NaN where both stay at theta."""
    share, place = problem.layout.shared, theta.copy  # for a problem may work in place
    near = share(problem.prox(place(), stats, place(), 2.0 * weight))
    far, start = share(problem.prox(place(), stats, place(), weight)), share(theta)
    way, turn = norm(far - near), norm(2.0 * near - far - start)
    if max(way, turn) <= NOISE * max(norm(start), norm(far)):
        return math.nan
    return weight * turn / way if way > 0.0 else math.inf
