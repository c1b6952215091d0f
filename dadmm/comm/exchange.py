"""Messages between the nodes of a process; `dadmm.comm.mpi` has those to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from dadmm.comm.traffic import Counter, count, counter
from dadmm.comm.wire import Box
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI


class Part(NamedTuple):
    """What is left of a graph after a failure, as one of its ranks sees it."""

    nodes: Sequence[int]  # in the graph before
    topology: Topology
    hosts: Integers  # the rank of each node, counted anew
    own: Integers  # nodes of this rank in the order of their rows, counted anew


Plan = Callable[[Sequence[int]], Part]  # of the ranks that are left


class Exchange:
    """Moves the messages of each outbox into the neighbours' inboxes.

    A process hosts some nodes. It has a row for each of their directed edges. This
    exchange is for a process that hosts all nodes: a swap is one gather of rows per
    field.

    Parameters
    ----------
    topology : Topology
    size : int
        Entries of theta in a message.
    nodes : ndarray of int, shape (n,)
        The nodes of this process, in the order of their rows; by default in
        order of degree.
    hosts : ndarray of int, shape (n_nodes,)
        The rank of each node; by default all are here.

    Attributes
    ----------
    arcs : ndarray of int, shape (E,)
        The edges of the nodes, as indices of ``topology.edges``, in the order of rows.
    peers : ndarray of int, shape (E,)
        The rank at the other end of each edge.
    outbox, inbox : Box
        The messages to send, and those received; a row per edge.
    begin : int
        First byte of a message; 8 if messages have no eta.
    width : int
        Bytes of a payload.
    lengths : ndarray of int, shape (E,)
        Bytes of each message. Where it is 0, nothing is sent and nothing is received;
        both ends must have it so.
    collectives : ndarray of int, shape (2,)
        The number of calls of ``post``, and the bytes of all nodes in them.
    """

    #: the exceptions that report a failed rank; none if a failure ends the job
    rank_failure: tuple[type[Exception], ...] = ()
    rank = 0  #: of this process
    #: the communicator of the messages, for use between swaps; None without MPI
    private_comm: MPI.Comm | None = None

    def __init__(
        self,
        topology: Topology,
        size: int,
        nodes: Integers | None = None,
        hosts: Integers | None = None,
    ) -> None:
        if nodes is None:
            nodes = np.argsort(topology.degrees, kind="stable")
        self.hosts = np.zeros(len(topology), int) if hosts is None else hosts
        self.nodes, degrees = nodes, topology.degrees[nodes]
        first = topology.indptr[nodes] - (np.cumsum(degrees) - degrees)
        n_edges = int(degrees.sum())
        self.arcs = np.repeat(first, degrees) + np.arange(n_edges)
        self.peers = self.hosts[topology.indices[self.arcs]]
        self._is_here = self.peers == self.rank
        # whether each message to another rank has one row
        most = np.bincount(self.peers, minlength=1).max()
        self._by_row = bool(most <= 1 and not self._is_here.any())
        self.outbox, self.inbox = (Box(n_edges, size, self._by_row) for _ in range(2))
        self.begin, self.width = 0, 8 * size
        self.lengths = np.zeros(n_edges, dtype=np.int64)
        self._sent, self.collectives = counter(n_edges), counter()
        self._node_order = np.argsort(nodes)
        self._posted: dict[str, Matrix] = {}
        # the row at the other end of each edge; of edges to other ranks, their own
        row = np.empty(len(topology.indices), dtype=np.int64)
        row[self.arcs] = own = np.arange(n_edges)
        self._reverse = np.where(self._is_here, row[topology.reverse[self.arcs]], own)
        self._fields = [
            (getattr(self.outbox, name), getattr(self.inbox, name))
            for name in ("header", "eta", "numbers")
        ]

    @property
    def sent(self) -> Counter:
        """Messages and bytes sent so far, (E, 2)."""
        return self._sent

    @property
    def wire(self) -> Integers:
        """What went to other ranks: rank, its peer, messages and bytes, (peers, 4)."""
        return np.zeros((0, 4), dtype=np.int64)

    def swap(self) -> None:
        """Send every message that has a length, and receive the neighbours' messages.

        Rows posted before are complete afterwards.
        """
        self._swap_here()
        count(self._sent, self.lengths)

    def _swap_here(self) -> None:
        """Move the messages between nodes of this process.

        ``mode="clip"`` lets take write into the inbox without a buffer. Bytes beyond a
        message's length are copied too, and are not read.
        """
        for source, target in self._fields:
            np.take(source, self._reverse, axis=0, out=target, mode="clip")

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share rows, one per node of this process, with all nodes."""
        self._posted[name] = rows[self._node_order]
        self.collectives += 1, rows.nbytes

    def read(self, name: str) -> Matrix:
        """Return the rows of that name posted before the last swap, by node number."""
        return self._posted[name]

    def collect(self, numbers: Matrix, everywhere: bool = True) -> Matrix:
        """Return the numbers (k,) of all processes in order, on every process.

        If not ``everywhere``, processes other than the first return none.
        """
        return numbers

    def all_finished(self, finished: bool) -> bool:
        """Return whether all processes have finished and none has failed."""
        return finished

    def raise_failed(self) -> NoReturn:
        """Raise that a rank has failed, one of ``rank_failure``."""
        raise NotImplementedError

    def shrink(self, last: int, plan: Plan) -> tuple[Exchange, list[int], int]:
        """Return an exchange without the failed ranks.

        ``last`` is the last iteration that this process has finished. ``plan`` takes
        the ranks that are left, and returns the part of the graph that this process
        belongs to. Also returned are the ranks that are left, of all parts, and the
        last iteration that all of them have finished.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free what the constructor has allocated."""
