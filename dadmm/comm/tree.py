"""Sums, and other reductions, over a spanning tree of the graph.

A node merges the values of its children's subtrees into its own, and sends the result
to its parent; the result of the root is sent down the tree.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dadmm.comm import traffic
from dadmm.graphs.measures import distances
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI

Value = Any  # an array of numbers, or what JSON can hold
Merge = Callable[[Value, Value], Value]
TAG = 1  # of all messages; an exchange has tag 0
RECEIVE, JOIN, SEND = range(3)  # in this order at each level of the tree
_JSON = 255  # in place of the number of axes


def spanning_tree(topology: Topology) -> tuple[Integers, Integers]:
    """Return the parent of each node, -1 of node 0, and its distance from node 0.

    A parent is the lowest-numbered neighbour that is nearer to node 0.
    """
    depth = distances(topology.indptr, topology.indices, 0)
    i, j = topology.sources, topology.indices
    up = np.flatnonzero(depth[j] < depth[i])
    nodes, first = np.unique(i[up], return_index=True)
    parents = np.full(topology.n_nodes, -1)
    parents[nodes] = j[up[first]]
    return parents, depth


class TreeReduction:
    """Merge the values of all nodes along a spanning tree, by messages.

    The value of a node's subtree is ``merge(... merge(merge(own, first child's),
    second child's) ...)``, with the children in order of number, whatever the ranks
    ``hosts`` of the nodes are, by default i for node i. Without ``comm``, in which
    `TAG` is free, all nodes are in this process. ``sent`` (n_edges, 2) counts what
    hosted nodes have sent along ``topology.edges``.
    """

    def __init__(
        self,
        topology: Topology,
        comm: MPI.Comm | None = None,
        hosts: Integers | None = None,
    ) -> None:
        n_nodes, rank = topology.n_nodes, 0 if comm is None else comm.rank
        if hosts is None:
            hosts = np.zeros(n_nodes, int) if comm is None else np.arange(n_nodes)
        hosts = np.asarray(hosts)
        self._comm: Any = comm
        self.sent = np.zeros((len(topology.indices), 2), np.int64)
        self._pending: list[tuple[MPI.Request, bytes]] = []  # and what they send
        parents, depth = spanning_tree(topology)
        order = np.argsort(depth, kind="stable")
        own = order[hosts[order] == rank]  # by depth, then by number
        self._nodes = own.tolist()
        # the whole comes to a rank from above its first node
        ranks, first = np.unique(hosts[order], return_index=True)
        tops = order[first]
        source = np.where(tops > 0, hosts[parents[tops]], -1)
        self._source = int(source[ranks == rank][0])
        self._targets = ranks[source == rank].tolist()
        # the edges from parents to children, by parent and child
        down = np.flatnonzero(parents[topology.indices] == topology.sources)
        parent, child = topology.sources[down], topology.indices[down]
        up = np.full(n_nodes, -1)
        up[child] = topology.reverse[down]
        self._up, self._down = up[own[own > 0]], down[hosts[parent] == rank]
        self._children = topology.indices[self._down].tolist()
        # steps by level from below: what is done, and with which other rank
        steps = defaultdict[tuple[int, int, int], list[tuple[int, int]]](list)
        ends = np.array([parent, child, hosts[parent], hosts[child], depth[parent]])
        for i, j, above, below, level in ends.T.tolist():
            if above == rank:
                steps[-level, JOIN, rank].append((i, j))
                if below != rank:
                    steps[-level, RECEIVE, below].append((i, j))
            elif below == rank:
                steps[-level - 1, SEND, above].append((i, j))
        #: what is done, the other rank, and parents with their children
        self._steps = [(*key[1:], edges) for key, edges in sorted(steps.items())]

    def reduce(
        self,
        values: Mapping[int, Value],
        merge: Merge = np.add,
        finish: Callable[[Value], Value] | None = None,
    ) -> Value:
        """Return the merged values of all nodes, on every process.

        ``values`` are by hosted node: arrays of numbers, or what JSON can hold.
        ``merge`` leaves its two values unchanged. ``finish`` turns the merged value
        into what the root sends down the tree. If a neighbour in the tree fails and MPI
        tolerates it, MPI.Exception is raised; other ranks may wait until ``comm`` is
        revoked.
        """
        found = self._merge_up(values, merge)
        if self._source < 0:
            data = pack(found[0] if finish is None else finish(_as_array(found[0])))
        else:
            data = receive(self._comm, self._source)
        for rank in self._targets:
            self._send(data, rank)
        self.sent[self._down] += 1, len(data)
        self._complete()
        (whole,) = unpack(data)
        return whole

    def subtotals(
        self, values: Mapping[int, np.ndarray]
    ) -> tuple[Integers, np.ndarray]:
        """Return edges of hosted nodes, as in ``topology.edges``, and sums of subtrees.

        The edge from a node to its parent has the sum of the node's subtree, and the
        edge from the parent to the node minus this sum, with the same bits.
        """
        found = self._merge_up(values, np.add)
        self._complete()
        sums = [found[i] for i in self._nodes if i > 0]
        sums += [-found[i] for i in self._children]
        edges = np.concatenate([self._up, self._down])
        return edges, np.array(sums).reshape(len(edges), found[self._nodes[0]].size)

    def _merge_up(self, values: Mapping[int, Value], merge: Merge) -> dict[int, Value]:
        """Return the values of the subtrees of own nodes and their children."""
        found = {i: _as_array(values[i]) for i in self._nodes}
        for what, rank, edges in self._steps:
            if what == RECEIVE:
                arrived = unpack(receive(self._comm, rank))
                found |= zip((child for _, child in edges), arrived, strict=True)
            elif what == SEND:
                self._send(b"".join(pack(found[child]) for _, child in edges), rank)
            else:
                for parent, child in edges:
                    other = found[child]
                    if not isinstance(other, np.ndarray):
                        other = json.loads(json.dumps(other))  # as others receive it
                    found[parent] = _as_array(merge(found[parent], other))
        sent = [len(pack(found[i])) for i in self._nodes if i > 0]
        self.sent[self._up, 0] += 1
        self.sent[self._up, 1] += np.array(sent, np.int64)
        return found

    def _send(self, data: bytes, rank: int) -> None:
        self._pending.append((self._comm.Isend(data, rank, TAG), data))

    def _complete(self) -> None:
        """Wait until all messages of this process are sent, and count them."""
        if self._comm is None:
            return
        from dadmm.comm.mpi import poll

        poll([request for request, _ in self._pending])
        traffic.outside += 1, sum(len(data) for _, data in self._pending)
        self._pending.clear()


def receive(comm: MPI.Comm, rank: int) -> bytes:
    """Return the next message of a rank."""
    from dadmm.comm.mpi import MPI

    status, pause = MPI.Status(), 50e-6
    while (message := comm.Improbe(rank, TAG, status)) is None:
        time.sleep(pause)
        pause = min(2.0 * pause, 1e-3)
    data = bytearray(status.Get_count(MPI.BYTE))
    message.Recv(data)
    return bytes(data)


def _as_array(value: Value) -> Value:
    """Return numpy's values as they are received: bits of products depend on it."""
    if isinstance(value, np.generic | np.ndarray):
        return np.asarray(value, order="C")
    return value


def pack(value: Value) -> bytes:
    """Return the bytes of a value.

    An array has its type (7 bytes), number of axes (1 byte), shape and entries; another
    value has the length of its JSON (7 bytes), `_JSON`, and the JSON.
    """
    value = _as_array(value)
    if isinstance(value, np.ndarray):
        kind = value.dtype.str.encode().ljust(7, b"\0") + bytes([value.ndim])
        return b"".join([kind, np.array(value.shape, np.int64).tobytes(), value.data])
    text = json.dumps(value).encode()
    return len(text).to_bytes(7, "little") + bytes([_JSON]) + text


def unpack(data: bytes) -> list[Value]:
    """Return the values of a message."""
    values, at = [], 0
    while at < len(data):
        kind, ndim, at = data[at : at + 7], data[at + 7], at + 8
        if ndim == _JSON:
            end = at + int.from_bytes(kind, "little")
            values.append(json.loads(data[at:end]))
        else:
            shape = np.frombuffer(data, np.int64, ndim, at)
            dtype, at = np.dtype(kind.rstrip(b"\0").decode()), at + 8 * ndim
            entries = np.frombuffer(data, dtype, int(shape.prod()), at).copy()
            end = at + entries.nbytes
            values.append(entries.reshape(shape))
        at = end
    return values
