"""Arithmetic for one problem or a stack of problems, with the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from dadmm.core.layout import Matrix

T = TypeVar("T")


def stack_attributes(kind: type[T], problems: Sequence[T], names: Iterable[str]) -> T:
    """Return one problem whose named attributes are those of all problems, stacked.

    Its other attributes are those of the first problem.
    """
    stacked = object.__new__(kind)
    vars(stacked).update(vars(problems[0]))
    for name in names:
        setattr(stacked, name, np.array([getattr(p, name) for p in problems]))
    return stacked


def as_scalar(scalars: Any) -> Any:
    """Return a single scalar as a float, which is faster; arrays unchanged."""
    return scalars if scalars.ndim else scalars.item()


def as_list(scalars: Any) -> list[float]:
    """Return scalars (...) as a list, of one number without a stack."""
    found: list[float] = np.atleast_1d(scalars).tolist()
    return found


def as_matrix(scalars: Any) -> Any:
    """Return scalars (...) as matrices of one entry (..., 1, 1)."""
    return scalars if isinstance(scalars, float) else scalars[..., None, None]


def as_vector(scalars: Any) -> Any:
    """Return scalars (...) as vectors of one entry (..., 1)."""
    return scalars if isinstance(scalars, float) else scalars[..., None]


def inner_product(A: Matrix, B: Matrix) -> Any:
    """Return the inner products of matrices (..., m, n), shape (...)."""
    flat = A.shape[-2] * A.shape[-1]
    lead, other = A.shape[:-2], B.shape[:-2]
    return np.vecdot(A.reshape(*lead, flat), B.reshape(*other, flat))


def weighted_sums(weights: Matrix, matrices: Matrix) -> Any:
    """Return sums (..., D, k, k) of matrices (..., B, k, k), by weights (..., D, B)."""
    *lead, B, k, _ = matrices.shape
    flat = weights @ matrices.reshape(*lead, B, k * k)
    return flat.reshape(*lead, -1, k, k)


def solve(A: Matrix, b: Matrix) -> Matrix:
    """Return the solutions of systems (..., k, k), one for each row of b (..., k)."""
    return np.asarray(np.linalg.solve(A, b[..., None])[..., 0])


def as_stacked_matrix(scalars: Any) -> Any:
    """Return scalars (...) as stacked matrices of one entry (..., 1, 1, 1)."""
    return scalars if isinstance(scalars, float) else scalars[..., None, None, None]
