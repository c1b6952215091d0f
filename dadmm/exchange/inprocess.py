"""The exchange between the nodes of one process."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology


class InProcessExchange:
    """Swap the messages of all nodes by one gather of rows.

    Parameters
    ----------
    topology : Topology
    width : int
        Bytes of the longest message.
    """

    def __init__(self, topology: Topology, width: int) -> None:
        n_edges = len(topology.edges)
        self._out = np.zeros((n_edges, width), dtype=np.uint8)
        self._in = np.zeros((n_edges, width), dtype=np.uint8)
        self._lengths = np.zeros(n_edges, dtype=np.int64)
        self._sent = np.zeros((n_edges, 2), dtype=np.int64)
        self._reverse = topology.reverse
        self._posted = np.empty((0, 0))
        self.posts = 0
        self.hosted = tuple(range(topology.n_nodes))
        rows = {i: slice(*topology.offsets[i : i + 2]) for i in self.hosted}
        self.outbox = {i: self._out[rows[i]] for i in self.hosted}
        self.inbox = {i: self._in[rows[i]] for i in self.hosted}
        self.lengths = {i: self._lengths[rows[i]] for i in self.hosted}
        self.sent = {i: self._sent[rows[i]] for i in self.hosted}

    rank_failure: tuple[type[Exception], ...] = ()  # there is no other process
    comm = private_comm = None

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
        """Send every outbox row that has a length."""
        # mode="clip" lets take write into the inbox without a buffer. Bytes beyond a
        # message's length are copied too, and are not read.
        np.take(self._out, self._reverse, axis=0, out=self._in, mode="clip")
        self._sent[:, 0] += self._lengths > 0
        self._sent[:, 1] += self._lengths

    def post(self, rows: Matrix) -> None:
        """Start to share rows, one per node, with all nodes."""
        self._posted = rows
        self.posts += 1

    def read(self) -> Matrix:
        """Return the rows posted last."""
        return self._posted

    def collect(self, rows: Matrix) -> Matrix:
        """Return the rows: this process hosts all nodes."""
        return rows

    @property
    def collectives(self) -> tuple[int, int]:
        """The number of calls of ``post``, and the bytes of all nodes in them."""
        return self.posts, self.posts * self._posted.nbytes

    def close(self) -> None:
        """Do nothing: the buffers are ordinary memory."""
