"""How many bytes cross from host to host, before and after placement?

    python -m benchmarks.bench_placement [--csv FILE]

Counts what a D-PPCA iteration sends between 2, 4 and 8 hosts whose ranks are in blocks
(as MPICH and Slurm have it by default) or dealt out in turns (cyclic).
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.commands import parser_of, print_markdown
from benchmarks.shared.experiment import write_rows
from dadmm.data import datasets, shard
from dadmm.graphs import placement, topology

GRAPHS = ("ring", "grid", "cluster", "random-geometric", "complete")
HOSTS = (2, 4, 8)
MAPPINGS = ("block", "cyclic")
NODES = 64


def counted(name: str, n: int, iterations: int = 20) -> np.ndarray:
    """Return the bytes that each directed edge carries in an iteration."""
    samples, _ = datasets.synthetic(500, 20, 5, 0.2, 0)
    problems = [dadmm.problems.PPCA(x, 5) for x in shard.split(samples, n)]
    graph = topology.build(name, n)
    stops = [dadmm.Stopping(tolerance=0, max_iter=k) for k in (1, 1 + iterations)]
    sent = [
        dadmm.solve(problems, graph, stopping=stop).traffic.edge_bytes for stop in stops
    ]
    return (sent[1] - sent[0]) / iterations


def count(name: str, hosts: int, mapping: str, sent: np.ndarray) -> dict[str, Any]:
    """Return what crosses hosts in an iteration, by number and placed."""
    graph = topology.build(name, NODES)
    ranks = np.arange(NODES)
    plain = ranks % hosts if mapping == "cyclic" else ranks * hosts // NODES
    nodes = placement.place(graph, plain.astype(str).tolist())
    placed = plain[np.argsort(nodes)]
    row = {"graph": name, "nodes": NODES, "hosts": hosts, "mapping": mapping,
           "edges": len(graph.edges) // 2}  # fmt: skip
    for way, homes in (("ranks", plain), ("hosts", placed)):
        row[f"edges_{way}"] = placement.count_crossing(graph, homes)
        row[f"bytes_{way}"] = round(sent[placement.crosses_hosts(graph, homes)].sum())
    return row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--csv", type=Path, help="write the rows here, too")
    given = parser.parse_args()
    rows, lines = [], []
    for name in GRAPHS:
        sent = counted(name, NODES)
        for mapping in MAPPINGS:
            own = [count(name, hosts, mapping, sent) for hosts in HOSTS]
            pairs = product(own, ("bytes_ranks", "bytes_hosts"))
            lines.append([name, mapping, *(f"{r[k] / 1e3:.1f}" for r, k in pairs)])
            rows += own
    heads = (head for n in HOSTS for head in (f"{n} hosts: before", "after"))
    print_markdown(("graph", "mapping", *heads), lines)
    if given.csv:
        write_rows(rows, given.csv)


if __name__ == "__main__":
    main()
