"""The ranks of a run, for set-up, results and errors."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import collectives, fault_tolerance, identity
from dadmm.comm.collectives import count, outside, wait_sleeping
from dadmm.comm.launch_link import wait_until_read
from dadmm.comm.mpi_library import MPI, short_name
from dadmm.comm.tree import Merge, TreeReduction
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology


class MPIWorld:
    """All ranks of a run, see `dadmm.comm.world.World`; not used in the loop."""

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self.comm: MPI.Comm = MPI.COMM_WORLD if comm is None else comm
        self._all = self.comm
        self.rank, self.size = self.comm.rank, self.comm.size
        self.number = self.rank  # as mpiexec numbers it
        self.library = short_name()
        self.shrunk = False  # whether ranks have failed and the others have continued
        self._before = outside.copy()

    def adopt(self, comm: MPI.Comm) -> None:
        """Continue with a communicator of the ranks that are left."""
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.shrunk = True

    def leave(self, code: int) -> None:
        """End this process without MPI_Finalize, when all remaining ranks call this."""
        fault_tolerance.agree(self.comm, True)
        fault_tolerance.leave(code)

    def renumber(self, rank: int) -> None:
        """Give this process another rank; rank 0 stays rank 0, which prints for all."""
        self.comm = self.comm.Split(0, key=rank)
        self.rank = self.comm.rank

    def share(self, text: str, root: int = 0) -> str:
        """Return the text of a rank on every rank."""
        data, mine = text.encode(), self.rank == root
        row = collectives.short_row(data if mine else b"")
        wait_sleeping(self.comm.Ibcast(row, root=root), *[row] * mine)
        length = int(row[:8].view(np.int64)[0])
        if length <= collectives.SHORT:
            return collectives.row_text(row)
        buffer = np.zeros(length, dtype=np.uint8)
        if mine:
            buffer[:] = np.frombuffer(data, dtype=np.uint8)
        wait_sleeping(self.comm.Ibcast(buffer, root=root), *[buffer] * mine)
        return buffer.tobytes().decode()

    def share_array(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return a rank's one-dimensional array; all ranks pass the same type."""
        length, mine = np.array([array.size]), self.rank == root
        wait_sleeping(self.comm.Ibcast(length, root=root), *[length] * mine)
        buffer = array.copy() if mine else np.empty(length[0], array.dtype)
        wait_sleeping(self.comm.Ibcast(buffer, root=root), *[buffer] * mine)
        return buffer

    def first(self, text: str | None) -> str | None:
        """Return the text of the lowest rank that has one, on every rank."""
        lacking = self.size
        mine = np.array([lacking if text is None else self.rank])
        lowest = np.empty_like(mine)
        wait_sleeping(self.comm.Iallreduce(mine, lowest, op=MPI.MIN), mine)
        if lowest[0] == lacking:
            return None
        return self.share(text or "", int(lowest[0]))

    def texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order, on every rank."""
        return collectives.texts(self.comm, text)

    def compare(self, facts: identity.Facts) -> None:
        """Raise on all ranks if their facts differ."""
        collectives.compare(self.comm, facts)

    def check_fault_tolerance(self) -> None:
        """Raise a ConfigError if this MPI ends all ranks when one fails."""
        fault_tolerance.check_fault_tolerance()

    def scatter(self, blocks: Sequence[Matrix] | None) -> Matrix:
        """Return this rank's block of rows, from rank 0."""
        wait_sleeping(self.comm.Ibarrier())
        shape = np.empty(2, dtype=np.int64)
        if blocks is None:
            count()
            self.comm.Scatter(None, shape)
            block = np.empty(shape)
            self.comm.Recv(block, source=0)
            return block
        shapes = np.array([block.shape for block in blocks])
        count(shapes)
        self.comm.Scatter(shapes, shape)
        for rank in range(1, self.size):
            rows = np.ascontiguousarray(blocks[rank])
            count(rows)
            self.comm.Send(rows, dest=rank)
        return blocks[0]

    def gather(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks in order on rank 0, and no rows elsewhere."""
        return collectives.collect(self.comm, rows, everywhere=False)

    def gather_texts(self, text: str) -> list[str]:
        """Return the texts of all ranks in order on rank 0, and none elsewhere."""
        found = collectives.gather_texts(self.comm, text)
        return [] if self.rank else found

    def reduce(
        self,
        graph: Topology,
        values: Sequence[Any],
        merge: Merge = np.add,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the values of all nodes, merged along a spanning tree of the graph.

        The messages have a communicator of their own: the caller may use this one for
        other messages.
        """
        comm, request = self.comm.Idup()
        wait_sleeping(request)
        tree = TreeReduction(graph, comm)
        (value,) = values
        found = tree.reduce({self.rank: value}, merge, finish)
        comm.Free()
        return found

    def sent(self) -> tuple[int, int]:
        """Return the calls and bytes outside the iterations so far, on rank 0.

        The calls are those of this rank; the bytes are those of all ranks.
        """
        calls, mine = np.split(outside - self._before, 2)
        total = np.zeros_like(mine)
        wait_sleeping(self.comm.Ireduce(mine, total, op=MPI.SUM), mine)
        return int(calls[0]), int(total[0])

    def dead(self, error: BaseException) -> list[int]:
        """Return the ranks that are known to have failed, if ``error`` reports one."""
        if not isinstance(error, MPI.Exception) or not fault_tolerance.fault_tolerant():
            return []
        group = self.comm.Get_group()
        failed = self.comm.Get_failed()
        return list(failed.Translate_ranks(list(range(failed.size)), group))

    def abort(self, error: BaseException) -> None:
        """Print this rank's traceback and end the whole job at once."""
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
