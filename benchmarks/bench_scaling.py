"""What do many nodes on few ranks cost: strong scaling, weak scaling, and set-up?

    python -m benchmarks.bench_scaling [--most NODES] [--csv FILE] [--figure FILE]

Least squares with 5 coefficients and 12 rows per node, with default settings but
tolerance 0, for 50 iterations. A random geometric graph has about 2 log(n) neighbours
per node; networks of a million nodes are grids. Each case is a job of its own; without
MPI if it has 0 ranks. Seconds are processor time of the slowest rank: on a busy
machine they compare, and wall clocks do not. Graphs and problems are made before, and
do not count. With --csv, cases that are in the file are kept.
"""

import argparse
import json
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.commands import on_ranks, parser_of, print_markdown, say
from benchmarks.shared.experiment import read_rows, write_rows
from dadmm.core.linalg import one_blas_thread
from dadmm.graphs.placement import assign, count_crossing

COEFFICIENTS, ROWS = 5, 12  # of a node
ITERATIONS, LONGEST = 50, 7200.0
RANDOM, GRID = "random_geometric", "grid"
CASES = [
    (RANDOM, 1_000, 0), (RANDOM, 10_000, 0), (RANDOM, 20_000, 0), (RANDOM, 20_000, 1),
    (RANDOM, 20_000, 2), (RANDOM, 40_000, 2), (RANDOM, 100_000, 0),
    (RANDOM, 100_000, 2), (GRID, 100_000, 2), (GRID, 1_000_000, 2),
]  # fmt: skip
NAMES = ("setup", "iteration", "end")  # seconds


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, n: int, comm: Any) -> dict[str, Any]:
    graph = getattr(dadmm.Topology, name)(n)
    size, rank = (0, 0) if comm is None else (comm.size, comm.rank)
    hosts = assign(graph, ["here"] * max(size, 1))
    own = np.flatnonzero(hosts == rank).tolist()
    rng = np.random.default_rng([0, rank])
    X = rng.standard_normal((len(own), ROWS, COEFFICIENTS))
    y = X @ np.ones(COEFFICIENTS) + 0.1 * rng.standard_normal((len(own), ROWS))
    with one_blas_thread():  # once for all
        problems = {
            i: dadmm.problems.LeastSquares(*rows, fit_intercept=False)
            for i, *rows in zip(own, X, y, strict=True)
        }
    before, marks = peak(), [process_time()]
    result = dadmm.solve(
        problems if size else [*problems.values()], graph,
        stopping=dadmm.Stopping(tolerance=0.0, max_iter=ITERATIONS), record=False,
        callbacks=[lambda t, run: marks.append(process_time())], gather="none",
        comm=dadmm.Ranks(comm, wait="poll") if size else None,
    )  # fmt: skip
    iteration = median(np.diff(marks[1:]).tolist())
    times = marks[1] - marks[0] - iteration, iteration, process_time() - marks[-1]
    everyone = [(*times, peak() - before)]
    if size:
        everyone = comm.allgather(everyone[0])
    most = np.max(everyone, axis=0)
    return {
        "graph": name, "nodes": n, "ranks": size, "edges": len(graph.edges) // 2,
        "between_ranks": count_crossing(graph, hosts),
        **dict(zip(NAMES, most.tolist(), strict=False)), "memory_mb": float(most[-1]),
        "iterations": result.iterations,
    }  # fmt: skip


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    head = ("graph", "nodes", "ranks", "edges", "between ranks", "set-up, s",
            "iteration, ms", "end, s", "memory of a rank, MB")  # fmt: skip
    lines = []
    for row in rows:
        seconds = [float(row[name]) for name in NAMES]
        lines.append([
            row["graph"].replace("_", " "), f"{int(row['nodes']):,}",
            row["ranks"] if int(row["ranks"]) else "no MPI",
            f"{int(row['edges']):,}", f"{int(row['between_ranks']):,}",
            f"{seconds[0]:.2f}", f"{1e3 * seconds[1]:.1f}", f"{seconds[2]:.2f}",
            f"{float(row['memory_mb']):,.0f}",
        ])  # fmt: skip
    print_markdown(head, lines)


def draw(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw set-up and iterations against nodes, in one process and on two ranks."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    for axes, name in zip(figure.subplots(1, 2), NAMES, strict=False):
        for ranks, label in (("0", "one process"), ("2", "2 ranks")):
            points = sorted(
                (int(row["nodes"]), float(row[name])) for row in rows
                if str(row["ranks"]) == ranks and row["graph"] == RANDOM
            )  # fmt: skip
            axes.loglog(*zip(*points, strict=True), "o-", label=label)
        axes.set(title=name, xlabel="nodes", ylabel="processor time, s")
        axes.legend()
    figure.savefig(file)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--most", type=int, default=10**6, help="largest network")
    parser.add_argument("--csv", type=Path, help="write the rows here, too")
    parser.add_argument("--figure", type=Path, help="draw them here, too")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        name, n, ranks = given.case
        comm = None
        if int(ranks):
            from mpi4py import MPI

            comm = MPI.COMM_WORLD
        row = measure(name, int(n), comm)
        if comm is None or comm.rank == 0:
            print(json.dumps(row))
        return
    rows: list[Mapping[str, Any]] = []
    if given.csv and given.csv.exists():
        rows += read_rows(given.csv)
    known = {(row["graph"], int(row["nodes"]), int(row["ranks"])) for row in rows}
    for name, n, ranks in CASES:
        if n > given.most or (name, n, ranks) in known:
            continue
        say(f"{name}, {n} nodes, {ranks} ranks")
        words = ["-m", "mpi4py", "-m", __spec__.name, "--case", name, n, ranks]
        done = on_ranks(max(ranks, 1), *map(str, words), timeout=LONGEST,
                        capture_output=True, text=True)  # fmt: skip
        rows.append(json.loads(done.stdout))
        if given.csv:
            write_rows(rows, given.csv)
    rows.sort(key=lambda row: (row["graph"], int(row["nodes"]), int(row["ranks"])))
    print_table(rows)
    if given.figure:
        draw(rows, given.figure)


if __name__ == "__main__":
    main()
