"""Coordinates z, theta = T z, in which the sum of all objectives is well conditioned.

Each node forms rows F_i with ``F_i' F_i`` the Hessian of f_i at its start. Triangular
factors of these rows are merged up a tree by QR decompositions, which square no
condition number. Of the whole factor, columns are scaled to length one, and T maps its
singular directions to the unit vectors: the Hessian of the mean of all f_i is the
identity in z. Directions that the data do not determine are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.linalg import norm

from dadmm.comm.tree import Stacked
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import TransformableProblem
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.core.linalg import merge_factors, pack_factor, unpack_factor

# singular values below this multiple of the largest, times p, count as zero: what is
# left of linearly dependent columns by rounding is less than half of it
LEAST = 4.0 * float(np.finfo(float).eps)
# smaller ones are raised to this multiple if T must be invertible; its square, the
# condition of the proximal step of an l1 penalty, must not reach double precision
LEAST_INVERTIBLE = 1e-6
FLAT = 1e-7  # singular values below this multiple of the largest give no bound
MOST_CHANGE = 100.0  # of an eigenvalue, in one change of coordinates
MOST_LENGTH = 1e140  # of a column; the squares of T and of its inverse are finite
USUAL = 1e-3  # factor of rows at the usual start, if a run starts elsewhere
OPEN = 1e-8  # smallest component of a coefficient in a dropped direction that counts

Total = Callable[..., Array]  # `Run.total`: merge one value per node over all nodes


class Coordinates(NamedTuple):
    """The map from z (k,) to theta (p,)."""

    map: Matrix  # (p, k) T
    inverse: Matrix  # (k, p), its left inverse
    is_open: Vector  # (p,) 1 if the data leave the coefficient open, else 0
    condition: Vector  # () largest over smallest singular value of the scaled columns
    n_open: Vector  # () directions that the data leave open; NaN if unknown
    quadratic: Vector  # () 1 if the curvature of all problems is constant, else 0
    exact: Vector  # () 1 if all problems give exact subgradients, else 0
    margins: Vector  # () 1 if all problems have margins, else 0

    def changed(
        self, values: Vector, axes: Matrix
    ) -> tuple[Coordinates, Matrix, Matrix]:
        """Return coordinates with a Hessian near one, given its eigenvectors in these.

        Also return factors (k, k) of rows of z, and of gradients.
        """
        root = np.sqrt(np.clip(values, 1.0 / MOST_CHANGE, MOST_CHANGE))
        primal, dual = axes * root, axes / root
        T = self.map @ dual
        scaled = np.linalg.svd(T / _lengths(T), compute_uv=False)
        inverse, condition = primal.T @ self.inverse, np.array(scaled[0] / scaled[-1])
        new = self._replace(map=T, inverse=inverse, condition=condition)
        return new, primal, dual


def is_exact(problem: object) -> bool:
    """Return whether a convex problem gives exact subgradients."""
    known = getattr(problem, "exact", False) or hasattr(problem, "subgradient")
    return bool(getattr(problem, "convex", False) and known)


def find_coordinates(
    total: Total,
    problems: Sequence[TransformableProblem],
    starts: Sequence[Vector],
    n_nodes: int,
) -> Coordinates:
    """Return the coordinates of all nodes, from the problems of this process."""
    both = zip(problems, starts, strict=True)
    rows, facts = [_first_rows(p, at) for p, at in both], [_facts(p) for p in problems]

    def finish(factor: Matrix, facts: Vector) -> Matrix:
        T, inverse, is_open, *numbers = _coordinates(factor, n_nodes, facts)
        return np.column_stack([T, inverse.T, is_open, np.tile(numbers, (len(T), 1))])

    array = pooled(total, rows, finish, facts, np.minimum)
    k = (array.shape[1] - 6) // 2
    T, inverse, is_open, numbers = np.split(array, [k, 2 * k, 2 * k + 1], axis=1)
    parts = T.copy(), inverse.T.copy(), is_open[:, 0].copy()
    found = Coordinates(*parts, *map(np.array, numbers[0]))
    if not np.isfinite(found.map).all():
        raise ProblemError(
            "a column of the data, with its penalty, is too large or too small: its "
            f"length over all nodes must be from {1.0 / MOST_LENGTH:g} to "
            f"{MOST_LENGTH:g}, or zero; rescale it"
        )
    return found


def _facts(problem: object) -> Vector:
    """Return facts of a problem as 0 and 1; the least of all nodes counts."""
    drops = not getattr(problem, "needs_inverse", False)
    quadratic = getattr(problem, "quadratic", False)
    facts = [drops, quadratic, is_exact(problem), hasattr(problem, "margins")]
    return np.array(facts, dtype=np.float64)


def _first_rows(problem: TransformableProblem, start: Vector) -> Matrix:
    """Return the rows of a problem at its start.

    If curvature varies, rows at the usual start are added, with a small factor: they
    show which directions are open if it is zero to rounding at the start.
    """
    rows = problem.rows(start)
    if getattr(problem, "quadratic", False):
        return rows
    usual = problem.init(np.random.default_rng(0))
    if np.array_equal(usual, start):
        return rows
    return np.vstack([rows, USUAL * problem.rows(usual)])


def pooled(
    total: Total,
    rows: Sequence[Matrix],
    finish: Callable[..., Array],
    numbers: Sequence[Vector] | None = None,
    merge: Callable[[Vector, Vector], Vector] = np.add,
) -> Array:
    """Return ``finish`` of the factor (p, p) of all rows, and of merged numbers."""
    packed = _packed(rows)
    n = packed.shape[1]
    if numbers is None:
        merged = Stacked(merge_factors)
        return total(packed, merged, lambda whole: finish(unpack_factor(whole)))

    def merge_both(mine: Matrix, other: Matrix) -> Matrix:
        factor = merge_factors(mine[..., :n], other[..., :n])
        more = merge(mine[..., n:], other[..., n:])
        return np.concatenate([factor, more], axis=-1)

    return total(
        np.column_stack([packed, np.array(numbers)]),
        Stacked(merge_both),
        lambda whole: finish(unpack_factor(whole[:n]), whole[n:]),
    )


def _packed(rows: Sequence[Matrix]) -> Matrix:
    """Return the packed factors of all nodes, a row each."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for i, own in enumerate(rows):
        shapes.setdefault(own.shape, []).append(i)
    p = rows[0].shape[1]
    packed = np.empty((len(rows), p * (p + 1) // 2))
    for alike in shapes.values():
        packed[alike] = pack_factor(np.array([rows[i] for i in alike]))
    return packed


def spectrum(
    total: Total, rows: Sequence[Matrix], n_nodes: int
) -> tuple[Vector, Matrix]:
    """Return eigenvalues and eigenvectors of the mean over the nodes of F_i' F_i."""

    def finish(factor: Matrix) -> Matrix:
        _, values, axes = np.linalg.svd(factor / math.sqrt(n_nodes))
        return np.vstack([values**2, axes.T])

    found = pooled(total, rows, finish)
    return found[0], found[1:]


def least_curvature(total: Total, rows: Sequence[Matrix]) -> float:
    """Return the smallest eigenvalue of the sum of all F' F; 0 if it is rounding."""

    def finish(factor: Matrix) -> Vector:
        values = np.linalg.svd(factor, compute_uv=False)
        return np.array([values[-1] ** 2 if values[-1] > FLAT * values[0] else 0.0])

    return float(pooled(total, rows, finish)[0])


def without(
    total: Total, rows: Sequence[Matrix], inverse: Matrix, g: Vector, free: Array
) -> tuple[Vector, float]:
    """Return a gradient without its part along free entries of theta.

    The gradient g (p,) is in theta, the rows F (r, k) of each node are in z. For every
    d, ``|g . d| <= |h . d| + a |F d|``. Return h, zero in free entries, and a.
    """

    def finish(factor: Matrix) -> Vector:
        columns = factor @ inverse
        basis, triangle = np.linalg.qr(columns[:, free])
        try:
            along = basis @ np.linalg.solve(triangle.T, g[free])
        except np.linalg.LinAlgError:
            along = np.full(len(factor), np.inf)
        return np.append(np.where(free, 0.0, g - along @ columns), norm(along))

    found = pooled(total, rows, finish)
    return found[:-1], float(found[-1])


def _lengths(rows: Matrix) -> Matrix:
    """Return the length of each row, (n, 1); 1 for a row of zeros."""
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    peaks[peaks == 0.0] = 1.0
    found: Matrix = peaks * norm(rows / peaks, axis=1, keepdims=True)
    found[found == 0.0] = 1.0
    return found


def _coordinates(factor: Matrix, n_nodes: int, facts: Vector) -> Coordinates:
    """Return the coordinates of a whole factor (p, p); NaN if they overflow."""
    invertible, quadratic = facts[0] == 0.0, facts[1]
    lengths = _lengths(factor.T)[:, 0]
    if not (1.0 / MOST_LENGTH <= lengths.min() <= lengths.max() <= MOST_LENGTH):
        none = np.full_like(factor, np.nan)
        return Coordinates(none, none, none[0], *none[0, :1].repeat(2), *facts[1:])
    _, values, axes = np.linalg.svd(factor / lengths)
    largest = values[0] or 1.0
    kept = values > LEAST * len(values) * largest
    dropped = axes[~kept]
    is_open = np.sqrt(np.vecdot(dropped.T, dropped.T)) > OPEN
    if invertible or not kept.any():
        values = np.maximum(values, LEAST_INVERTIBLE * largest)
    else:
        values, axes = values[kept], axes[kept]
    values = values / math.sqrt(n_nodes)
    n_open = float((~kept).sum())
    if invertible and not quadratic:  # there may be curvature elsewhere
        n_open, is_open = math.nan, np.zeros(len(is_open), dtype=bool)
    return Coordinates(
        map=(axes.T / lengths[:, None]) / values,
        inverse=values[:, None] * axes * lengths,
        is_open=is_open.astype(np.float64),
        condition=np.array(values[0] / values[-1]),
        n_open=np.array(n_open),
        quadratic=facts[1],
        exact=facts[2],
        margins=facts[3],
    )
