"""Sums, and other reductions, over a spanning tree of the graph.

A node receives the values of its children's subtrees, merges them into its own, and
sends the result to its parent. The result of the root is sent down the tree. All
messages go along edges of the graph. A node learns the total of each child's subtree,
and the total of all nodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dadmm.comm.traffic import count_outside, counter
from dadmm.graphs.measures import distances
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI

Merge = Callable[[Any, Any], Any]
Finish = Callable[[Any], Any]
Frame = NDArray[np.uint8]
SHORTEST_SLEEP, LONGEST_SLEEP = 50e-6, 1e-3  # seconds between two probes for a message
_JSON = 255  # in place of the number of axes


def spanning_tree(topology: Topology) -> tuple[Integers, Integers]:
    """Return the breadth-first tree of a graph from node 0: parents, and an order.

    The parent (n_nodes,) of a node is the lowest-numbered neighbour that is nearer to
    node 0, whose own is -1. The order is by distance from node 0, then by number.
    """
    depth = distances(topology.indptr, topology.indices, 0)
    i, j = topology.sources, topology.indices
    up = np.flatnonzero(depth[j] < depth[i])
    nodes, first = np.unique(i[up], return_index=True)
    parents = np.full(len(topology), -1)
    parents[nodes] = j[up[first]]
    return parents, np.argsort(depth, kind="stable")


class TreeReduction:
    """Merge the values of all nodes along a spanning tree, by messages.

    The value of a node's subtree is ``merge(... merge(merge(own, first child's),
    second child's) ...)``, with the children in order of number. It does not depend on
    which process hosts which node. ``sent`` (n_edges, 2) counts what hosted nodes have
    sent along ``topology.edges``.

    Parameters
    ----------
    topology : Topology
    comm : MPI.Comm, optional
        With tags 1 to n_nodes - 1 free for messages of this class. By default all nodes
        are in this process.
    hosts : sequence of int, optional
        The rank of each node; every rank has one or more. By default rank i has node i.
    """

    def __init__(
        self,
        topology: Topology,
        comm: MPI.Comm | None = None,
        hosts: Sequence[int] | None = None,
    ) -> None:
        n_nodes, edges = topology.n_nodes, topology.edges
        parents, order = spanning_tree(topology)
        if hosts is None:
            hosts = [0] * n_nodes if comm is None else range(n_nodes)
        self._comm, self._hosts = comm, hosts
        self._rank = 0 if comm is None else comm.rank
        self._parents = parents.tolist()
        self._hosted = [i for i in order.tolist() if hosts[i] == self._rank]
        rows = np.flatnonzero(parents[edges[:, 1]] == edges[:, 0])  # from parents
        self._down = dict(zip(edges[rows, 1].tolist(), rows.tolist(), strict=True))
        self._up = dict(zip(self._down, topology.reverse[rows].tolist(), strict=True))
        self._children: dict[int, list[int]] = {i: [] for i in self._hosted}
        for i, j in edges[rows].tolist():
            if i in self._children:
                self._children[i].append(j)
        self._found: dict[int, Any] = {}  # by child: a value between it and its parent
        self._pending: list[tuple[MPI.Request, Frame]] = []  # and what they send
        self.sent = counter(len(edges))

    def reduce(
        self,
        values: Mapping[int, Any],
        merge: Merge = np.add,
        finish: Finish | None = None,
    ) -> Any:
        """Return the merged values of all nodes, on every process.

        ``values`` are by hosted node: arrays of numbers are sent as they are, other
        values as JSON, so tuples become lists. ``merge`` takes two values and returns
        one; it leaves its arguments unchanged. ``finish`` takes the merged value and
        returns what the root sends down the tree, by default the value itself.

        If a neighbour in the tree fails, and MPI tolerates failures, MPI.Exception is
        raised. Other ranks may wait until the communicator is revoked.
        """
        whole = None
        for i in reversed(self._hosted):
            value = self._merge_subtree(i, values[i], merge)
            if not i:
                whole = value if finish is None else _as_array(finish(value))
        for i in self._hosted:
            if i:
                whole = self._receive(i, self._hosts[self._parents[i]])
            for j in self._children[i]:
                self._send(whole, j, self._down[j], self._hosts[j])
        self._complete()
        return whole

    def subtotals(self, values: Mapping[int, Any]) -> dict[int, Any]:
        """Return the sums over subtrees, by edge between a hosted node and another.

        The edge from a node to its parent has the sum of the node's subtree. The edge
        from the parent to the node has minus this sum. Both are bitwise equal on both
        processes. Keys are indices of ``topology.edges``.
        """
        sums: dict[int, Any] = {}
        for i in reversed(self._hosted):
            total = self._merge_subtree(i, values[i], np.add, sums)
            if i:
                sums[self._up[i]] = total
        self._complete()
        return sums

    def _merge_subtree(
        self, i: int, value: Any, merge: Merge, down: dict[int, Any] | None = None
    ) -> Any:
        """Return the value of a node's subtree, and send it to the parent.

        If ``down`` is given, it gets minus the value of each child's subtree.
        """
        value = _as_array(value)
        for j in self._children[i]:
            part = self._receive(j, self._hosts[j])
            if down is not None:
                down[self._down[j]] = -part
            value = _as_array(merge(value, part))
        if i:
            self._send(value, i, self._up[i], self._hosts[self._parents[i]])
        return value

    def _send(self, value: Any, child: int, row: int, to: int) -> None:
        """Send a value between a child and its parent, in the message ``row``."""
        if to == self._rank and _is_numeric(value):  # it need not be packed
            self._found[child] = value
            self.sent[row] += 1, 8 + 8 * value.ndim + value.nbytes
            return
        frame = _pack(value)
        self.sent[row] += 1, len(frame)
        if to == self._rank:
            self._found[child] = _unpack(frame)
        else:
            assert self._comm is not None
            self._pending.append((self._comm.Isend(frame, to, child), frame))

    def _receive(self, child: int, source: int) -> Any:
        """Return what was sent between a child and its parent."""
        if source == self._rank:
            return self._found.pop(child)
        from dadmm.comm.mpi_library import MPI

        assert self._comm is not None
        status, pause = MPI.Status(), SHORTEST_SLEEP
        while (message := self._comm.Improbe(source, child, status)) is None:
            time.sleep(pause)
            pause = min(2.0 * pause, LONGEST_SLEEP)
        frame = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
        message.Recv(frame)
        return _unpack(frame)

    def _complete(self) -> None:
        """Wait until all messages of this process are sent, and count them."""
        if self._comm is None:
            return
        from dadmm.comm.mpi_library import poll

        if self._pending:
            poll([request for request, _ in self._pending])
        count_outside(*(frame for _, frame in self._pending))
        self._pending.clear()


@contextmanager
def tree_of(topology: Topology, comm: MPI.Comm | None) -> Iterator[TreeReduction]:
    """Yield a tree whose messages have a communicator of their own.

    The caller may use ``comm`` for other messages.
    """
    if comm is None:
        yield TreeReduction(topology)
        return
    from dadmm.comm.mpi_library import duplicate

    private = duplicate(comm)
    yield TreeReduction(topology, private)
    private.Free()


def _as_array(value: Any) -> Any:
    """Return numpy's values as they are received: bits of products depend on it."""
    if isinstance(value, np.generic | np.ndarray):
        return np.asarray(value, order="C")
    return value


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


def _pack(value: Any) -> Frame:
    """Return the bytes of a message.

    The message of an array has its type (7 bytes), number of axes (1 byte), shape (8
    bytes per axis) and entries; the message of another value has 8 bytes and JSON.
    """
    data = bytes([0] * 7 + [_JSON])
    if _is_numeric(value):
        data = value.dtype.str.encode().ljust(7, b"\0") + bytes([value.ndim])
        data += np.array(value.shape, dtype=np.int64).tobytes() + value.tobytes()
    else:
        data += json.dumps(value).encode()
    return np.frombuffer(data, dtype=np.uint8)


def _unpack(frame: Frame) -> Any:
    """Return the value of a message."""
    ndim = int(frame[7])
    if ndim == _JSON:
        return json.loads(frame[8:].tobytes())
    kind = np.dtype(frame[:7].tobytes().rstrip(b"\0").decode())
    shape, entries = np.split(frame[8:], [8 * ndim])
    return entries.view(kind).reshape(shape.view(np.int64))
