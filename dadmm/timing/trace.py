"""The timing of a run: how long each node worked and talked, and what it sent."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ConfigError, OutputError
from dadmm.core.layout import Matrix, Vector
from dadmm.timing.rows import columns, unreadable

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """What timing needs to know of a run.

    Parameters
    ----------
    edges : ndarray of shape (E, 2)
        Directed edges (i, j), sorted by i and then j; every edge in both directions.
    solve, exchange, update, observe : ndarray of shape (iterations, n_nodes)
        Seconds, in the order in which a node spends them: local problem, messages,
        multipliers and penalties, and what watchers took. As in history.csv,
        ``observe[t]`` is that of the iteration before: where it ends, ``solve[t]``
        starts.
    bytes : ndarray of shape (iterations, E)
        Payload of i's message to j; 0 where none was sent.
    prime : ndarray of shape (E,)
        The same of the swap before iteration 1.
    hosts : tuple of str
        Where each node ran, if it is known.
    collectives : int
        Collective calls inside the loop, whose time is part of ``exchange``.
    alone : bool
        Whether all nodes lived in one process, so that none ever waited.
    """

    edges: Integers
    solve: Matrix
    exchange: Matrix
    update: Matrix
    observe: Matrix
    bytes: Matrix
    prime: Vector
    hosts: tuple[str, ...] = ()
    collectives: int = 0
    alone: bool = False

    @property
    def n_nodes(self) -> int:
        """How many nodes there are."""
        return self.solve.shape[1]

    @property
    def starts(self) -> Integers:
        """Where each node's edges start, (n_nodes,)."""
        return np.searchsorted(self.edges[:, 0], np.arange(self.n_nodes))

    @property
    def reverse(self) -> Integers:
        """The index of the edge (j, i) for every edge (i, j), shape (E,)."""
        return np.lexsort((self.edges[:, 0], self.edges[:, 1]))

    @property
    def seconds(self) -> float:
        """What the loop took: all durations of the slowest node."""
        spent = self.solve + self.exchange + self.update + self.observe
        return float(spent.sum(axis=0).max())

    def compute(self, observe: bool = False) -> Matrix:
        """Return the work between an exchange and the next, (iterations, n_nodes).

        Row t is the update of iteration t - 1 and the solve of t, with ``observe`` also
        what watchers took in between. The last update comes after the last exchange.
        """
        work = self.solve + (self.observe if observe else 0.0)
        work[1:] += self.update[:-1]
        return work

    @classmethod
    def read(cls, folder: str | Path) -> Trace:
        """Return the timing of the run in a folder."""
        folder = Path(folder)
        summary = _summary(folder)
        edges = _edges(folder)
        rows = columns(folder / "history.csv", 2, int(summary["n_nodes"]))
        names = ("solve", "exchange", "update", "observe")
        times = {k: _column(rows, f"{k}_seconds", folder) for k in names}
        payload = _payload(folder, edges, rows, bool(summary.get("silent_messages")))
        return cls(
            edges,
            **times,
            bytes=payload,
            prime=_prime(summary, payload),
            hosts=tuple(summary.get("node_hosts", ())),
            collectives=int(summary.get("collectives", 0)),
            alone="one process" in str(summary.get("mpi_library", "")),
        )


def write(path: str | Path, text: str) -> None:
    """Write what was found about a run."""
    try:
        Path(path).write_text(text, "utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def _summary(folder: Path) -> dict[str, Any]:
    file = folder / "summary.json"
    if not file.is_file():
        raise ConfigError(
            f"{folder} is not the folder of a finished run: it has no summary.json; "
            "give the folder that dadmm.run names in its last line"
        )
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from None


def _edges(folder: Path) -> Integers:
    file = folder / "result.npz"
    try:
        with np.load(file) as arrays:
            edges: Integers = arrays["edges"].astype(np.int64)
            return edges
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise unreadable(file, error) from None


def _payload(
    folder: Path, edges: Integers, rows: dict[str, Matrix], silent: bool
) -> Matrix:
    """Return the payload of each message, (iterations, E), 0 where none was sent.

    Without edges.csv a node's bytes are spread evenly, if it sent to all neighbours and
    none of its messages is ``silent``, a header only.
    """
    file = folder / "edges.csv"
    if file.is_file() and len(edges):
        return _column(columns(file, 3, len(edges)), "bytes", folder)
    messages, sent = _column(rows, "messages", folder), _column(rows, "bytes", folder)
    degrees = np.bincount(edges[:, 0], minlength=messages.shape[1])
    uneven = (messages != degrees).any() or (sent % np.maximum(messages, 1)).any()
    if silent or uneven:
        raise ConfigError(
            f"the messages of the run in {folder} differ from edge to edge, and it has "
            "no edges.csv; run it again with --record-edges"
        )
    each: Matrix = (sent / np.maximum(messages, 1))[:, edges[:, 0]]
    return each


def _prime(summary: dict[str, Any], payload: Matrix) -> Vector:
    """Return the payload of the swap before iteration 1: what no row accounts for."""
    n_edges = payload.shape[1]
    missing = max(float(summary["bytes"]) - payload.sum(), 0.0)
    return np.full(n_edges, missing / max(n_edges, 1))


def _column(rows: dict[str, Matrix], name: str, folder: Path) -> Matrix:
    if name not in rows:
        raise ConfigError(
            f"the run in {folder} has no column {name!r}, so it was made by another "
            "version; run it again"
        )
    return rows[name]
