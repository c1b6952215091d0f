"""How strongly a local objective bends, found by proximal steps alone."""

from __future__ import annotations

import math

import numpy as np

from dadmm.consensus import norm
from dadmm.interfaces import Problem
from dadmm.layout import Vector

ROUNDS = 3  # the first weight is arbitrary; each round starts from the last curvature


def curvature(problem: Problem, theta: Vector) -> float:
    """Return the curvature of f_i where it descends from ``theta`` (size,).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends. It is in the units of a penalty, needs nobody else, and is NaN where
    nothing can be learnt: ``theta`` is optimal, or f_i breaks down.
    """
    weight = 1.0
    try:
        stats = problem.expect(theta)
        for _ in range(ROUNDS):
            near = problem.prox(theta, stats, theta, 2.0 * weight)
            far = problem.prox(theta, stats, theta, weight)
            way = norm(far - near)
            turn = weight * norm(2.0 * near - far - theta)
            weight = turn / way if way > 0.0 else math.nan
            if not 0.0 < weight < math.inf:
                return math.nan
    except (np.linalg.LinAlgError, ZeroDivisionError):
        return math.nan
    return weight
