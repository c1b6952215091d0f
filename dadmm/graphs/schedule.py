"""Schedules: graphs that change from iteration to iteration, periodically.

Only the union of the graphs must be connected. In iterations without an edge, the edge
has no message, and its multiplier, anchor and penalty stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from dadmm.core.errors import TopologyError
from dadmm.graphs import graphfiles, topology
from dadmm.graphs.topology import Topology

TURNS = ("static", "matchings")


class Schedule:
    """The edges of each iteration.

    Parameters
    ----------
    n_nodes : int
    rounds : sequence of iterables of pairs of int
        The edges of iterations 1, 2, ..., repeated after the last. A pair stands for
        both directions.

    Examples
    --------
    >>> schedule = Schedule(4, [[(0, 1), (2, 3)], [(1, 2)]])
    >>> schedule.period, schedule.union
    (2, <Topology of 4 nodes, 3 edges>)
    """

    def __init__(self, n_nodes: int, rounds: Sequence[Iterable[Sequence[int]]]) -> None:
        pairs = [[(int(i), int(j)) for i, j in edges] for edges in rounds]
        self.rounds = tuple(
            frozenset((i, j) for a, b in edges for i, j in ((a, b), (b, a)))
            for edges in pairs
        )
        if not self.rounds:
            raise TopologyError("a schedule has at least one graph, got none")
        self.union = Topology.from_edges(n_nodes, [e for edges in pairs for e in edges])

    @classmethod
    def matchings(cls, graph: Topology) -> Schedule:
        """Return a schedule of matchings that cover the edges of a graph.

        In each round, every node has at most one neighbour.
        """
        busy: list[set[int]] = []
        rounds: list[list[tuple[int, int]]] = []
        for i, j in graph.edges.tolist():
            if i > j:
                continue
            free = (k for k, who in enumerate(busy) if not {i, j} & who)
            turn = next(free, len(busy))
            if turn == len(busy):
                busy.append(set())
                rounds.append([])
            busy[turn] |= {i, j}
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
        rounds: list[Iterable[Sequence[int]]] = []
        for name in names:
            if topology.is_named(name):
                rounds.append(topology.build(name, n_nodes, seed).edges.tolist())
            else:
                rounds.append(graphfiles.read(Path(name))[1])
        if n_nodes is None:
            n_nodes = 1 + max((max(e) for edges in rounds for e in edges), default=0)
        return cls(n_nodes, rounds)

    @property
    def period(self) -> int:
        """Number of iterations after which the graphs repeat."""
        return len(self.rounds)

    def active_edges(self, graph: Topology, i: int) -> np.ndarray:
        """Return a mask of the edges of node i in each round, (period, degree)."""
        if graph.neighbours != self.union.neighbours:
            raise TopologyError(
                "the graph must be the schedule's union; pass schedule.union"
            )
        near = graph.neighbours[i]
        rows = [[(i, j) in edges for j in near] for edges in self.rounds]
        return np.array(rows, dtype=bool).reshape(self.period, -1)
