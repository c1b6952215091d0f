"""The number of threads of BLAS."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

P = ParamSpec("P")
T = TypeVar("T")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread, at once and until the end of a ``with`` block.

    Ranks share cores, and the bits of a result depend on the number of threads.
    """
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits


def with_one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs with one thread of numpy's BLAS.

    It is cheaper than `one_blas_thread`, which looks for all loaded libraries.
    """

    @wraps(function)
    def limited(*args: P.args, **named: P.kwargs) -> T:
        with _controller().limit(limits=1):
            return function(*args, **named)

    return limited


@cache
def _controller() -> Any:
    """Return the controller of the BLAS libraries that are loaded by now."""
    return ThreadpoolController().select(user_api="blas")
