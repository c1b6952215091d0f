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
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.typing import NDArray

from dadmm.admm.local import stacks
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector

MOST_COLUMNS = 300  # more than this, the factor costs more than it saves
LEAST = 1e-12  # singular values below this multiple of the largest count as zero
# smaller ones are raised to this multiple if T must be invertible; its square, the
# condition of the proximal step of an l1 penalty, must not reach double precision
LEAST_INVERTIBLE = 1e-6
FLAT = 1e-7  # singular values below this multiple of the largest give no bound
MOST_CHANGE = 100.0  # of an eigenvalue, in one change of coordinates
OPEN = 1e-8  # smallest component of a coefficient in a dropped direction that counts

Total = Callable[..., Any]  # `Run.total`: merge one value per node over all nodes


class Coordinates(NamedTuple):
    """The map from z (k,) to theta (p,)."""

    map: Matrix  # (p, k) T
    inverse: Matrix  # (k, p), its left inverse
    is_open: Vector  # (p,) 1 if the data leave the coefficient open, else 0
    condition: Vector  # () largest over smallest singular value of the scaled columns
    n_open: Vector  # () directions that the data leave open

    def changed(
        self, values: Vector, axes: Matrix
    ) -> tuple[Coordinates, Matrix, Matrix]:
        """Return coordinates with a Hessian near one, given the Hessian in these.

        Parameters
        ----------
        values, axes : ndarray of shape (k,) and (k, k)
            Eigenvalues and eigenvectors (columns) of the Hessian of the mean.

        Returns
        -------
        coordinates : Coordinates
        primal, dual : ndarray of shape (k, k)
            Rows of z are multiplied by ``primal``, and gradients by ``dual``.
        """
        root = np.sqrt(np.clip(values, 1.0 / MOST_CHANGE, MOST_CHANGE))
        primal, dual = axes * root, axes / root
        new = self._replace(map=self.map @ dual, inverse=primal.T @ self.inverse)
        return new, primal, dual


def supports(problem: Problem) -> bool:
    """Return whether a problem can change its coordinates."""
    plain = not problem.layout.private and not problem.layout.scales
    return plain and hasattr(problem, "rows") and stacks(type(problem), "within")


def merged(
    total: Total, problems: Sequence[Any], starts: Sequence[Vector], n_nodes: int
) -> Coordinates:
    """Return the coordinates of all nodes, from the problems of this process."""
    given = [
        np.append(_pack(p.rows(start)), float(getattr(p, "needs_inverse", False)))
        for p, start in zip(problems, starts, strict=True)
    ]

    def merge(mine: Vector, other: Vector) -> Vector:
        return np.append(_merge(mine[:-1], other[:-1]), max(mine[-1], other[-1]))

    def finish(whole: Vector) -> Matrix:
        return _encoded(_coordinates(_unpack(whole[:-1]), n_nodes, whole[-1] > 0.0))

    return _decoded(total(given, merge, finish))


def pooled(
    total: Total, rows: Sequence[Matrix], finish: Callable[[Matrix], Any]
) -> Any:
    """Return ``finish`` of the factor (p, p) of the rows of all nodes."""
    return total([_pack(own) for own in rows], _merge, lambda v: finish(_unpack(v)))


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
    total: Total, rows: Sequence[Matrix], inverse: Matrix, g: Vector, free: NDArray[Any]
) -> tuple[Vector, float]:
    """Return a gradient without its part along free entries of theta.

    For every d, ``|g . d| <= |h . d| + a |F d|``, and h is zero in the free entries.

    Parameters
    ----------
    total : callable
    rows : sequence of ndarray of shape (r, k)
        F of each node, in z.
    inverse : ndarray of shape (k, p)
        z of theta.
    g : ndarray of shape (p,)
        A gradient in theta.
    free : ndarray of bool, shape (p,)

    Returns
    -------
    h : ndarray of shape (p,)
    a : float
        inf if the free entries are not determined.
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


def _coordinates(factor: Matrix, n_nodes: int, invertible: bool) -> Coordinates:
    """Return the coordinates of a whole factor (p, p)."""
    lengths = np.sqrt(np.vecdot(factor.T, factor.T))
    lengths[lengths == 0.0] = 1.0
    _, values, axes = np.linalg.svd(factor / lengths)
    largest = values[0] or 1.0
    kept = values > LEAST * largest
    dropped = axes[~kept]
    is_open = np.sqrt(np.vecdot(dropped.T, dropped.T)) > OPEN
    if invertible or not kept.any():
        values = np.maximum(values, LEAST_INVERTIBLE * largest)
    else:
        values, axes = values[kept], axes[kept]
    values = values / math.sqrt(n_nodes)
    return Coordinates(
        map=(axes.T / lengths[:, None]) / values,
        inverse=values[:, None] * axes * lengths,
        is_open=is_open.astype(np.float64),
        condition=np.array(values[0] / values[-1]),
        n_open=np.array(float((~kept).sum())),
    )


def _encoded(found: Coordinates) -> Matrix:
    """Return coordinates as one array (p, 2 k + 3), for a message."""
    p = len(found.map)
    numbers = np.tile([found.condition, found.n_open], (p, 1))
    return np.column_stack([found.map, found.inverse.T, found.is_open, numbers])


def _decoded(array: Matrix) -> Coordinates:
    k = (array.shape[1] - 3) // 2
    condition, n_open = array[0, -2:]
    return Coordinates(
        map=array[:, :k].copy(),
        inverse=array[:, k : 2 * k].T.copy(),
        is_open=array[:, 2 * k].copy(),
        condition=np.array(condition),
        n_open=np.array(n_open),
    )


def _pack(rows: Matrix) -> Vector:
    """Return the upper triangle of the factor of rows (r, p), p (p + 1) / 2 numbers."""
    p = rows.shape[1]
    factor = np.zeros((p, p))
    found = np.linalg.qr(rows, mode="r")
    factor[: len(found)] = found
    return np.asarray(factor[np.triu_indices(p)])


def _unpack(packed: Vector) -> Matrix:
    p = (math.isqrt(8 * len(packed) + 1) - 1) // 2
    factor = np.zeros((p, p))
    factor[np.triu_indices(p)] = packed
    return factor


def _merge(mine: Vector, other: Vector) -> Vector:
    return _pack(np.vstack([_unpack(mine), _unpack(other)]))
