"""What do networks of 20 to 100,000 nodes cost in one process?

    python -m benchmarks.bench_scale [--quick] [--csv FILE]

Least squares with 5 coefficients and 12 rows per node, in raw coordinates. Grids and
random geometric graphs run until they stop; a ring runs 200 iterations. Each case is a
process of its own. Times are processor time; the samples and the problems are made
before, and do not count. With --csv, cases that are in the file are kept, and each new
one is added to it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.commands import parser_of, print_markdown, say, variables
from benchmarks.shared.experiment import read_rows, write_rows
from dadmm.admm.loop import Run

SIZES, QUICK = (20, 100, 1_000, 10_000, 100_000), (20, 200)
GRAPHS = ("ring", "grid", "random_geometric")
COEFFICIENTS, ROWS = 5, 12
RING_ITERATIONS, MOST_ITERATIONS = 200, 20_000
TOLERANCE = dadmm.Stopping().tolerance
LONGEST = 7200.0  # seconds of a case
Row = dict[str, Any]


def make_problems(n: int) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return the samples X (n, rows, d) and y (n, rows), and the problem of each node.

    All nodes have the same coefficients and noise, and different samples.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, ROWS, COEFFICIENTS))
    coef = rng.standard_normal(COEFFICIENTS)
    y = X @ coef + 0.1 * rng.standard_normal((n, ROWS))
    problems = [
        dadmm.problems.LeastSquares(*node, fit_intercept=False)
        for node in zip(X, y, strict=True)
    ]
    return X, y, problems


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(graph: str, n: int, iterations: int, tolerance: float) -> Row:
    """Return the row of one case; it assumes that the process is a new one."""
    X, y, problems = make_problems(n)
    data, start = peak(), process_time()
    topology = getattr(dadmm.Topology, graph)(n)
    graph_seconds, marks = process_time() - start, [process_time()]

    def mark(t: int, run: Run) -> None:
        marks.append(process_time())

    result = dadmm.solve(
        problems, topology,
        stopping=dadmm.Stopping(tolerance=tolerance, max_iter=iterations),
        record=False, callbacks=[mark], coordinates="raw",
    )  # fmt: skip
    end = process_time() - marks[-1]
    memory = peak() - data
    iteration = median(np.diff(marks[1:]))
    best = np.linalg.lstsq(X.reshape(-1, COEFFICIENTS), y.ravel())[0]
    apart = np.linalg.norm(result.theta - best, axis=1) / np.linalg.norm(best)
    return {
        "graph": graph,
        "nodes": n,
        "edges": len(topology.edges) // 2,
        "diameter_bound": topology.diameter_bound,
        "graph_seconds": graph_seconds,
        "setup_seconds": marks[1] - marks[0] - iteration,
        "node_iteration_us": 1e6 * iteration / n,
        "end_seconds": end,
        "data_mb": data,
        "memory_mb": memory,
        "tolerance": tolerance,
        "iterations": result.iterations,
        "reason": result.reason,
        "worst_error": float(apart.max()),
        "median_error": float(np.median(apart)),
    }


def in_a_process(graph: str, n: int) -> Row:
    """Return the row of one case, measured in a process of its own."""
    ring = graph == "ring"
    case = (RING_ITERATIONS, 0.0) if ring else (MOST_ITERATIONS, TOLERANCE)
    words = ["-m", "benchmarks.bench_scale", "--case", graph, n, *case]
    done = subprocess.run(
        [sys.executable, *map(str, words)], check=True, stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True, timeout=LONGEST, env=variables(),
    )  # fmt: skip
    row: Row = json.loads(done.stdout)
    return row


def setup_seconds(row: Mapping[str, Any]) -> float:
    """Return the seconds before the first iteration, with those of the graph."""
    return float(row["graph_seconds"]) + float(row["setup_seconds"])


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows, and the growth of set-up with the edges."""
    head = ("graph", "nodes", "edges", "graph, s", "set-up, s", "us of both per edge",
            "us per node-iteration", "end, s", "memory, MB", "iterations", "ended by",
            "worst error", "median error")  # fmt: skip
    lines = []
    for row in rows:
        error = [f"{float(row[name]):.1e}" for name in ("worst_error", "median_error")]
        lines.append([
            row["graph"].replace("_", " "), f"{int(row['nodes']):,}",
            f"{int(row['edges']):,}", f"{float(row['graph_seconds']):.2f}",
            f"{float(row['setup_seconds']):.2f}",
            f"{1e6 * setup_seconds(row) / int(row['edges']):.0f}",
            f"{float(row['node_iteration_us']):.1f}",
            f"{float(row['end_seconds']):.2f}", f"{float(row['memory_mb']):.0f}",
            f"{int(row['iterations']):,}", row["reason"],
            *(error if row["reason"] == "converged" else ["", ""]),
        ])  # fmt: skip
    print_markdown(head, lines)


def main() -> None:
    """Measure all cases, print the table, write the rows."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="only 20 and 200 nodes")
    parser.add_argument("--csv", type=Path, help="write the rows here, too")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        graph, n, iterations, tolerance = given.case
        row = measure(graph, int(n), int(iterations), float(tolerance))
        print(json.dumps(row))
        return
    rows: list[Mapping[str, Any]] = []
    if given.csv and given.csv.exists():
        rows += read_rows(given.csv)
    known = {(row["graph"], int(row["nodes"])) for row in rows}
    for n in QUICK if given.quick else SIZES:
        for graph in GRAPHS:
            if (graph, n) not in known:
                say(f"{graph}, {n} nodes")
                rows.append(in_a_process(graph, n))
                if given.csv:
                    write_rows(rows, given.csv)
    rows.sort(key=lambda row: (GRAPHS.index(row["graph"]), int(row["nodes"])))
    print_table(rows)
    if given.csv:
        write_rows(rows, given.csv)


if __name__ == "__main__":
    main()
