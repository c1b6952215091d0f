"""The ranks of a run over MPI."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import mpi_library
from dadmm.comm.launch_link import wait_until_read
from dadmm.comm.mpi_library import MPI, wait_sleeping
from dadmm.comm.traffic import count_outside
from dadmm.comm.world import World
from dadmm.core.layout import Matrix


class MPIWorld(World):
    """All ranks of a run; not used in the loop."""

    comm: MPI.Comm

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        super().__init__()
        self.comm = self._all = MPI.COMM_WORLD if comm is None else comm
        self.rank = self.comm.rank
        self.size = self.comm.size
        self.library = mpi_library.short_name()

    def joined(
        self, own: NDArray[Any], everywhere: bool
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return mpi_library.gather(self.comm, own, everywhere)

    def share_array(self, array: NDArray[Any]) -> NDArray[Any]:
        return mpi_library.broadcast(self.comm, array)

    def scatter(self, blocks: Sequence[Matrix]) -> list[Matrix]:
        wait_sleeping(self.comm.Ibarrier())
        hosts = np.arange(self.size) if self.hosts is None else self.hosts
        if self.rank:
            shapes = np.empty((int((hosts == self.rank).sum()), 2), dtype=np.int64)
            self.comm.Recv(shapes, source=0)
            found = [np.empty(shape) for shape in shapes]
            for block in found:
                self.comm.Recv(block, source=0)
            return found
        for rank in range(1, self.size):
            theirs = [blocks[i] for i in np.flatnonzero(hosts == rank).tolist()]
            for part in (np.array([rows.shape for rows in theirs]), *theirs):
                count_outside(part)
                self.comm.Send(np.ascontiguousarray(part), dest=rank)
        return [blocks[i] for i in np.flatnonzero(hosts == 0).tolist()]

    def adopt(self, comm: MPI.Comm) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.shrunk = True

    def check_fault_tolerance(self) -> None:
        mpi_library.check_fault_tolerance()

    def dead(self, error: BaseException) -> list[int]:
        if isinstance(error, MPI.Exception) and mpi_library.fault_tolerant():
            return mpi_library.ranks_in(self.comm.Get_failed(), self.comm)
        return []

    def leave(self, code: int) -> None:
        """End this process without MPI_Finalize, when all remaining ranks call this."""
        mpi_library.agree(self.comm, True)
        mpi_library.leave(code)

    def abort(self, error: BaseException) -> None:
        lines = "".join(traceback.format_exception(error))
        sys.stderr.write(f"dadmm: rank {self.rank} failed:\n{lines}")
        sys.stderr.flush()
        self.end(1)

    def end(self, code: int) -> None:
        """End the whole job at once, on the original communicator.

        Wait first until stderr has been read: MPICH's helper on this host may drop text
        that arrives together with the end.
        """
        wait_until_read(sys.stderr)
        self._all.Abort(code)
