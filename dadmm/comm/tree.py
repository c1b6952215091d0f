"""Sums, and other reductions, over a spanning tree of the graph.

A node receives the values of its children's subtrees, merges them into its own, and
sends the result to its parent. The result of the root is sent down the tree. All
messages go along edges of the graph. A node learns the total of each child's subtree,
and the total of all nodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.graphs.topology import Integers, Topology

Merge = Callable[[Any, Any], Any]
Frame = NDArray[np.uint8]
SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 1e-3  # seconds between two probes for a message
_JSON = 255  # in place of the number of axes


class SpanningTree(NamedTuple):
    """A breadth-first tree with node 0 as root."""

    parents: Integers  # (n_nodes,), -1 for the root
    order: Integers  # (n_nodes,), by distance from the root, then by number


def spanning_tree(topology: Topology) -> SpanningTree:
    """Return the breadth-first tree of a graph from node 0, in linear time.

    The parent of a node is the lowest-numbered neighbour that is nearer to node 0.
    """
    offsets, ends = topology.offsets.tolist(), topology.edges[:, 1].tolist()
    parents = [-2] * topology.n_nodes
    parents[0] = -1
    level, order = [0], [0]
    while level:
        below = []
        for i in level:
            for j in ends[offsets[i] : offsets[i + 1]]:
                if parents[j] == -2:
                    parents[j] = i
                    below.append(j)
        level = sorted(below)
        order += level
    return SpanningTree(np.array(parents), np.array(order))


class TreeReduction:
    """Merge the values of all nodes along a spanning tree, by messages.

    The value of a node's subtree is ``merge(... merge(merge(own, first child's),
    second child's) ...)``, with the children in order of number. It does not depend on
    which process hosts which node.

    Parameters
    ----------
    topology : Topology
        After failures, the graph of the remaining nodes: its tree is a new one.
    comm : MPI.Comm, optional
        With tags 1 to n_nodes - 1 free for messages of this class. By default all nodes
        are in this process.
    hosts : sequence of int, optional
        The rank of each node; every rank has one or more. By default rank i has node i.

    Attributes
    ----------
    sent : ndarray of int, shape (n_edges, 2)
        Messages and bytes that hosted nodes have sent along ``topology.edges``.
    """

    def __init__(
        self, topology: Topology, comm: Any = None, hosts: Sequence[int] | None = None
    ) -> None:
        n_nodes, edges = topology.n_nodes, topology.edges
        parents, order = spanning_tree(topology)
        self._comm = comm
        if hosts is None:
            hosts = [0] * n_nodes if comm is None else range(n_nodes)
        self._hosts, self._rank = hosts, 0 if comm is None else comm.rank
        self._parents = parents.tolist()
        self._hosted = [i for i in order.tolist() if hosts[i] == self._rank]
        rows = np.flatnonzero(parents[edges[:, 1]] == edges[:, 0])  # from parents
        self._down = dict(zip(edges[rows, 1].tolist(), rows.tolist(), strict=True))
        self._up = dict(zip(self._down, topology.reverse[rows].tolist(), strict=True))
        self._children: dict[int, list[int]] = {i: [] for i in self._hosted}
        for i, j in edges[rows].tolist():
            if i in self._children:
                self._children[i].append(j)
        self._pending: list[tuple[Any, Frame]] = []  # requests and what they send
        self.sent = np.zeros((len(edges), 2), dtype=np.int64)

    def reduce(
        self,
        values: Mapping[int, Any],
        merge: Merge = np.add,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the merged values of all nodes, on every process.

        Parameters
        ----------
        values : dict of int to object
            By hosted node. Arrays of numbers, of any shape, are sent as they are; other
            values as JSON, so tuples become lists.
        merge : callable
            Takes two values and returns one. It leaves its arguments unchanged.
        finish : callable, optional
            Takes the merged value and returns what the root sends down the tree. By
            default this is the value itself.

        Raises
        ------
        MPI.Exception
            If a neighbour in the tree fails, and MPI tolerates failures. Other ranks
            may wait until the communicator is revoked.
        """
        found: dict[int, Any] = {}  # by child: the value between it and its parent
        whole = None

        def pair(mine: Any, child: int, other: Any) -> Any:
            return merge(mine, other)

        for i in reversed(self._hosted):
            value = self._merge_subtree(i, values[i], pair, found)
            if not i:
                whole = value if finish is None else _as_array(finish(value))
        for i in self._hosted:
            if i:
                whole = self._receive(found, i, self._hosts[self._parents[i]])
            for j in self._children[i]:
                found[j] = self._send(whole, j, self._down[j], self._hosts[j])
        self._finish()
        return whole

    def subtotals(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Return the sums over subtrees, by edge between a hosted node and another.

        The edge from a node to its parent has the sum of the node's subtree. The edge
        from the parent to the node has minus this sum. Both are bitwise equal on both
        processes. Keys are indices of ``topology.edges``.
        """
        found: dict[int, Any] = {}
        sums: dict[int, Any] = {}

        def add(total: Any, child: int, more: Any) -> Any:
            sums[self._down[child]] = -more
            return total + more

        for i in reversed(self._hosted):
            total = self._merge_subtree(i, values[i], add, found)
            if i:
                sums[self._up[i]] = total
        self._finish()
        return sums

    def _merge_subtree(
        self,
        i: int,
        value: Any,
        merge: Callable[[Any, int, Any], Any],
        found: dict[int, Any],
    ) -> Any:
        """Return the merged value of a node's subtree, and send it to the parent.

        ``merge`` takes a value, a child, and the value of the child's subtree.
        """
        value = _as_array(value)
        for j in self._children[i]:
            more = self._receive(found, j, self._hosts[j])
            value = _as_array(merge(value, j, more))
        if i:
            found[i] = self._send(value, i, self._up[i], self._hosts[self._parents[i]])
        return value

    def _send(self, value: Any, child: int, row: int, to: int) -> Any:
        """Send a value between a child and its parent, in the message ``row``."""
        here, length = to == self._rank, _length(value)
        if here and length is not None:
            self.sent[row] += 1, length
            return value
        frame = _pack(value)
        self.sent[row] += 1, len(frame)
        if here:
            return _unpack(frame)
        self._pending.append((self._comm.Isend(frame, to, child), frame))
        return None

    def _receive(self, found: dict[int, Any], child: int, source: int) -> Any:
        """Return what was sent between a child and its parent."""
        if source == self._rank:
            return found.pop(child)
        from dadmm.comm.mpi_library import MPI

        status, pause = MPI.Status(), SHORTEST_SLEEP
        while (message := self._comm.Improbe(source, child, status)) is None:
            time.sleep(pause)
            pause = min(2.0 * pause, LONGEST_SLEEP)
        frame = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
        message.Recv(frame)
        return _unpack(frame)

    def _finish(self) -> None:
        """Wait until all messages of this process are sent, and count them."""
        if self._comm is None:
            return
        from dadmm.comm.collectives import count
        from dadmm.comm.mpi_wait import poll

        if self._pending:
            poll([request for request, _ in self._pending])
        count(*(frame for _, frame in self._pending))
        self._pending.clear()


def _as_array(value: Any) -> Any:
    """Return numpy's scalars as arrays, and arrays in C order, as they are received.

    Other values are returned unchanged. The bits of a product depend on the order.
    """
    if isinstance(value, np.generic | np.ndarray):
        return np.asarray(value, order="C")
    return value


def _length(value: Any) -> int | None:
    """Return the bytes of an array's message; None for other values."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return 8 + 8 * value.ndim + value.nbytes
    return None


def _pack(value: Any) -> Frame:
    """Return the bytes of a message.

    The message of an array has its type (7 bytes), number of axes (1 byte), shape (8
    bytes per axis) and entries; that of another value has 8 bytes and its JSON.
    """
    if _length(value) is None:
        start = np.zeros(8, dtype=np.uint8)
        start[7] = _JSON
        text = json.dumps(value).encode()
        return np.concatenate([start, np.frombuffer(text, dtype=np.uint8)])
    start = np.frombuffer(value.dtype.str.encode().ljust(7, b"\0"), dtype=np.uint8)
    shape = np.array(value.shape, dtype=np.int64).view(np.uint8)
    entries = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return np.concatenate([start, np.array([value.ndim], np.uint8), shape, entries])


def _unpack(frame: Frame) -> Any:
    """Return the value of a message."""
    ndim = int(frame[7])
    if ndim == _JSON:
        return json.loads(frame[8:].tobytes())
    kind = np.dtype(frame[:7].tobytes().rstrip(b"\0").decode())
    shape, entries = np.split(frame[8:], [8 * ndim])
    return entries.view(kind).reshape(shape.view(np.int64))
