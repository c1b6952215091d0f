"""The number of threads of BLAS."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
T = TypeVar("T")


class _Found:
    """The BLAS libraries that were found, and how many limits are open."""

    controller: ThreadpoolController | None = None
    modules: set[str] | None = None  # of other packages, at that time
    n_open = 0


@contextmanager
def one_blas_thread(search: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread until the end of a ``with`` block.

    Ranks share cores, and the bits of a result depend on the number of threads. A
    ``search`` finds libraries that were loaded since.
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
        _Found.n_open += 1
        try:
            yield
        finally:
            _Found.n_open -= 1


def with_one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function with one thread of BLAS, cheaper than `one_blas_thread`."""

    @wraps(function)
    def limited(*args: P.args, **named: P.kwargs) -> T:
        if _Found.n_open:
            return function(*args, **named)
        with one_blas_thread(search=False):
            return function(*args, **named)

    return limited
