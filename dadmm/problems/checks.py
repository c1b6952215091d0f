"""Checks of the arguments of problems."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector


def checked_rows(problem: str, X: ArrayLike) -> Matrix:
    """Return a copy of X (n, d); raise if it is not valid."""
    rows = checked_array(problem, "X", X)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ProblemError(
            f"{problem} needs X of shape (n, d) with n, d >= 1, got {rows.shape}"
        )
    return rows


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse matrix or array of scipy."""
    return hasattr(X, "tocsr") and hasattr(X, "toarray")


def checked_sparse(problem: str, X: Any) -> Any:
    """Return X (n, d) in rows (scipy's CSR format); raise if it is not valid."""
    if len(X.shape) != 2 or 0 in X.shape:
        raise ProblemError(
            f"{problem} needs X of shape (n, d) with n, d >= 1, got {X.shape}"
        )
    try:
        found = X.tocsr().astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{problem} needs X of numbers: {error}") from None
    bad = np.flatnonzero(~np.isfinite(found.data))
    if len(bad):
        row = int(np.searchsorted(found.indptr, bad[0], side="right")) - 1
        raise ProblemError(
            f"{problem} needs finite X, but row {row}, column {found.indices[bad[0]]} "
            f"is {found.data[bad[0]]}"
        )
    return found


def checked_weights(problem: str, values: ArrayLike | None, n: int) -> Vector:
    """Return the weights (n,) of the rows; ones for None. Raise if not valid."""
    if values is None:
        return np.ones(n)
    found = checked_array(problem, "sample_weight", values)
    if found.shape != (n,):
        raise ProblemError(
            f"{problem} needs one sample_weight for each of the {n} rows of X, shape "
            f"({n},), got {found.shape}"
        )
    if found.min() < 0.0:
        row = int(np.argmax(found < 0.0))
        raise ProblemError(
            f"{problem} needs sample_weight of at least 0, but row {row} is "
            f"{found[row]}"
        )
    if not found.any():
        raise ProblemError(
            f"{problem} needs a row of positive sample_weight, but all {n} are 0"
        )
    return found


def checked_array(problem: str, name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return a contiguous copy of an argument; raise unless it has finite numbers."""
    try:
        found = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{problem} needs {name} of numbers: {error}") from None
    check_entries(problem, name, found, ~np.isfinite(found))
    return found


def check_entries(
    problem: str, name: str, values: NDArray[np.float64], bad: NDArray[np.bool_]
) -> None:
    """Raise if an entry is bad, and name the first one."""
    if bad.any():
        place = np.argwhere(bad)[0]
        where = zip(("row", "column"), place, strict=False)
        raise ProblemError(
            f"{problem} needs finite {name}, but "
            f"{', '.join(f'{word} {k}' for word, k in where)} is {values[tuple(place)]}"
        )


def checked_number(
    name: str, value: Any, *, positive: bool = False, most: float = math.inf
) -> float:
    """Return a finite number, not negative, as a float; raise otherwise."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    allowed = number > 0.0 if positive else 0.0 <= number <= most
    if allowed and math.isfinite(number):
        return number
    rule = "positive and finite" if positive else "not negative and finite"
    rule = f"from 0 to {most:g}" if math.isfinite(most) else rule
    raise ProblemError(f"{name} must be a number, {rule}, got {value!r}")
