"""Schedules: which edges of a graph are up in which iteration, periodically.

Only the union of the graphs must be connected. In iterations without an edge, the edge
has no message, and its multiplier, anchor and penalty stay the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from dadmm.core import schema
from dadmm.core.documents import reading
from dadmm.core.errors import TopologyError
from dadmm.graphs import graphfiles, topology
from dadmm.graphs.topology import Integers, Topology, as_pairs

RANDOM = "random:"  # and the probability that an edge is up
DRAWN = 500  # rounds of a random schedule
ALLOWED = "static, matchings, random:P with a probability P, or a .csv file of times"
LONGEST = 100_000  # rounds of a file of times
WORDS = re.compile(
    rf"static|matchings|{RANDOM}([0-9]+[.]?[0-9]*|[.][0-9]+)(e-?[0-9]+)?|.*[.]csv"
)
NAMED = schema.TEXT.also(ALLOWED, lambda text: bool(WORDS.fullmatch(text)))


class Schedule:
    """The edges of each iteration.

    Parameters
    ----------
    n_nodes : int
    rounds : sequence of iterables of pairs of int
        The edges of iterations 1, 2, ..., repeated after the last; in both directions.
    union : Topology, optional, the graph of all edges, with its names

    Attributes
    ----------
    rows : tuple of ndarray of int, the rows of ``union.edges`` of each round, sorted

    Examples
    --------
    >>> schedule = Schedule(4, [[(0, 1), (2, 3)], [(1, 2)]])
    >>> schedule.period, schedule.union
    (2, <Topology of 4 nodes, 3 edges>)
    """

    def __init__(
        self,
        n_nodes: int,
        rounds: Sequence[Iterable[Sequence[int]]],
        union: Topology | None = None,
    ) -> None:
        pairs = [as_pairs(edges) for edges in rounds]
        if not pairs:
            raise TopologyError("a schedule has at least one graph, got none")
        self.union = union or Topology.from_edges(n_nodes, np.concatenate(pairs))
        self.rows = tuple(self.union.rows(edges) for edges in pairs)
        up = np.isin(np.arange(len(self.union.edges)), np.concatenate(self.rows))
        for edge in self.union.edges[~up]:
            i, j = map(self.union.label, edge)
            raise TopologyError(
                f"the edge from {i} to {j} is in none of {len(pairs)} rounds; each "
                "edge must be up at some time"
            )

    @cached_property
    def rounds(self) -> tuple[frozenset[tuple[int, int]], ...]:
        """The edges of each round as a set of pairs, in both directions."""
        edges = self.union.edges
        return tuple(frozenset(map(tuple, edges[k].tolist())) for k in self.rows)

    @classmethod
    def matchings(cls, graph: Topology) -> Schedule:
        """Return matchings that cover a graph: a node has at most one neighbour."""
        busy = [0] * graph.n_nodes  # the rounds of each node, as bits
        rounds: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for i, j in graph.edges[graph.sources < graph.indices].tolist():
            taken = busy[i] | busy[j]
            free = ~taken & (taken + 1)  # the lowest bit that neither has
            busy[i] |= free
            busy[j] |= free
            rounds[free.bit_length() - 1].append((i, j))
        return cls(graph.n_nodes, [rounds[k] for k in range(len(rounds) or 1)])

    @classmethod
    def random(cls, graph: Topology, probability: float, seed: int = 0) -> Schedule:
        """Return a schedule in which each edge is up with a probability.

        500 rounds are drawn, independently by edge and round; then they repeat.
        """
        if not 0.0 < probability <= 1.0:
            raise TopologyError(
                f"the probability of an edge must be from 0 to 1, got {probability!r}"
            )
        once = graph.edges[graph.sources < graph.indices]
        up = np.random.default_rng(seed).random((DRAWN, len(once))) < probability
        return cls(graph.n_nodes, [once[row] for row in up], graph)

    @classmethod
    def from_times(cls, graph: Topology, path: str | PathLike[str]) -> Schedule:
        """Return the schedule of a .csv file with the columns t, source and target.

        A row says that an edge is up in iteration t, counted from 1. Times repeat after
        the largest. Every edge of the graph must be up at some time.
        """
        file, found = Path(path), defaultdict(list)
        number = {graph.label(i): i for i in range(graph.n_nodes)}
        known = {tuple(pair) for pair in graph.edges.tolist()}
        with reading(file, TopologyError):
            for t, *ends in graphfiles.read_table(file, ("t", *graphfiles.ENDS)):
                pair = tuple(number.get(end, -1) for end in ends)
                is_time = t.isdecimal() and 0 < int(t) <= LONGEST
                if not is_time or pair not in known:
                    raise TopologyError(
                        f"{', '.join([t, *ends])} is not a time from 1 to {LONGEST} "
                        "and the two ends of an edge of the graph"
                    )
                found[int(t)].append(pair)
            rounds = [found[t] for t in range(1, 1 + max(found, default=0))]
            return cls(graph.n_nodes, rounds, graph)

    @classmethod
    def named(cls, graph: Topology, text: str, seed: int = 0) -> Schedule:
        """Return the schedule of a setting, see `ALLOWED`, that is not "static"."""
        if text == "matchings":
            return cls.matchings(graph)
        if text.startswith(RANDOM):
            return cls.random(graph, float(text.removeprefix(RANDOM)), seed)
        return cls.from_times(graph, text)

    @classmethod
    def build(
        cls, names: Sequence[str], n_nodes: int | None = None, seed: int = 0
    ) -> Schedule:
        """Return the schedule of several graphs, each given by name or file.

        A file may leave nodes out, and its graph need not be connected. Without
        ``n_nodes``, the nodes are those in the files.
        """
        rounds: list[Integers] = []
        number: dict[str, int] = {}  # of nodes with names
        for name in names:
            if name in topology.GRAPHS:
                rounds.append(topology.build(name, n_nodes, seed).edges)
                continue
            with reading(Path(name), TopologyError):
                found = graphfiles.read(Path(name))
                pairs = as_pairs(found.edges)
            if found.names:
                own = [number.setdefault(word, len(number)) for word in found.names]
                pairs = np.array(own)[pairs]
            if bool(found.names) != bool(number):
                raise TopologyError(
                    f"{name} has {'names' if found.names else 'numbers'} of nodes, and "
                    "another graph has not; use the same in all"
                )
            rounds.append(pairs)
        pairs = np.concatenate(rounds)
        if n_nodes is None:
            n_nodes = 1 + int(pairs.max(initial=0))
        return cls(n_nodes, rounds, Topology.from_edges(n_nodes, pairs, tuple(number)))

    @property
    def period(self) -> int:
        """Number of iterations after which the graphs repeat."""
        return len(self.rows)

    @cached_property
    def span(self) -> int:
        """The least number of iterations in a row that have every edge."""
        since, span = np.zeros(len(self.union.indices), dtype=np.int64), 0
        for t, rows in enumerate(2 * self.rows):  # two periods
            span = max(span, int((t - since[rows]).max(initial=0)))
            since[rows] = t
        return span or self.period

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
