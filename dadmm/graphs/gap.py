"""Numbers of a graph that decide how fast nodes agree: triangles, and spectral gap."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Vector
from dadmm.graphs.topology import Topology

MOST_DENSE = 3_000  # nodes up to which neighbours are counted by a matrix product
MOST_PATHS = 2e8  # paths of two edges that are counted one by one: some seconds
MOST_EXACT = 500  # nodes up to which all eigenvalues are computed, without scipy
MOST_LANCZOS = 5_000  # nodes up to which the second one is computed
CHUNK = 2**22  # paths that are counted together


def common_neighbours(topology: Topology, arcs: NDArray[np.int64]) -> Vector:
    """Return how many neighbours the two ends of each directed edge have in common.

    ``arcs`` are rows of ``topology.edges``. If a graph has very many edges, the number
    is the expected one of a random graph with the same degrees.
    """
    n, degrees = len(topology), topology.degrees
    i, j = topology.edges[arcs].T
    if n <= MOST_DENSE:
        near = np.zeros((n, n), dtype=np.float32)
        near[topology.sources, topology.indices] = 1.0
        own, row = np.unique(i, return_inverse=True)
        return np.asarray((near[own] @ near)[row, j], dtype=np.float64)
    few = np.where(degrees[i] <= degrees[j], i, j)  # the end with fewer neighbours
    many, counts = i + j - few, degrees[few]
    if counts.sum() > MOST_PATHS:
        return np.asarray(degrees[i] * degrees[j] / n)
    keys = topology.sources * n + topology.indices
    found, ends = np.zeros(len(arcs)), np.cumsum(counts)
    for part in np.split(np.arange(len(arcs)), np.searchsorted(ends, _marks(ends))):
        size = counts[part]
        edge = np.repeat(np.arange(len(part)), size)
        first = np.repeat(topology.indptr[few[part]] - np.cumsum(size) + size, size)
        third = topology.indices[first + np.arange(len(edge))]
        key = many[part][edge] * n + third
        known = keys[np.minimum(np.searchsorted(keys, key), len(keys) - 1)] == key
        found[part] = np.bincount(edge, known, minlength=len(part))
    return found


def _marks(ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where to split the edges, so that no part has much more than a chunk."""
    return np.arange(CHUNK, ends[-1] if len(ends) else 0, CHUNK)


def slowness(topology: Topology) -> float:
    """Return ``1 / sqrt(1 - s^2)``, s the second eigenvalue of the random walk.

    Above 5,000 nodes it is an estimate by the diameter, which is near it on complete
    graphs, rings and chains.
    """
    n, i, j = len(topology), topology.sources, topology.indices
    if n < 3:
        return 1.0
    weights = 1.0 / np.sqrt(topology.degrees[i] * topology.degrees[j])
    s = math.nan
    if n <= MOST_EXACT:
        walk = np.zeros((n, n))
        walk[i, j] = weights
        s = float(np.linalg.eigvalsh(walk)[-2])
    elif n <= MOST_LANCZOS:
        s = _second(topology, weights)
    if not s * s < 1.0 - 1e-12:
        return slowness_by_diameter(topology.diameter_bound)
    return 1.0 / math.sqrt(1.0 - max(s, 0.0) ** 2)


def slowness_by_diameter(diameter: int) -> float:
    """Return an estimate of `slowness`."""
    return math.sqrt(1.0 + (diameter / 3.2) ** 2)


def _second(topology: Topology, weights: Vector) -> float:
    """Return the second largest eigenvalue of the walk by Lanczos; NaN if it fails."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    n = len(topology)
    walk = csr_array((weights, topology.indices, topology.indptr), shape=(n, n))
    first = np.random.default_rng(0).standard_normal(n)
    try:
        found = eigsh(walk, 2, which="LA", tol=1e-6, v0=first, maxiter=20 * n,
                      return_eigenvectors=False)  # fmt: skip
    except ArpackNoConvergence:
        return math.nan
    return float(found.min())
