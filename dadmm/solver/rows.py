"""The rows of a run: one per node and iteration, and optionally one per edge.

Callbacks pass blocks of rows to a sink: a file (`dadmm.runs.row_files`), or memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dadmm.admm.loop import Run
from dadmm.admm.state import PHASES, Numbers
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.solver.checkpoint import NodeFailure

NODE_COLUMNS = (
    "objective", "primal", "dual",
    "disagreement", "residual",  # which the rule "optimality" judges
    # the criteria as multiples of their limits, see `rule.Verdict`
    "objective_over_limit", "disagreement_over_limit", "residual_over_limit",
    "eta",  # mean over the edges of the penalty used in this iteration
    "quiet",  # the count in the header, see `admm.stopping`
    # sent by the node in this iteration; the opening message, with the starting
    # parameters, is in the totals of summary.json and result.npz only
    "messages", "bytes",
    "solve_seconds", "exchange_seconds",
    "update_seconds",  # multipliers, verdict and penalties
    "observe_seconds",  # of the previous iteration; recording this row is part of it
)  # fmt: skip
# the penalty state after the iteration, and the bytes of the message (0 for none)
EDGE_COLUMNS = ("eta", "spent", "budget", "raised", "used_up", "bytes")

MOST_SECONDS = 2.0  # from a row to when it is passed on
Observe = Mapping[str, Callable[[Vector], float]]  # further columns, of theta (size,)
Mask = NDArray[np.bool_]


class Sink(Protocol):
    """Stores blocks of rows."""

    def append(self, first: int, block: Array) -> None:
        """Store (iterations, rows, columns), from iteration ``first`` on."""

    def rewind(self, t: int, kept: Mask) -> None:
        """Drop iterations after ``t``, and rows that are not ``kept``."""


@dataclass
class MemorySink:
    """A sink that keeps all blocks of the iterations after ``start``."""

    start: int
    blocks: list[Array]

    def append(self, first: int, block: Array) -> None:
        self.blocks.append(block.copy())

    def rewind(self, t: int, kept: Mask) -> None:
        self.blocks = [np.concatenate(self.blocks)[: t - self.start][:, kept]]


class RowBuffer:
    """A block of rows of the iterations after ``start``, passed on when full or old.

    Rows of nodes may ``observe`` more.
    """

    columns: tuple[str, ...] = ()
    KEPT = "kept"  # the field of a failure with the rows that are left

    def __init__(
        self, sink: Sink, start: int = 0, observe: Observe | None = None
    ) -> None:
        self._sink, self._observe = sink, observe or {}
        self.columns = (*self.columns, *self._observe)
        self._block = np.empty((0, 0, 0))
        self._used, self._first, self._flushed = 0, start + 1, monotonic()

    def next_rows(self, *shape: int) -> Matrix:
        """Return an array of this shape for the next iteration, to be filled."""
        if self._block.shape[1:] != shape:
            assert not self._used
            capacity = max(1, min(4096, 2**18 // max(math.prod(shape), 1)))
            self._block = np.empty((capacity, *shape))
        elif self._used:
            is_old = monotonic() - self._flushed > MOST_SECONDS
            if is_old or self._used == len(self._block):
                self.flush()
        self._used += 1
        return np.asarray(self._block[self._used - 1])

    def rewind(self, failure: NodeFailure) -> None:
        self._used = min(self._used, max(failure.t + 1 - self._first, 0))
        self.flush()
        self._sink.rewind(failure.t, getattr(failure, self.KEPT))
        self._first = failure.t + 1

    def flush(self) -> None:
        if self._used:
            self._sink.append(self._first, self._finished(self._block[: self._used]))
        self._first += self._used
        self._used, self._flushed = 0, monotonic()

    def _finished(self, block: Array) -> Array:
        return block  # (iterations, n_rows, n_columns)


class NodeRows(RowBuffer):
    """A callback that records one row per node; columns are computed by block."""

    columns, KEPT = NODE_COLUMNS, "kept_nodes"
    _run: Run

    def __call__(self, t: int, run: Run) -> None:
        self._run, numbers = run, run.work.numbers
        extra = len(PHASES) + len(self._observe)  # columns beside the numbers
        rows = self.next_rows(len(numbers) + extra, numbers.shape[1])
        rows[:-extra] = numbers
        for k, phase in enumerate(run.clock):
            rows[k - extra] = phase.last / numbers.shape[1]
        for k, look in enumerate(self._observe.values(), len(PHASES)):
            rows[k - extra] = [look(theta) for theta in run.points]

    def _finished(self, block: Array) -> Array:
        run, extra = self._run, len(PHASES) + len(self._observe)
        numbers = block[:, :-extra]
        now = Numbers(numbers, run.work.parts.shape[1])
        columns = [
            now.objective, now.primal, now.dual, now.disagreement, now.residual,
            *run.stopping.verdict(numbers)[:3],
            now.eta_mean, now.quiet, now.messages, now.bytes,
            *np.moveaxis(block[:, -extra:], 1, 0),
        ]  # fmt: skip
        return run.by_node(np.array(columns).transpose(2, 1, 0)).transpose(1, 0, 2)


class EdgeRows(RowBuffer):
    """A callback that records one row per directed edge of this process."""

    columns = EDGE_COLUMNS

    def __call__(self, t: int, run: Run) -> None:
        penalty = run.state.penalty
        rows = self.next_rows(len(run.arcs), len(self.columns))
        for k, name in enumerate(EDGE_COLUMNS[:-1]):
            rows[:, k] = run.by_edge(penalty[name]) if name in penalty else 0.0
        rows[:, -1] = run.by_edge(run.exchange.lengths)


class History:
    """The rows of a run by column: ``history["primal"]`` is (iterations, n_nodes).

    Edge columns, where recorded, are ``history.edges["eta"]``: (iterations, E).

    Parameters
    ----------
    columns : sequence of str
    rows : ndarray of shape (iterations, n_rows, n_columns)
    """

    def __init__(self, columns: Sequence[str], rows: Array) -> None:
        self.columns, self.rows = tuple(columns), rows
        self.edges: History | None = None

    def __getitem__(self, column: str) -> Matrix:
        if column not in self.columns:
            known = f"there are {', '.join(self.columns)}"
            none = "none is recorded; pass record=True, which over 1,000 nodes need"
            raise KeyError(f"no column {column!r}; {known if self.columns else none}")
        return self.rows[:, :, self.columns.index(column)]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        n_rows, names = self.rows.shape[1], ", ".join(self.columns)
        return f"<History of {len(self)} iterations and {n_rows} rows each: {names}>"


class Recorder:
    """A callback that keeps the rows of a run in memory, for `History`."""

    def __init__(
        self, run: Run, observe: Observe, by_node: bool, by_edge: bool, start: int = 0
    ) -> None:
        self._kept, width = (by_node, by_edge), len(NODE_COLUMNS) + len(observe)
        nodes = MemorySink(start, [np.empty((0, len(run.nodes), width))])
        edges = MemorySink(start, [np.empty((0, len(run.arcs), len(EDGE_COLUMNS)))])
        self._rows = NodeRows(nodes, start, observe), EdgeRows(edges, start)
        self._sinks = nodes, edges

    def __call__(self, t: int, run: Run) -> None:
        (nodes, edges), (by_node, by_edge) = self._rows, self._kept
        if by_node:
            nodes(t, run)
        if by_edge:
            edges(t, run)

    def rewind(self, failure: NodeFailure) -> None:
        for rows in self._rows:
            rows.rewind(failure)

    def tables(self) -> list[Array]:
        """Return the rows of this process, (n_rows, ...) by node and by edge."""
        for rows in self._rows:
            rows.flush()
        return [np.concatenate(s.blocks).transpose(1, 0, 2) for s in self._sinks]

    def history(self, tables: Sequence[Array]) -> History:
        nodes, edges = (
            History(rows.columns if kept else (), table.transpose(1, 0, 2))
            for rows, table, kept in zip(self._rows, tables, self._kept, strict=True)
        )
        nodes.edges = edges if self._kept[1] else None
        return nodes
