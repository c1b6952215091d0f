"""mpi4py with the settings that dadmm needs; the other modules take MPI from here."""

from __future__ import annotations

import os

import mpi4py

mpi4py.rc.thread_level = "single"  # one thread calls MPI; some MPIs are faster then
# Open MPI's own waits then sleep instead of yielding when ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")
from mpi4py import MPI  # noqa: E402

__all__ = ["MPI", "short_name"]


def short_name() -> str:
    """Return the name and version of the MPI library."""
    version = MPI.Get_library_version()
    line = version.strip("\0").strip().splitlines()[0].partition(",")[0]
    return " ".join(line.replace("Version:", "").split())
