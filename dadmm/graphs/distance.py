"""Distances in graphs, without networkx, which is slow to import twenty times."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import TopologyError


def breadth_first(masks: list[int], source: int) -> tuple[int, int]:
    """Return how far the farthest node is from the source, and all visited, as bits."""
    radius, visited, frontier = 0, 1 << source, 1 << source
    everyone = (1 << len(masks)) - 1
    while visited != everyone:
        reached = 0
        for i in _bits(frontier):
            reached |= masks[i]
        frontier = reached & ~visited
        if not frontier:
            break
        visited |= frontier
        radius += 1
    return radius, visited


def _bits(mask: int) -> Iterator[int]:
    """Yield the positions of the ones of a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def connected_pairs(
    distance: NDArray[np.float64], default: float, level: float | None, given: str
) -> NDArray[np.int64]:
    """Return the pairs whose (n, n) distance is at most a level that connects them."""
    least = _least_level(distance)
    if level is None:
        level = max(default, least)
    elif not level >= least:
        raise TopologyError(
            f"{given} leaves the graph of {len(distance)} nodes disconnected; "
            f"use at least {math.ceil(least * 1e4) / 1e4} or another seed"
        )
    return np.argwhere(np.triu(distance <= level, 1))


def _least_level(distance: NDArray[np.float64]) -> float:
    """Return the longest edge of the minimum spanning tree, by Prim's algorithm."""
    level, nearest = 0.0, distance[0].copy()
    outside = np.arange(len(distance)) > 0
    while outside.any():
        i = np.where(outside, nearest, np.inf).argmin()
        level = max(level, float(nearest[i]))
        outside[i] = False
        np.minimum(nearest, distance[i], out=nearest)
    return level
