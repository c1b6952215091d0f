"""A bound on the error of a result, from sums over all nodes.

After its proximal step a node knows a subgradient ``g_i = w_i (c_i - z_i)`` of its
objective at z_i. Let zbar be the mean of all z_i, F the sum of all f_i at zbar, ``S =
|sum g_i|`` and ``D = sum f_i(zbar) - f_i(z_i) - g_i . (zbar - z_i)``. Convexity gives,
for every z, ``F(z) >= F - D + sum g_i . (z - zbar)``. So no point within r of zbar is
lower than F by more than ``D + S r``. If the curvature of the sum of all f_i between
zbar and its minimum z* is at least mu, then ``mu/2 |z* - zbar|^2 <= F - F(z*)``. So
``|z* - zbar| <= R = (S + sqrt(S^2 + 2 mu D)) / mu``.

An l1 penalty bounds the gap without mu. With weights l of the whole sum and gradients G
in theta, ``l . |theta*| <= F``, so the penalised entries contribute at most ``max |G_k|
/ l_k (F + l . |theta|)``. The others are bounded by the curvature along them, see
`coordinates.without`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from dadmm.admm.loop import Run
from dadmm.core.interfaces import TransformableProblem
from dadmm.core.layout import Matrix, Vector
from dadmm.solver.coordinates import Coordinates, least_curvature, without

ROUNDING = 1e-14  # of D, relative to F
LEAST_GAP = 1e-8  # smallest gap that is claimed, relative to F
LEAST_TOLERANCE = 2e-7  # with ROUNDING, no smaller one can be proved
LEAST_RADIUS = 1e-8  # radius that is always good enough, relative to |zbar|
REACHES = (2.0, 8.0)  # multiples of the estimated radius within which mu must hold
LIGHT = 1e-6  # rows below this multiple of the largest may be lost beside it
DROPPED = "directions along which the data differ by rounding only count as open"
EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)


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
        return min(_ratio(self.radius, self.limit), _ratio(self.gap, self.gap_limit))

    def lower_within(self, distance: float) -> float:
        """Return by how much a point within this distance can be lower at most."""
        least = LEAST_GAP * abs(self.objective)
        return max(self.slack + self.gradient * distance, least)


def _ratio(bound: float, limit: float) -> float:
    """Return a bound over its limit; 0 for zero within zero."""
    if bound == 0.0 and limit >= 0.0:
        return 0.0
    return bound / limit if limit else math.inf


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
    problems, n = run.local.problems, run.topology.n_nodes
    theta, gradients = run.state.theta, subgradients(run)
    values = run.local.values_at(np.tile(centre, (len(theta), 1)))
    slack = values - run.work.objective - np.vecdot(gradients, centre - theta)
    pull = run.work.weight * np.sqrt(np.vecdot(theta, theta))  # rounding is EPS of it
    size = np.maximum(np.abs(values), np.abs(run.work.objective))
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
            by_l1 = _l1_gap(run, coordinates, centre, gradient, objective, D)
            gap = by_l1 if by_l1 < gap else gap
        gap += n * root * rounding * (length + rounding * root)
        if math.isfinite(radius):
            radius += rounding * (length + root) * max(1.0, n / mu)
        if coordinates.n_open > 0 and lightest < LIGHT:
            gap = radius = math.inf
        rows = coordinates.map
        with np.errstate(invalid="ignore"):
            bounds = np.sqrt(np.vecdot(rows, rows)) * radius
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


def subgradients(run: Run) -> Matrix:
    """Return a subgradient of each f_i at theta_i, (n, k)."""
    theta, work = run.state.theta, run.work
    found = work.weight[:, None] * (work.centre - theta)
    for row, problem in enumerate(run.local.problems):
        if hasattr(problem, "subgradient"):
            found[row] = problem.subgradient(theta[row], found[row])
    return found


def _radius(
    run: Run, centre: Vector, S: float, D: float, quadratic: bool
) -> tuple[float, float]:
    """Return mu and R; R is inf if no curvature is known within it."""
    problems = cast(list[TransformableProblem], run.local.problems)

    def bound(reach: float) -> tuple[float, float]:
        rows = [problem.rows(centre, reach) for problem in problems]
        mu = least_curvature(run.total, rows)
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
    """Return the bound on the gap by an l1 penalty; inf without one.

    Let b be the share of the slack and of penalised entries, and a of the others. The
    length q of the way to the minimum has ``q^2 / 2 <= b + a q``, which bounds the gap.
    """
    problems = cast(list[TransformableProblem], run.local.problems)
    none = np.zeros(len(coordinates.map))
    weights = run.total([getattr(problem, "l1", none) for problem in problems])
    if not weights.any():
        return math.inf
    rows, free = [problem.rows(centre) for problem in problems], weights == 0.0
    g, inverse = gradient @ coordinates.inverse, coordinates.inverse
    rest, a = (g, 0.0) if not free.any() else without(run.total, rows, inverse, g, free)
    rate = float((np.abs(rest[~free]) / weights[~free]).max())
    b = slack + rate * (objective + float(weights @ np.abs(coordinates.map @ centre)))
    return b + a * (a + math.sqrt(a * a + 2.0 * b))


def _length(vector: Vector) -> float:
    """Return the length of a vector, without underflow."""
    peak = float(np.abs(vector).max(initial=0.0))
    return peak * float(np.linalg.norm(vector / peak)) if peak else 0.0
