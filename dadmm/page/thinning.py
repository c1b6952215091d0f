"""Which iterations, nodes and edges of a large run a page shows."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers

MOST_POINTS = 400  # of a curve
MOST_FRAMES = 100  # of the network over time
MOST_EDGES = 1000  # of a drawn network
MOST_NUMBERS = 40_000  # of all frames of a network, for each quantity
MOST_NODES = 100  # bars, and rows of a matrix


def iterations(n: int, most: int) -> Integers:
    """Return up to ``most`` of the iterations 1 to n, more of the early ones.

    The first and the last are among them.
    """
    if n <= most:
        return np.arange(1, n + 1)
    places = 1 + (n - 1) * np.linspace(0, 1, most) ** 2
    return np.unique(places.round().astype(np.int64))


def n_frames(n_edges: int) -> int:
    """Return the most frames of a network of so many drawn edges."""
    return int(np.clip(MOST_NUMBERS // max(n_edges, 1), 20, MOST_FRAMES))


def widest(values: Matrix, most: int) -> Integers:
    """Return the columns of the widest ratio of largest to least value, sorted.

    ``values`` (iterations, n) are positive.
    """
    if values.shape[1] <= most:
        return np.arange(values.shape[1])
    spread = values.max(axis=0) / values.min(axis=0)
    return np.sort(np.argsort(-spread, kind="stable")[:most])


def evenly(n: int, most: int) -> Integers:
    """Return up to ``most`` of the numbers 0 to n - 1, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def said(shown: int, total: int, what: str) -> str:
    """Return a sentence if not all are shown, else an empty text."""
    return "" if shown >= total else f"{shown:,} of {total:,} {what} are shown. "
