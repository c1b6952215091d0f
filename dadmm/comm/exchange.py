"""Messages between nodes: what an exchange does, and that of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dadmm.comm.wire import Box
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology


class Traffic(NamedTuple):
    """What was sent, counted as it was sent; aligned with ``topology.edges``."""

    edge_messages: np.ndarray  #: (E,) point-to-point messages
    edge_bytes: np.ndarray  #: (E,) their bytes, headers included
    edge_silent: np.ndarray  #: (E,) messages that were a header without payload
    edge_lost: np.ndarray  #: (E,) payloads that were dropped on purpose
    collectives: int  #: collective calls inside the loop (agreement = "global")
    collective_bytes: int  #: payload that all nodes put into them
    tree_messages: np.ndarray  #: (E,) of sums over a tree in this session
    tree_bytes: np.ndarray  #: (E,)

    @property
    def messages(self) -> int:
        """Messages over all directed edges, the opening ones included."""
        return int(self.edge_messages.sum())

    @property
    def bytes(self) -> int:
        """Bytes of these messages."""
        return int(self.edge_bytes.sum())

    @property
    def silent(self) -> int:
        """Messages without payload."""
        return int(self.edge_silent.sum())

    @property
    def lost(self) -> int:
        """Payloads that did not arrive."""
        return int(self.edge_lost.sum())


class Exchange(Protocol):
    """Moves the messages of each outbox into the neighbours' inboxes.

    The constructor allocates buffers and requests, and ``close()`` frees them.
    """

    @property
    def rank_failure(self) -> tuple[type[Exception], ...]:
        """The exceptions that report a failed rank; none if a failure ends the job."""

    def all_finished(self, finished: bool) -> bool:
        """Return whether all processes have finished and none has failed."""

    def raise_failed(self) -> NoReturn:
        """Raise that a rank has failed, one of ``rank_failure``."""

    def shrink(
        self, last: int, plan: Callable[[Sequence[int]], tuple[Sequence[int], Topology]]
    ) -> tuple[Exchange, list[int], int]:
        """Return an exchange without the failed ranks.

        ``last`` is the last iteration that this process has finished. ``plan`` takes
        the nodes that are left, and returns the nodes of this process's component and
        their graph. Also returned are the nodes that are left, of all components,
        and the last iteration that all of them have finished.
        """

    @property
    def private_comm(self) -> Any:
        """The communicator of the messages, for use between swaps; None without MPI."""

    @property
    def comm(self) -> Any:
        """A communicator of these ranks, which the caller keeps; None without MPI."""

    nodes: NDArray[np.int64]  # (n,) the nodes of this process, by row
    arcs: NDArray[np.int64]  # (E,) their edges, as indices of ``topology.edges``
    outbox: Box  # the messages to send, a row per edge
    inbox: Box  # the messages received
    begin: int  # first byte of a message; 8 if messages have no eta
    lengths: NDArray[np.int64]
    """(E,) bytes of each message. Where it is 0, nothing is sent and nothing is
    received; both ends must have it so."""
    collectives: NDArray[np.int64]
    """(2,) the number of calls of ``post``, and the bytes of all nodes in them."""

    @property
    def sent(self) -> NDArray[np.int64]:
        """(E, 2): messages and bytes sent so far."""

    def swap(self) -> None:
        """Send every message that has a length, and receive those of the neighbours.

        Rows posted before are complete afterwards.
        """

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share rows, one per node of this process, with all nodes."""

    def read(self, name: str) -> Matrix:
        """Return the rows of that name posted before the last swap, by node number."""

    def collect(self, rows: Matrix, everywhere: bool = True) -> Matrix:
        """Return the rows of all processes in order, on every process.

        If not ``everywhere``, processes other than the first return no rows.
        """

    def close(self) -> None:
        """Free what the constructor has allocated."""


class InProcessExchange:
    """Swap the messages of all nodes by one gather of rows per field.

    Parameters
    ----------
    topology : Topology
    size : int
        Entries of theta in a message.
    nodes : ndarray of int, shape (n_nodes,), optional
        Order of the rows; by default that of the numbers.
    """

    rank_failure: tuple[type[Exception], ...] = ()  # there is no other process
    comm = private_comm = None

    def __init__(
        self, topology: Topology, size: int, nodes: np.ndarray | None = None
    ) -> None:
        if nodes is None:
            nodes = np.argsort(topology.degrees, kind="stable")
        self.nodes = nodes
        degrees, offsets = topology.degrees[nodes], topology.offsets[nodes]
        ends = np.cumsum(degrees)
        n_edges = len(topology.edges)
        self.arcs = np.repeat(offsets - (ends - degrees), degrees) + np.arange(n_edges)
        place = np.empty(n_edges, dtype=np.int64)
        place[self.arcs] = np.arange(n_edges)
        self._reverse = place[topology.reverse[self.arcs]]
        self.outbox, self.inbox = Box(n_edges, size), Box(n_edges, size)
        self.begin = 0
        self.lengths = np.zeros(n_edges, dtype=np.int64)
        self.sent = np.zeros((n_edges, 2), dtype=np.int64)
        self._fields = [
            (getattr(self.outbox, name), getattr(self.inbox, name))
            for name in ("header", "eta", "numbers")
        ]
        self._node_order = np.argsort(nodes)
        self._posted: dict[str, Matrix] = {}
        self.collectives = np.zeros(2, dtype=np.int64)

    def all_finished(self, finished: bool) -> bool:
        """Return ``finished``: there is no other process."""
        return finished

    def raise_failed(self) -> NoReturn:
        """Never called: there is no rank that can fail."""
        raise AssertionError("one process has no ranks that fail")

    def shrink(self, last: int, plan: Any) -> NoReturn:
        """Never called: there is no rank that can fail."""
        self.raise_failed()

    def swap(self) -> None:
        """Send every message that has a length."""
        # mode="clip" lets take write into the inbox without a buffer. Bytes beyond a
        # message's length are copied too, and are not read.
        for source, target in self._fields:
            np.take(source, self._reverse, axis=0, out=target, mode="clip")
        self.sent[:, 0] += self.lengths > 0
        self.sent[:, 1] += self.lengths

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share rows, one per node, with all nodes."""
        self._posted[name] = rows[self._node_order]
        self.collectives += 1, rows.nbytes

    def read(self, name: str) -> Matrix:
        """Return the rows posted last."""
        return self._posted[name]

    def collect(self, rows: Matrix, everywhere: bool = True) -> Matrix:
        """Return the rows: this process hosts all nodes."""
        return rows

    def close(self) -> None:
        """Do nothing: the buffers are ordinary memory."""
