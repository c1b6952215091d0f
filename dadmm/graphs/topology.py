"""Connected, undirected graphs over nodes 0..J-1, by name or from edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dadmm.core.checks import shown
from dadmm.core.errors import TopologyError
from dadmm.graphs import graphfiles
from dadmm.graphs.distance import breadth_first, connected_pairs

Integers = NDArray[np.int64]
MOST_NODES, MOST_EDGES = 20_000, 2_000_000  # limits of time and memory
MOST_RANDOM = 5_000  # nodes of random graphs, which draw a number for every pair


@dataclass(frozen=True, repr=False)
class Topology:
    """The graph of a run: connected and undirected, over nodes 0..J-1.

    Parameters
    ----------
    neighbours : tuple of tuple of int
        Sorted neighbours of each node, the paper's B_i. Every edge is in the lists of
        both its ends. `from_edges` makes these lists from pairs.
    """

    neighbours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        _check_count(len(self))
        _check_lists(self)
        _check_connected(self)

    @classmethod
    def from_edges(cls, n_nodes: int, edges: Iterable[Sequence[int]]) -> Topology:
        """Return the graph of these edges, each given in one direction or in both.

        Parameters
        ----------
        n_nodes : int
        edges : iterable of pairs of int, or ndarray of shape (n_edges, 2)
        """
        _check_count(n_nodes)
        pairs = _as_pairs(edges)
        outside = pairs[((pairs < 0) | (pairs >= n_nodes)).any(axis=1)]
        if len(outside):
            raise TopologyError(
                f"edge {_pair(outside[0])} leaves the nodes 0..{n_nodes - 1}; "
                f"number the {n_nodes} nodes from 0 to {n_nodes - 1}"
            )
        directed = np.concatenate([pairs, pairs[:, ::-1]])
        keys = np.sort(directed @ np.array([n_nodes, 1]))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique takes ten times as long
        i, j = np.divmod(keys, n_nodes)
        rows = np.split(j, np.searchsorted(i, np.arange(1, n_nodes)))
        return cls(tuple(tuple(row.tolist()) for row in rows))

    @classmethod
    def complete(cls, n: int) -> Topology:
        """Return the graph in which every two nodes are neighbours."""
        _check_count(n, n * (n - 1) // 2)
        return cls.from_edges(n, combinations(range(n), 2))

    @classmethod
    def ring(cls, n: int) -> Topology:
        """Return a ring; a ring of two nodes has one edge."""
        _check_count(n)
        return cls.from_edges(n, [(i, (i + 1) % n) for i in range(n) if n > 1])

    @classmethod
    def cluster(cls, n: int) -> Topology:
        """Return two complete graphs, of n // 2 and the other nodes, and an edge."""
        half = n // 2
        _check_count(n, half * (half - 1) // 2 + (n - half) * (n - half - 1) // 2)
        sides = [*combinations(range(half), 2), *combinations(range(half, n), 2)]
        return cls.from_edges(n, sides + [(half - 1, half)] * (n > 1))

    @classmethod
    def star(cls, n: int) -> Topology:
        """Return the graph in which every other node has node 0 as only neighbour."""
        _check_count(n)
        return cls.from_edges(n, [(0, i) for i in range(1, n)])

    @classmethod
    def chain(cls, n: int) -> Topology:
        """Return the path 0, 1, ..., n - 1."""
        _check_count(n)
        return cls.from_edges(n, [(i - 1, i) for i in range(1, n)])

    @classmethod
    def grid(cls, n: int) -> Topology:
        """Return rows of floor(sqrt(n)) nodes; the last row may be shorter."""
        _check_count(n)
        width = math.isqrt(n)
        across = [(i - 1, i) for i in range(1, n) if i % width]
        return cls.from_edges(n, across + [(i - width, i) for i in range(width, n)])

    @classmethod
    def random_geometric(
        cls, n: int, radius: float | None = None, seed: int = 0
    ) -> Topology:
        """Join random points of the unit square that are at most ``radius`` apart.

        By default the radius is sqrt(2 log(n) / (pi n)), or the least that connects
        the points if this is larger.
        """
        _check_pairs(n)
        x, y = np.random.default_rng(seed).random((2, n))
        distance = np.hypot(x[:, None] - x, y[:, None] - y)
        default = math.sqrt(2 * math.log(n) / (math.pi * n))
        given = f"{radius=}, {seed=}"
        return cls.from_edges(n, connected_pairs(distance, default, radius, given))

    @classmethod
    def erdos_renyi(
        cls, n: int, probability: float | None = None, seed: int = 0
    ) -> Topology:
        """Join every two nodes with the same probability, independently.

        By default the probability is 2 log(n) / n, or the least that connects the
        graph of this seed if this is larger.
        """
        _check_pairs(n)
        draws = np.triu(np.random.default_rng(seed).random((n, n)), 1)
        default, given = 2 * math.log(n) / n, f"{probability=}, {seed=}"
        pairs = connected_pairs(draws + draws.T, default, probability, given)
        return cls.from_edges(n, pairs)

    @classmethod
    def from_graph(cls, graph: Any) -> Topology:
        """Return the topology of a networkx graph whose nodes are 0..J-1.

        Directions and attributes are dropped, and parallel edges are merged.
        """
        return cls.from_edges(*graphfiles.from_networkx(graph))

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Topology:
        """Return the graph in a file; `topologies/README.md` has the formats."""
        n_nodes, edges = graphfiles.read(Path(path))
        try:
            return cls.from_edges(n_nodes, edges)
        except TopologyError as error:
            raise TopologyError(f"{path}: {error}") from None

    def write(self, path: str | PathLike[str]) -> None:
        """Write the graph as an edge list."""
        file = Path(path)
        if file.suffix not in (".edges", ".edgelist", ".txt"):
            raise TopologyError(f"a graph is written as .edges or .txt, not {file}")
        once = [f"{i} {j}" for i, j in self.edges if i < j]
        header = f"# {self.n_nodes} nodes, {len(once)} edges"
        file.write_text("\n".join([header, *(once or ["0"]), ""]), encoding="utf-8")

    def to_graph(self) -> Any:
        """Return a networkx graph."""
        import networkx as nx

        return nx.from_dict_of_lists(dict(enumerate(self.neighbours)))

    def __len__(self) -> int:
        return len(self.neighbours)

    def __repr__(self) -> str:
        return f"<Topology of {self.n_nodes} nodes, {len(self.edges) // 2} edges>"

    @property
    def n_nodes(self) -> int:
        """Number of nodes, the paper's J."""
        return len(self.neighbours)

    @cached_property
    def degrees(self) -> Integers:
        """Number of neighbours of each node, shape (n_nodes,)."""
        return _frozen([len(row) for row in self.neighbours])

    @cached_property
    def edges(self) -> Integers:
        """Directed edges (i, j) in lexicographic order, shape (n_edges, 2)."""
        i = np.repeat(np.arange(len(self)), self.degrees)
        j = np.fromiter(chain.from_iterable(self.neighbours), np.int64)
        return _frozen(np.column_stack([i, j]))

    @cached_property
    def reverse(self) -> Integers:
        """Row of edge (j, i) for the row of each edge (i, j), shape (n_edges,)."""
        return _frozen(np.lexsort(self.edges.T))

    @cached_property
    def offsets(self) -> Integers:
        """Edges of node i are rows offsets[i] to offsets[i + 1]; (n_nodes + 1,)."""
        return _frozen(np.concatenate([[0], np.cumsum(self.degrees)]))

    @cached_property
    def diameter(self) -> int:
        """Largest number of edges on a shortest path between two nodes."""
        return max(breadth_first(self._masks, i)[0] for i in range(self.n_nodes))

    @cached_property
    def _masks(self) -> list[int]:
        """Neighbours of each node as the bits of an integer."""
        return [sum(1 << j for j in row) for row in self.neighbours]


def build(name: str, n_nodes: int | None = None, seed: int = 0) -> Topology:
    """Return a graph by its name in `GRAPHS`, or from a file.

    Parameters
    ----------
    name : str
        A key of `GRAPHS`, or the path of a file.
    n_nodes : int, optional
        Nodes of the run; a graph from a file must have this number.
    seed : int
        For the random graphs.
    """
    if is_named(name):
        if n_nodes is None:
            raise TopologyError(f"a {name} graph needs a number of nodes; give --nodes")
        return GRAPHS[name](n_nodes, seed)
    if Path(name).suffix not in graphfiles.READERS and not Path(name).exists():
        raise TopologyError(
            f"unknown graph {name!r}; choose one of {', '.join(sorted(GRAPHS))}, or "
            "give the path of a graph file"
        )
    topology = Topology.read(name)
    if n_nodes not in (None, len(topology)):
        raise TopologyError(
            f"the graph in {name} has {len(topology)} nodes but the run has {n_nodes}; "
            f"use -n {len(topology)} or --nodes {len(topology)}"
        )
    return topology


def is_named(name: str) -> bool:
    """Return whether a name is one of `GRAPHS`, and not a file."""
    return name in GRAPHS


RANDOM = {"random-geometric", "erdos-renyi"}  # graphs that depend on the seed
GRAPHS: dict[str, Callable[[int, int], Topology]] = {
    "complete": lambda n, seed: Topology.complete(n),
    "ring": lambda n, seed: Topology.ring(n),
    "cluster": lambda n, seed: Topology.cluster(n),
    "star": lambda n, seed: Topology.star(n),
    "chain": lambda n, seed: Topology.chain(n),
    "grid": lambda n, seed: Topology.grid(n),
    "random-geometric": lambda n, seed: Topology.random_geometric(n, seed=seed),
    "erdos-renyi": lambda n, seed: Topology.erdos_renyi(n, seed=seed),
}


def _check_count(n_nodes: int, n_edges: int = 0) -> None:
    """Check the number of nodes and edges of a graph."""
    if n_nodes < 1:
        raise TopologyError(f"a graph needs at least one node, got {n_nodes}")
    if n_nodes > MOST_NODES:
        raise TopologyError(
            f"a graph may have at most {MOST_NODES} nodes, got {shown(n_nodes)}"
        )
    if n_edges > MOST_EDGES:
        raise TopologyError(
            f"this graph of {n_nodes} nodes would have {n_edges} edges, and at most "
            f"{MOST_EDGES} are allowed; use fewer nodes, or a graph with fewer edges "
            "such as ring or grid"
        )


def _check_pairs(n_nodes: int) -> None:
    """Check the number of nodes of a random graph."""
    _check_count(n_nodes)
    if n_nodes > MOST_RANDOM:
        raise TopologyError(
            f"a random graph may have at most {MOST_RANDOM} nodes, got {n_nodes}"
        )


def _check_lists(topology: Topology) -> None:
    """Check for loops, sorted lists, and that each edge is listed at both ends."""
    edges = topology.edges
    loops = edges[edges[:, 0] == edges[:, 1]]
    if len(loops):
        raise TopologyError(
            f"node {loops[0, 0]} is its own neighbour; remove the self loop "
            f"{_pair(loops[0])}"
        )
    ordered = all(list(row) == sorted(set(row)) for row in topology.neighbours)
    if not ordered or (edges[topology.reverse] != edges[:, ::-1]).any():
        raise TopologyError(
            "neighbour lists must be sorted and hold each edge at both ends; "
            "use Topology.from_edges"
        )


def _check_connected(topology: Topology) -> None:
    alone = np.flatnonzero(topology.degrees == 0)
    if len(alone) and len(topology) > 1:
        raise TopologyError(f"node {alone[0]} has no neighbours; give it an edge")
    _, visited = breadth_first(topology._masks, 0)
    for i in range(len(topology)):
        if not visited >> i & 1:
            raise TopologyError(
                f"the graph is not connected: no path leads from node 0 to node {i}; "
                "add an edge between the parts"
            )


def _as_pairs(edges: Iterable[Sequence[int]]) -> Integers:
    """Return edges as an array of shape (n_edges, 2)."""
    try:
        pairs = np.asarray(edges if isinstance(edges, np.ndarray) else list(edges))
    except ValueError:
        raise TopologyError("edges must be pairs, got rows of unequal length") from None
    if pairs.size == 0:
        return np.empty((0, 2), dtype=np.int64)
    if pairs.shape[1:] != (2,) or pairs.dtype.kind not in "iu":
        raise TopologyError(
            f"edges must be pairs of integers, got shape {pairs.shape} "
            f"and type {pairs.dtype}"
        )
    return pairs.astype(np.int64)


def _pair(edge: Integers) -> str:
    return f"({edge[0]}, {edge[1]})"


def _frozen(values: ArrayLike) -> Integers:
    """Return a read-only array, because it is cached and shared."""
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array
