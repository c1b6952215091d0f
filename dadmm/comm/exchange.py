"""Messages between the nodes: what an exchange does, and the one in a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from dadmm.comm.traffic import Counter, count, counter
from dadmm.comm.wire import Box
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI

Plan = Callable[[Sequence[int]], tuple[Sequence[int], Topology]]


class Exchange:
    """Moves the messages of each outbox into the neighbours' inboxes.

    A process hosts some nodes. It has a row for each of their directed edges.

    Parameters
    ----------
    topology : Topology
    size : int
        Entries of theta in a message.
    nodes : ndarray of int, shape (n,)
        The nodes of this process, in the order of their rows.
    by_row : bool
        Whether the boxes have each message as a row.

    Attributes
    ----------
    arcs : ndarray of int, shape (E,)
        The edges of the nodes, as indices of ``topology.edges``, in the order of rows.
    outbox, inbox : Box
        The messages to send, and those received; a row per edge.
    begin : int
        First byte of a message; 8 if messages have no eta.
    lengths : ndarray of int, shape (E,)
        Bytes of each message. Where it is 0, nothing is sent and nothing is received;
        both ends must have it so.
    collectives : ndarray of int, shape (2,)
        The number of calls of ``post``, and the bytes of all nodes in them.
    """

    #: the exceptions that report a failed rank; none if a failure ends the job
    rank_failure: tuple[type[Exception], ...] = ()

    def __init__(
        self, topology: Topology, size: int, nodes: Integers, by_row: bool = False
    ) -> None:
        self.nodes, degrees = nodes, topology.degrees[nodes]
        first = topology.indptr[nodes] - (np.cumsum(degrees) - degrees)
        n_edges = int(degrees.sum())
        self.arcs = np.repeat(first, degrees) + np.arange(n_edges)
        self.outbox, self.inbox = Box(n_edges, size, by_row), Box(n_edges, size, by_row)
        self.begin, self.lengths = 0, np.zeros(n_edges, dtype=np.int64)
        self._sent, self.collectives = counter(n_edges), counter()

    @property
    def sent(self) -> Counter:
        """Messages and bytes sent so far, (E, 2)."""
        return self._sent

    def swap(self) -> None:
        """Send every message that has a length, and receive the neighbours' messages.

        Rows posted before are complete afterwards.
        """
        raise NotImplementedError

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share rows, one per node of this process, with all nodes."""
        raise NotImplementedError

    def read(self, name: str) -> Matrix:
        """Return the rows of that name posted before the last swap, by node number."""
        raise NotImplementedError

    def collect(self, rows: Matrix, everywhere: bool = True) -> Matrix:
        """Return the rows of all processes in order, on every process.

        If not ``everywhere``, processes other than the first return no rows.
        """
        return rows

    @property
    def private_comm(self) -> MPI.Comm | None:
        """The communicator of the messages, for use between swaps; None without MPI."""
        return None

    def all_finished(self, finished: bool) -> bool:
        """Return whether all processes have finished and none has failed."""
        return finished

    def raise_failed(self) -> NoReturn:
        """Raise that a rank has failed, one of ``rank_failure``."""
        raise NotImplementedError

    def shrink(self, last: int, plan: Plan) -> tuple[Exchange, list[int], int]:
        """Return an exchange without the failed ranks.

        ``last`` is the last iteration that this process has finished. ``plan`` takes
        the nodes that are left, and returns the nodes and the graph of this process's
        component. Also returned are the nodes that are left, of all components, and the
        last iteration that all of them have finished.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free what the constructor has allocated."""


class InProcessExchange(Exchange):
    """Swap the messages of all nodes by one gather of rows per field.

    ``nodes`` is the order of the rows, by default the order of degrees.
    """

    def __init__(
        self, topology: Topology, size: int, nodes: Integers | None = None
    ) -> None:
        if nodes is None:
            nodes = np.argsort(topology.degrees, kind="stable")
        super().__init__(topology, size, nodes)
        self._reverse = np.argsort(self.arcs)[topology.reverse[self.arcs]]
        self._fields = [
            (getattr(self.outbox, name), getattr(self.inbox, name))
            for name in ("header", "eta", "numbers")
        ]
        self._node_order = np.argsort(nodes)
        self._posted: dict[str, Matrix] = {}

    def swap(self) -> None:
        # mode="clip" lets take write into the inbox without a buffer. Bytes beyond a
        # message's length are copied too, and are not read.
        for source, target in self._fields:
            np.take(source, self._reverse, axis=0, out=target, mode="clip")
        count(self._sent, self.lengths)

    def post(self, name: str, rows: Matrix) -> None:
        self._posted[name] = rows[self._node_order]
        self.collectives += 1, rows.nbytes

    def read(self, name: str) -> Matrix:
        return self._posted[name]
