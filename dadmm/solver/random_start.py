"""Runs of PPCA from random parameters, in coordinates of curvature N_i.

The rows are in the mean and unit of all rows. The mean of all rows is the best mu, so
mu is not part of the problem. The lengths of long components are logarithms, see
`dadmm.problems.log_lengths`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dadmm.admm.loop import Run
from dadmm.admm.rule import TINY
from dadmm.core.layout import Matrix, Vector
from dadmm.solver.units import UnitReview, Units

KNEE = 0.5  # above it lengths are logarithms, relative to the length at the start
MOST = 1e3  # times what no length exceeds at the solution


class RandomReview(UnitReview):
    """The coordinates of a run from random parameters, see `UnitReview`.

    At a solution, the squares of the lengths sum up to less than the mean square of the
    rows. That is at most M L^2 + D for the length L at the start. Steps keep lengths
    below `MOST` times the root of it, so that numbers remain finite. Where neighbours
    have W of unlike handedness, multipliers make a component long before it turns; with
    a bound of 2, some runs never got there.

    Parameters
    ----------
    problems : dict of int to Problem
        In the coordinates of the user, by original number of the node.
    start : Units
    """

    LOOSER = 3.0

    def __init__(self, problems: Mapping[int, Any], start: Units) -> None:
        super().__init__(problems, start)
        D, M = self.layout.shapes["W"]
        knee = max(KNEE * float(start.length), math.sqrt(2.0))
        longest = MOST * math.sqrt(M * float(start.length) ** 2 + D)
        self.within = {
            i: problem.with_log_lengths(knee, longest, D / 2.0)
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

        The curvature of f_i is about its number of rows. `slope` judges the gradient;
        the residual of the rule may be `LOOSER` times as large.
        """
        D, M = self.layout.shapes["W"]
        parts = np.array([math.sqrt(M), math.sqrt(M), math.sqrt(D / 2.0)])  # W, mu, a
        return {
            i: np.array([parts, self.LOOSER * problem.n_samples * parts])
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
    `dadmm.graphs.gap.slowness`, q = (1 - s) / 2, and alpha the relaxation.
    The deviation of the anchors and of the multipliers from agreement is then
    multiplied by a 2 x 2 matrix of trace (1 - alpha q) (1 + g) and determinant
    g (1 - alpha q (2 - alpha)). The two eigenvalues are equal for the fraction g that
    is returned. With g = 0, which is averaging, the larger one is 1 - alpha q; on a
    ring of 20 nodes it is 0.96, and 0.77 with the best g.
    """
    q = 0.5 * (1.0 - math.sqrt(1.0 - 1.0 / (1.0 + (diameter / 3.2) ** 2)))
    half = 1.0 + 2.0 * alpha * alpha * q * (1.0 - q) / (1.0 - alpha * q) ** 2
    return half - math.sqrt(half * half - 1.0)
