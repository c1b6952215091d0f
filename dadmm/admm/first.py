"""First penalties: from the curvature of local problems, and from the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.admm.local import BREAKDOWNS, Block, as_numbers
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.core.linalg import row_lengths
from dadmm.graphs.measures import common_neighbours, slowness
from dadmm.graphs.topology import Topology

LIGHT = 0.1  # weight over curvature, so that steps end near a minimum
STEPS = 5  # proximal steps at most
FIRST, SECOND = 1.0, 1e6  # their first weights
FLATTER, LIGHTER, STIFFER = 1e-18, 1e-2, 1e6  # factors of weights that find nothing
FINE = 1e-10  # shorter ways, relative to theta, have too large errors of rounding
ROUNDING = 1e-14  # and so have gradients that differ by less, relative to their sizes


def edge_factors(topology: Topology, arcs: np.ndarray) -> Vector:
    """Return the first penalty of each of these directed edges, over the curvature.

    For equal curvature h at all nodes of a regular graph, the best constant penalty is
    near ``h / (2 degree sqrt(1 - s^2))``, with the second eigenvalue s of the random
    walk (Ghadimi, Teixeira, Shames and Johansson, 2015). An edge (i, j) gets ``h R_ij /
    (4 sqrt(1 - s^2))``. ``R_ij = 1 / (1 + c_ij / 2)``, with c_ij common neighbours,
    bounds the effective resistance of the edge from above. It is exact on complete
    graphs, on trees and for bridges: a bridge gets the large penalty that it needs.
    """
    resistance = 1.0 / (1.0 + 0.5 * common_neighbours(topology, arcs))
    return np.asarray(0.25 * slowness(topology) * resistance)


def curvatures(
    problems: Sequence[Problem], blocks: Sequence[Block], theta: Matrix
) -> Vector:
    """Return the curvature of each f_i where it descends from ``theta`` (n, size).

    A proximal step from c with weight w ends at an x where the gradient is w (c - x).
    Two steps of different weight give two gradients, and so the curvature between
    their ends. It has the units of a penalty. It is NaN if it cannot be estimated:
    ``theta`` is optimal, or f_i breaks down. Each problem does at most five steps.

    If the curvature of f_i varies, the result depends on the weights. The last two are
    about a tenth and a fifth of the curvature, so that the result hardly depends on the
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


def _curvatures(problem: Any, theta: Array) -> Vector:
    """Return the curvatures of a problem (1,), or of a stack of problems (n,)."""
    is_stack, stats = theta.ndim > 1, problem.expect(theta)
    start: Matrix = np.atleast_2d(problem.layout.shared(theta))

    def end_of_step(weight: Vector) -> Matrix:
        # copies, because a problem may work in place, or in arrays of its own
        given = theta.copy(), stats, theta.copy(), weight if is_stack else weight[0]
        found = as_numbers(problem.prox(*given), theta.shape, "prox").copy()
        return np.atleast_2d(problem.layout.shared(found))

    n = len(start)
    last, weight = np.full(n, FIRST), np.full(n, SECOND)
    before, end = end_of_step(last), end_of_step(weight)
    found = np.full(n, np.nan)
    for k in range(2, STEPS + 1):
        off, its = start - before, start - end
        size = np.maximum(
            row_lengths(start), np.maximum(row_lengths(before), row_lengths(end))
        )
        way = row_lengths(end - before)
        turn = row_lengths(its * weight[:, None] - off * last[:, None])
        fine = (way > FINE * size) & (turn > ROUNDING * (weight + last) * size)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(fine, turn / way, found)
        if k == STEPS:
            break
        moved, its_moved = (
            row_lengths(off) > FINE * size,
            row_lengths(its) > FINE * size,
        )
        keep = ~fine & moved & ~its_moved
        other = np.where(moved & its_moved, STIFFER, FLATTER) * weight
        other = np.where(keep, LIGHTER * last, other)
        other = np.where(its_moved & ~moved, LIGHTER * weight, other)
        last = np.where(keep, last, weight)
        before = np.where(keep[:, None], before, end)
        weight = np.where(fine, LIGHT * found * (1.0 + k % 2), other)
        end = end_of_step(weight)
    return found
