"""Which edges belong to which node, and sums over the edges of each node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from dadmm.core.layout import Vector

Rows = np.ndarray  # of any shape, with one row per node or per edge
Planned = Callable[[], object]


class Incidence:
    """The edges of n nodes, given their degrees (n,), ascending.

    Nodes are in order of degree, and edges in order of their node. The edges of nodes
    of equal degree then reshape to ``(nodes, degree, ...)``. A sum over the second axis
    has the same bits as the sum of one node alone, unlike `numpy.add.reduceat`.
    """

    def __init__(self, degrees: np.ndarray) -> None:
        self.degrees = degrees
        self.node = np.repeat(np.arange(len(degrees)), degrees)  # (E,) row of its node
        # (n,) number of edges, at least 1, as divisor of means
        self.count: Vector = np.maximum(degrees, 1).astype(np.float64)
        self.offsets = np.append(0, np.cumsum(degrees))  # (n + 1,) first edge of each
        kinds, first = np.unique(degrees, return_index=True)
        last = [*first[1:].tolist(), len(degrees)]
        self._groups = [
            (slice(a, b), slice(self.offsets[a], self.offsets[b]), (b - a, d))
            for d, a, b in zip(kinds.tolist(), first.tolist(), last, strict=True)
            if d
        ]

    def edges_of(self, row: int) -> slice:
        return slice(int(self.offsets[row]), int(self.offsets[row + 1]))

    def spread(self, rows: Rows) -> Rows:
        """Return the row of its node for each edge; one row as it is: it broadcasts."""
        return rows if len(rows) == 1 else rows[self.node]

    def spread_into(self, rows: Rows, out: Rows) -> None:
        """Write into ``out`` (E, ...), for each edge, the row (n, ...) of its node."""
        if len(rows) == 1:
            out[...] = rows
        else:
            np.take(rows, self.node, axis=0, out=out, mode="clip")

    def reducer(self, how: np.ufunc | Vector, edges: Rows, out: Rows) -> Planned:
        """Return a function that reduces the edges of each node by a ufunc.

        If ``how`` is weights (E,), it adds weights times edges (E, m). At each call it
        reads these and ``edges`` (E, ...), and writes ``out`` (n, ...). Rows of nodes
        without edges stay unchanged.
        """
        steps: list[Planned] = []
        for nodes, along, (n, degree) in self._groups:
            rows = edges[along].reshape(n, degree, *edges.shape[1:])
            if isinstance(how, np.ufunc):
                steps.append(partial(how.reduce, rows, 1, None, out[nodes]))
            else:
                weights = how[along].reshape(n, 1, degree)
                steps.append(partial(np.matmul, weights, rows, out[nodes, None]))

        def all_steps() -> None:
            for step in steps:
                step()

        return steps[0] if len(steps) == 1 else all_steps

    def reduce(self, ufunc: np.ufunc, edges: Rows, out: Rows) -> Rows:
        self.reducer(ufunc, edges, out)()
        return out
