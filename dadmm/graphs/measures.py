"""Numbers of graphs: connected parts, distances, triangles, and the spectral gap.

Networkx is slow to import on every rank, and too slow for 100,000 nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import TopologyError
from dadmm.core.layout import Vector

if TYPE_CHECKING:
    from dadmm.graphs.topology import Topology

Integers = NDArray[np.int64]
SWEEPS = 4  # breadth-first searches that find a centre
WORDS = 2**22  # of 64 sources each, for all edges together: 32 MB
MOST_DENSE = 3_000  # nodes up to which neighbours are counted by a matrix product
MOST_PATHS = 2e8  # pairs of edges that are looked at: some seconds
MOST_EXACT = 500  # nodes up to which all eigenvalues are computed, without scipy
MOST_LANCZOS = 5_000  # nodes up to which the second one is computed
CHUNK = 2**22  # pairs that are looked at together


def components(n_nodes: int, pairs: Integers) -> Integers:
    """Return the lowest node of its connected part for each node, given the edges."""
    root = np.arange(n_nodes)
    while len(pairs):
        np.minimum.at(root, np.maximum(*pairs.T), np.minimum(*pairs.T))
        above = root[root]
        while (above != root).any():
            root, above = above, above[above]
        pairs = root[pairs]
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return root


def distances(indptr: Integers, indices: Integers, source: int) -> Integers:
    """Return the number of edges to each node of a connected graph, (n_nodes,)."""
    found = np.full(len(indptr) - 1, -1)
    found[source] = 0
    place, frontier, d = np.empty_like(found), np.array([source]), 0
    while len(frontier):
        d += 1
        first, counts = indptr[frontier], indptr[frontier + 1] - indptr[frontier]
        ends = np.cumsum(counts)
        near = indices[np.arange(ends[-1]) + np.repeat(first - ends + counts, counts)]
        near = near[found[near] < 0]
        found[near] = d
        rows = np.arange(len(near))
        place[near] = rows
        frontier = near[place[near] == rows]  # each node once
    return found


def eccentricity(indptr: Integers, indices: Integers, sources: Integers) -> int:
    """Return the largest distance from any of these nodes; no node is alone."""
    n, k = len(indptr) - 1, np.arange(len(sources))
    reached = np.zeros((-(-len(k) // 64), n), dtype=np.uint64)  # one bit per source
    reached[k // 64, sources] |= np.uint64(1) << (k % 64).astype(np.uint64)
    level = 0
    while True:
        near = np.bitwise_or.reduceat(reached[:, indices], indptr[:-1], axis=1)
        near |= reached
        if np.array_equal(near, reached):
            return level
        reached, level = near, level + 1


def diameter(topology: Topology, most: float) -> int:
    """Return an upper bound of the diameter, at most twice of it.

    It is twice the eccentricity of a central node. Then the farthest nodes from the
    centre are searched from, until the bound is exact or the work, visited edges times
    words of 64 sources, exceeds ``most`` (Crescenzi et al., 2013, iFUB).
    """
    indptr, indices, n = topology.indptr, topology.indices, topology.n_nodes
    widest, width = int(topology.degrees.max()), math.isqrt(n)
    if widest == n - 1:
        return min(n - 1, 1 + (len(indices) < n * (n - 1)))
    if widest == 2:
        return n // 2 if len(indices) == 2 * n else n - 1
    rows = -(-n // width)
    if len(indices) == 2 * (2 * n - rows - width) and topology == topology.grid(n):
        return rows + width - 2
    nearest, farthest = np.full(n, n), np.zeros(n, dtype=np.int64)
    start = int(distances(indptr, indices, 0).argmax())
    for _ in range(SWEEPS):
        found = distances(indptr, indices, start)
        np.minimum(nearest, found, out=nearest)
        np.maximum(farthest, found, out=farthest)
        start = int(nearest.argmax())
    lower = int(farthest.max())
    if len(indices) == 2 * (n - 1):
        return lower  # the second sweep of a tree is its longest path
    depth = distances(indptr, indices, int(farthest.argmin()))
    order = np.argsort(-depth, kind="stable")
    step = 64 * max(1, WORDS // len(indices))
    for k in range(0, n, step):
        upper = max(lower, 2 * int(depth[order[k]]))
        sources = order[k : k + step]
        sources = sources[2 * depth[sources] > lower]
        most -= len(indices) * lower * math.ceil(len(sources) / 64)
        if lower == upper or most < 0:
            return upper
        lower = max(lower, eccentricity(indptr, indices, sources))
    return lower


def connected_pairs(
    n_nodes: int,
    within: Callable[[float], tuple[Integers, Vector]],
    default: float,
    level: float | None,
    given: str,
) -> Integers:
    """Return the pairs of nodes that are at most a level apart, (n_pairs, 2).

    ``within`` returns pairs within a level, and their distances. Without a level it is
    the default, or the least that connects the graph if that is larger. A level that
    does not connect it is an error, which names the arguments ``given``.
    """

    def connected(pairs: Integers) -> bool:
        return not np.ptp(components(n_nodes, pairs))

    pairs, apart = within(default if level is None else level)
    if connected(pairs):
        return pairs
    while not connected(pairs):
        pairs, apart = within(default)
        default *= 1.4
    levels = np.sort(apart)
    k = bisect_left(levels, True, key=lambda least: connected(pairs[apart <= least]))
    if level is None:
        return np.asarray(pairs[apart <= levels[k]])
    raise TopologyError(
        f"{given} leaves the graph of {n_nodes} nodes disconnected; use at least "
        f"{math.ceil(levels[k] * 1e4) / 1e4} or another seed"
    )


def common_neighbours(topology: Topology, arcs: Integers) -> Vector:
    """Return how many neighbours the two ends of these rows of edges have in common.

    In a graph of very many edges it is expected of a random graph with these degrees.
    """
    n, degrees = topology.n_nodes, topology.degrees
    i, j = topology.edges[arcs].T
    if n <= MOST_DENSE:
        near = np.zeros((n, n), dtype=np.float32)
        near[topology.sources, topology.indices] = 1.0
        own, row = np.unique(i, return_inverse=True)
        return np.asarray((near[own] @ near)[row, j], dtype=np.float64)
    # each edge begins at its end of lower degree, so no node begins very many
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(degrees, kind="stable")] = np.arange(n)
    lower, upper = rank[topology.sources], rank[topology.indices]
    keys = np.sort((lower * n + upper)[lower < upper])
    begin, end = np.divmod(keys, n)
    # two edges that begin at one node, and an edge between their ends, are a triangle
    pairs = np.searchsorted(begin, begin, side="right") - 1 - np.arange(len(keys))
    if pairs.sum() > MOST_PATHS:
        return np.asarray(degrees[i] * degrees[j] / n)
    found = np.zeros(len(keys))
    marks = np.searchsorted(np.cumsum(pairs), np.arange(CHUNK, pairs.sum(), CHUNK))
    for part in np.split(np.arange(len(keys)), marks):
        first, size = np.repeat(part, pairs[part]), pairs[part]
        second = first + 1 + np.arange(len(first))
        second -= np.repeat(np.cumsum(size) - size, size)
        key = end[first] * n + end[second]
        third = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        known = keys[third] == key
        for edge in first, second, third:
            found += np.bincount(edge[known], minlength=len(keys))
    i, j = rank[i], rank[j]
    own = np.minimum(i, j) * n + np.maximum(i, j)
    return np.asarray(found[np.searchsorted(keys, own)])


def slowness(topology: Topology) -> float:
    """Return ``1 / sqrt(1 - s^2)``, s the second eigenvalue of the random walk.

    Above 5,000 nodes the diameter estimates it, well for complete graphs and rings.
    """
    n, i, j = topology.n_nodes, topology.sources, topology.indices
    if n < 3:
        return 1.0
    weights = 1.0 / np.sqrt(topology.degrees[i] * topology.degrees[j])
    s = math.nan
    if n <= MOST_EXACT:
        walk = np.zeros((n, n))
        walk[i, j] = weights
        s = float(np.linalg.eigvalsh(walk)[-2])
    elif n <= MOST_LANCZOS:
        from scipy.sparse import csr_array
        from scipy.sparse.linalg import ArpackNoConvergence, eigsh

        sparse = csr_array((weights, j, topology.indptr), shape=(n, n))
        first = np.random.default_rng(0).standard_normal(n)
        with suppress(ArpackNoConvergence):
            s = eigsh(sparse, 2, which="LA", tol=1e-6, v0=first, maxiter=20 * n,
                      return_eigenvectors=False).min()  # fmt: skip
    if s * s < 1.0 - 1e-12:
        return 1.0 / math.sqrt(1.0 - max(s, 0.0) ** 2)
    return math.sqrt(1.0 + (topology.diameter_bound / 3.2) ** 2)
