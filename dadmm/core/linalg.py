"""Small numerical functions, and how many threads BLAS has."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from dadmm.core.layout import Matrix, Vector

EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)
BLOCK = 64  # rows that are decomposed at once: rounding then hardly grows with rows


def triangular(rows: Matrix) -> Matrix:
    """Return at most D rows R with the same ``R' R`` as the given rows (..., n, D)."""
    (*stack, n, D) = rows.shape
    block = max(BLOCK, 4 * D)
    while n > block:
        whole = n // block * block
        blocks = rows[..., :whole, :].reshape(*stack, -1, block, D)
        parts = np.asarray(np.linalg.qr(blocks, mode="r")).reshape(*stack, -1, D)
        rows = np.concatenate([parts, rows[..., whole:, :]], axis=-2)
        n = rows.shape[-2]
    return rows if n <= D else np.asarray(np.linalg.qr(rows, mode="r"))


def pack_factor(rows: Matrix) -> Vector:
    """Return the p (p + 1) / 2 numbers of the factor of rows; bits as of one alone."""
    (*stack, r, p) = rows.shape
    factor = np.zeros((*stack, p, p))
    found = triangular(rows) if r > p else np.asarray(np.linalg.qr(rows, mode="r"))
    factor[..., : found.shape[-2], :] = found
    return np.asarray(factor[..., *np.triu_indices(p)])


def unpack_factor(packed: Vector) -> Matrix:
    """Return the factor (..., p, p) of `pack_factor`."""
    (*stack, n) = packed.shape
    p = (math.isqrt(8 * n + 1) - 1) // 2
    factor = np.zeros((*stack, p, p))
    factor[..., *np.triu_indices(p)] = packed
    return factor


def merge_factors(mine: Vector, other: Vector) -> Vector:
    """Return the packed factor of the rows of two packed factors, (..., n)."""
    both = np.concatenate([unpack_factor(mine), unpack_factor(other)], axis=-2)
    return pack_factor(both)


def row_lengths(rows: Matrix) -> Vector:
    """Return the Euclidean length of each row (..., size), shape (...)."""
    return np.asarray(np.sqrt(np.vecdot(rows, rows)))


def by_row(rows: Matrix, matrix: Matrix) -> Matrix:
    """Return ``rows @ matrix``; the bits of a row do not depend on the other rows."""
    columns = np.ascontiguousarray(matrix.T)
    return np.asarray(np.vecdot(rows[..., None, :], columns))


def principal_axes(W: Matrix) -> tuple[Matrix, Vector]:
    """Return the principal axes of ``W z``, (D, M), and their lengths (M,), falling."""
    axes, lengths, _ = np.linalg.svd(W, full_matrices=False)
    largest = np.abs(axes).argmax(axis=0)  # entry of each axis: it becomes positive
    signs = np.where(axes[largest, np.arange(len(lengths))] < 0.0, -1.0, 1.0)
    return axes * signs, lengths


def subspace_angle(A: Matrix, B: Matrix) -> Any:
    """Return the largest principal angle between column spaces, in degrees.

    Small angles are accurate, too (Knyazev and Argentati, 2002).

    Parameters
    ----------
    A, B : ndarray of shape (..., D, M), ndarray of shape (D, M)

    Returns
    -------
    angle : float or ndarray of shape (...)

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> A, B = np.eye(3)[:, :2], np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(dadmm.metrics.subspace_angle(A, B), 6)
    45.0
    """
    A, B = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    inside = B.T @ A
    outside = A - B @ inside
    # squared singular values of both, from M by M matrices
    squares = np.stack([outside.mT @ outside, inside.mT @ inside])
    squares = np.maximum(np.linalg.eigvalsh(squares), 0.0)
    sine, cosine = np.sqrt(squares[0, ..., -1]), np.sqrt(squares[1, ..., 0])
    angle = np.degrees(np.arctan2(sine, cosine))
    return float(angle) if A.ndim == 2 else angle


class _Found:
    """The BLAS libraries that were found."""

    controller: ThreadpoolController | None = None
    modules: set[str] | None = None  # of other packages, at that time


@contextmanager
def one_blas_thread(search: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread until the end of a ``with`` block.

    Ranks share cores, and the bits of a result depend on the number of threads. A
    ``search`` finds libraries that were loaded since the last one.
    """
    if search:
        # numpy's BLAS is loaded by now; others come with modules of other packages
        known = {*sys.stdlib_module_names, "numpy", "dadmm", "mpi4py"}
        others = {name for name in sys.modules if name.partition(".")[0] not in known}
        if _Found.modules != others:
            _Found.controller, _Found.modules = None, others
    if _Found.controller is None:  # takes 3 ms
        _Found.controller = ThreadpoolController().select(user_api="blas")
    with _Found.controller.limit(limits=1):
        yield


with_one_blas_thread = one_blas_thread(search=False)  # a decorator of functions
