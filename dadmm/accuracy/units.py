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

SWEEPS = 5  # of EM in an iteration
LEAST_NOISE = 1e-12  # variance of the noise, relative to that of the rows
MOST_OFF = 7.0  # twice the relative error of lengths, in the tolerance
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
    owners = [each for each in kind.__mro__ if "with_sweeps" in vars(each)]
    return stacks(kind, "with_sweeps") and kind.init is owners[0].init  # type: ignore[attr-defined]


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
    sweeps : int
        Of EM in an iteration.
    a_scale : float
        Factor of the penalty of the part a.
    """

    def __init__(
        self,
        problems: Mapping[int, Any],
        start: Any,
        sweeps: int = 1,
        a_scale: float = 1.0,
    ) -> None:
        self.problems, self.start = problems, start
        self.layout: Layout = next(iter(problems.values())).layout
        unit = float(start.unit)
        self.within: dict[int, Problem] = {}
        for i, problem in problems.items():
            found = problem.standardised(start.mean, unit)
            self.within[i] = found.with_sweeps(sweeps, a_scale) if sweeps > 1 else found
        self._unit = self.layout.pack(W=unit, mu=unit, a=unit**-2)
        self._shift = self.layout.pack(W=0.0, mu=start.mean, a=0.0)
        self._root = self.layout.pack(W=1.0, mu=1.0, a=math.sqrt(a_scale))

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

    def gradients(self, rows: Matrix) -> Matrix:
        """Return rows of gradients in the coordinates of the user."""
        return np.asarray(rows * self._root / self._unit)

    def inside(self, starts: Mapping[int, Vector]) -> dict[int, Vector]:
        """Return parameters in the coordinates of the run, by node; see `points`."""
        return {i: (own - self._shift) / self._unit for i, own in starts.items()}

    def duals(self, duals: Mapping[int, Vector]) -> dict[int, Vector]:
        """Return duals in the coordinates of the run, by node; see `gradients`."""
        return {i: own * self._unit / self._root for i, own in duals.items()}

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

    Parameters
    ----------
    problems : dict of int to Problem
        In the coordinates of the user, by original number of the node.
    start : Units
    """

    def __init__(self, problems: Mapping[int, Any], start: Units) -> None:
        D = next(iter(problems.values())).dimension
        super().__init__(problems, start, SWEEPS, D / 2.0)

    def is_stationary(self, run: Run) -> np.ndarray:
        """Return whether the gradient of the likelihood is small, by node.

        The stopping rule has the gradient of the expected likelihood after the last
        sweep. It is smaller, and zero without neighbours.
        """
        rule, duals, scales = run.stopping.rule, 2.0 * run.work.multiplier, self.scales
        found = []
        for k, i in enumerate(run.names.tolist()):
            problem: Any = self.within[i]
            slope = problem.gradient(run.state.theta[k]) / self._root + duals[k]
            lengths = [np.linalg.norm(part) for part in self.layout.views(slope)]
            limits = rule.tolerance / LOOSER * scales[i][1]
            found.append(bool((lengths <= limits).all()) or not rule.is_scaled)
        return np.array(found)

    def turn(self, t: int, run: Run) -> None:
        """Remove from the multipliers what only turns W; a callback.

        f_i is the same at W R for every rotation R, so no gradient is along W A with a
        skew A. The part of lambda_ij along z_ij A is zero at the solution. Without it
        the nodes agree on R as by averages, which takes fewer iterations. Both ends
        have the same anchor z_ij, so their multipliers remain opposite.
        """
        anchors, multipliers = (
            self.layout.views(rows).W
            for rows in (run.state.anchors, run.state.multipliers)
        )
        values, axes = np.linalg.eigh(anchors.mT @ anchors)
        moment = anchors.mT @ multipliers
        turned = axes.mT @ (moment - moment.mT) @ axes
        turned /= np.maximum(values[:, :, None] + values[:, None, :], TINY)
        multipliers -= anchors @ (axes @ turned @ axes.mT)
        run.edges.derive()

    def starts(self, drawn: Mapping[int, Vector]) -> dict[int, Vector]:
        """Return the starts, given random parameters with orthonormal W, by node."""
        factor = self.layout.pack(W=float(self.start.length), mu=1.0, a=1.0)
        return {i: own * factor for i, own in drawn.items()}

    @property
    def scales(self) -> dict[int, Matrix]:
        """Lengths (2, parts) by which disagreement and residual are judged, by node.

        Differences of W and mu are relative to the length of W. Along a component of
        length L the curvature of f_i is 2 N_i / L^2. So a gradient of W of N_i / L goes
        with a relative error of its length of 1/2. `is_stationary` checks the gradient;
        the residual of the rule may be `LOOSER` times as large.
        """
        D, M = self.layout.shapes["W"]
        long = max(float(self.start.length), 1.0)
        flat = min(math.sqrt(long), MOST_OFF / long)
        apart, slopes = (
            np.array([math.sqrt(M) * each, math.sqrt(M) * each, math.sqrt(D / 2.0)])
            for each in (long, flat)  # of W, mu and a
        )
        return {
            i: np.array([apart, LOOSER * problem.n_samples * slopes])
            for i, problem in self.problems.items()
        }

    @property
    def curvature(self) -> dict[int, float]:
        """The curvature of each f_i along W at the solution, by node."""
        return {i: float(p.n_samples) for i, p in self.problems.items()}
