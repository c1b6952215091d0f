"""Schedules: graphs that change from iteration to iteration, periodically.

Only the union of the graphs must be connected. In iterations without an edge, the edge
has no message, and its multiplier, anchor and penalty stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from dadmm.core.errors import TopologyError
from dadmm.graphs import graphfiles, topology
from dadmm.graphs.topology import Integers, Topology, as_pairs

TURNS = ("static", "matchings")


class Schedule:
    """The edges of each iteration.

    Parameters
    ----------
    n_nodes : int
    rounds : sequence of iterables of pairs of int
        The edges of iterations 1, 2, ..., repeated after the last. A pair stands for
        both directions.

    Attributes
    ----------
    union : Topology
    rows : tuple of ndarray of int
        The rows of ``union.edges`` that each round has, sorted.

    Examples
    --------
    >>> schedule = Schedule(4, [[(0, 1), (2, 3)], [(1, 2)]])
    >>> schedule.period, schedule.union
    (2, <Topology of 4 nodes, 3 edges>)
    """

    def __init__(self, n_nodes: int, rounds: Sequence[Iterable[Sequence[int]]]) -> None:
        pairs = [as_pairs(edges) for edges in rounds]
        if not pairs:
            raise TopologyError("a schedule has at least one graph, got none")
        self.union = Topology.from_edges(n_nodes, np.concatenate(pairs))
        self.rows = tuple(self.union.rows(edges) for edges in pairs)

    @cached_property
    def rounds(self) -> tuple[frozenset[tuple[int, int]], ...]:
        """The edges of each round as a set of pairs, in both directions."""
        edges = self.union.edges
        return tuple(frozenset(map(tuple, edges[k].tolist())) for k in self.rows)

    @classmethod
    def matchings(cls, graph: Topology) -> Schedule:
        """Return a schedule of matchings that cover the edges of a graph.

        In each round, every node has at most one neighbour.
        """
        busy = [0] * len(graph)  # the rounds of each node, as bits
        rounds: list[list[tuple[int, int]]] = []
        for i, j in graph.edges[graph.sources < graph.indices].tolist():
            taken = busy[i] | busy[j]
            free = ~taken & (taken + 1)
            busy[i] |= free
            busy[j] |= free
            turn = free.bit_length() - 1
            if turn == len(rounds):
                rounds.append([])
            rounds[turn].append((i, j))
        return cls(graph.n_nodes, rounds or [[]])

    @classmethod
    def build(
        cls, names: Sequence[str], n_nodes: int | None = None, seed: int = 0
    ) -> Schedule:
        """Return the schedule of several graphs, each given by name or file.

        A file may leave nodes out, and its graph need not be connected. Without
        ``n_nodes``, the nodes are those in the files.
        """
        rounds: list[Integers] = []
        for name in names:
            if topology.is_named(name):
                rounds.append(topology.build(name, n_nodes, seed).edges)
            else:
                rounds.append(as_pairs(graphfiles.read(Path(name))[1]))
        if n_nodes is None:
            n_nodes = 1 + max((int(e.max(initial=0)) for e in rounds), default=0)
        return cls(n_nodes, rounds)

    @property
    def period(self) -> int:
        """Number of iterations after which the graphs repeat."""
        return len(self.rows)

    def active_edges(self, graph: Topology) -> np.ndarray:
        """Return a mask of the edges of the graph in each round, (period, E)."""
        if graph is not self.union and graph != self.union:
            raise TopologyError(
                "the graph must be the schedule's union; pass schedule.union"
            )
        active = np.zeros((self.period, len(graph.indices)), dtype=bool)
        for turn, rows in zip(active, self.rows, strict=True):
            turn[rows] = True
        return active
