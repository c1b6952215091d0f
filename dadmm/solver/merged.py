"""A start for PPCA from the principal axes of all rows, see `docs/accuracy.md`.

The factor of all rows within merged axes Q gives Ritz values l and axes, and what lies
outside of Q the rest of the noise variance s^2. A run on ``(x - m) / s`` starts from
these axes, with ``a = 1`` and ``W' W = l / s^2 - 1``, and multipliers where the nodes'
gradients are in proportion to their numbers of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dadmm.admm.loop import Run
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import subspace_angle
from dadmm.solver.certificate import Total, pooled
from dadmm.solver.kind import Statement
from dadmm.solver.subspace import NO_UNIT, InUnits, SubspaceProblem, n_axes

LEAST_NOISE = 1e-20  # variance of the noise over the variance of the rows
LEAST_SIGNAL = 1e-3  # squared length of a component, in units of the noise
NOT_CONVEX = 2.0  # factor of the curvature
LEAST_GAP, LEAST_EXCESS = 1e-3, 1e-6  # in the tolerance of a run
FAR = 5.0  # degrees that a result of complete rows may be from merged axes
SMALL_GAP = 0.1  # of two components, below which constant penalties may go astray
MOST_ROUNDS = 60
NEAR = 1e-3  # expected distance from the limit at which rounds end
RECENT = 3  # rounds of which the slowest rate of convergence counts
MOST_RATE = 0.999
WORSE = 4.0  # growth of the steps after which an extrapolation is taken back
NO_NOISE = (
    "the rows of all nodes differ in {} or fewer dimensions only, to rounding, so "
    "the noise is zero; use fewer components, or more columns"
)


class Start(NamedTuple):
    """What all nodes know after set-up: rows are ``unit (W z + noise) + mean``."""

    mean: Vector  # (D,) of all rows
    unit: Vector  # () standard deviation of the noise
    W: Matrix  # (D, M)
    gap: Vector  # () 1 - l_{M+1} / l_M
    strictness: Vector  # () factor of the tolerance, at most 1
    rounds: Vector  # () in which missing entries were completed


class MergedStart(NamedTuple):
    """Where a run with ``init="merged"`` started."""

    theta: Vector  #: (size,) the start of all nodes
    angle: float  #: largest angle between the subspaces of start and result, in degrees
    #: 1 minus the variance of component M + 1 over the variance of component M; if it
    #: is small, the subspace is hardly determined
    gap: float
    #: Factor of the tolerance of the stopping rule, at most 1. It is less than 1 if the
    #: gap is small or the last component hardly exceeds the noise, or if missing
    #: entries are hardly determined
    strictness: float
    rounds: int  #: in which missing entries were completed; 0 without missing entries


def find_start(
    total: Total, problems: Mapping[int, SubspaceProblem]
) -> tuple[Start, float]:
    """Return the start of all nodes, and their number of rows."""
    own = list(problems.values())
    first, layout = own[0], own[0].layout
    given = []
    for p in own:
        facts = [p.count, p.count * (p.dimension - p.free_offsets)]
        added = p.observed_counts * p.mean * (not p.zero_mean)
        given.append(np.concatenate([added, p.observed_counts, facts]))
    sums = total(given)
    (n, degrees), (added, observed) = sums[-2:], np.split(sums[:-2], 2)
    seen, degrees = np.maximum(observed, 1.0), degrees / n
    mean = np.zeros_like(added) if first.zero_mean else added / seen
    # a column of which entries are missing keeps its variance
    rows = [p.standardised(mean, 1.0).raw_factor * np.sqrt(n / seen) for p in own]
    start, _ = _start(total, first, rows, mean, n, degrees)
    if observed.sum() == n * len(observed):
        return start, n
    # complete missing entries, in rounds
    rounds, pace, done, D = Rounds(start), 1.0, 0, len(observed)
    while pace > 0.0 and done < MOST_ROUNDS:
        unit, mean = float(start.unit), start.mean
        theta = layout.pack(W=unit * start.W, mu=0.0, a=unit**-2)
        within = [p.standardised(mean, 1.0) for p in own]
        if not first.zero_mean:
            shift = total([_finite(p.completed_sum, theta, D) for p in within]) / n
            mean = mean + shift
            theta = layout.pack(W=unit * start.W, mu=-shift, a=unit**-2)
            within = [p.standardised(mean, 1.0) for p in own]
        rows = [_finite(p.completed, theta, 1, D) for p in within]
        start, pace = _start(total, first, rows, mean, n, degrees, rounds)
        done += 1
    strictness = start.strictness * abs(pace)
    return start._replace(strictness=strictness, rounds=np.array(float(done))), n


def _finite(
    method: Callable[[Vector], np.ndarray], theta: Vector, *shape: int
) -> np.ndarray:
    """Return what a method of a problem returns; NaN if its E-step breaks down."""
    try:
        return method(theta)
    except np.linalg.LinAlgError:
        return np.full(shape, np.nan)


def merged_axes(total: Total, rows: Sequence[Matrix], k: int) -> Matrix:
    """Return orthonormal axes (D, k), nearly the principal axes of all rows."""

    def longest(*mine: Matrix) -> Matrix:
        whole = np.concatenate(mine)
        found = np.zeros((k, whole.shape[1]))
        if not np.isnan(whole).any():  # else `_start` raises on all nodes
            _, lengths, axes = np.linalg.svd(whole, full_matrices=False)
            found[: len(lengths)] = (lengths[:, None] * axes)[:k]
        return found

    def finish(whole: Matrix) -> Matrix:
        return np.linalg.svd(whole, full_matrices=False)[2].T.copy()

    return np.asarray(total([*map(longest, rows)], longest, finish))


def _start(
    total: Total,
    problem: SubspaceProblem,
    rows: Sequence[Matrix],
    mean: Vector,
    n: float,
    degrees: float,
    rounds: Rounds | None = None,
) -> tuple[Start, float]:
    """Return the start of n rows within their merged axes, and the pace of rounds."""
    axes = merged_axes(total, rows, n_axes(problem))
    D, M = len(axes), problem.n_components
    inside = [np.nan_to_num(own) @ axes for own in rows]
    outside = [own - z @ axes.T for own, z in zip(rows, inside, strict=True)]

    def finish(factor: Matrix, rest: Vector) -> Vector:
        _, lengths, turned = np.linalg.svd(factor)
        values, outside = lengths**2 / n, rest[0] / n
        trace, rest = values.sum() + outside, values[M:].sum() + outside
        noise = max(rest / (degrees - M), LEAST_NOISE * trace)
        if not 0.0 < noise < math.inf:  # then no node has W
            return np.zeros(D * M + 3)
        signal = np.maximum(values[:M] / noise - 1.0, LEAST_SIGNAL)
        W = axes @ turned[:M].T * np.sqrt(signal)
        is_known = values[M - 1] > LEAST_NOISE * trace
        gap = 1.0 - values[M] / values[M - 1] if is_known else 0.0
        excess = max(values[M - 1] / noise - 1.0, LEAST_EXCESS)
        strictness = min(1.0, max(gap, LEAST_GAP) * math.sqrt(excess))
        numbers = map(np.array, (gap, strictness, 0.0))
        found, more = Start(mean, np.sqrt(noise), W, *numbers), np.zeros(0)
        if rounds is not None:
            found, pace = rounds.decide(found)
            more = np.append(found.mean, pace)
        return np.concatenate([found.W.ravel(), [found.unit, gap, strictness], more])

    squares = [np.array([np.vdot(own, own)]) for own in outside]
    found = pooled(total, inside, finish, squares)
    unit, gap, strictness = map(np.array, found[D * M : D * M + 3])
    if not unit:
        raise ProblemError(NO_UNIT if rounds is None else NO_NOISE.format(M))
    W, pace = found[: D * M].reshape(D, M), 0.0
    if rounds is not None:
        mean, pace = found[-D - 1 : -1], float(found[-1])
    return Start(mean, unit, W, gap, strictness, np.array(0.0)), pace


class MergedKind(InUnits):
    """A run of PPCA from merged axes, in the mean and unit of all rows."""

    RECORD = Start
    record: Start

    @cached_property
    def curvature(self) -> dict[int, float]:  # type: ignore[override]
        """The number of rows of each node, times a length.

        It is the length of the covariance of the rows along the components, relative to
        the model, if that exceeds 1; and twice that, because the likelihood of a node
        need not be convex.
        """
        axes, lengths, _ = np.linalg.svd(self.record.W, full_matrices=False)
        spread = np.sqrt(lengths**2 + 1.0)  # of the model along the axes; 1 elsewhere
        found = {}
        for i, problem in self.within.items():
            rows = problem.completed(self.starts[i])
            along = rows @ axes
            inside = along / spread
            scaled = rows - (along - inside) @ axes.T
            longest = float(np.linalg.norm(scaled.T @ inside, 2))
            found[i] = NOT_CONVEX * max(float(problem.count), longest)
        return found

    def choose(self, total: Total, n_nodes: int) -> None:
        """Choose start and duals; a run that is resumed has its multipliers."""
        start, n = find_start(total, self.problems)
        self.enter(start)
        at, own = next(iter(self.starts.values())), self.within.values()
        gradients = [_finite(each.gradient, at, len(at)) for each in own]
        whole = total(gradients)
        if not np.isfinite(whole).all():
            raise ProblemError(NO_NOISE.format(start.W.shape[1]))
        known = zip(self.problems.items(), gradients, strict=True)
        self.duals = {i: p.count / n * whole - mine for (i, p), mine in known}

    def enter(self, record: Start) -> None:
        super().enter(record)
        self.starts = dict.fromkeys(
            self.problems, self.layout.pack(W=record.W, mu=0.0, a=1.0)
        )

    def bounded(self, run: Run, said: Statement, centre: Vector) -> Statement:
        theta = self.theta_of(next(iter(self.starts.values())))
        angle = subspace_angle(self.layout.views(said.solution).W, self.record.W)
        gap, strictness, rounds = map(float, self.record[3:])
        start = MergedStart(theta, float(angle), gap, strictness, int(rounds))
        return super().bounded(run, said._replace(start=start), centre)

    def doubt(self, run: Run, said: Statement) -> str:
        why, start, bound = super().doubt(run, said), said.start, said.subspace_bound
        if why or start is None or (bound is not None and not bound.why):
            return why
        if run.penalties.scheme.is_constant and start.gap < SMALL_GAP:
            return (
                "two components hardly differ, and constant penalties may then leave "
                "the solution"
            )
        if self.complete and start.angle > FAR:
            return (
                f"the result is {start.angle:.0f} degrees from the axes that the nodes "
                "merged, and the angle to the principal axes of all rows is not bounded"
            )
        return ""


class Rounds:
    """What the root decides after each round of EM, from rows completed at a model.

    After every two rounds it extrapolates (SQUAREM: Varadhan and Roland, 2008, Scand.
    J. Stat. 35).
    """

    def __init__(self, model: Start) -> None:
        self._at = model  # at which rows were completed
        self._path = [model]  # of steps without extrapolation
        self._sizes: list[float] = []  # of steps
        self._rates: list[float] = []  # of convergence
        self._before: tuple[Start, float] | None = None  # the last extrapolation

    def decide(self, found: Start) -> tuple[Start, float]:
        """Return the next model, and 1 minus the rate; it is negative at the end."""
        size = distance(self._at, found)
        if self._sizes and self._sizes[-1] > 0.0:
            self._rates.append(size / self._sizes[-1])
        self._sizes.append(size)
        rate = min(max(self._rates[-RECENT:], default=0.5), MOST_RATE)
        if size * rate < NEAR * (1.0 - rate):
            return found, rate - 1.0
        left, _, right = np.linalg.svd(found.W.T @ self._path[0].W)
        found = found._replace(W=found.W @ (left @ right))  # nearest to the first
        self._path.append(found)
        if self._before is not None:
            (kept, least), self._before = self._before, None
            if size > WORSE * least:
                found, self._path = kept, [kept]
        if len(self._path) == 3:
            self._before = found, size
            found = _extrapolated(*self._path)
            self._path = [found]
        self._at = found
        return found, 1.0 - rate


def distance(one: Start, two: Start) -> float:
    """Return how much two models differ, in units of the second.

    It is the largest relative change of a variance, or the shift of the mean.
    """
    ratio = one.unit / two.unit
    axes = np.linalg.qr(np.hstack([two.W, one.W]))[0]
    old, new = ratio * (axes.T @ one.W), axes.T @ two.W
    eye = np.eye(len(old))
    root = np.linalg.cholesky(new @ new.T + eye)
    half = np.linalg.solve(root, np.hstack([old, ratio * eye]))
    variances = np.linalg.svd(half, compute_uv=False) ** 2
    shift = np.linalg.norm(_whitened(two, (one.mean - two.mean)[:, None] / two.unit))
    return float(max(np.abs(variances - 1.0).max(), abs(ratio * ratio - 1.0), shift))


def _whitened(model: Start, columns: Matrix) -> Matrix:
    """Return columns (D, k) over the standard deviations of a model, in its unit."""
    axes, lengths, _ = np.linalg.svd(model.W, full_matrices=False)
    along = axes.T @ columns
    shorter = along / np.sqrt(lengths**2 + 1.0)[:, None]
    return np.asarray(columns - axes @ (along - shorter))


def _extrapolated(first: Start, second: Start, third: Start) -> Start:
    """Return where steps from the first to the third model lead to."""
    steps = []
    for one, two in ((first, second), (second, third)):
        moved = two.unit * two.W - one.unit * one.W
        scaled = np.column_stack([moved, two.mean - one.mean])
        noise = math.log(two.unit / one.unit)
        size = np.append(_whitened(third, scaled / third.unit), noise)
        steps.append((scaled, noise, size))
    (scaled, noise, size), (scaled_two, noise_two, size_two) = steps
    turn = float(np.linalg.norm(size_two - size))
    length = max(float(np.linalg.norm(size)) / turn, 1.0) if turn else 1.0
    # from the first model, with length 1 the third
    gain, bend = 2.0 * length, length * length
    move = gain * scaled + bend * (scaled_two - scaled)
    unit = first.unit * math.exp(gain * noise + bend * (noise_two - noise))
    W = (first.unit * first.W + move[:, :-1]) / unit
    return third._replace(W=W, unit=unit, mean=first.mean + move[:, -1])
