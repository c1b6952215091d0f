"""The timing of a recorded run: seconds by phase, and bytes by message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers, Topology
from dadmm.runs.stored import NOT_NEGATIVE, StoredRun


@dataclass(frozen=True)
class Trace:
    """Seconds of each node, (iterations, n_nodes), and bytes of each message."""

    topology: Topology
    solve: Matrix
    exchange: Matrix
    update: Matrix  # of multipliers and penalties
    observe: Matrix  # callbacks of the iteration before; when they end, solve starts
    bytes: Matrix  # (iterations, E) payload of i's message to j; 0 if none was sent
    prime: Vector  # (E,) payload of the exchange before iteration 1
    hosts: tuple[str, ...] = ()  # of each node, if known
    collectives: int = 0  # calls inside the loop; their time is part of exchange
    is_broadcast: bool = False  # a node's messages of an iteration have the same bytes
    sums: Matrix | None = None  # (E, 2) messages and bytes of sums over a tree
    alone: bool = False  # all nodes ran in one process, where none waits

    @property
    def edges(self) -> Integers:
        """Directed edges (E, 2)."""
        return self.topology.edges

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.topology.n_nodes

    @property
    def seconds(self) -> float:
        """Seconds of the loop, on the slowest node."""
        spent = self.solve + self.exchange + self.update + self.observe
        return float(spent.sum(axis=0).max())

    def compute(self, observe: bool = False) -> Matrix:
        """Return the work between an exchange and the next, (iterations, n_nodes).

        Row t is the update of iteration t - 1 and the solve of t, and with ``observe``
        the callbacks in between. The last update comes after the last exchange.
        """
        work = self.solve + (self.observe if observe else 0.0)
        work[1:] += self.update[:-1]
        return work

    @classmethod
    def read(cls, folder: str | Path) -> Trace:
        """Return the timing of the run in a folder."""
        return cls.of(StoredRun.read(folder))

    @classmethod
    def of(cls, run: StoredRun) -> Trace:
        """Return the timing of a run."""
        hosts = run.summary.get("node_hosts", [])
        if len(hosts) not in (0, run.topology.n_nodes):
            raise ConfigError(
                f"{run.folder / 'summary.json'} is damaged: it names {len(hosts)} "
                f"hosts for {run.topology.n_nodes} nodes"
            )
        names = ("solve", "exchange", "update", "observe")
        times = {k: run.column(f"{k}_seconds", NOT_NEGATIVE) for k in names}
        every = np.diff(run.iterations, prepend=0)  # iterations of each row
        times = {k: _spread(seconds, every) for k, seconds in times.items()}
        payload = _spread(_payload(run, every), every)
        missing = max(run.entry("bytes") - payload.sum(), 0.0)  # has no row
        edges, sums = run.topology.indices.shape, None
        if run.arrays.keys() >= {"tree_messages", "tree_bytes"}:
            tree = [run.array(f"tree_{what}", edges) for what in ("messages", "bytes")]
            sums = np.array(tree, dtype=float).T
        return cls(
            run.topology,
            **times,
            bytes=payload,
            prime=np.full(edges, missing / max(*edges, 1)),
            hosts=tuple(hosts),
            is_broadcast=run.summary.get("is_broadcast", False),
            sums=sums,
            collectives=run.summary.get("collectives", 0),
            alone="one process" in run.summary.get("mpi_library", ""),
        )


def _spread(rows: Matrix, every: Integers) -> Matrix:
    """Return a row per iteration, of rows that add up the iterations before them."""
    if (every == 1).all():
        return rows
    return np.repeat(rows / every[:, None], every, axis=0)


def _payload(run: StoredRun, every: Integers) -> Matrix:
    """Return the payloads of the messages of each row, (rows, E).

    Without edges.csv, the bytes of a node are divided evenly among its neighbours.
    This needs a message with payload to every neighbour.
    """
    if run.by_edge:
        return run.edge_column("bytes", NOT_NEGATIVE)
    messages = run.column("messages", NOT_NEGATIVE)
    sent = run.column("bytes", NOT_NEGATIVE)
    uneven = (messages != every[:, None] * run.topology.degrees).any()
    uneven |= (sent % np.maximum(messages, 1)).any()
    if uneven or run.summary.get("silent_messages"):
        raise ConfigError(
            f"the messages of the run in {run.folder} differ from edge to edge, and it "
            "has no edges.csv; run it again with --record-edges"
        )
    each = sent / np.maximum(run.topology.degrees, 1)
    payload: Matrix = each[:, run.topology.edges[:, 0]]
    return payload
