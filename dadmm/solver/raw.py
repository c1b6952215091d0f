"""When a run in the coordinates of the user is stationary: the gradient decides.

The residual of the stopping rule assumes that proximal steps are exact. A sweep of EM
is not. So when all nodes meet the rule, each of them evaluates the gradient of its
Lagrangian, ``grad f_i(theta_i) + 2 sum_j lambda_ij``. If it is too large at some node,
the run continues.

For PPCA, gradients and differences become relative errors of the node's own model. With
N rows, ``sqrt(a) W = U diag(l) R`` and ``C = W W' + I / a``, these are

* of W, by row q of R: ``|E R_q'| / max(l_q, 1)``, where E is ``sqrt(a)`` times a
  difference from a neighbour, or times the Newton step of a gradient. The curvature
  out of the column space is a times the mean of ``E sum z z'`` over all nodes: the
  rows of one node may say little about a direction. That of the pair p, q within it is
  ``a N s_p s_q`` with ``s = sqrt(2) / max(l, sqrt(2))``. Turns of W are free.
* of mu: ``sqrt(d' C^-1 d / D)`` of differences, ``sqrt(g' C g / D) / N`` of gradients
* of a: ``|d| / a`` of differences, ``2 a |g| / (N (D - M))`` of gradients

The largest error over all q counts, and the root mean square over the neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dadmm.admm.loop import Run
from dadmm.admm.rule import Measured, Rule
from dadmm.core.layout import Layout, Matrix, Vector

TIMES = 10.0  # largest relative error of PPCA, over the tolerance
NEAR = 3.0  # multiple of its limit up to which an error is likely to be small soon
SOON, LATER = 8, 3  # the next review is after this part of the iterations so far
ROOT = math.sqrt(2.0)


class GradientReview:
    """Stops a run if the gradients of all nodes are within the limits of the rule.

    Under the rules "residuals" and "objective" a run stops in any case.

    Parameters
    ----------
    problems : dict of int to Problem
        By original number of the node; each has a method ``gradient(theta)``.
    """

    def __init__(self, problems: Mapping[int, Any]) -> None:
        self.problems = problems
        self.layout: Layout = next(iter(problems.values())).layout
        self._root = np.sqrt(self.layout.pull[: self.layout.shared_size])

    def points(self, theta: Matrix) -> Matrix:
        """Return theta: the coordinates are those of the user."""
        return theta

    def gradients(self, rows: Matrix, theta: Matrix) -> Matrix:
        """Return rows of gradients, as they are."""
        return rows

    def adopt(self, run: Run) -> None:
        """Do nothing: there are no coordinates to save."""

    def holds_at_start(self, run: Run) -> bool:
        """Return False: the stopping rule decides."""
        return False

    def __call__(self, t: int, run: Run) -> str:
        """Return "converged" if the run is stationary; else it continues."""
        rule = run.stopping.rule
        if rule.name != "optimality":
            return "converged"
        steepest = run.total([np.array([own]) for own in self.slope(run)], np.maximum)
        if steepest[0] <= 1.0:
            return "converged"
        run.stopping.reopen(rule.tolerance)
        run.state.held[...] = -(t // (SOON if steepest[0] < NEAR else LATER))
        return ""

    def slope(self, run: Run) -> Vector:
        """Return the gradient or disagreement over its limit, the larger, by node."""
        layout, numbers = self.layout, run.work.numbers.copy()
        now = Measured.of(numbers, len(layout.sizes))
        squares = self._slopes(run) ** 2
        now.parts[4] = np.sqrt(np.add.reduceat(squares, layout.starts, axis=1)).T
        given = run.stopping.rule
        rule = Rule("optimality", given.tolerance, given.absolute_tolerance)
        found = rule.verdict(now, np.sqrt(layout.sizes)[:, None])
        return np.asarray(np.fmax(found.disagreement, found.residual))

    def _slopes(self, run: Run) -> Matrix:
        """Return the gradient of each node's Lagrangian, as multipliers are (n, m)."""
        theta, m = run.state.theta, self.layout.shared_size
        own = zip(run.names.tolist(), theta, strict=True)
        found = np.array([self.problems[i].gradient(at)[:m] for i, at in own])
        return np.asarray(found / self._root + 2.0 * run.work.multiplier)


class ModelReview(GradientReview):
    """Stops a run of PPCA if all relative errors are below `TIMES` the tolerance.

    In structure from motion, W counts up to an affine map: its gradient within its
    column space does not count.
    """

    def scales(self, names: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function of the lengths of W, mu and a, (3, ..., n).

        Its values (2, 3, ..., n) are scales of differences and of gradients, with which
        the stopping rule is met before all relative errors are small.
        """
        problems = [self.problems[i] for i in names.tolist()]
        rows = np.array([problem.observed_counts.mean() for problem in problems])
        D, M = self.layout.shapes["W"]

        def scales_at(lengths: np.ndarray) -> np.ndarray:
            W, _, a = lengths
            spread = np.sqrt(W * W + D / a)
            noise = 0.5 * (D - M) / a
            slopes = rows * a * W, rows * np.sqrt(a * D), rows * noise
            return np.asarray(TIMES * np.array([(W, spread, a), slopes]))

        return scales_at

    def slope(self, run: Run) -> Vector:
        """Return the largest relative error over its limit, by node."""
        slopes, node = self._slopes(run), run.incidence.node
        gaps = run.incidence.spread(run.work.shared) - run.state.received
        limit, found = TIMES * run.stopping.rule.tolerance, []
        own = list(zip(run.names.tolist(), run.state.theta, strict=True))
        moments = [self.problems[i].moment(theta) for i, theta in own]
        moment = run.total(moments) / run.topology.n_nodes
        for k, (i, theta) in enumerate(own):
            known = self.problems[i], theta, slopes[k], gaps[node == k], moment
            found.append(relative_errors(*known).max() / limit if limit else math.inf)
        return np.array(found)


def relative_errors(
    problem: Any, theta: Vector, slope: Vector, gaps: Matrix, moment: Matrix
) -> Matrix:
    """Return the errors (2, 3) of differences and of gradients, of W, mu and a.

    Parameters
    ----------
    problem : PPCA
    theta, slope : ndarray of shape (size,)
        Parameters, and the gradient of the node's Lagrangian.
    gaps : ndarray of shape (neighbours, size)
        Differences from the neighbours.
    moment : ndarray of shape (M, M)
        The mean of ``E sum z z'`` over all nodes.
    """
    W, _, a = problem.layout.views(theta)
    D, M = W.shape
    n, a = float(problem.observed_counts.mean()), float(a)
    left, lengths, right = np.linalg.svd(math.sqrt(a) * W, full_matrices=False)
    squares = lengths**2
    W_slope, mu_slope, a_slope = problem.layout.views(slope)
    W_gaps, mu_gaps, a_gaps = problem.layout.views(gaps)

    within = left.T @ W_slope
    beyond = W_slope - left @ within
    steps = np.linalg.solve(a * moment, beyond.T).T @ right.T
    if not problem.free_axes:
        within = within @ right.T
        wide = np.maximum(lengths, ROOT) / ROOT
        steps += left @ (0.5 * (within + within.T) * np.outer(wide, wide) / (a * n))

    def by_column(rows: Matrix, count: int) -> float:
        columns = np.sqrt(a * np.sum(rows**2, axis=(0, 1)) / max(count, 1))
        return float((columns / np.maximum(lengths, 1.0)).max())

    k, shrunk = len(gaps), squares / (1.0 + squares)
    mu_squares = np.sum(mu_gaps**2) - np.sum(shrunk * (mu_gaps @ left) ** 2)
    mu_bent = np.sum(mu_slope**2) + np.sum(squares * (mu_slope @ left) ** 2)
    return np.array([
        [
            by_column(W_gaps @ right.T, k),
            math.sqrt(a * max(mu_squares, 0.0) / (D * max(k, 1))),
            math.sqrt(np.sum(a_gaps**2) / max(k, 1)) / a,
        ],
        [
            by_column(steps[None], 1),
            math.sqrt(mu_bent / (a * D)) / n,
            2.0 * a * abs(float(a_slope)) / (n * (D - M)),
        ],
    ])  # fmt: skip
