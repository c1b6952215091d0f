"""Small numerical functions."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix


def triangular(rows: Matrix) -> Matrix:
    """Return at most D rows R with the same ``R' R`` as the given rows (n, D)."""
    if len(rows) <= rows.shape[1]:
        return rows
    return np.asarray(np.linalg.qr(rows, mode="r"))
