"""A bound on the error of a result, from sums over all nodes.

After its proximal step a node knows a subgradient ``g_i = w_i (c_i - z_i)`` of its
objective at z_i. Let zbar be the mean of all z_i, F the sum of all f_i at zbar, ``S =
|sum g_i|`` and ``D = sum f_i(zbar) - f_i(z_i) - g_i . (zbar - z_i)``. Convexity gives,
for every z, ``F(z) >= F - D + sum g_i . (z - zbar)``. So no point within r of zbar is
lower than F by more than ``D + S r``. If the curvature of the sum of all f_i between
zbar and its minimum z* is at least mu, then ``mu/2 |z* - zbar|^2 <= F - F(z*)``. So
``|z* - zbar| <= R = (S + sqrt(S^2 + 2 mu D)) / mu``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.linalg import norm

from dadmm.admm.loop import Run
from dadmm.core import linalg
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.core.linalg import EPS, TINY, row_lengths

if TYPE_CHECKING:
    from dadmm.solver.metric import Coordinates

ROUNDING = 1e-14  # of D, relative to F
LEAST_GAP = 1e-8  # smallest gap that is claimed, relative to F
LEAST_TOLERANCE = 2e-7  # with ROUNDING, no smaller one can be proved
LEAST_RADIUS = 1e-8  # radius that is always good enough, relative to |zbar|
REACHES = (2.0, 8.0)  # multiples of the estimated radius within which mu must hold
LIGHT = 1e-6  # rows below this multiple of the largest may be lost beside it
FLAT = 1e-7  # singular values below this multiple of the largest give no bound
DROPPED = "directions along which the data differ by rounding only count as open"

Total = Callable[..., Array]  # `Run.total`: merge one value per node over all nodes


@dataclass(frozen=True)
class Certificate:
    """A bound on the distance of a result from the minimum of the sum."""

    objective: float  #: the sum of all f_i at `Result.solution`
    #: ``objective`` exceeds the minimum by at most this much; inf if unknown. It is
    #: never below 1e-8 of the objective
    gap: float
    radius: float  #: bound on ``|z* - zbar|``
    limit: float  #: the radius that the tolerance asks for, unless the gap is small
    gap_limit: float  #: the gap that the tolerance asks for, unless the radius is small
    #: (p,) bound on the error of each entry of the solution; inf where the data leave
    #: the entry open
    coefficients: Vector
    open_directions: int | None  #: that the data do not determine; None if unknown
    gradient: float  #: S
    slack: float  #: D
    nominal_radius: float  #: an estimate, as if the Hessian were the identity
    assumed: tuple[str, ...] = ()  #: what the bound assumes
    lightest: float = 1.0  #: size of the least row over the largest row, about

    @property
    def holds(self) -> bool:
        """Whether the radius, or the gap, is within its limit."""
        return self.shortfall <= 1.0

    @property
    def shortfall(self) -> float:
        """The bound as a multiple of its limit: radius or gap, whichever is less."""

        def ratio(bound: float, limit: float) -> float:
            if bound == 0.0 and limit >= 0.0:
                return 0.0
            return bound / limit if limit else math.inf

        return min(ratio(self.radius, self.limit), ratio(self.gap, self.gap_limit))

    def lower_within(self, distance: float) -> float:
        """Return by how much a point within this distance can be lower at most."""
        lower = self.slack + self.gradient * distance
        return max(lower, LEAST_GAP * abs(self.objective))


def is_exact(problem: object) -> bool:
    """Return whether a convex problem gives exact subgradients."""
    is_known = getattr(problem, "exact", False) or hasattr(problem, "subgradient")
    return bool(getattr(problem, "convex", False) and is_known)


def pooled(
    total: Total,
    rows: Sequence[Matrix],
    finish: Callable[[Matrix, Vector], Array],
    numbers: Sequence[Vector] = (),
    merge: Callable[[Vector, Vector], Vector] = np.add,
) -> Array:
    """Return ``finish`` of the factor (p, p) of all rows, and of merged numbers."""
    packed = np.array([linalg.pack_factor(own) for own in rows])
    n, more = packed.shape[1], np.array(numbers).reshape(len(rows), -1)

    def merge_both(mine: Vector, other: Vector) -> Vector:
        factor = linalg.merge_factors(mine[:n], other[:n])
        return np.concatenate([factor, merge(mine[n:], other[n:])])

    def finish_both(whole: Vector) -> Array:
        return finish(linalg.unpack_factor(whole[:n]), whole[n:])

    return total(np.hstack([packed, more]), merge_both, finish_both)


def pooled_axes(
    total: Total, rows: Sequence[Matrix], unit: float = 1.0
) -> tuple[Vector, Matrix]:
    """Return singular values and right singular vectors of all rows, over a unit."""

    def finish(factor: Matrix, _: Vector) -> Matrix:
        _, values, axes = np.linalg.svd(factor / unit)
        return np.vstack([values, axes.T])

    found = pooled(total, rows, finish)
    return found[0], found[1:]


def certify(
    run: Run,
    centre: Vector,
    tolerance: float,
    coordinates: Coordinates | None,
    lightest: float = 1.0,
) -> Certificate:
    """Return the certificate of the last iteration; ``centre`` (k,) is zbar.

    Without coordinates there is no bound on the radius. If ``lightest`` is below
    `LIGHT`, rows may be lost in the factor of all rows, and in a fit without error.
    """
    work, theta, n = run.work, run.state.theta, run.topology.n_nodes
    problems = run.local.problems
    gradients = work.weight[:, None] * (work.centre - theta)
    for row, problem in enumerate(problems):
        if hasattr(problem, "subgradient"):
            gradients[row] = problem.subgradient(theta[row], gradients[row])
    values = run.local.values_at(np.tile(centre, (len(theta), 1)))
    slack = values - work.objective - np.vecdot(gradients, centre - theta)
    pull = work.weight * row_lengths(theta)  # rounding is EPS of it
    size = np.maximum(np.abs(values), np.abs(work.objective))
    if coordinates is None:  # in the units of the data, terms of f_i may cancel
        zero = run.local.values_at(np.zeros_like(theta))
        size = np.maximum(size, np.abs(np.where(np.isfinite(zero), zero, 0.0)))
    sums = run.total(list(np.column_stack([gradients, values, slack, pull, size])))
    gradient, (objective, D, pull, size) = sums[:-4], sums[-4:].tolist()
    S, length = _length(gradient) + 4.0 * EPS * pull, _length(centre)
    root = math.sqrt(2.0 * max(objective, 0.0) / n)
    # the last two: rounding of the fits, by EPS of |z|, and underflow
    D = max(D, 0.0) + ROUNDING * size
    D += 4.0 * EPS * n * math.sqrt(len(centre)) * root * length
    D += TINY * (S > 0.0 or length > 0.0)
    least = max(tolerance, LEAST_TOLERANCE)
    limit = max(least * root, LEAST_RADIUS * length * (lightest >= LIGHT))
    radius = gap = math.inf
    bounds, n_open = np.full(len(centre), np.inf), None
    if coordinates is not None:
        quadratic = bool(coordinates.quadratic)
        mu, radius = _radius(run, centre, S, D, quadratic)
        rounding = 4.0 * EPS * float(coordinates.condition)  # of the rows in z
        gap = D + S * radius if math.isfinite(radius) else math.inf
        if quadratic:
            gap = min(gap, _l1_gap(run, coordinates, centre, gradient, objective, D))
        gap += n * root * rounding * (length + rounding * root)
        if math.isfinite(radius):
            radius += rounding * (length + root) * max(1.0, n / mu)
        if coordinates.n_open > 0 and lightest < LIGHT:
            gap = radius = math.inf
        with np.errstate(invalid="ignore"):
            bounds = row_lengths(coordinates.map) * radius
        bounds[coordinates.is_open > 0.0] = np.inf
        if not np.isnan(coordinates.n_open):
            n_open = int(coordinates.n_open)
    assumed = [DROPPED] * bool(n_open)
    assumed += [getattr(problem, "assumed", "") for problem in problems]
    return Certificate(
        objective=objective,
        gap=max(gap, LEAST_GAP * abs(objective)),
        radius=radius,
        limit=limit,
        gap_limit=max(least**2, LEAST_GAP) * abs(objective),
        coefficients=bounds,
        open_directions=n_open,
        gradient=S,
        slack=D,
        nominal_radius=(S + math.sqrt(S * S + 2.0 * n * D)) / n,
        assumed=tuple(dict.fromkeys(filter(None, assumed))),
        lightest=lightest,
    )


def _radius(
    run: Run, centre: Vector, S: float, D: float, quadratic: bool
) -> tuple[float, float]:
    """Return mu and R; R is inf if no curvature is known within it."""

    def least_curvature(factor: Matrix, _: Vector) -> Vector:
        values = np.linalg.svd(factor, compute_uv=False)
        return np.array([values[-1] ** 2 if values[-1] > FLAT * values[0] else 0.0])

    def bound(reach: float) -> tuple[float, float]:
        rows = [problem.rows(centre, reach) for problem in run.local.problems]
        mu = float(pooled(run.total, rows, least_curvature)[0])
        if mu <= 0.0:
            return 0.0, math.inf
        return mu, (S + math.sqrt(S * S + 2.0 * mu * D)) / mu

    first = bound(0.0)
    if quadratic:
        return first
    for multiple in REACHES:
        reach = multiple * first[-1]
        if not math.isfinite(reach):
            break
        found = bound(reach)
        if found[-1] <= reach:
            return found
    return 0.0, math.inf


def _l1_gap(
    run: Run,
    coordinates: Coordinates,
    centre: Vector,
    gradient: Vector,
    objective: float,
    slack: float,
) -> float:
    """Return the bound on the gap by an l1 penalty, which needs no mu; inf without one.

    With weights l of the whole sum and gradients g in theta, ``l . |theta*| <= F``, so
    penalised entries contribute at most ``max |g_k| / l_k (F + l . |theta|)``. Entries
    without a penalty are free. For every step d, ``|g . d| <= |h . d| + a |F d|`` with
    the rows F of all nodes, and h zero in free entries. Let b be the share of the slack
    and of h. The length q of the way to the minimum has ``q^2 / 2 <= b + a q``.
    """
    none, inverse = np.zeros(len(coordinates.map)), coordinates.inverse
    problems = run.local.problems
    weights = run.total([getattr(problem, "l1", none) for problem in problems])
    if not weights.any():
        return math.inf
    g, a, free = gradient @ inverse, 0.0, weights == 0.0

    def without_free(factor: Matrix, _: Vector) -> Vector:
        columns = factor @ inverse
        basis, triangle = np.linalg.qr(columns[:, free])
        try:
            along = basis @ np.linalg.solve(triangle.T, g[free])
        except np.linalg.LinAlgError:
            along = np.full(len(factor), np.inf)
        return np.append(np.where(free, 0.0, g - along @ columns), norm(along))

    if free.any():
        rows = [problem.rows(centre) for problem in problems]
        *found, a = pooled(run.total, rows, without_free).tolist()
        g = np.array(found)
    rate = float((np.abs(g[~free]) / weights[~free]).max())
    b = slack + rate * (objective + float(weights @ np.abs(coordinates.map @ centre)))
    return b + a * (a + math.sqrt(a * a + 2.0 * b))


def _length(vector: Vector) -> float:
    """Return the length of a vector, without underflow."""
    peak = float(np.abs(vector).max(initial=0.0))
    return peak * float(norm(vector / peak)) if peak else 0.0
