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
    times = np.stack([trace.solve, trace.exchange, trace.update, trace.observe], -1)
    head = "iteration,node,objective,messages,bytes,solve_seconds,exchange_seconds,"
    files = {"history": [head + "update_seconds,observe_seconds,angle"]}
    for t, i in np.ndindex(trace.solve.shape):
        row = (step * (t + 1), i, 0.5, sent[t][i], size[t][i], *times[t, i], 0.1)
        files["history"].append(",".join(map(str, row)))
    if by_edge:
        files["edges"] = ["iteration,i,j,eta,spent,budget,bytes"]
        for t, e in np.ndindex(trace.bytes.shape):
            row = (step * (t + 1), *edges[e], 10.0, 0.0, 0.0, trace.bytes[t, e])
            files["edges"].append(",".join(map(str, row)))
    for name, lines in files.items():
        (folder / f"{name}.csv").write_text("\n".join([*lines, ""]))
    np.savez(folder / "result.npz", edges=edges)
    told = {
        "n_nodes": n_nodes, "messages": int(np.sum(sent)) + len(edges),
        "bytes": int(trace.bytes.sum() + trace.prime.sum()),
        "collectives": trace.collectives, "mpi_library": "MPICH 5.0.2",
        "node_hosts": list(trace.hosts),
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(told | summary))
    return folder
