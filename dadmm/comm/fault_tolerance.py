"""MPI with fault tolerance (ULFM): the check for it, agreement, and exit."""

from __future__ import annotations

import os
import sys

import numpy as np

from dadmm.comm.collectives import count
from dadmm.comm.mpi_library import MPI, short_name
from dadmm.core.errors import ConfigError


def check_fault_tolerance() -> None:
    """Raise a ConfigError if this MPI ends all ranks when one fails."""
    if not fault_tolerant():
        raise ConfigError(
            "on_failure = continue needs Open MPI 5 started as mpiexec --with-ft ulfm, "
            f"and this is {short_name()} without; start it so, or leave on_failure at "
            "abort"
        )


def fault_tolerant() -> bool:
    """Return whether ranks can continue after another rank has failed."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 (its name)
    return enabled == "1" and "Open MPI" in MPI.Get_library_version()


def leave(code: int | None = None) -> None:
    """End this process without MPI_Finalize, after another rank has failed.

    Open MPI 5.0 may wait in MPI_Finalize for the failed ranks, forever (its issue
    11404). When all ranks exit like this, the job ends with code 0. Ranks that have not
    exited yet are not affected.
    """
    if code is None:
        code = int(hasattr(sys, "last_value"))  # 1 after an uncaught exception
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def agree(comm: MPI.Comm, yes: bool) -> bool:
    """Return whether ``yes`` is true on all ranks and none has failed.

    All remaining ranks return the same.
    """
    flag = np.array(yes, dtype=np.intc)
    count(flag)
    try:
        return bool(comm.Agree(int(flag)))
    except MPI.Exception:
        return False


def alive(survivors: MPI.Comm, comm: MPI.Comm) -> list[int]:
    """Return the ranks in ``comm`` of the ranks of ``survivors``."""
    group, before = survivors.Get_group(), comm.Get_group()
    return list(group.Translate_ranks(list(range(survivors.size)), before))
