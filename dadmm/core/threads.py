"""The number of threads of BLAS."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_limits


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread, at once and until the end of a ``with`` block.

    Ranks share cores, and the bits of a result depend on the number of threads.
    """
    limits: AbstractContextManager[Any] = threadpool_limits(limits=1, user_api="blas")
    return limits
