"""The mean and unit of the rows of all nodes, in which a run of PPCA is done.

Sums over the nodes give the mean m of all rows, their squares about m, and what the
best M axes of each node leave of its own rows. The latter, by its degrees of freedom,
is the noise variance s^2. A run on ``(x - m) / s`` is the same run for rows
``c x + b``, and the curvature of f_i along W is about its number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dadmm.admm.loop import Run
from dadmm.admm.rule import TINY
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.solver.coordinates import Total
from dadmm.solver.kind import SolveKind, Statement, merged
from dadmm.solver.subspace import SubspaceProblem, bound_subspace

LEAST_NOISE = 1e-12  # variance of the noise over the variance of the rows
LEAST_SIGNAL = 1e-3  # variance beyond the noise, relative to it
KNEE = 0.5  # above it lengths are logarithms, relative to the length at the start
MOST = 1e3  # times what no length exceeds at the solution
NO_UNIT = (
    "the rows of all nodes are equal, or their squares overflow; check that rows "
    "differ, and that entries are below 1e150"
)


class Units(NamedTuple):
    """What all nodes know after set-up."""

    mean: Vector  # (D,) of all rows
    unit: Vector  # () standard deviation of the noise
    length: Vector  # () of each component at the start, in this unit


def find_units(total: Total, problems: Mapping[int, SubspaceProblem]) -> Units:
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
        raise ProblemError(NO_UNIT)
    noise = left / degrees if degrees else squares / (n * D)
    noise = max(noise, LEAST_NOISE * squares / n)
    signal = max(squares / (n * noise) - D, LEAST_SIGNAL * D)
    return Units(mean, *np.sqrt([noise, signal / M]))


class InUnits(SolveKind):
    """A run of PPCA in the mean and unit of all rows, which stops by its rule."""

    LOOSER: ClassVar[float] = 1.0  # limit of the stopping rule, over the gradient's
    root: float | Vector = 1.0  # of the weights of theta in the proximal step

    def enter(self, record: Any, strictness: float = 1.0) -> None:
        """Set what the run is made of.

        W, mu and a are judged by lengths (2, parts), times ``strictness``; the rule's
        residual may be `LOOSER` times the limit of `slope`.
        """
        self.record, unit = record, float(record.unit)
        self.rule = replace(self.rule, scaled=True)
        self.within = {
            i: own.standardised(record.mean, unit) for i, own in self.problems.items()
        }
        self.unit = self.layout.pack(W=unit, mu=unit, a=unit**-2)
        self.shift = self.layout.pack(W=0.0, mu=record.mean, a=0.0)
        D, M = self.layout.shapes["W"]
        parts = strictness * np.sqrt([M, M, D / 2.0])
        self.lengths = self.scales = {
            i: np.array([parts, self.LOOSER * own.count * parts])
            for i, own in self.problems.items()
        }

    def theta_of(self, rows: Matrix) -> Matrix:
        """Return rows of theta in the coordinates of the user."""
        return np.asarray(rows * self.unit + self.shift)

    def rotated(self, theta: Vector) -> Vector:
        """Return the same model with orthogonal columns of W, the longest first."""
        found = theta.copy()
        W = self.layout.views(found).W
        W[...] = W @ np.linalg.svd(W, full_matrices=False)[2].T
        return found

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        """Return rows of gradients at ``theta`` in the coordinates of the user."""
        return np.asarray(rows / self.unit)

    def adopt(self, run: Run) -> None:
        """Save the record in the state of the run; it does not change."""
        self.save(run)

    def verdict(self, t: int, run: Run) -> str:
        """Return "converged" if all nodes still meet the rule, and gradients are small.

        They met it when they agreed to stop, up to two diameters ago.
        """
        held = run.state.held > 0
        if run.stopping.rule.is_scaled:
            held = held & (self.slope(run) <= 1.0)
        if merged(run, held, np.minimum) > 0.0:
            return "converged"
        run.stopping.reopen(run.stopping.rule.tolerance)
        return ""

    def slope(self, run: Run) -> Vector:
        """Return the gradient of each node's Lagrangian, over its limit, by node.

        If the noise of the model is larger than the unit, gradients of W are small for
        that reason; so their limit is smaller, too.
        """
        duals, views, found = 2.0 * run.work.multiplier, self.layout.views, []
        known = zip(run.names.tolist(), run.state.theta, duals, strict=True)
        for i, theta, dual in known:
            slope = self.within[i].gradient(theta) / self.root + dual
            lengths = [np.linalg.norm(part) for part in views(slope)]
            limits = run.stopping.rule.tolerance / self.LOOSER * self.lengths[i][1]
            limits[:2] *= min(math.sqrt(float(views(theta).a)), 1.0)
            found.append(float((np.array(lengths) / (limits + TINY)).max()))
        return np.array(found)

    def with_more(self, run: Run, said: Statement) -> Statement:
        """Return the statement with a bound on the angle, if no entry is missing."""
        if not self.complete or not self.plan.bound_angle:
            return said
        W, whole = (self.layout.views(at).W for at in (run.points, said.solution))
        own, n_nodes = self.own(run), run.topology.n_nodes
        bound = bound_subspace(run.total, own, W, whole, n_nodes)
        return said._replace(subspace_bound=bound)


class UnitsKind(InUnits):
    """A run of PPCA in units, from drawn parameters or the end of another run.

    At a solution, the squares of the lengths sum up to at most M L^2 + D for the length
    L at the start. Steps keep lengths below `MOST` times the root of it. (With 2 times,
    some runs never turned a component of unlike handedness.) mu is the mean of all
    rows, and lengths of long components are logarithms, see
    `dadmm.problems.ppca.LogLengthPPCA`.
    """

    RECORD, LOOSER = Units, 3.0

    def choose(self, total: Total, n_nodes: int) -> None:
        """Choose the mean and unit by sums over all rows."""
        self.enter(find_units(total, self.problems))

    def enter(self, record: Units, strictness: float = 1.0) -> None:
        """Set what the run is made of; drawn parameters have no duals."""
        super().enter(record, strictness)
        D, M = self.layout.shapes["W"]
        length = float(record.length)
        knee = max(KNEE * length, math.sqrt(2.0))
        longest = MOST * math.sqrt(M * length**2 + D)
        self.within = {
            i: problem.with_log_lengths(knee, longest, D / 2.0)
            for i, problem in self.within.items()
        }
        self._any = next(iter(self.within.values()))
        self.root = np.sqrt(self._any.layout.pull)
        self.callbacks = (self.turn,)
        # the curvature of f_i along W at the solution is its number of rows
        self.curvature = {i: float(p.n_samples) for i, p in self.problems.items()}
        pack, inside, starts = self.layout.pack, self._any.inside, self.starts.items()
        if self.duals is None:
            drawn = pack(W=length, mu=0.0, a=1.0)
            self.starts = {i: inside(own * drawn) for i, own in starts}
        else:
            shift, unit = self.shift, self.unit
            self.starts = {i: inside((own - shift) / unit) for i, own in starts}
            still = pack(W=1.0, mu=0.0, a=1.0) * unit
            self.duals = {
                i: self._slopes(own * still, self.starts[i], False) / self.root
                for i, own in self.duals.items()
            }

    def theta_of(self, rows: Matrix) -> Matrix:
        return super().theta_of(self._any.outside(rows))

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        return super().gradients_of(self._slopes(rows * self.root, theta, True), theta)

    def _slopes(self, rows: Matrix, theta: Matrix, out: bool) -> Matrix:
        found = rows.copy()
        W = self.layout.views(found).W
        W[...] = self._any.slopes(self._any.axes(theta), W, out=out)
        return found

    def turn(self, t: int, run: Run) -> None:
        """Remove from the multipliers what only turns W; a callback.

        f_i is the same at W R for every rotation R, so the part of lambda_ij along
        z_ij A, with a skew A, is zero at the solution. Its `kept_fraction` remains.
        """
        gone = 1.0 - kept_fraction(run.topology.diameter_bound, run.edges.alpha)
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


def kept_fraction(diameter: int, alpha: float) -> float:
    """Return the fraction of a multiplier with which nodes agree soonest.

    It is for directions in which all f_i are flat, if this fraction remains after each
    iteration. Let s be the second eigenvalue of the random walk on the graph, as in
    `dadmm.graphs.measures.slowness`, q = (1 - s) / 2, and alpha the relaxation.
    Deviations from agreement are multiplied by a 2 x 2 matrix of trace
    (1 - alpha q) (1 + g) and determinant g (1 - alpha q (2 - alpha)). Its eigenvalues
    are equal for the returned g. On a ring of 20 nodes the larger one is 0.77 then, and
    0.96 with g = 0, which is averaging.
    """
    q = 0.5 * (1.0 - math.sqrt(1.0 - 1.0 / (1.0 + (diameter / 3.2) ** 2)))
    half = 1.0 + 2.0 * alpha * alpha * q * (1.0 - q) / (1.0 - alpha * q) ** 2
    return half - math.sqrt(half * half - 1.0)
