"""The rows of a run: one per node and iteration, and optionally one per edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dadmm.admm.node import Node
from dadmm.core.layout import Matrix, Vector
from dadmm.resilience.recovery import NodeFailure

NODE_COLUMNS = (
    "objective",
    "primal",
    "dual",
    "disagreement",  # the rule "optimality" judges this and `residual`
    "residual",
    # the criteria as multiples of their limits, see `stopping.Verdict`
    "objective_over_limit",
    "disagreement_over_limit",
    "residual_over_limit",
    "eta",  # mean over the edges of the penalty used in this iteration
    "quiet",  # `StopState.quiet_count`
    # sent by the node in this iteration; the opening message, with the starting
    # parameters, is in the totals of summary.json and result.npz only
    "messages",
    "bytes",  # of these messages
    "solve_seconds",
    "exchange_seconds",
    "update_seconds",  # multipliers, verdict and penalties
    "observe_seconds",  # of the previous iteration; recording this row is part of it
)
# the penalty state after the iteration, and the bytes of the message (0 for none)
EDGE_COLUMNS = ("eta", "spent", "budget", "bytes")

Observe = Mapping[str, Callable[[Vector], float]]
Mask = NDArray[np.bool_]


class Sink(Protocol):
    """Stores blocks of rows."""

    def append(self, first: int, block: NDArray[Any]) -> None:
        """Store (iterations, rows, columns), from iteration ``first`` on."""

    def rewind(self, t: int, kept: Mask) -> None:
        """Drop iterations after ``t``, and the rows that are not ``kept`` (rows,)."""


class RowBuffer:
    """A preallocated block of rows, passed to the sink when it is full or old.

    Parameters
    ----------
    n_rows, n_columns : int
        Of one iteration.
    sink : Sink
    start : int
        The iteration before the first.
    seconds : float
        A block older than this is passed on even if it is not full.
    """

    def __init__(
        self,
        n_rows: int,
        n_columns: int,
        sink: Sink,
        start: int = 0,
        seconds: float = 2.0,
    ) -> None:
        capacity = max(1, min(4096, 2**18 // max(n_rows * n_columns, 1)))
        self._block = np.empty((capacity, n_rows, n_columns))
        self._sink, self._seconds = sink, seconds
        self._used, self._first, self._flushed = 0, start + 1, monotonic()

    def next_rows(self) -> Matrix:
        """Return the rows (n_rows, n_columns) of the next iteration, to be filled."""
        if self._used == len(self._block) or (
            self._used and monotonic() - self._flushed > self._seconds
        ):
            self.flush()
        self._used += 1
        rows: Matrix = self._block[self._used - 1]
        return rows

    def rewind_to(self, t: int, kept: Mask | None = None) -> None:
        """Continue after iteration ``t`` with the rows that are ``kept`` (n_rows,)."""
        capacity, n_rows, n_columns = self._block.shape
        kept = np.ones(n_rows, dtype=bool) if kept is None else kept
        self._used = min(self._used, max(t + 1 - self._first, 0))
        self.flush()
        self._sink.rewind(t, kept)
        self._block = np.empty((capacity, int(kept.sum()), n_columns))
        self._first = t + 1

    def flush(self) -> None:
        """Pass all rows to the sink."""
        if self._used:
            self._sink.append(self._first, self._block[: self._used])
        self._first += self._used
        self._used, self._flushed = 0, monotonic()


class NodeRows(RowBuffer):
    """A callback that records one row per hosted node and iteration.

    Parameters
    ----------
    n_hosted : int
        Nodes of this process.
    sink : Sink
    observe : dict of str to callable
        Further columns, each a function of theta (size,).
    start : int
        The iteration before the first.
    """

    def __init__(
        self,
        n_hosted: int,
        sink: Sink,
        observe: Observe = {},  # noqa: B006
        start: int = 0,
    ) -> None:
        self._observe = tuple(observe.values())
        self.columns = NODE_COLUMNS + tuple(observe)
        super().__init__(n_hosted, len(self.columns), sink, start)

    def rewind(self, failure: NodeFailure) -> None:
        """Drop the iterations that the remaining nodes repeat."""
        self.rewind_to(failure.t)

    def __call__(self, t: int, nodes: Sequence[Node]) -> None:
        for row, node in zip(self.next_rows(), nodes, strict=True):
            lengths = node.links.lengths.tolist()  # few: numpy's sums take longer
            row[:] = (
                node.objective,
                node.primal,
                node.dual,
                node.disagreement,
                node.residual,
                *node.verdict[:3],
                node.eta_mean,
                node.accord.quiet_count,
                len(lengths) - lengths.count(0),
                sum(lengths),
                *node.seconds,
                *(look(node.theta) for look in self._observe),
            )


class EdgeRows(RowBuffer):
    """A callback that records one row per directed edge of the hosted nodes.

    Parameters
    ----------
    n_edges : int
        Directed edges of the nodes of this process.
    sink : Sink
    start : int
        The iteration before the first.
    """

    columns = EDGE_COLUMNS

    def __init__(self, n_edges: int, sink: Sink, start: int = 0) -> None:
        super().__init__(n_edges, len(self.columns), sink, start)

    def rewind(self, failure: NodeFailure) -> None:
        """Drop the iterations that are repeated, and the edges to failed nodes."""
        self.rewind_to(failure.t, failure.kept)

    def __call__(self, t: int, nodes: Sequence[Node]) -> None:
        rows, start = self.next_rows(), 0
        for node in nodes:
            state = node.penalty
            stop = start + len(state.eta)
            rows[start:stop, 0] = state.eta
            rows[start:stop, 1] = state.spent
            rows[start:stop, 2] = state.budget
            rows[start:stop, 3] = node.links.lengths
            start = stop
