"""The number of threads of BLAS."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")

_found: dict[str, Any] = {}  # the last controller, and the modules at that time


def one_blas_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread, at once and until the end of a ``with`` block.

    Ranks share cores, and the bits of a result depend on the number of threads.
    """
    # numpy's BLAS is loaded by now; others come with modules of other packages
    known = {*sys.stdlib_module_names, "numpy", "dadmm", "mpi4py"}
    others = {name for name in sys.modules if name.partition(".")[0] not in known}
    if _found.get("modules") != others:
        _found.clear()
        _found["modules"] = others
    return _limit()


def with_one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that runs with one thread of numpy's BLAS.

    It is cheaper than `one_blas_thread`, which looks for libraries loaded since.
    """

    @wraps(function)
    def limited(*args: P.args, **named: P.kwargs) -> T:
        with _limit():
            return function(*args, **named)

    return limited


def _limit() -> AbstractContextManager[object]:
    if "controller" not in _found:  # takes 3 ms
        _found["controller"] = ThreadpoolController().select(user_api="blas")
    limits: AbstractContextManager[object] = _found["controller"].limit(limits=1)
    return limits
