"""Connected, undirected graphs over nodes 0..J-1, by name or from edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from numbers import Integral
from os import PathLike
from pathlib import Path

import numpy as np

from dadmm.core.documents import reading
from dadmm.core.errors import TopologyError, shown
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs import graphfiles
from dadmm.graphs.graphfiles import NetworkxGraph
from dadmm.graphs.measures import Integers as Integers
from dadmm.graphs.measures import components, connected_pairs, diameter

MOST_NODES, MOST_EDGES = 1_000_000, 20_000_000  # limits of time and memory
MOST_DRAWN = 5_000  # nodes of graphs that draw a number for every pair
FEW_POINTS = 1_000  # of which all distances are computed, without importing scipy
SMALL = 500  # nodes up to which the diameter is always exact
MOST_WORK = 2e8  # for the diameter of larger graphs: about a second


@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """The graph of a run: connected and undirected, over nodes 0..J-1.

    ``edges`` has each edge in both directions, sorted by first and then second node;
    `from_edges` makes the arrays from pairs. Graphs are equal if their edges are.

    Examples
    --------
    >>> ring = Topology.ring(4)
    >>> ring.neighbours[0], ring.indptr.tolist(), ring.indices.tolist()
    ((1, 3), [0, 2, 4, 6, 8], [1, 3, 0, 2, 1, 3, 0, 2])
    """

    indptr: Integers  #: (n_nodes + 1,) node i has the rows indptr[i] : indptr[i + 1]
    indices: Integers  #: (n_edges,) second node of each directed edge
    names: tuple[str, ...] = ()  #: of each node, in reports and messages
    positions: Matrix | None = None  #: (n_nodes, 2) where pictures draw the nodes
    n_nodes: int = field(init=False)  #: number of nodes, the paper's J
    degrees: Integers = field(init=False)  #: (n_nodes,) numbers of neighbours
    sources: Integers = field(init=False)  #: (n_edges,) first node of each edge
    edges: Integers = field(init=False)  #: (n_edges, 2) both nodes of each edge
    reverse: Integers = field(init=False)  #: (n_edges,) row of (j, i) for (i, j)

    def __post_init__(self) -> None:
        indptr, j = np.array(self.indptr, np.int64), np.array(self.indices, np.int64)
        n, degrees = len(indptr) - 1, np.diff(indptr)
        _nodes(n)
        places = np.zeros((n, 2)) if self.positions is None else self.positions
        placed = places.shape == (n, 2) and np.isfinite(places).all()
        named = len(self.names) in (0, n) and len({*self.names}) == len(self.names)
        if not placed or not named:
            raise TopologyError(
                f"each of the {n} nodes needs a name of its own, and a position of two "
                "finite numbers, if any are given"
            )
        fit = indptr[0] == 0 and indptr[-1] == len(j) and (degrees >= 0).all()
        i = np.repeat(np.arange(n), degrees if fit else 0)
        reverse = np.argsort(j * n + i) if fit else j
        fit = fit and ((j >= 0) & (j < n)).all() and (np.diff(i * n + j) > 0).all()
        if not fit or (i[reverse] != j).any() or (j[reverse] != i).any():
            raise TopologyError(
                "the neighbours of a node must be sorted and each edge be in both "
                "directions; use Topology.from_edges"
            )
        for node in i[i == j].tolist():
            raise TopologyError(
                f"node {self.label(node)} is its own neighbour; remove the self loop"
            )
        edges = np.column_stack((i, j))
        root = components(n, edges[i < j])
        for node in np.flatnonzero(root != root[0]).tolist():
            raise TopologyError(
                f"the graph is not connected: no path leads from node {self.label(0)} "
                f"to node {self.label(node)}; add an edge between the parts"
            )
        arrays = {"indptr": indptr, "indices": j, "degrees": degrees}
        arrays |= {"sources": i, "edges": edges, "reverse": reverse}
        for array in arrays.values():  # they are shared
            array.flags.writeable = False
        vars(self).update(arrays, n_nodes=n)

    @classmethod
    def from_edges(
        cls,
        n_nodes: int,
        edges: Iterable[Sequence[int]],
        names: Sequence[str] = (),
        positions: Matrix | None = None,
    ) -> Topology:
        """Return the graph of these pairs, each given in one direction or in both."""
        _nodes(n_nodes)
        pairs = as_pairs(edges)
        outside = pairs[((pairs < 0) | (pairs >= n_nodes)).any(axis=1)]
        if len(outside):
            raise TopologyError(
                f"edge {tuple(outside[0].tolist())} leaves the nodes 0..{n_nodes - 1}; "
                f"number the {n_nodes} nodes from 0 to {n_nodes - 1}"
            )
        directed = np.concatenate([pairs, pairs[:, ::-1]])
        keys = np.sort(directed @ np.array([n_nodes, 1]))
        keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique takes ten times as long
        i, j = np.divmod(keys, n_nodes)
        indptr = np.searchsorted(i, np.arange(n_nodes + 1))
        return cls(indptr, j, tuple(names), positions)

    @classmethod
    def complete(cls, n: int) -> Topology:
        """Return the graph in which every two nodes are neighbours."""
        _nodes(n, n * (n - 1) // 2)
        return cls.from_edges(n, np.transpose(np.triu_indices(n, 1)))

    @classmethod
    def ring(cls, n: int) -> Topology:
        """Return a ring; a ring of two nodes has one edge."""
        i = _nodes(n)
        return cls.from_edges(n, np.column_stack((i, (i + 1) % n))[: n if n > 1 else 0])

    @classmethod
    def cluster(cls, n: int) -> Topology:
        """Return two complete graphs, of n // 2 and the other nodes, and an edge."""
        half = n // 2
        _nodes(n, half * (half - 1) // 2 + (n - half) * (n - half - 1) // 2)
        bridge = np.array([[half - 1, half]][: n - 1]).reshape(-1, 2)
        here, there = np.triu_indices(half, 1), np.triu_indices(n - half, 1)
        sides = [np.transpose(here), half + np.transpose(there)]
        return cls.from_edges(n, np.concatenate([*sides, bridge]))

    @classmethod
    def star(cls, n: int) -> Topology:
        """Return the graph in which every other node has node 0 as only neighbour."""
        i = _nodes(n)[1:]
        return cls.from_edges(n, np.column_stack((0 * i, i)))

    @classmethod
    def chain(cls, n: int) -> Topology:
        """Return the path 0, 1, ..., n - 1."""
        i = _nodes(n)[1:]
        return cls.from_edges(n, np.column_stack((i - 1, i)))

    @classmethod
    def grid(cls, n: int) -> Topology:
        """Return rows of floor(sqrt(n)) nodes; the last row may be shorter."""
        i, width = _nodes(n), math.isqrt(n)
        across, down = i[i % width > 0], i[width:]
        sides = np.append(across - 1, down - width), np.append(across, down)
        return cls.from_edges(n, np.column_stack(sides))

    @classmethod
    def random_geometric(
        cls, n: int, radius: float | None = None, seed: int = 0
    ) -> Topology:
        """Join random points of the unit square that are at most ``radius`` apart.

        By default the radius is sqrt(2 log(n) / (pi n)), or the least that connects
        the points if this is larger.
        """
        r = max(0.0, min(radius or 0.0, 1.0))  # zero for NaN
        share = math.pi * r**2 - 8 / 3 * r**3 + r**4 / 2  # of the pairs, expected
        _nodes(n, int(0.5 * n * (n - 1) * share))
        points = np.random.default_rng(seed).random((2, n))

        def within(reach: float) -> tuple[Integers, Vector]:
            if n <= FEW_POINTS:
                i, j = np.triu_indices(n, 1)
            else:
                from scipy.spatial import cKDTree

                wider = max(0.0, min(reach, 2.0)) * (1 + 1e-9)  # `apart` is rounded
                i, j = cKDTree(points.T).query_pairs(wider, output_type="ndarray").T
            apart = np.hypot(*(points[:, i] - points[:, j]))
            near = apart <= reach
            return np.column_stack((i, j))[near], apart[near]

        default = math.sqrt(2 * math.log(n) / (math.pi * n))
        pairs = connected_pairs(n, within, default, radius, f"{radius=}, {seed=}")
        return cls.from_edges(n, pairs)

    @classmethod
    def erdos_renyi(
        cls, n: int, probability: float | None = None, seed: int = 0
    ) -> Topology:
        """Join every two nodes with the same probability, independently.

        By default the probability is 2 log(n) / n, or the least that connects the
        graph of this seed if this is larger.
        """
        _nodes(n)
        if n > MOST_DRAWN:
            raise TopologyError(
                f"an erdos-renyi graph may have at most {MOST_DRAWN} nodes, got {n}; "
                "use random-geometric"
            )
        draws = np.random.default_rng(seed).random((n, n))

        def within(level: float) -> tuple[Integers, Vector]:
            pairs = np.argwhere(np.triu(draws <= level, 1))
            return pairs, draws[tuple(pairs.T)]

        given = f"{probability=}, {seed=}"
        pairs = connected_pairs(n, within, 2 * math.log(n) / n, probability, given)
        return cls.from_edges(n, pairs)

    @classmethod
    def from_graph(cls, graph: Topology | NetworkxGraph) -> Topology:
        """Return the topology of a networkx graph; a Topology is returned unchanged.

        Nodes are the integers 0..J-1, or else have names that are not all numbers, or
        positions. Directions and attributes but
        positions (``pos``, or ``x`` and ``y``) are dropped, and parallel edges merged.
        """
        if isinstance(graph, Topology):
            return graph
        if not (hasattr(graph, "adjacency") and hasattr(graph, "edges")):
            raise TopologyError(
                "topology must be a Topology, such as dadmm.Topology.ring(8), or a "
                f"networkx graph, got {shown(graph)}"
            )
        return cls.from_edges(*graphfiles.from_networkx(graph))

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Topology:
        """Return the graph in a file; `topologies/README.md` has the formats."""
        with reading(Path(path), TopologyError):
            return cls.from_edges(*graphfiles.read(Path(path)))

    def write(self, path: str | PathLike[str]) -> None:
        """Write the graph as an edge list."""
        file = Path(path)
        if file.suffix not in (".edges", ".edgelist", ".txt"):
            raise TopologyError(f"a graph is written as .edges or .txt, not {file}")
        if any([name] != name.split("#")[0].split() for name in self.names):
            raise TopologyError("names with blanks or # cannot be in an edge list")
        words = self.names or range(self.n_nodes)
        once = [f"{words[i]} {words[j]}" for i, j in self.edges.tolist() if i < j]
        header = f"# {self.n_nodes} nodes, {len(once)} edges"
        file.write_text("\n".join([header, *(once or ["0"]), ""]), encoding="utf-8")

    def to_graph(self) -> NetworkxGraph:
        """Return a networkx graph, with the names and positions as attributes."""
        import networkx as nx

        graph = nx.from_dict_of_lists(dict(enumerate(self.neighbours)))
        nx.set_node_attributes(graph, dict(enumerate(self.names)), "name")
        if self.positions is not None:
            places = map(tuple, self.positions.tolist())
            nx.set_node_attributes(graph, dict(enumerate(places)), "pos")
        return graph

    def label(self, i: int) -> str:
        """Return what to call node i: its name, or its number."""
        return self.names[i] if self.names else str(i)

    def __len__(self) -> int:
        return self.n_nodes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.n_nodes, self.indices.tobytes()))

    def __repr__(self) -> str:
        return f"<Topology of {self.n_nodes} nodes, {len(self.indices) // 2} edges>"

    @cached_property
    def neighbours(self) -> tuple[tuple[int, ...], ...]:
        """Sorted neighbours of each node, the paper's B_i."""
        ends = self.indices.tolist()
        return tuple(tuple(ends[a:b]) for a, b in pairwise(self.indptr.tolist()))

    def rows(self, edges: Integers) -> Integers:
        """Return the sorted rows of these edges in both directions, each once."""
        weights = np.array([self.n_nodes, 1])
        found = np.searchsorted(self.edges @ weights, edges @ weights)
        same = np.append(self.edges, [[-1, -1]], axis=0)[found] == edges
        for edge in edges[~same.all(axis=1)].tolist():
            raise TopologyError(f"edge {tuple(edge)} is not in the graph; add it")
        up = np.zeros(len(self.edges), dtype=bool)
        up[found] = True
        return np.flatnonzero(up | up[self.reverse])

    @cached_property
    def diameter(self) -> int:
        """Largest number of edges on a shortest path; it can take hours."""
        return diameter(self, math.inf)

    @cached_property
    def diameter_bound(self) -> int:
        """The diameter where it takes about a second, else at most twice of it.

        It is exact for all graphs of at most 500 nodes, most graphs of at most 2,000,
        and trees, rings, grids, stars and complete graphs of any size.
        """
        return diameter(self, math.inf if self.n_nodes <= SMALL else MOST_WORK)


def build(name: str, n_nodes: int | None = None, seed: int = 0) -> Topology:
    """Return the graph of a name in `GRAPHS`, or in a file; it has ``n_nodes``."""
    if name in GRAPHS:
        if n_nodes is None:
            raise TopologyError(f"a {name} graph needs a number of nodes; give --nodes")
        return GRAPHS[name](n_nodes, seed)
    if Path(name).suffix not in graphfiles.READERS and not Path(name).exists():
        raise TopologyError(
            f"unknown graph {name!r}; choose one of {', '.join(sorted(GRAPHS))}, or "
            "give the path of a graph file"
        )
    topology = Topology.read(name)
    if n_nodes not in (None, topology.n_nodes):
        raise TopologyError(
            f"the graph in {name} has {topology.n_nodes} nodes but the run has "
            f"{n_nodes}; use -n {topology.n_nodes} or --nodes {topology.n_nodes}"
        )
    return topology


def _maker(name: str) -> Callable[[int, int], Topology]:
    """Return the function that makes this graph, given a number of nodes and a seed."""
    make = getattr(Topology, name.replace("-", "_"))
    return lambda n, seed: make(n, seed=seed) if name in RANDOM else make(n)


FIXED = ("complete", "ring", "cluster", "star", "chain", "grid")
RANDOM = {"random-geometric", "erdos-renyi"}  # these depend on the seed
GRAPHS = {name: _maker(name) for name in (*FIXED, *sorted(RANDOM, reverse=True))}


def _nodes(n_nodes: int, n_edges: int = 0) -> Integers:
    """Return 0..n_nodes - 1; raise if there are too many nodes, or expected edges."""
    if not isinstance(n_nodes, Integral) or not 1 <= n_nodes <= MOST_NODES:
        raise TopologyError(
            f"the number of nodes must be an integer from 1 to {MOST_NODES}, got "
            f"{shown(n_nodes)}"
        )
    if n_edges > MOST_EDGES:
        raise TopologyError(
            f"this graph of {n_nodes} nodes would have about {n_edges} edges, and at "
            f"most {MOST_EDGES} are allowed; use fewer nodes, or a graph with fewer "
            "edges such as ring or grid"
        )
    return np.arange(n_nodes)


def as_pairs(edges: Iterable[Sequence[int]]) -> Integers:
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
