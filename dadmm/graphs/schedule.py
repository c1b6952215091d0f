"""Networks that change: graphs that take turns, one per iteration, periodically.

Only their union must be connected. An edge that is not there in an iteration carries no
message and keeps its multiplier, anchor and penalty until it is there again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.core.errors import TopologyError
from dadmm.graphs import graphfiles, topology
from dadmm.graphs.topology import Topology

TURNS = ("static", "matchings")


class Schedule:
    """Which edges there are in which iteration.

    Parameters
    ----------
    n_nodes : int
    rounds : sequence of iterables of pairs of int
        The edges of iterations 1, 2, ..., and again from the start; a pair stands for
        both directions.

    Examples
    --------
    >>> schedule = Schedule(4, [[(0, 1), (2, 3)], [(1, 2)]])
    >>> schedule.period, schedule.union
    (2, <Topology of 4 nodes, 3 edges>)
    """

    def __init__(self, n_nodes: int, rounds: Sequence[Iterable[Any]]) -> None:
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
        """Return the edges of a graph in turns, each node with one neighbour a turn."""
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
        """Return graphs that take turns, by their names or from files.

        A file may leave nodes out, and need not be connected by itself. Without a
        number of nodes these are the ones that files name.
        """
        rounds: list[Any] = []
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
        """After how many iterations the graphs come again."""
        return len(self.rounds)

    def active_edges(self, graph: Topology, i: int) -> np.ndarray:
        """Return which edges of node i there are in each round, (period, degree)."""
        if graph.neighbours != self.union.neighbours:
            raise TopologyError(
                "the graph must be the schedule's union; pass schedule.union"
            )
        near = graph.neighbours[i]
        rows = [[(i, j) in edges for j in near] for edges in self.rounds]
        return np.array(rows, dtype=bool).reshape(self.period, -1)
