"""Distances in graphs, without networkx, which is slow to import on every rank."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import TopologyError


def breadth_first(masks: list[int], source: int) -> tuple[int, int]:
    """Return the largest distance from the source, and the nodes reached, as bits."""
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
    """Yield the positions of the bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def connected_pairs(
    distance: NDArray[np.float64], default: float, level: float | None, given: str
) -> NDArray[np.int64]:
    """Return the pairs of nodes that are at most a level apart.

    Parameters
    ----------
    distance : ndarray of shape (n, n)
    default : float
        The level if ``level`` is None, raised to the least that connects the graph.
    level : float or None
        Must connect the graph.
    given : str
        The arguments of the caller, for the error.

    Returns
    -------
    pairs : ndarray of int, shape (n_pairs, 2)
    """
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
