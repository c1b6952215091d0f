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
from dadmm.admm.rule import TINY
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector

LEAST_NOISE = 1e-12  # variance of the noise, relative to that of the rows
KNEE = 0.5  # above it lengths are logarithms, relative to the length at the start
LOOSER = 3.0  # the limit of the stopping rule, over that of the gradient
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


class RandomReview(UnitReview):
    """The coordinates of a run from random parameters, see `UnitReview`.

    The mean of all rows is the best mu, so mu is not part of the problem. Lengths of
    long components are logarithms, see `dadmm.problems.log_lengths`.

    Parameters
    ----------
    problems : dict of int to Problem
        In the coordinates of the user, by original number of the node.
    start : Units
    """

    def __init__(self, problems: Mapping[int, Any], start: Units) -> None:
        super().__init__(problems, start)
        D, M = self.layout.shapes["W"]
        knee = max(KNEE * float(start.length), math.sqrt(2.0))
        self.within = {
            i: problem.with_log_lengths(knee, D / 2.0)
            for i, problem in self.within.items()
        }
        self._any = next(iter(self.within.values()))
        self._root = np.sqrt(self._any.layout.pull)

    def points(self, theta: Matrix) -> Matrix:
        """Return rows of theta in the coordinates of the user."""
        return super().points(self._any.outside(theta))

    def gradients(self, rows: Matrix, theta: Matrix) -> Matrix:
        """Return rows of gradients at ``theta`` in the coordinates of the user."""
        return super().gradients(self._slopes(rows * self._root, theta, True), theta)

    def _slopes(self, rows: Matrix, theta: Matrix, out: bool) -> Matrix:
        found = rows.copy()
        W = self.layout.views(found).W
        W[...] = self._any.slopes(self._any.axes(theta), W, out=out)
        return found

    def inside(self, starts: Mapping[int, Vector]) -> dict[int, Vector]:
        """Return parameters in the coordinates of the run, by node; see `points`."""
        return {
            i: self._any.inside((own - self._shift) / self._unit)
            for i, own in starts.items()
        }

    def duals(
        self, duals: Mapping[int, Vector], starts: Mapping[int, Vector]
    ) -> dict[int, Vector]:
        """Return duals in the coordinates of the run, by node; see `gradients`.

        The parameters ``starts`` are in these coordinates.
        """
        still = self.layout.pack(W=1.0, mu=0.0, a=1.0) * self._unit
        return {
            i: self._slopes(own * still, starts[i], False) / self._root
            for i, own in duals.items()
        }

    def is_stationary(self, run: Run) -> np.ndarray:
        """Return whether the gradient of the likelihood is small, by node.

        The residual of the stopping rule assumes that the proximal step is exact, and
        is zero without neighbours. If the noise of the model is larger than the unit,
        gradients of W are small for that reason; then their limit is smaller, too.
        """
        rule, duals, scales = run.stopping.rule, 2.0 * run.work.multiplier, self.scales
        found = []
        for k, i in enumerate(run.names.tolist()):
            problem: Any = self.within[i]
            slope = problem.gradient(run.state.theta[k]) / self._root + duals[k]
            lengths = [np.linalg.norm(part) for part in self.layout.views(slope)]
            limits = rule.tolerance / LOOSER * scales[i][1]
            precision = float(self.layout.views(run.state.theta[k]).a)
            limits[:2] *= min(math.sqrt(precision), 1.0)
            found.append(bool((lengths <= limits).all()) or not rule.is_scaled)
        return np.array(found)

    def turn(self, t: int, run: Run) -> None:
        """Remove from the multipliers what only turns W; a callback.

        f_i is the same at W R for every rotation R, so no gradient is along W A with a
        skew A. The part of lambda_ij along z_ij A is zero at the solution. If a
        fraction of it remains, see `kept`, the nodes agree on R soonest. Both ends have
        the same anchor z_ij, so their multipliers remain opposite.
        """
        gone = 1.0 - kept(run.topology.diameter_bound, run.edges.alpha)
        anchors, multipliers = (
            self.layout.views(rows).W
            for rows in (run.state.anchors, run.state.multipliers)
        )
        values, axes = np.linalg.eigh(anchors.mT @ anchors)
        moment = anchors.mT @ multipliers
        turned = axes.mT @ (moment - moment.mT) @ axes
        turned /= np.maximum(values[:, :, None] + values[:, None, :], TINY)
        multipliers -= gone * (anchors @ (axes @ turned @ axes.mT))
        run.edges.derive()

    def starts(self, drawn: Mapping[int, Vector]) -> dict[int, Vector]:
        """Return the starts, given random parameters with orthonormal W, by node."""
        factor = self.layout.pack(W=float(self.start.length), mu=0.0, a=1.0)
        return {i: self._any.inside(own * factor) for i, own in drawn.items()}

    @property
    def scales(self) -> dict[int, Matrix]:
        """Lengths (2, parts) by which disagreement and residual are judged, by node.

        The curvature of f_i is about its number of rows. `is_stationary` checks the
        gradient; the residual of the rule may be `LOOSER` times as large.
        """
        D, M = self.layout.shapes["W"]
        parts = np.array([math.sqrt(M), math.sqrt(M), math.sqrt(D / 2.0)])  # W, mu, a
        return {
            i: np.array([parts, LOOSER * problem.n_samples * parts])
            for i, problem in self.problems.items()
        }

    @property
    def curvature(self) -> dict[int, float]:
        """The curvature of each f_i along W at the solution, by node."""
        return {i: float(p.n_samples) for i, p in self.problems.items()}


def kept(diameter: int, alpha: float) -> float:
    """Return the fraction of a multiplier with which nodes agree soonest.

    It is for directions in which all f_i are flat, if this fraction remains after each
    iteration. Let s be the second eigenvalue of the random walk on the graph, as in
    `dadmm.penalty.rules.initial_penalty`, q = (1 - s) / 2, and alpha the relaxation.
    The deviation of the anchors and of the multipliers from agreement is then
    multiplied by a 2 x 2 matrix of trace (1 - alpha q) (1 + g) and determinant
    g (1 - alpha q (2 - alpha)). The two eigenvalues are equal for the fraction g that
    is returned. With g = 0, which is averaging, the larger one is 1 - alpha q; on a
    ring of 20 nodes it is 0.96, and 0.77 with the best g.
    """
    q = 0.5 * (1.0 - math.sqrt(1.0 - 1.0 / (1.0 + (diameter / 3.2) ** 2)))
    half = 1.0 + 2.0 * alpha * alpha * q * (1.0 - q) / (1.0 - alpha * q) ** 2
    return half - math.sqrt(half * half - 1.0)
