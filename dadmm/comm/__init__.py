"""Messages between nodes: of one process, or of MPI ranks.

It holds what is sent and when, the bytes of a message, the collectives around a run,
and the check that all ranks run the same thing. It is the only room that imports
mpi4py; it may import `core` and `graphs`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py.MPI import Comm as Comm  # for annotations in other rooms

WAITS = ("auto", "block", "poll")  # how ranks wait, see `dadmm.comm.mpi`
