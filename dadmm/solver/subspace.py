"""PPCA in the mean and unit of all rows, and a bound on the angle of its result.

Let X be the N rows minus their mean, Q an orthonormal basis of the mean W of all nodes,
``P = I - Q Q'``, Z = X Q with smallest singular value s, and b a bound on ``|X P|_2``.
With U the eigenvectors of ``X' X`` beyond the first M, and L their eigenvalues, ``Y =
U' Q`` satisfies ``Y - L Y (Z' Z)^-1 = -U' C``, ``C = P X' Z (Z' Z)^-1``. No entry of L
exceeds b^2 (Courant and Fischer). So if b < s, the sine of the largest angle between Q
and the first M eigenvectors, ``|Y|_2``, is at most ``|C|_2 / (1 - b^2 / s^2)``. This is
the theorem of Davis and Kahan, relative to the variances.

C is a sum over the nodes. Of ``X P`` each node passes k shortened axes up the tree,
such that ``P X' X P <= F' F + d I``: the sketch "frequent directions" (Ghashami,
Liberty, Phillips and Woodruff 2016, SIAM J. Comput. 45). It is exact if k >= D - M.

Rounding counts as an error of the rows: if it changes X by at most e, it
changes s and ``|X P|_2`` by at most e, and C by at most ``e / s (1 + 1.7 b / s)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from dadmm.admm.loop import Run
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import EPS, TINY, subspace_angle
from dadmm.solver.certificate import Total, pooled_axes
from dadmm.solver.kind import SolveKind, Statement, merged

MORE_AXES = 10  # of its rows that a node sends, beyond the components
MOST_DEGREES = 10.0  # a larger bound is none
ROUNDING = 4.0 * EPS  # of the rows, in units of their error by rounding
LEAST_NOISE = 1e-12  # variance of the noise over the variance of the rows
LEAST_SIGNAL = 1e-3  # variance beyond the noise, relative to it
KNEE = 0.5  # above it lengths are logarithms, relative to the length at the start
MOST = 1e3  # times what no length exceeds at the solution
NO_UNIT = (
    "the rows of all nodes are equal, or their squares overflow; check that rows "
    "differ, and that entries are below 1e150"
)


class SubspaceProblem(Problem, Protocol):
    """PPCA with N rows of D columns and M components, as this room knows it."""

    n_samples: int
    count: float  # N, but for structure from motion
    observed_counts: Vector  # (D,) of each column
    dimension: int
    n_components: int
    zero_mean: bool  # whether mu is zero
    free_axes: bool  # whether only the column space of W is of interest
    free_offsets: bool  # whether each row has an offset of its own
    mean: Vector
    factor: Matrix  # rows with the scatter about the mean
    raw_factor: Matrix  # rows with the scatter about zero

    def standardised(self, mean: Vector, unit: float) -> Self: ...  # (x - mean) / unit
    def completed(self, theta: Vector) -> Matrix: ...  # with the expected raw scatter
    def completed_sum(self, theta: Vector) -> Vector: ...  # (D,) of all expected rows
    def gradient(self, theta: Vector) -> Vector: ...  # of the negative log-likelihood
    def moment(self, theta: Vector) -> Matrix: ...  # (M, M) second, of the latent z


class SubspaceBound(NamedTuple):
    """How far the subspaces of a result are from the principal subspace of all rows."""

    #: The largest angle between the column space of W, of any node or of the solution,
    #: and the first M principal axes of the rows of all nodes is at most this large, in
    #: degrees. It is inf if there is no bound, or none below 10 degrees
    angle: float = math.inf
    #: The part of it that is the largest angle of a node to the solution
    apart: float = math.inf
    why: str = ""  #: why there is no bound; "" if there is one


def n_axes(problem: Problem) -> int:
    """Return how many axes of its rows a node sends."""
    D, M = problem.layout.shapes["W"]
    return int(min(D, M + MORE_AXES))


def bound_subspace(
    total: Total,
    problems: Sequence[SubspaceProblem],
    W: Matrix,
    centre: Matrix,
    n_nodes: int,
) -> SubspaceBound:
    """Return the bound for PPCA without missing entries, by sums over the nodes.

    W (n, D, M) is of this process, and ``centre`` (D, M) the mean over all nodes.
    """
    first, k = problems[0], n_axes(problems[0])
    D, M = centre.shape
    if not np.isfinite(centre).all():
        return SubspaceBound(why="W is not finite")
    given = []
    for p in problems:
        # errors by rounding: n EPS of the mean of n rows, D EPS of products of D terms
        times = p.n_samples + p.dimension + n_nodes + 8.0
        error = float(times**2 * np.vdot(p.raw_factor, p.raw_factor))
        given.append(np.append(p.n_samples * p.mean, [p.n_samples, error]))
    *sums, n, errors = total(given)
    unit = math.sqrt(errors / n)
    if not 0.0 < unit < math.inf:
        return SubspaceBound(why="the squares of the rows underflow or overflow")
    mean = np.zeros(D) if first.zero_mean else np.array(sums) / n
    rows = [p.standardised(mean, unit).raw_factor / math.sqrt(n) for p in problems]

    basis = np.linalg.qr(centre)[0]
    lengths, turned = pooled_axes(total, [own @ basis for own in rows])
    basis = basis @ turned
    if not lengths[-1] > 0.0:
        return SubspaceBound(why="the rows do not span the subspace")
    own_sums = []  # slopes (D, M) and axes (k, D), then what was dropped, and an angle
    for own, mine in zip(rows, W, strict=True):
        along = own @ basis
        outside = own - along @ basis.T
        axes, dropped = _shortened(outside, k)
        slopes = outside.T @ (along / lengths**2)
        off = max(_angle(mine, basis), _angle(centre, basis))
        own_sums.append(np.concatenate([slopes.ravel(), axes.ravel(), [dropped, off]]))

    def merge(mine: Vector, other: Vector) -> Vector:
        slopes = mine[: D * M] + other[: D * M]
        both = [each[D * M : -2].reshape(-1, D) for each in (mine, other)]
        axes, again = _shortened(np.vstack(both), k)
        dropped, off = mine[-2] + (other[-2] + again), max(mine[-1], other[-1])
        return np.concatenate([slopes, axes.ravel(), [dropped, off]])

    def finish(whole: Vector) -> Vector:
        if not np.isfinite(whole).all():
            return np.full(3, np.inf)
        slopes, axes = whole[: D * M].reshape(D, M), whole[D * M : -2].reshape(-1, D)
        longest = math.sqrt(np.linalg.norm(axes, 2) ** 2 + whole[-2])
        return np.array([np.linalg.norm(slopes, 2), longest, whole[-1]])

    slope, longest, apart = total(own_sums, merge, finish).tolist()
    return _bound(slope, longest, float(lengths[-1]), apart)


def _bound(slope: float, longest: float, least: float, apart: float) -> SubspaceBound:
    """Return the bound, given |C|, b, s, and the largest angle of a node."""
    longest, least = longest + ROUNDING, least - ROUNDING
    if not apart <= MOST_DEGREES:
        return SubspaceBound(why="the nodes' subspaces may not agree within 10 degrees")
    if not longest < least:
        return SubspaceBound(why="variance outside the subspace may exceed that inside")
    ratio = longest / least
    slope += ROUNDING / least * (1.0 + 1.7 * ratio)
    sine = slope / ((1.0 - ratio) * (1.0 + ratio))
    angle = math.degrees(math.asin(sine)) if sine < 1.0 else 90.0
    angle = (angle + apart) * (1.0 + 1e-12)
    if angle > MOST_DEGREES:
        degrees = math.ceil(min(angle, 90.0))
        return SubspaceBound(why=f"the bound is {degrees} degrees, more than 10")
    return SubspaceBound(angle, apart)


def _shortened(rows: Matrix, k: int) -> tuple[Matrix, float]:
    """Return k rows F and d with ``rows' rows <= F' F + d I``."""
    found = np.zeros((k, rows.shape[1]))
    if not np.isfinite(rows).all():
        return found, math.inf
    _, lengths, axes = np.linalg.svd(rows, full_matrices=False)
    dropped = float(lengths[k]) if len(lengths) > k else 0.0
    left = lengths[:k]
    squares = (left - dropped) * (left + dropped)
    found[: len(left)] = np.sqrt(squares)[:, None] * axes[:k]
    return found, dropped**2


def _angle(W: Matrix, basis: Matrix) -> float:
    """Return a bound on an angle between column spaces, in degrees; inf without one."""
    lengths = np.linalg.svd(W, compute_uv=False)
    rounding = math.degrees(ROUNDING * (len(W) + 8.0) * lengths[0])
    if not rounding < MOST_DEGREES * lengths[-1]:
        return math.inf
    return float(subspace_angle(W, basis)) + rounding / float(lengths[-1])


class Units(NamedTuple):
    """What all nodes know after set-up."""

    mean: Vector  # (D,) of all rows
    unit: Vector  # () standard deviation of the noise
    length: Vector  # () of each component at the start, in this unit


class InUnits(SolveKind):
    """A run of PPCA on ``(x - mean) / unit``, the same run for rows ``c x + b``.

    It stops by its rule. The curvature of f_i along W is about its number of rows.
    """

    LOOSER: ClassVar[float] = 1.0  # limit of the stopping rule, over the gradient's
    root: float | Vector = 1.0  # of the weights of theta in the proximal step
    scales: dict[int, Matrix]

    def enter(self, record: Any) -> None:
        """Set what the run is made of.

        W, mu and a are judged by lengths (2, parts), times the strictness of the record
        if it has one; the rule's residual may be `LOOSER` times the limit of `slope`.
        """
        self.record, unit = record, float(record.unit)
        self.within = {
            i: own.standardised(record.mean, unit) for i, own in self.problems.items()
        }
        self.unit = self.layout.pack(W=unit, mu=unit, a=unit**-2)
        self.shift = self.layout.pack(W=0.0, mu=record.mean, a=0.0)
        D, M = self.layout.shapes["W"]
        parts = getattr(record, "strictness", 1.0) * np.sqrt([M, M, D / 2.0])
        self.scales = {
            i: np.array([parts, self.LOOSER * own.count * parts])
            for i, own in self.problems.items()
        }

    def theta_of(self, rows: Matrix) -> Matrix:
        return np.asarray(rows * self.unit + self.shift)

    def rotated(self, theta: Vector) -> Vector:
        """Return the same model with orthogonal columns of W, the longest first."""
        found = theta.copy()
        W = self.layout.views(found).W
        W[...] = W @ np.linalg.svd(W, full_matrices=False)[2].T
        return found

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        return np.asarray(rows / self.unit)

    adopt = SolveKind.save  # these coordinates never change

    def verdict(self, t: int, run: Run) -> str:
        """Return "converged" if all nodes still meet the rule, and gradients are small.

        They met it when they agreed to stop, up to two diameters ago.
        """
        holds = run.state.held > 0
        if run.stopping.rule.is_scaled:
            holds &= self.slope(run) <= 1.0
        if merged(run, holds, np.minimum) > 0.0:
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
            limits = run.stopping.rule.tolerance / self.LOOSER * self.scales[i][1]
            limits[:2] *= min(math.sqrt(float(views(theta).a)), 1.0)
            found.append(float((np.array(lengths) / (limits + TINY)).max()))
        return np.array(found)

    def bounded(self, run: Run, said: Statement, centre: Vector) -> Statement:
        if not self.complete or not self.bound_angle:
            return said
        W, whole = (self.layout.views(at).W for at in (run.points, said.solution))
        n_nodes = run.topology.n_nodes
        bound = bound_subspace(run.total, self.own(run), W, whole, n_nodes)
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
        """Find the mean and unit of the rows of all nodes.

        The noise variance is what the best M axes of each node leave of its own rows,
        by its degrees of freedom.
        """
        own: list[SubspaceProblem] = list(self.problems.values())
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
        self.enter(Units(mean, *np.sqrt([noise, signal / M])))

    def enter(self, record: Units) -> None:
        """Set what the run is made of; drawn parameters have no duals."""
        super().enter(record)
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
                i: self._any.gradients(own * still, self.starts[i]) / self.root
                for i, own in self.duals.items()
            }

    def theta_of(self, rows: Matrix) -> Matrix:
        return super().theta_of(self._any.outside(rows))

    def gradients_of(self, rows: Matrix, theta: Matrix) -> Matrix:
        outside = self._any.gradients(rows * self.root, theta, out=True)
        return super().gradients_of(outside, theta)

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
        run.edges.sum_multipliers()


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
