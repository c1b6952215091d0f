"""Small numerical functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from dadmm.core.layout import Matrix

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def one_thread() -> Any:
    """Return a context in which BLAS has one thread.

    The bits of a product depend on the number of threads, and ranks share cores.
    """
    return threadpool_limits(limits=1, user_api="blas")


def with_one_thread(
    function: Callable[Arguments, Returned],
) -> Callable[Arguments, Returned]:
    """Return a function that runs with one BLAS thread."""

    @wraps(function)
    def call(*args: Arguments.args, **named: Arguments.kwargs) -> Returned:
        with one_thread():
            return function(*args, **named)

    return call


def triangular(rows: Matrix) -> Matrix:
    """Return at most D rows R with the same ``R' R`` as the given rows (n, D)."""
    if len(rows) <= rows.shape[1]:
        return rows
    return np.asarray(np.linalg.qr(rows, mode="r"))
