"""Timings of runs that never were, in memory and as folders."""

import json

import numpy as np

from dadmm.timing.replay import Trace


def trace_of(topology, work, payload=1000.0, exchange=None, update=None, **more):
    """Return a trace with this work (iterations, n_nodes), all before the post."""
    work = np.array(work, dtype=float)
    payload = np.broadcast_to(payload, (len(work), len(topology.edges))).astype(float)
    phases = [exchange, update, more.pop("observe", None)]
    phases = [0.0 * work if phase is None else phase for phase in phases]
    prime = more.pop("prime", np.zeros(len(topology.edges)))
    return Trace(topology, work, *phases, payload, prime, **more)


def write(folder, trace, by_edge=True, step=1, **summary):
    """Write a trace as `dadmm.run` leaves a run, with other columns in between.

    A row stands for ``step`` iterations.
    """
    folder.mkdir(parents=True, exist_ok=True)
    edges, n_nodes = trace.edges, trace.n_nodes
    sent = [np.bincount(edges[:, 0], row > 0, n_nodes) for row in trace.bytes]
    size = [np.bincount(edges[:, 0], row, n_nodes) for row in trace.bytes]
    times = (trace.solve, trace.exchange, trace.update, trace.observe)
    head = "iteration,node,objective,messages,bytes,solve_seconds,exchange_seconds,"
    rows = [
        (
            step * (t + 1),
            i,
            0.5,
            sent[t][i],
            size[t][i],
            *(float(k[t, i]) for k in times),
            0.1,
        )
        for t, i in np.ndindex(trace.solve.shape)
    ]
    _save(folder / "history.csv", head + "update_seconds,observe_seconds,angle", rows)
    if by_edge:
        rows = [
            (step * (t + 1), *edges[e], 10.0, 0.0, 0.0, trace.bytes[t, e])
            for t, e in np.ndindex(trace.bytes.shape)
        ]
        _save(folder / "edges.csv", "iteration,i,j,eta,spent,budget,bytes", rows)
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


def _save(path, head, rows):
    lines = [",".join(map(str, row)) for row in rows]
    path.write_text("\n".join([head, *lines, ""]))
