"""The rows of a run in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.admm.loop import Callback, Run
from dadmm.core.layout import Matrix
from dadmm.solver.rows import EdgeRows, Mask, NodeRows, Observe


class MemorySink:
    """A sink that keeps all blocks."""

    def __init__(self) -> None:
        self._blocks: list[NDArray[Any]] = []
        self._first = 1

    def append(self, first: int, block: NDArray[Any]) -> None:
        if not self._blocks:
            self._first = first
        self._blocks.append(block.copy())

    def rewind(self, t: int, kept: Mask | None) -> None:
        if self._blocks:
            whole = np.concatenate(self._blocks)[: t + 1 - self._first]
            self._blocks = [whole if kept is None else whole[:, kept]]

    def all(self, n_rows: int, n_columns: int) -> NDArray[Any]:
        """Return all rows, (iterations, n_rows, n_columns)."""
        return np.concatenate(self._blocks or [np.empty((0, n_rows, n_columns))])


class History:
    """The rows of a run by column: ``history["primal"]`` is (iterations, n_nodes).

    Edge columns, where recorded, are ``history.edges["eta"]``: (iterations, E).

    Parameters
    ----------
    columns : sequence of str
    rows : ndarray of shape (iterations, n_rows, n_columns)
    """

    def __init__(
        self, columns: Sequence[str], rows: NDArray[Any], recorded: bool = True
    ) -> None:
        self.columns, self.rows, self._recorded = tuple(columns), rows, recorded
        self.edges: History | None = None

    def __getitem__(self, column: str) -> Matrix:
        if not self._recorded:
            raise KeyError(
                "the history is not recorded; pass record=True, which more than 1,000 "
                "nodes need"
            )
        if column not in self.columns:
            raise KeyError(f"no column {column!r}; there are {', '.join(self.columns)}")
        return self.rows[:, :, self.columns.index(column)]

    def __len__(self) -> int:
        return len(self.rows)


class Recorder:
    """Keep the rows of a run in memory, for `History`.

    Parameters
    ----------
    run : Run
    observe : dict of str to callable
        Further columns, each a function of theta (size,).
    by_node, by_edge : bool
        Which rows to keep.
    start : int
        The iteration before the first.

    Attributes
    ----------
    callbacks : list of callables
        They record the rows; pass them to `admm.loop.iterate`.
    """

    def __init__(
        self,
        run: Run,
        observe: Observe,
        by_node: bool,
        by_edge: bool,
        start: int = 0,
    ) -> None:
        self._node_sink, self._edge_sink = MemorySink(), MemorySink()
        self._shape = len(run.nodes), len(run.arcs)
        self._by_node, self._by_edge = by_node, by_edge
        self._rows = NodeRows(self._node_sink, observe, start)
        self._edges = EdgeRows(self._edge_sink, start)
        self.callbacks: list[Callback] = [self._rows] * by_node + [
            self._edges
        ] * by_edge

    def tables(self) -> tuple[Matrix, Matrix]:
        """Return the rows of this process, one by node and one by edge."""
        nodes = self._table(self._rows, self._node_sink, self._shape[0])
        return nodes, self._table(self._edges, self._edge_sink, self._shape[1])

    def history(self, nodes: Matrix, edges: Matrix) -> History:
        """Return the history, given the tables of all processes."""
        history = self._history(self._rows, nodes, self._by_node)
        if self._by_edge:
            history.edges = self._history(self._edges, edges)
        return history

    @staticmethod
    def _table(source: NodeRows | EdgeRows, sink: MemorySink, n_rows: int) -> Matrix:
        source.flush()
        rows = sink.all(n_rows, len(source.columns))
        n_iterations, n_rows, n_columns = rows.shape
        return rows.transpose(1, 0, 2).reshape(n_rows, n_iterations * n_columns)

    @staticmethod
    def _history(
        source: NodeRows | EdgeRows, table: Matrix, recorded: bool = True
    ) -> History:
        n_columns = len(source.columns)
        rows = table.reshape(len(table), table.shape[1] // n_columns, n_columns)
        return History(source.columns, rows.transpose(1, 0, 2), recorded)
