"""Small numerical functions."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix


def triangular(rows: Matrix) -> Matrix:
    """Return at most D rows R with the same ``R' R`` as the given rows (n, D)."""
    if len(rows) <= rows.shape[1]:
        return rows
    return np.asarray(np.linalg.qr(rows, mode="r"))


def by_row(rows: Matrix, matrix: Matrix) -> Matrix:
    """Return ``rows @ matrix``, (..., m) times (m, k), one dot product per entry.

    The bits of a row do not depend on the other rows, as they may in a matrix product.
    """
    columns = np.ascontiguousarray(matrix.T)
    return np.asarray(np.vecdot(rows[..., None, :], columns))
