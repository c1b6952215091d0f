"""Which rank has which nodes, with few edges between hosts and between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ConfigError
from dadmm.graphs.graphfiles import NetworkxGraph
from dadmm.graphs.measures import distances
from dadmm.graphs.topology import Integers, Topology

STARTS = 5  # of the bisection: the first in the order of nodes, the others shuffled
WORK = 100_000  # limit of edges times starts: a second or two, while all ranks wait


def assign(graph: Topology, machines: Sequence[str], how: str = "hosts") -> Integers:
    """Return the rank of each node, (n_nodes,), given the host of each rank.

    Each rank has as many nodes as the others, or one more. With "blocks", nodes are in
    the order of their numbers. With "hosts", they may be in the order of their distance
    from a node, or assigned by `place` if each rank has one, whichever has the fewest
    edges between hosts, and then between ranks.
    """
    n_nodes, n_ranks = graph.n_nodes, len(machines)
    _check_enough(n_nodes, n_ranks)
    ranks = np.arange(n_ranks)
    sizes = n_nodes // n_ranks + (ranks < n_nodes % n_ranks)
    blocks = np.repeat(ranks, sizes)
    if how == "blocks" or n_ranks == 1:
        return blocks
    if n_nodes == n_ranks:
        return np.argsort(place(graph, machines))
    names = list(dict.fromkeys(machines))
    homes = np.array([names.index(name) for name in machines])
    ranks = np.argsort(homes, kind="stable")  # of one host after the other
    near = distances(graph.indptr, graph.indices, 0)
    far = distances(graph.indptr, graph.indices, int(near.argmax()))
    found = [blocks]
    for distance in (np.zeros(n_nodes), near, far):
        hosts = np.empty(n_nodes, dtype=np.int64)
        hosts[np.argsort(distance, kind="stable")] = np.repeat(ranks, sizes[ranks])
        found.append(hosts)
    crossings = [[count_crossing(graph, k) for k in (homes[own], own)] for own in found]
    return found[crossings.index(min(crossings))]


def place(graph: Topology, hosts: Sequence[str]) -> Integers:
    """Return the node of each rank, (n_ranks,), given its host, if each rank has one.

    Every host keeps its number of ranks. Rank 0 is always node 0, because it reads,
    writes and prints. If no other assignment has fewer edges between hosts, rank i is
    node i.
    """
    names, n = list(dict.fromkeys(hosts)), len(hosts)  # the host of rank 0 is the first
    plain = np.array([names.index(name) for name in hosts])
    if len(names) in (1, n) or len(graph.edges) == n * (n - 1):
        return np.arange(n)  # all assignments have as many edges between hosts
    counts = np.bincount(plain).tolist()
    found = [plain, np.repeat(np.arange(len(counts)), counts)]
    starts = min(STARTS, 2 * WORK // len(graph.edges))
    edges = graph.to_graph() if starts else None  # imports networkx, which is slow
    for start in range(starts):
        random = Random(start) if start else None
        homes = np.empty(n, dtype=np.int64)
        for host, nodes in enumerate(_split(edges, list(range(n)), counts, random)):
            homes[nodes] = host
        found.append(homes)
    best = min(found, key=lambda homes: count_crossing(graph, homes))
    # On each host, ranks and nodes are in ascending order, so rank 0 is node 0.
    placed = np.empty(n, dtype=np.int64)
    placed[np.argsort(plain, kind="stable")] = np.argsort(best, kind="stable")
    return placed


def _split(
    edges: NetworkxGraph, nodes: list[int], counts: list[int], random: Random | None
) -> list[list[int]]:
    """Return nodes in groups of these sizes, by recursive bisection; each is sorted."""
    if len(counts) == 1:
        return [nodes]
    import networkx as nx

    half = len(counts) // 2
    size = sum(counts[:half])
    first, *others = nodes  # the first may be node 0, which must stay on the first host
    if random:
        random.shuffle(others)
    one, other = [first, *others[: size - 1]], others[size - 1 :]
    graph = edges.subgraph(one + other)
    sides = nx.community.kernighan_lin_bisection(graph, (one, other))
    here, there = sorted(sides, key=lambda side: first not in side)
    if len(here) != size:  # the sides are of the right sizes, but the first has moved
        here, there = there, here
        losses = {
            node: sum(1 if near in here else -1 for near in graph[node])
            for node in sorted(here)
        }
        moved = min(losses, key=losses.__getitem__)
        here, there = here - {moved} | {first}, there - {first} | {moved}
    return [
        *_split(edges, sorted(here), counts[:half], random),
        *_split(edges, sorted(there), counts[half:], random),
    ]


def hosts_of(nodes: Integers, ranks: Integers, n_nodes: int, n_ranks: int) -> Integers:
    """Return the rank of each node, (n_nodes,), given pairs of a node and its rank.

    Raise unless each node has one rank, and each rank at least one node.
    """
    _check_enough(n_nodes, n_ranks)
    for what, numbers, n in (("node", nodes, n_nodes), ("rank", ranks, n_ranks)):
        if len(wrong := numbers[(numbers < 0) | (numbers >= n)]):
            raise ConfigError(
                f"there is no {what} {wrong[0]}; {what}s are numbered from 0 to {n - 1}"
            )
    counts = np.bincount(nodes, minlength=n_nodes)
    for node in np.flatnonzero(counts != 1):
        raise ConfigError(
            f"each node needs one rank, but node {node} has {counts[node]}; name each "
            "node once"
        )
    for rank in np.setdiff1d(np.arange(n_ranks), ranks):
        raise ConfigError(
            f"rank {rank} has no node; give each rank at least one, or start fewer "
            "ranks"
        )
    hosts = np.empty(n_nodes, dtype=np.int64)
    hosts[nodes] = ranks
    return hosts


def _check_enough(n_nodes: int, n_ranks: int) -> None:
    if n_ranks > n_nodes:
        raise ConfigError(
            f"there are {n_ranks} ranks for {n_nodes} nodes; start at most {n_nodes} "
            "ranks, or use more nodes"
        )


def count_crossing(graph: Topology, homes: Sequence[str] | Integers) -> int:
    return int(crosses_hosts(graph, homes).sum()) // 2


def crosses_hosts(
    graph: Topology, homes: Sequence[str] | Integers
) -> NDArray[np.bool_]:
    """Return a mask of the rows of `graph.edges` that connect different hosts."""
    host = np.asarray(homes)
    return np.asarray(host[graph.sources] != host[graph.indices])
