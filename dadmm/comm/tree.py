"""Sums, and other reductions, over a spanning tree of the graph.

A node merges the values of its children's subtrees into its own, and sends the result
to its parent. The result of the root is sent down the tree. A node learns the total of
each child's subtree, and the total of all nodes. Values go along edges of the graph;
those between two ranks from one level of the tree travel as one message.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

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
TAG = 1  # of all messages; an exchange has tag 0
_JSON = 255  # in place of the number of axes


class Stacked(NamedTuple):
    """A merge of arrays (..., m) that treats each row as it would treat it alone."""

    merge: Merge


def spanning_tree(topology: Topology) -> tuple[Integers, Integers]:
    """Return the breadth-first tree of a graph from node 0: parents, and distances.

    The parent (n_nodes,) of a node is the lowest-numbered neighbour that is nearer to
    node 0, whose own is -1.
    """
    depth = distances(topology.indptr, topology.indices, 0)
    i, j = topology.sources, topology.indices
    up = np.flatnonzero(depth[j] < depth[i])
    nodes, first = np.unique(i[up], return_index=True)
    parents = np.full(len(topology), -1)
    parents[nodes] = j[up[first]]
    return parents, depth


class Level:
    """What a process does for its nodes of one depth, with rows of its values."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[int, slice]] = []  # rank, and rows of its children
        self.steps: list[tuple[Integers, Integers]] = []  # parents and k-th children
        self.departures: list[tuple[int, Integers]] = []  # rank of the parents, rows


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
        With the tag `TAG` free for messages of this class. By default all nodes are in
        this process.
    hosts : ndarray of int, optional
        The rank of each node; every rank has one or more. By default rank i has node i.
    """

    def __init__(
        self,
        topology: Topology,
        comm: MPI.Comm | None = None,
        hosts: Integers | None = None,
    ) -> None:
        n_nodes, rank = topology.n_nodes, 0 if comm is None else comm.rank
        parents, depth = spanning_tree(topology)
        if hosts is None:
            hosts = np.zeros(n_nodes, int) if comm is None else np.arange(n_nodes)
        self._comm, self._parents, self._depth = comm, parents, depth
        self._hosts, self.sent = np.asarray(hosts), counter(len(topology.indices))
        order = np.argsort(depth, kind="stable")
        own = order[self._hosts[order] == rank]  # by depth, then by number
        self._nodes = own.tolist()
        # the edges from parents to children; the first or the last is hosted here
        down = np.flatnonzero(parents[topology.indices] == topology.sources)
        parent, child = topology.sources[down], topology.indices[down]
        self._find_ranks(order, rank)
        place = np.full(n_nodes, -1)
        place[own] = np.arange(len(own))
        up = np.full(n_nodes, -1)
        up[child] = topology.reverse[down]
        self._up = up[own[own > 0]]
        mine = self._hosts[parent] == rank
        first = np.flatnonzero(np.diff(parent, prepend=-1))
        turn = np.arange(len(parent)) - np.repeat(first, np.diff([*first, len(parent)]))
        parent, child, turn, self._down = (
            array[mine] for array in (parent, child, turn, down)
        )
        self._plan(own, place, parent, child, turn, rank)

    def _find_ranks(self, order: Integers, rank: int) -> None:
        """Find from which rank the whole comes, and to which it is passed on."""
        ranks, first = np.unique(self._hosts[order], return_index=True)
        above = self._parents[order[first]]  # of the first node of each rank
        source = np.where(above < 0, -1, self._hosts[above])
        self._source = int(source[ranks == rank][0])
        self._targets = ranks[source == rank].tolist()

    def _plan(
        self,
        own: Integers,
        place: Integers,
        parent: Integers,
        child: Integers,
        turn: Integers,
        rank: int,
    ) -> None:
        """Find the levels, given the children of own nodes and their turns."""
        depth, hosts = self._depth, self._hosts
        levels: defaultdict[int, Level] = defaultdict(Level)
        away = child[hosts[child] != rank]
        away = away[np.lexsort((away, hosts[away], depth[away]))]
        place[away] = len(own) + np.arange(len(away))
        self._n_away, self._rows_down = len(away), place[child]
        for part in _runs(depth[away], hosts[away]):
            node, rows = away[part.start], place[away[part.start]]
            found = slice(int(rows), int(rows) + part.stop - part.start)
            levels[int(depth[node]) - 1].arrivals.append((int(hosts[node]), found))
        by_turn = np.lexsort((parent, turn, depth[parent]))
        into, source = place[parent[by_turn]], place[child[by_turn]]
        level = depth[parent[by_turn]]
        for part in _runs(level, turn[by_turn]):
            levels[int(level[part.start])].steps.append((into[part], source[part]))
        leaving = own[(own > 0) & (hosts[self._parents[own]] != rank)]
        to = hosts[self._parents[leaving]]
        by_rank = np.lexsort((leaving, to, depth[leaving]))
        leaving, to = leaving[by_rank], to[by_rank]
        for part in _runs(depth[leaving], to):
            there, rows = int(to[part.start]), place[leaving[part]]
            levels[int(depth[leaving[part.start]])].departures.append((there, rows))
        self._levels = [levels[key] for key in sorted(levels, reverse=True)]
        self._pending: list[tuple[MPI.Request, Frame]] = []  # and what they send

    def reduce(
        self,
        values: Mapping[int, Any],
        merge: Merge | Stacked = np.add,
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
        found = self._merge_up(values, merge)
        if self._source < 0:
            whole = _as_array(found[0])
            whole = whole.copy() if _is_numeric(whole) else whole
            whole = whole if finish is None else _as_array(finish(whole))
            whole = _as_received(whole)
        else:
            (whole,) = _unpack(self._receive(self._source))
        for rank in self._targets:
            self._send(_pack(whole), rank)
        self.sent[self._down] += 1, _length(whole)
        self._complete()
        return whole

    def subtotals(self, values: Mapping[int, Any]) -> tuple[Integers, NDArray[Any]]:
        """Return sums of arrays over subtrees, by edge of a hosted node and another.

        The edge from a node to its parent has the sum of the node's subtree. The edge
        from the parent to the node has minus this sum. Both are bitwise equal on both
        processes. Edges are indices of ``topology.edges``.
        """
        found = np.asarray(self._merge_up(values, np.add))
        self._complete()
        below = found[int(self._source < 0) : len(self._nodes)]
        edges = np.concatenate([self._up, self._down])
        return edges, np.concatenate([below, -found[self._rows_down]])

    def _merge_up(self, values: Mapping[int, Any], merge: Merge | Stacked) -> Any:
        """Return the values of the subtrees of own nodes and their children, by row."""
        own = [_as_array(values[i]) for i in self._nodes]
        stacks = isinstance(merge, np.ufunc | Stacked)
        make = StackedRows if stacks and _are_alike(own) else Rows
        rows = make(
            own, self._n_away, merge[0] if isinstance(merge, Stacked) else merge
        )
        for level in self._levels:
            for rank, away in level.arrivals:
                rows.put(away, self._receive(rank))
            for into, source in level.steps:
                rows.join(into, source)
            for rank, leaving in level.departures:
                self._send(rows.frames(leaving), rank)
        self.sent[self._up, 0] += 1
        self.sent[self._up, 1] += rows.lengths(len(own))[int(self._source < 0) :]
        return rows.values

    def _send(self, frame: Frame, rank: int) -> None:
        assert self._comm is not None
        self._pending.append((self._comm.Isend(frame, rank, TAG), frame))

    def _receive(self, rank: int) -> Frame:
        """Return the next message of a rank."""
        from dadmm.comm.mpi_library import MPI

        assert self._comm is not None
        status, pause = MPI.Status(), SHORTEST_SLEEP
        while (message := self._comm.Improbe(rank, TAG, status)) is None:
            time.sleep(pause)
            pause = min(2.0 * pause, LONGEST_SLEEP)
        frame = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
        message.Recv(frame)
        return frame

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
def tree_of(
    topology: Topology, comm: MPI.Comm | None, hosts: Integers | None = None
) -> Iterator[TreeReduction]:
    """Yield a tree whose messages have a communicator of their own.

    The caller may use ``comm`` for other messages.
    """
    if comm is None:
        yield TreeReduction(topology)
        return
    from dadmm.comm.mpi_library import duplicate

    private = duplicate(comm)
    yield TreeReduction(topology, private, hosts)
    private.Free()


class Rows:
    """Values of nodes, of any kind: own ones first, then those of ``n_away`` others."""

    values: Any

    def __init__(self, own: list[Any], n_away: int, merge: Merge) -> None:
        self.values, self._merge = [*own, *[None] * n_away], merge

    def put(self, rows: slice, frame: Frame) -> None:
        """Keep the values that have arrived in a message."""
        self.values[rows] = _unpack(frame)

    def join(self, into: Integers, source: Integers) -> None:
        """Merge values at ``source`` into those at ``into``, all different."""
        values, merge = self.values, self._merge
        for i, j in zip(into.tolist(), source.tolist(), strict=True):
            values[i] = _as_array(merge(values[i], _as_received(values[j])))

    def frames(self, rows: Integers) -> Frame:
        """Return the message of the values at these rows."""
        return np.concatenate([_pack(self.values[i]) for i in rows.tolist()])

    def lengths(self, n: int) -> Integers:
        """Return the bytes of the first n values in a message."""
        return np.array([_length(value) for value in self.values[:n]], dtype=np.int64)


class StackedRows(Rows):
    """Arrays of one shape and type, as one array; a merge joins many at once."""

    def __init__(self, own: list[Any], n_away: int, merge: Merge) -> None:
        first, self._merge = own[0], merge
        self.values = np.empty((len(own) + n_away, *first.shape), first.dtype)
        self.values[: len(own)] = own
        self._head = _head(first)
        self._shape = -1, len(self._head) + first.nbytes

    def put(self, rows: slice, frame: Frame) -> None:
        values = self.values[rows]
        entries = frame.reshape(self._shape)[:, len(self._head) :]
        values[...] = entries.copy().view(values.dtype).reshape(values.shape)

    def join(self, into: Integers, source: Integers) -> None:
        self.values[into] = self._merge(self.values[into], self.values[source])

    def frames(self, rows: Integers) -> Frame:
        frames = np.empty((len(rows), self._shape[1]), np.uint8)
        frames[:, : len(self._head)] = self._head
        entries = self.values[rows].reshape(len(rows), -1)
        frames[:, len(self._head) :] = entries.view(np.uint8)
        return frames.reshape(-1)

    def lengths(self, n: int) -> Integers:
        return np.full(n, self._shape[1])


def _runs(*keys: Integers) -> list[slice]:
    """Return the longest runs of equal keys, as slices."""
    changes = np.logical_or.reduce([np.diff(key, prepend=-1) != 0 for key in keys])
    bounds = [*np.flatnonzero(changes).tolist(), len(keys[0])]
    return [slice(*pair) for pair in pairwise(bounds)]


def _as_array(value: Any) -> Any:
    """Return numpy's values as they are received: bits of products depend on it."""
    if isinstance(value, np.generic | np.ndarray):
        return np.asarray(value, order="C")
    return value


def _is_numeric(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biufc"


def _are_alike(values: Sequence[Any]) -> bool:
    """Return whether values are arrays of numbers of one shape and type, not empty."""
    first = values[0]
    return _is_numeric(first) and first.size > 0 and all(
        isinstance(each, np.ndarray)
        and each.shape == first.shape
        and each.dtype == first.dtype
        for each in values
    )  # fmt: skip


def _as_received(value: Any) -> Any:
    """Return a value as another node receives it."""
    return value if _is_numeric(value) else json.loads(json.dumps(value))


def _head(value: NDArray[Any]) -> Frame:
    """Return the type (7 bytes), number of axes (1 byte) and shape of an array."""
    data = value.dtype.str.encode().ljust(7, b"\0") + bytes([value.ndim])
    data += np.array(value.shape, dtype=np.int64).tobytes()
    return np.frombuffer(data, dtype=np.uint8)


def _pack(value: Any) -> Frame:
    """Return the bytes of a value.

    An array has its `_head` and entries; another value the length of its JSON (7
    bytes), `_JSON`, and the JSON.
    """
    if _is_numeric(value):
        return np.concatenate([_head(value), value.reshape(-1).view(np.uint8)])
    text = json.dumps(value).encode()
    data = len(text).to_bytes(7, "little") + bytes([_JSON]) + text
    return np.frombuffer(data, dtype=np.uint8)


def _length(value: Any) -> int:
    """Return the number of bytes of `_pack`."""
    if _is_numeric(value):
        return 8 + 8 * int(value.ndim) + int(value.nbytes)
    return 8 + len(json.dumps(value).encode())


def _unpack(frame: Frame) -> list[Any]:
    """Return the values of a message."""
    values: list[Any] = []
    while len(frame):
        ndim, kind = int(frame[7]), frame[:7].tobytes()
        if ndim == _JSON:
            end = 8 + int.from_bytes(kind, "little")
            values.append(json.loads(frame[8:end].tobytes()))
        else:
            shape = frame[8 : 8 + 8 * ndim].copy().view(np.int64)
            dtype = np.dtype(kind.rstrip(b"\0").decode())
            end = 8 + 8 * ndim + int(np.prod(shape)) * dtype.itemsize
            entries = frame[8 + 8 * ndim : end].copy()
            values.append(entries.view(dtype).reshape(shape))
        frame = frame[end:]
    return values
