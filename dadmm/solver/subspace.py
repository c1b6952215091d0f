"""A bound on the angle between the result of PPCA and the principal axes of all rows.

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
from typing import NamedTuple, Protocol, Self

import numpy as np

from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import subspace_angle
from dadmm.solver.coordinates import Total, pooled

MORE_AXES = 10  # of its rows that a node sends, beyond the components
MOST_DEGREES = 10.0  # a larger bound is none
EPS = float(np.finfo(float).eps)
ROUNDING = 4.0 * EPS  # of the rows, see `_error_weight`


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

    def standardised(self, mean: Vector, unit: float) -> Self:
        """Return the problem of the rows ``(x - mean) / unit``."""

    def completed_sum(self, theta: Vector) -> Vector:
        """Return the sum (D,) of all rows, with expectations for missing entries."""

    def completed(self, theta: Vector) -> Matrix:
        """Return rows with the expected scatter about zero."""

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient of the negative log-likelihood."""

    def moment(self, theta: Vector) -> Matrix:
        """Return the (M, M) second moment of the latent variables."""


class SubspaceBound(NamedTuple):
    """How far the subspaces of a result are from the principal subspace of all rows."""

    #: The largest angle between the column space of W, of any node or of the solution,
    #: and the first M principal axes of the rows of all nodes is at most this large, in
    #: degrees. It is inf if there is no bound, or none below 10 degrees
    angle: float
    apart: float  #: the part of it that is the largest angle of a node to the solution
    why: str  #: why there is no bound; "" if there is one


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
    first, (D, M) = problems[0], centre.shape
    if not np.isfinite(centre).all():
        return _none("W is not finite")
    given = [
        np.append(p.n_samples * p.mean, [p.n_samples, _error_weight(p, n_nodes)])
        for p in problems
    ]
    *sums, n, errors = total(given)
    unit = math.sqrt(errors / n)
    if not 0.0 < unit < math.inf:
        return _none("the squares of the rows underflow or overflow")
    mean = np.zeros(D) if first.zero_mean else np.array(sums) / n
    rows = [p.standardised(mean, unit).raw_factor / math.sqrt(n) for p in problems]

    def singular(factor: Matrix) -> Matrix:  # values above right vectors
        _, lengths, turned = np.linalg.svd(factor)
        return np.vstack([lengths, turned.T])

    basis = np.linalg.qr(centre)[0]
    turned = pooled(total, [own @ basis for own in rows], singular)
    lengths, basis = turned[0], basis @ turned[1:]
    if not lengths[-1] > 0.0:
        return _none("the rows do not span the subspace")
    k = n_axes(first)
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
    least = float(lengths[-1])
    if not apart <= MOST_DEGREES:
        return _none("the nodes' subspaces are not known to agree within 10 degrees")
    if not longest + ROUNDING < least - ROUNDING:
        return _none(
            "the variance outside of the subspace may be as large as the least inside"
        )
    ratio = (longest + ROUNDING) / (least - ROUNDING)
    slope += ROUNDING / (least - ROUNDING) * (1.0 + 1.7 * ratio)
    sine = slope / ((1.0 - ratio) * (1.0 + ratio))
    angle = math.degrees(math.asin(sine)) if sine < 1.0 else 90.0
    angle = (angle + apart) * (1.0 + 1e-12)
    if angle > MOST_DEGREES:
        degrees = math.ceil(min(angle, 90.0))
        return _none(f"the bound is {degrees} degrees, more than 10")
    return SubspaceBound(angle, apart, "")


def _none(why: str) -> SubspaceBound:
    return SubspaceBound(math.inf, math.inf, why)


def _error_weight(problem: SubspaceProblem, n_nodes: int) -> float:
    """Return the squared error of a node's rows by rounding, in units of EPS.

    The mean of n rows has an error of up to n times EPS, products of D terms of D EPS.
    """
    times = problem.n_samples + problem.dimension + n_nodes + 8.0
    rows = problem.raw_factor
    return float(times**2 * np.vdot(rows, rows))


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
