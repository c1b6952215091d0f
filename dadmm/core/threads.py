"""The number of threads of BLAS."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController


class _Found:
    """The BLAS libraries that were found."""

    controller: ThreadpoolController | None = None
    modules: set[str] | None = None  # of other packages, at that time


@contextmanager
def one_blas_thread(search: bool = True) -> Iterator[None]:
    """Limit BLAS to one thread until the end of a ``with`` block.

    Ranks share cores, and the bits of a result depend on the number of threads. A
    ``search`` finds libraries that were loaded since the last one.
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
        yield


with_one_blas_thread = one_blas_thread(search=False)  # a decorator of functions
