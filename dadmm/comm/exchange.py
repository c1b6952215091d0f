"""Messages between the nodes of a process; `dadmm.comm.mpi` has those to others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from dadmm.comm.traffic import Counter, count
from dadmm.comm.tree import TreeReduction, Value
from dadmm.comm.wire import Box
from dadmm.core.layout import Matrix
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI


class Part(NamedTuple):
    """What is left of a graph after a failure, as one of its ranks sees it."""

    nodes: Sequence[int]  # in the graph before
    topology: Topology
    hosts: Integers  # the rank of each node, counted anew
    own: Integers  # nodes of this rank in the order of their rows, counted anew


FindPart = Callable[[Sequence[int]], Part]  # given the ranks that are left


class Exchange:
    """Moves the messages of each outbox into the inboxes; here a process has all nodes.

    There is a row for each directed edge of the process's ``nodes``, which are in order
    of degree. Messages have ``size`` entries of theta; ``hosts`` (n_nodes,) are the
    ranks of nodes.
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
        nodes: Integers,
        hosts: Integers | None = None,
    ) -> None:
        self.hosts = np.zeros(topology.n_nodes, int) if hosts is None else hosts
        degrees = topology.degrees[nodes]
        first = topology.indptr[nodes] - (np.cumsum(degrees) - degrees)
        n_edges = int(degrees.sum())
        self.nodes = nodes  #: (n,) of this process, in the order of their rows
        #: (E,) edges of the nodes, as indices of ``topology.edges``, in order of rows
        self.arcs = np.repeat(first, degrees) + np.arange(n_edges)
        self.peers = self.hosts[topology.indices[self.arcs]]  #: ranks at other ends
        is_here = self.peers == self.rank
        # whether each message to another rank has one row
        most = np.bincount(self.peers, minlength=1).max()
        self._by_row = bool(most <= 1 and not is_here.any())
        self.outbox, self.inbox = (Box(n_edges, size, self._by_row) for _ in range(2))
        self.begin = 0  #: first byte of a message; 8 if messages have no eta
        self.width = 8 * size  #: bytes of a payload
        #: (E,) bytes of each message; at both ends 0 if there is none
        self.lengths = np.zeros(n_edges, dtype=np.int64)
        self._sent: Counter = np.zeros((n_edges, 2), np.int64)
        self.collectives: Counter = np.zeros(2, np.int64)
        self.node_order = np.argsort(nodes)  #: (n,) rows in the order of node numbers
        self._posted: dict[str, Matrix] = {}
        # the row at the other end of each edge; of edges to other ranks, their own
        row = np.empty(len(topology.indices), dtype=np.int64)
        row[self.arcs] = own = np.arange(n_edges)
        self._reverse = np.where(is_here, row[topology.reverse[self.arcs]], own)

    @property
    def sent(self) -> Counter:
        """Messages and bytes sent so far, (E, 2)."""
        return self._sent

    @property
    def wire(self) -> Integers:
        """What went to other ranks: rank, its peer, messages and bytes, (peers, 4)."""
        return np.zeros((0, 4), dtype=np.int64)

    def swap(self) -> None:
        """Exchange the messages that have a length, and complete posted rows."""
        self._swap_here()
        count(self._sent, self.lengths)

    def _swap_here(self) -> None:
        out, inbox, other = self.outbox, self.inbox, self._reverse
        # with "clip", take writes into the inbox without a buffer
        np.take(out.header, other, axis=0, out=inbox.header, mode="clip")
        np.take(out.eta, other, axis=0, out=inbox.eta, mode="clip")
        np.take(out.numbers, other, axis=0, out=inbox.numbers, mode="clip")

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share rows, one per node of this process, with all nodes."""
        self._posted[name] = rows[self.node_order]
        self.collectives += 1, rows.nbytes

    def read(self, name: str) -> Matrix:
        """Return the rows of that name posted before the last swap, by node number."""
        return self._posted[name]

    def all_finished(self, finished: bool) -> bool:
        """Return whether all processes have finished and none has failed."""
        raise NotImplementedError

    def raise_failed(self) -> NoReturn:
        """Raise that a rank has failed, one of ``rank_failure``."""
        raise NotImplementedError

    def shrink(self, last: int, find: FindPart) -> tuple[Exchange, list[int], int]:
        """Return an exchange of the ranks that are left, and these ranks.

        ``last`` is the last iteration that this process has finished; the last one that
        all have finished is returned too. ``find`` returns the part of this process.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free what the constructor has allocated."""


class Hosted:
    """The nodes of a process, in the order of an exchange, and sums over all nodes."""

    def __init__(self, topology: Topology, exchange: Exchange) -> None:
        self.topology, self.exchange = topology, exchange
        self.nodes, self.arcs = exchange.nodes, exchange.arcs
        self.incidence = Incidence(topology.degrees[self.nodes])
        self._arc_order = np.argsort(self.arcs)

    def by_node(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (n, ...) in the order of the nodes' numbers."""
        return rows[self.exchange.node_order]

    def by_edge(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (E, ...) in the order of ``topology.edges``."""
        return rows[self._arc_order]

    @cached_property
    def tree(self) -> TreeReduction:
        exchange = self.exchange
        return TreeReduction(self.topology, exchange.private_comm, exchange.hosts)

    def total(self, rows: Iterable[Value], *how: Value) -> Value:
        """Return `TreeReduction.reduce` of values, one for each row here."""
        values = dict(zip(self.nodes.tolist(), rows, strict=True))
        return self.tree.reduce(values, *how)
