"""Where the nodes of a graph are drawn, and at which iterations."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology
from dadmm.runs.stored import StoredRun

MOST_EXACT = 300  # nodes of a graph whose layout is by Kamada and Kawai
MOST_NODES, MOST_EDGES = 3000, 200_000  # a larger graph is drawn as a circle


def positions(run: StoredRun) -> Matrix:
    """Return where to draw the nodes of a run, (n_nodes, 2)."""
    if run.topology.positions is not None:
        return run.topology.positions
    if run.config.topology == "random-geometric":  # its nodes have positions
        rng = np.random.default_rng(run.config.topology_seed)
        return rng.random((2, run.topology.n_nodes)).T
    return places(run.topology)


def pair_means(run: StoredRun) -> Matrix:
    """Return the mean penalty of both directions of each edge, (iterations, E / 2)."""
    eta, back = run.eta, run.topology.reverse[run.pairs]
    mean: Matrix = 0.5 * (eta[:, run.pairs] + eta[:, back])
    return mean


def widest(values: Matrix, n: int) -> list[int]:
    """Return up to n columns of the widest range; of equal columns only one."""
    _, found = np.unique(values, axis=1, return_index=True)
    spread = (values.max(axis=0) / values.min(axis=0))[found]
    order = np.argsort(-spread, kind="stable")[:n]
    return [int(e) for e in found[order[spread[order] > 1]]]


def moments(eta: Matrix) -> list[int]:
    """Return up to four iterations (from 1) to show, given penalties (iterations, E).

    These are the first, the last, the one in which the edges differ most, and one
    halfway between it and the farther end.
    """
    spread = np.log(eta).std(axis=1)
    if spread.max() < 1e-9:  # all edges are equal: use the distance from the end
        spread = np.abs(np.log(eta / eta[-1])).max(axis=1)
    n, peak = len(eta), int(spread.argmax()) + 1
    if spread.max() < 1e-9:
        return [n]
    half = (peak + (1 if peak > n / 2 else n)) // 2
    return sorted({1, half, peak, n})


def places(graph: Topology) -> Matrix:
    """Return the position of each node, (n_nodes, 2); known graphs have fixed ones."""
    n = graph.n_nodes
    all_pairs = len(graph.edges) == n * (n - 1)  # a complete graph
    if all_pairs or graph == Topology.ring(n):
        start = 0.5 if n == 2 else 0.25  # two nodes are side by side
        return _arc(n, start, start - 1)
    if graph == Topology.star(n):
        return np.vstack([[0.0, 0.0], _arc(n - 1, 0.25, -0.75)])
    if graph == Topology.chain(n):
        return _arc(n + 1, -0.3, -1.2)[:n]
    if graph == Topology.grid(n):
        width = int(n**0.5)
        return np.array([[i % width, -(i // width)] for i in range(n)], dtype=float)
    if n <= MOST_NODES and graph == Topology.cluster(n):
        # The two nodes of the bridge face each other.
        left = _arc(n // 2, 0.0, 1.0)[::-1]
        right = np.array([-1, 1]) * _arc(n - n // 2, 0.0, -1.0)
        apart = np.array([1.35, 0])
        return np.vstack([left - apart, right + apart])
    if n > MOST_NODES or len(graph.edges) > MOST_EDGES:
        return _arc(n, 0.25, -0.75)
    import networkx as nx

    if n > MOST_EXACT:  # the time of the other layout grows with n^3
        found = nx.spring_layout(graph.to_graph(), iterations=30, seed=0)
    else:
        found = nx.kamada_kawai_layout(graph.to_graph())
    return np.array([found[i] for i in range(n)])


def _arc(n: int, start: float, stop: float) -> Matrix:
    """Return n points of the unit circle; angles are in turns, without the stop."""
    angle = 2 * np.pi * np.linspace(start, stop, n, endpoint=False)
    return np.column_stack([np.cos(angle), np.sin(angle)])
