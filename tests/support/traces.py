"""Timings of runs that never were, in memory and as folders."""

from __future__ import annotations

import csv
import json

import numpy as np

from dadmm.timing.trace import Trace


def trace_of(topology, work, payload=1000.0, exchange=None, update=None, **more):
    """Return a trace with this work (iterations, n_nodes), all before the post."""
    shape = np.shape(work)
    zeros = np.zeros(shape)
    payload = np.broadcast_to(payload, (shape[0], len(topology.edges))).astype(float)
    return Trace(
        topology,
        np.array(work, dtype=float),
        zeros if exchange is None else exchange,
        zeros if update is None else update,
        more.pop("observe", zeros),
        payload,
        more.pop("prime", np.zeros(len(topology.edges))),
        **more,
    )


def write(folder, trace, by_edge=True, **summary):
    """Write a trace as `dadmm.run` leaves a run, with other columns in between."""
    folder.mkdir(parents=True, exist_ok=True)
    edges, n_nodes = trace.edges, trace.n_nodes
    sent = [np.bincount(edges[:, 0], row > 0, n_nodes) for row in trace.bytes]
    size = [np.bincount(edges[:, 0], row, n_nodes) for row in trace.bytes]
    names = ("objective", "messages", "bytes", "solve_seconds", "exchange_seconds")
    with open(folder / "history.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(
            ("iteration", "node", *names, "update_seconds", "observe_seconds", "angle")
        )
        for t, i in np.ndindex(trace.solve.shape):
            times = (trace.solve, trace.exchange, trace.update, trace.observe)
            seconds = [float(part[t, i]) for part in times]
            out.writerow((t + 1, i, 0.5, sent[t][i], size[t][i], *seconds, 0.1))
    if by_edge:
        with open(folder / "edges.csv", "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(("iteration", "i", "j", "eta", "spent", "budget", "bytes"))
            for t, e in np.ndindex(trace.bytes.shape):
                out.writerow((t + 1, *edges[e], 10.0, 0.0, 0.0, trace.bytes[t, e]))
    np.savez(folder / "result.npz", edges=edges)
    told = {
        "n_nodes": n_nodes,
        "messages": int(np.sum(sent)) + len(edges),
        "bytes": int(trace.bytes.sum() + trace.prime.sum()),
        "collectives": trace.collectives,
        "mpi_library": "MPICH 5.0.2",
        "node_hosts": list(trace.hosts),
    }
    (folder / "summary.json").write_text(json.dumps(told | summary))
    return folder
