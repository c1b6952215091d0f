"""The mean and unit of the rows of all nodes, in which a run of PPCA is done.

Sums over the nodes give the mean m of all rows, their squares about m, and what the
best M axes of each node leave of its own rows. The latter, by its degrees of freedom,
is the noise variance s^2. A run on ``(x - m) / s`` is the same run for rows
``c x + b``, and the curvature of f_i along W is about its number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dadmm.accuracy.coordinates import Total
from dadmm.admm.local import stacks
from dadmm.admm.loop import Run
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector

LEAST_NOISE = 1e-12  # variance of the noise, relative to that of the rows
LEAST_SIGNAL = 1e-3  # variance beyond the noise, relative to it


class Units(NamedTuple):
    """What all nodes know after set-up."""

    mean: Vector  # (D,) of all rows
    unit: Vector  # () standard deviation of the noise
    length: Vector  # () of each component at the start, in this unit


def supports(problem: Problem) -> bool:
    """Return whether a problem from a random start runs in the unit of all rows."""
    kind = type(problem)
    owners = [each for each in kind.__mro__ if "with_log_lengths" in vars(each)]
    return stacks(kind, "with_log_lengths") and kind.init is owners[0].init  # type: ignore[attr-defined]


def measure(total: Total, problems: Mapping[int, Any]) -> Units:
    """Return the mean and unit of the rows of all nodes."""
    own = list(problems.values())
    first = own[0]
    D, M = first.layout.shapes["W"]
    sums = total([np.append(p.n_samples * p.mean, p.n_samples) for p in own])
    n = sums[-1]
    mean = np.zeros_like(sums[:-1]) if first.zero_mean else sums[:-1] / n
    given = []
    for p in own:
        rows = p.standardised(mean, 1.0).raw_factor
        left = np.linalg.svd(p.raw_factor if p.zero_mean else p.factor)[1][M:]
        degrees = max(p.n_samples - M - (not p.zero_mean), 0) * (D - M)
        given.append(np.array([np.vdot(rows, rows), np.vdot(left, left), degrees]))
    squares, left, degrees = total(given).tolist()
    if not 0.0 < squares < math.inf:
        raise ProblemError(
            "the rows of all nodes are equal, or their squares overflow; check that "
            "rows differ, and that entries are below 1e150"
        )
    noise = left / degrees if degrees else squares / (n * D)
    noise = max(noise, LEAST_NOISE * squares / n)
    signal = max(squares / (n * noise) - D, LEAST_SIGNAL * D)
    numbers = np.sqrt([noise, signal / M])
    return Units(mean, *numbers)


class UnitReview:
    """The coordinates of a run in the mean and unit of all rows.

    The run stops by its stopping rule.

    Parameters
    ----------
    problems : dict of int to Problem
        In the coordinates of the user, by original number of the node.
    start : Units
        Or another tuple with the fields ``mean`` and ``unit``.
    """

    def __init__(self, problems: Mapping[int, Any], start: Any) -> None:
        self.problems, self.start = problems, start
        self.layout: Layout = next(iter(problems.values())).layout
        unit = float(start.unit)
        self.within: dict[int, Any] = {
            i: problem.standardised(start.mean, unit) for i, problem in problems.items()
        }
        self._unit = self.layout.pack(W=unit, mu=unit, a=unit**-2)
        self._shift = self.layout.pack(W=0.0, mu=start.mean, a=0.0)

    def points(self, theta: Matrix) -> Matrix:
        """Return rows of theta in the coordinates of the user."""
        return np.asarray(theta * self._unit + self._shift)

    def rotated(self, theta: Vector) -> Vector:
        """Return the same model with orthogonal columns of W, the longest first.

        Its objectives are the same. They have smaller errors of rounding if lengths of
        components differ much.
        """
        found = theta.copy()
        W = self.layout.views(found).W
        W[...] = W @ np.linalg.svd(W, full_matrices=False)[2].T
        return found

    def gradients(self, rows: Matrix, theta: Matrix) -> Matrix:
        """Return rows of gradients at ``theta`` in the coordinates of the user."""
        return np.asarray(rows / self._unit)

    def adopt(self, run: Run) -> None:
        """Save the start in the state of the run; it does not change."""
        run.state.coordinates = {
            name: np.asarray(value) for name, value in self.start._asdict().items()
        }

    def holds_at_start(self, run: Run) -> bool:
        """Return False: the stopping rule decides."""
        return False

    def __call__(self, t: int, run: Run) -> str:
        """Return "converged" if all nodes still meet the stopping rule.

        They met it when they agreed to stop, up to two diameters ago. `is_stationary`
        may require more.
        """
        held = run.state.held * self.is_stationary(run)
        lowest = run.total([np.array([float(own)]) for own in held], np.minimum)
        if lowest[0] > 0.0:
            return "converged"
        run.stopping.reopen(run.stopping.rule.tolerance)
        return ""

    def is_stationary(self, run: Run) -> bool | np.ndarray:
        """Return what is required of each node besides the stopping rule, by node."""
        return True
