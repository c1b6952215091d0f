"""Means and scales of the encoded columns over the rows of all nodes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data.encoding import Encoding
from dadmm.data.frame import Frame

EPS = float(np.finfo(float).eps)


def moments(encoding: Encoding, frame: Frame) -> Matrix:
    """Return rows, entries, mean and squares about the mean of each column, (4, p)."""
    X, y = encoding.raw(frame, fit=True)
    X = X.toarray() if hasattr(X, "toarray") else X
    kept = np.ones(len(X), bool) if y is None else ~np.isnan(y)
    if encoding.on_missing == "drop":
        kept &= ~np.isnan(X).any(axis=1)
    elif encoding.on_missing == "keep":
        kept[:] = True
    X = X[kept]
    seen = ~np.isnan(X)
    counts = seen.sum(axis=0).astype(np.float64)
    divisor = np.maximum(counts, 1.0)
    with np.errstate(all="ignore"):  # infinite and very large entries are refused later
        means = np.where(seen, X, 0.0).sum(axis=0) / divisor
        apart = np.where(seen, X - means, 0.0)
        means += apart.sum(axis=0) / divisor
        squares = np.where(seen, (X - means) ** 2, 0.0).sum(axis=0)
    return np.array([np.full(len(counts), float(len(X))), counts, means, squares])


def pool(a: Matrix, b: Matrix) -> Matrix:
    """Return the moments of the rows of two sets of nodes."""
    counts = a[1] + b[1]
    part = b[1] / np.maximum(counts, 1.0)
    with np.errstate(all="ignore"):
        apart = b[2] - a[2]
        means = np.where(a[1] == 0, b[2], a[2] + part * apart)
        squares = a[3] + b[3] + np.where(a[1] == 0, 0.0, apart**2 * a[1] * part)
    return np.array([a[0] + b[0], counts, means, squares])


def with_moments(encoding: Encoding, sums: Matrix, *, standardise: bool) -> Encoding:
    """Return an encoding with the means, and the scales if columns are standardised."""
    rows, counts, means, squares = sums
    names = encoding.feature_names
    if not rows.all():
        raise ShardError(
            "no row of any node is complete; fill the gaps, or use --on-missing mean"
        )
    for name, count, mean, square in zip(names, counts, means, squares, strict=True):
        if not count:
            raise ShardError(
                f"column {name!r} is missing in all rows of all nodes; leave it out of "
                "--features"
            )
        if not math.isfinite(mean + square):
            raise ShardError(
                f"column {name!r} has entries that are infinite or too large; rescale "
                "the column"
            )
    scales = None
    if standardise:
        per = counts if encoding.on_missing == "keep" else rows  # filled rows count
        scales = np.sqrt(squares / per)
        scales[scales <= 10 * EPS * np.abs(means)] = 1.0
    return replace(encoding, means=means, scales=scales)
