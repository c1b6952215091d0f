"""Which rank is which node: few edges of the graph shall cross from host to host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from dadmm.graphs.topology import Integers, Topology

PLACEMENTS = ("hosts", "ranks")
STARTS = 5  # of the bisection: one in the order of the nodes, the others shuffled
WORK = 100_000  # edges looked at in all of them: a second or two, while all ranks wait


def place(graph: Topology, hosts: Sequence[str], seed: int = 0) -> Integers:
    """Return which node each rank shall be, shape (n_ranks,).

    Every host keeps its number of ranks, and rank 0 stays node 0: what it reads, writes
    and prints stays where the job was started. Unless fewer edges cross, all ranks stay
    the nodes that they are by number.

    Parameters
    ----------
    graph : Topology
        With as many nodes as there are ranks.
    hosts : sequence of str
        The host of each rank.
    seed : int
        Of the shuffled starts; the same seed gives the same placement.
    """
    names = list(dict.fromkeys(hosts))  # that of rank 0 is the first
    plain = np.array([names.index(name) for name in hosts])
    best = min(
        (plain, *_candidates(graph, np.bincount(plain).tolist(), seed)),
        key=lambda homes: count_crossing(graph, homes),
    )
    # Hosts have their ranks and their nodes in ascending order, so 0 meets 0.
    nodes = np.empty(len(hosts), dtype=np.int64)
    nodes[np.argsort(plain, kind="stable")] = np.argsort(best, kind="stable")
    return np.arange(len(hosts)) if best is plain else nodes


def count_crossing(graph: Topology, homes: Sequence[str] | Integers) -> int:
    """Return how many edges have their ends on two hosts, given each node's host."""
    return int(crosses_hosts(graph, homes).sum()) // 2


def crosses_hosts(graph: Topology, homes: Sequence[str] | Integers) -> np.ndarray:
    """Return which rows of `graph.edges` lead to another host, as booleans."""
    i, j = graph.edges.T
    return np.asarray(homes)[i] != np.asarray(homes)[j]


def _candidates(graph: Topology, counts: list[int], seed: int) -> Iterator[Integers]:
    """Yield the host of each node, in several ways, with so many nodes on each host."""
    n = graph.n_nodes
    if len(counts) in (1, n) or len(graph.edges) == n * (n - 1):
        return  # all ways are alike
    yield np.repeat(np.arange(len(counts)), counts)
    starts = min(STARTS, 2 * WORK // len(graph.edges))
    edges = graph.to_graph() if starts else None  # loads networkx, which is slow
    for start in range(starts):
        random = Random(seed * STARTS + start) if start else None
        homes = np.empty(n, dtype=np.int64)
        for host, nodes in enumerate(_split(edges, list(range(n)), counts, random)):
            homes[nodes] = host
        yield homes


def _split(
    edges: Any, nodes: list[int], counts: list[int], random: Random | None
) -> list[list[int]]:
    """Return sorted nodes in groups of these sizes: halves, and halves of halves."""
    if len(counts) == 1:
        return [nodes]
    half = len(counts) // 2
    size = sum(counts[:half])
    first, *others = nodes  # the first may be node 0, which stays on the first host
    if random:
        random.shuffle(others)
    one, other = _bisect(edges, [first, *others[: size - 1]], others[size - 1 :])
    return [
        *_split(edges, sorted(one), counts[:half], random),
        *_split(edges, sorted(other), counts[half:], random),
    ]


def _bisect(edges: Any, one: list[int], other: list[int]) -> tuple[set[int], set[int]]:
    """Exchange nodes until few edges are cut; the first of all keeps its side."""
    import networkx as nx

    graph, first = edges.subgraph(one + other), one[0]
    sides = nx.community.kernighan_lin_bisection(graph, (one, other))
    here, there = sorted(sides, key=lambda side: first not in side)
    if len(here) == len(one):
        return here, there
    here, there = there, here  # right in size, but now the first is over there

    def loss(node: int) -> int:
        return sum(1 if neighbour in here else -1 for neighbour in graph[node])

    moved = min(sorted(here), key=loss)
    return here - {moved} | {first}, there - {first} | {moved}
