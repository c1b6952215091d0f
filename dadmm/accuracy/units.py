"""The mean and unit of the rows of all nodes, in which a run of PPCA is done.

Sums over the nodes give the mean m of all rows, their squares about m, and what the
best M axes of each node leave of its own rows. The latter, by its degrees of freedom,
is the noise variance s^2. A run on ``(x - m) / s`` is the same run for rows
``c x + b``, and the curvature of f_i along W is about its number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dadmm.accuracy.coordinates import Total
from dadmm.admm.loop import Run
from dadmm.admm.rule import TINY
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import stacks
from dadmm.core.layout import Layout, Matrix, Vector

LEAST_NOISE = 1e-12  # variance of the noise, relative to that of the rows
LEAST_SIGNAL = 1e-3  # variance beyond the noise, relative to it


class Units(NamedTuple):
    """What all nodes know after set-up."""

    mean: Vector  # (D,) of all rows
    unit: Vector  # () standard deviation of the noise
    length: Vector  # () of each component at the start, in this unit


def supports(kind: type) -> bool:
    """Return whether problems from a random start run in the unit of all rows."""
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

    LOOSER: ClassVar[float] = 1.0  # limit of the stopping rule, over the gradient's

    def __init__(self, problems: Mapping[int, Any], start: Any) -> None:
        self.problems, self.start = problems, start
        self.layout: Layout = next(iter(problems.values())).layout
        unit = float(start.unit)
        self.within: dict[int, Any] = {
            i: problem.standardised(start.mean, unit) for i, problem in problems.items()
        }
        self._root: Any = 1.0  # of the weights of theta in the proximal step
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

        They met it when they agreed to stop, up to two diameters ago. With the rule
        "optimality" the gradients of the likelihood must be small, too.
        """
        held = run.state.held > 0
        if run.stopping.rule.is_scaled:
            held = held & (self.slope(run) <= 1.0)
        lowest = run.total([np.array([float(own)]) for own in held], np.minimum)
        if lowest[0] > 0.0:
            return "converged"
        run.stopping.reopen(run.stopping.rule.tolerance)
        return ""

    def slope(self, run: Run) -> Vector:
        """Return the gradient of each node's Lagrangian, over its limit, by node.

        It is that of the likelihood itself. The residual of the stopping rule assumes
        that the proximal step is exact, and is zero without neighbours. If the noise of
        the model is larger than the unit, gradients of W are small for that reason;
        then their limit is smaller, too.
        """
        duals, scales, found = 2.0 * run.work.multiplier, self.scales, []
        for k, i in enumerate(run.names.tolist()):
            slope = self.within[i].gradient(run.state.theta[k]) / self._root + duals[k]
            lengths = [np.linalg.norm(part) for part in self.layout.views(slope)]
            limits = run.stopping.rule.tolerance / self.LOOSER * scales[i][1]
            precision = float(self.layout.views(run.state.theta[k]).a)
            limits[:2] *= min(math.sqrt(precision), 1.0)
            found.append(float((np.array(lengths) / (limits + TINY)).max()))
        return np.array(found)

    @property
    def scales(self) -> dict[int, Matrix]:
        """Lengths (2, parts) by which disagreement and residual are judged, by node."""
        raise NotImplementedError
