"""What a run remembers: one row per node and iteration, one per edge if asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Protocol

import numpy as np

from dadmm.admm.algorithm import Watcher
from dadmm.admm.node import Node
from dadmm.core.interfaces import Exchange
from dadmm.core.layout import Matrix, Vector
from dadmm.resilience.recovery import Loss

NODE_COLUMNS = (
    "objective",
    "primal",
    "dual",
    "disagreement",  # and `residual`: by these the rule "optimality" judges
    "residual",
    # what the rule judged, as multiples of its limits: see `stopping.Verdict`
    "objective_over_limit",
    "disagreement_over_limit",
    "residual_over_limit",
    "eta",  # mean over the edges of the penalty used in this iteration
    "quiet",
    # sent by the node in this iteration; the opening message, with the starting
    # parameters, is in the totals of summary.json and result.npz only
    "messages",
    "bytes",
    "solve_seconds",
    "exchange_seconds",
    "update_seconds",  # of multipliers, verdict and penalties
    "observe_seconds",  # of the iteration before: this row is part of this one's
)
# the penalty's as set at the end of the iteration; the bytes of its message, 0 for none
EDGE_COLUMNS = ("eta", "spent", "budget", "bytes")

Observe = Mapping[str, Callable[[Vector], float]]


class Sink(Protocol):
    """Where full blocks of rows go."""

    def append(self, first: int, block: np.ndarray) -> None:
        """Take (iterations, rows, columns), the first of iteration ``first``."""

    def rewind(self, t: int, kept: np.ndarray) -> None:
        """Drop what came after iteration ``t``, and rows not ``kept`` (rows,)."""


class Table:
    """Rows in a preallocated block, which goes to the sink when it is full or old.

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

    def rows(self) -> Matrix:
        """Return the rows (n_rows, n_columns) of the next iteration, to be filled."""
        if self._used == len(self._block) or (
            self._used and monotonic() - self._flushed > self._seconds
        ):
            self.flush()
        self._used += 1
        return self._block[self._used - 1]

    def rewind(self, t: int, kept: np.ndarray | None = None) -> None:
        """Go on after iteration ``t``, with the rows that are ``kept`` (n_rows,)."""
        capacity, n_rows, n_columns = self._block.shape
        kept = np.ones(n_rows, dtype=bool) if kept is None else kept
        self._used = min(self._used, max(t + 1 - self._first, 0))
        self.flush()
        self._sink.rewind(t, kept)
        self._block = np.empty((capacity, int(kept.sum()), n_columns))
        self._first = t + 1

    def flush(self) -> None:
        """Hand all rows to the sink."""
        if self._used:
            self._sink.append(self._first, self._block[: self._used])
        self._first += self._used
        self._used, self._flushed = 0, monotonic()


class Memory:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []
        self._first = 1

    def append(self, first: int, block: np.ndarray) -> None:
        if not self._blocks:
            self._first = first
        self._blocks.append(block.copy())

    def rewind(self, t: int, kept: np.ndarray) -> None:
        if self._blocks:
            whole = np.concatenate(self._blocks)
            self._blocks = [whole[: t + 1 - self._first, kept]]

    def all(self, n_rows: int, n_columns: int) -> np.ndarray:
        """Return all rows, (iterations, n_rows, n_columns)."""
        return np.concatenate(self._blocks or [np.empty((0, n_rows, n_columns))])


class NodeRows:
    """A watcher that fills one row per hosted node and iteration."""

    def __init__(
        self,
        n_hosted: int,
        sink: Sink,
        observe: Observe = {},  # noqa: B006
        start: int = 0,
    ) -> None:
        self._observe = tuple(observe.values())
        self.columns = NODE_COLUMNS + tuple(observe)
        self.table = Table(n_hosted, len(self.columns), sink, start)

    def rewind(self, loss: Loss) -> None:
        """Go on from the iteration to which the survivors of a loss go back."""
        self.table.rewind(loss.t)

    def __call__(self, t: int, nodes: Sequence[Node]) -> None:
        for row, node in zip(self.table.rows(), nodes, strict=True):
            lengths = node.links.lengths.tolist()  # few: numpy's sums take longer
            row[:] = (
                node.objective,
                node.primal,
                node.dual,
                node.disagreement,
                node.residual,
                *node.verdict[:3],
                node.eta_mean,
                node.accord.quiet,
                len(lengths) - lengths.count(0),
                sum(lengths),
                *node.seconds,
                *(look(node.theta) for look in self._observe),
            )


class EdgeRows:
    """A watcher that fills one row per directed edge of the hosted nodes."""

    columns = EDGE_COLUMNS

    def __init__(self, n_edges: int, sink: Sink, start: int = 0) -> None:
        self.table = Table(n_edges, len(self.columns), sink, start)

    def rewind(self, loss: Loss) -> None:
        """Go on without the edges that are lost."""
        self.table.rewind(loss.t, loss.kept)

    def __call__(self, t: int, nodes: Sequence[Node]) -> None:
        rows, start = self.table.rows(), 0
        for node in nodes:
            state = node.penalty
            stop = start + len(state.eta)
            rows[start:stop, 0] = state.eta
            rows[start:stop, 1] = state.spent
            rows[start:stop, 2] = state.budget
            rows[start:stop, 3] = node.links.lengths
            start = stop


class History:
    """The rows of a run by column: ``history["primal"]`` is (iterations, n_nodes).

    Edge columns, where recorded, are ``history.edges["eta"]``: (iterations, E).
    """

    def __init__(self, columns: Sequence[str], rows: np.ndarray) -> None:
        self.columns, self.rows = tuple(columns), rows
        self.edges: History | None = None

    def __getitem__(self, column: str) -> Matrix:
        if column not in self.columns:
            raise KeyError(f"no column {column!r}; there are {', '.join(self.columns)}")
        return self.rows[:, :, self.columns.index(column)]

    def __len__(self) -> int:
        return len(self.rows)


class Recorder:
    """Keep the rows of a run in memory, for `History`.

    Parameters
    ----------
    nodes : sequence of Node
        Those of this process.
    observe : dict of str to callable
        Further columns, each a function of theta (size,).
    by_node, by_edge : bool
        What to keep.
    start : int
        The iteration before the first.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        observe: Observe,
        by_node: bool,
        by_edge: bool,
        start: int = 0,
    ) -> None:
        self._node_sink, self._edge_sink = Memory(), Memory()
        self._shape = len(nodes), sum(len(node.eta) for node in nodes)
        self._by_edge = by_edge
        self._rows = NodeRows(self._shape[0], self._node_sink, observe, start)
        self._edges = EdgeRows(self._shape[1], self._edge_sink, start)
        self.watchers: list[Watcher] = [self._rows] * by_node + [self._edges] * by_edge

    def history(self, exchange: Exchange) -> History:
        """Return the rows of all processes."""
        history = self._gather(self._rows, self._node_sink, self._shape[0], exchange)
        if self._by_edge:
            history.edges = self._gather(
                self._edges, self._edge_sink, self._shape[1], exchange
            )
        return history

    @staticmethod
    def _gather(
        source: NodeRows | EdgeRows, sink: Memory, n_rows: int, exchange: Exchange
    ) -> History:
        source.table.flush()
        rows = sink.all(n_rows, len(source.columns))
        n_rows = rows.shape[1]
        n_iterations, _, n_columns = rows.shape
        flat = rows.transpose(1, 0, 2).reshape(n_rows, n_iterations * n_columns)
        whole = exchange.collect(flat)
        whole = whole.reshape(len(whole), n_iterations, n_columns)
        return History(source.columns, whole.transpose(1, 0, 2))
