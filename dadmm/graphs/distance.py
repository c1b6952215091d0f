"""Connected parts and distances of graphs, as arrays.

Networkx is slow to import on every rank, and too slow for 100,000 nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import TopologyError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
SWEEPS = 4  # breadth-first searches that find a centre
WORDS = 2**22  # of 64 sources each, for all edges together: 32 MB


def components(n_nodes: int, i: Integers, j: Integers) -> Integers:
    """Return a node of its connected part for each node, the same for all of a part.

    Parameters
    ----------
    n_nodes : int
    i, j : ndarray of int, shape (n_pairs,)
        The ends of the edges, each in one direction.
    """
    root = np.arange(n_nodes)
    while len(i):
        low, high = np.minimum(i, j), np.maximum(i, j)
        np.minimum.at(root, high, low)
        above = root[root]
        while (above != root).any():
            root, above = above, above[above]
        i, j = root[i], root[j]
        apart = i != j
        i, j = i[apart], j[apart]
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


def diameter_range(indptr: Integers, indices: Integers, most: float) -> tuple[int, int]:
    """Return a lower and an upper bound of the diameter of a connected graph.

    The upper bound is twice the eccentricity of a central node. Then the farthest nodes
    from the centre are searched from, until both bounds are equal or the work exceeds
    ``most`` (Crescenzi et al., 2013, iFUB).

    Parameters
    ----------
    indptr, indices : ndarray of int
        As in `Topology`. There are at least two nodes.
    most : float
        Limit of visited edges times words of 64 sources; infinite for equal bounds.
    """
    n = len(indptr) - 1
    if n <= 64:
        lower = eccentricity(indptr, indices, np.arange(n))
        return lower, lower
    nearest, widest = np.full(n, n), np.zeros(n, dtype=np.int64)
    start = int(distances(indptr, indices, 0).argmax())
    for _ in range(SWEEPS):
        found = distances(indptr, indices, start)
        np.minimum(nearest, found, out=nearest)
        np.maximum(widest, found, out=widest)
        start = int(nearest.argmax())
    lower = int(widest.max())
    if len(indices) == 2 * (n - 1):
        return lower, lower  # the second sweep of a tree is its longest path
    depth = distances(indptr, indices, int(widest.argmin()))
    order = np.argsort(-depth, kind="stable")
    step = 64 * max(1, WORDS // len(indices))
    for k in range(0, n, step):
        upper = max(lower, 2 * int(depth[order[k]]))
        sources = order[k : k + step]
        sources = sources[2 * depth[sources] > lower]
        most -= len(indices) * lower * math.ceil(len(sources) / 64)
        if lower == upper or most < 0:
            return lower, upper
        lower = max(lower, eccentricity(indptr, indices, sources))
    return lower, lower


def connected_pairs(
    n_nodes: int,
    within: Callable[[float], tuple[Integers, Floats]],
    default: float,
    level: float | None,
    given: str,
) -> Integers:
    """Return the pairs of nodes that are at most a level apart.

    Parameters
    ----------
    n_nodes : int
    within : callable
        Takes a level. Returns the pairs that are at most this far apart, of shape
        (n_pairs, 2), and how far.
    default : float
        The level if ``level`` is None, raised to the least that connects the graph.
    level : float or None
        Must connect the graph.
    given : str
        The arguments of the caller, for the error.
    """
    reach = default if level is None else level
    pairs, apart = within(reach)
    if reach >= 0 and _connected(n_nodes, pairs):
        return pairs
    reach = default
    while not _connected(n_nodes, pairs):
        pairs, apart = within(reach)
        reach *= 1.4
    levels = np.sort(apart)
    k = bisect_left(
        levels, True, key=lambda least: _connected(n_nodes, pairs[apart <= least])
    )
    least = float(levels[k]) if n_nodes > 1 else 0.0
    if level is not None:
        raise TopologyError(
            f"{given} leaves the graph of {n_nodes} nodes disconnected; "
            f"use at least {math.ceil(least * 1e4) / 1e4} or another seed"
        )
    return pairs[apart <= least]


def _connected(n_nodes: int, pairs: Integers) -> bool:
    return not np.ptp(components(n_nodes, *pairs.T))
