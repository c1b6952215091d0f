"""ULFM: whether this MPI has it, and what ranks do after another rank has failed."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from dadmm.core.errors import ConfigError
from dadmm.exchange.collectives import count
from dadmm.exchange.mpi_library import MPI, short_name


def check_fault_tolerance() -> None:
    """Raise if this MPI ends all ranks when one of them dies."""
    if not fault_tolerant():
        raise ConfigError(
            "on_failure = continue needs Open MPI 5 started as mpiexec --with-ft ulfm, "
            f"and this is {short_name()} without; start it so, or leave on_failure at abort"
        )


def fault_tolerant() -> bool:
    """Return whether ranks outlive others that die."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 (its name)
    return enabled == "1" and "Open MPI" in MPI.Get_library_version()


def leave(code: int | None = None) -> None:
    """End this process, which has survived others, without ending MPI.

    Open MPI 5.0 may wait for the dead in MPI_Finalize, for ever (its issue 11404).
    Ranks that leave like this end the job with code 0 when all have left, and disturb
    nobody who has not.
    """
    if code is None:
        code = int(hasattr(sys, "last_value"))  # of an exception that nobody caught
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def agree(comm: Any, yes: bool) -> bool:
    """Return whether all say yes and none has died; the same on all survivors."""
    flag = np.array(yes, dtype=np.intc)
    count(flag)
    try:
        return bool(comm.Agree(int(flag)))
    except MPI.Exception:
        return False


def alive(survivors: Any, comm: Any) -> list[int]:
    """Return the ranks that survivors had in a communicator."""
    group, before = survivors.Get_group(), comm.Get_group()
    return list(group.Translate_ranks(list(range(survivors.size)), before))
