"""The exchange between the nodes of one process."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dadmm.comm.wire import Box
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology


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
