"""What does an iteration cost beyond what it must?

    python -m benchmarks.bench_iteration [--quick] [--csv FILE]

Prints ratios, each measured within one run: timings of a busy machine move together, so
candidates are interleaved and medians compared.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

from benchmarks.shared.commands import (
    THREADS,
    medians,
    on_ranks,
    parser_of,
    print_markdown,
    seconds_of,
)
from benchmarks.shared.experiment import write_rows, written
from dadmm.admm.loop import Run, RunKind, Setup, iterate
from dadmm.admm.rule import Rule
from dadmm.comm.exchange import Exchange
from dadmm.comm.sending import Sending
from dadmm.core.linalg import one_blas_thread
from dadmm.data.datasets import synthetic
from dadmm.data.shard import split
from dadmm.graphs.topology import Topology
from dadmm.penalty import build
from dadmm.problems import PPCA

RANKS = 20
GRAPHS = {"ring": Topology.ring, "complete": Topology.complete}
WAITS = ("block", "poll")
NOT_COMPILED = "PYTHONDONTWRITEBYTECODE"  # then every process compiles every module


def run_of(exchange: Exchange, topology: Topology, problems: dict) -> Run:
    """Return a run that never stops, under the scheme `nap`, before iteration 1."""
    starts = {i: own.init(np.random.default_rng(0)) for i, own in problems.items()}
    kind = RunKind(problems, Rule("residuals", 0.0), starts)
    run = Run(Setup(kind, build("nap"), Sending()), exchange, topology)
    run.open()
    return run


class Echo:
    """An exchange without transport: each neighbour agrees with the node."""

    def __init__(self, run: Run) -> None:
        self.outbox, self.inbox = run.exchange.outbox, run.exchange.inbox

    def swap(self) -> None:
        self.inbox.rows[:] = self.outbox.rows


def of_ranks(iterations: int, repeats: int) -> list[dict]:
    """Return, on rank 0, the cost of an iteration over its floor for each graph."""
    from mpi4py import MPI

    from dadmm.comm.mpi import MPIExchange

    comm = MPI.COMM_WORLD
    samples = split(synthetic()[0], comm.size)[comm.rank]
    problem = PPCA(samples, 5)

    def timed(work: Callable[[], None]) -> float:
        comm.Barrier()
        start = perf_counter()
        work()
        comm.Barrier()
        return (perf_counter() - start) / iterations * 1e6

    rows = []
    for graph, make in GRAPHS.items():
        topology, size = make(comm.size), problem.layout.shared_size
        exchanges = {
            wait: MPIExchange(comm, topology, size, np.array([comm.rank]), wait=wait)
            for wait in ("auto", *WAITS)
        }
        run = run_of(exchanges["auto"], topology, {comm.rank: problem})
        alone = run_of(exchanges["block"], topology, {comm.rank: problem})
        alone.exchange = Echo(alone)
        for exchange in exchanges.values():  # or a bare one would send nothing
            exchange.lengths[:] = run.exchange.lengths

        def whole(run: Run = run) -> None:
            iterate(run, iterations)

        def bare(exchange: Exchange) -> Callable[[], None]:
            return lambda: [exchange.swap() for _ in range(iterations)]

        def local(run: Run = alone) -> None:
            iterate(run, iterations)

        def turns(run: Run = alone) -> None:
            iterate(run, iterations, [lambda t, run: sleep(1e-4)])

        tasks = {"iteration": whole, "local": local, "local in turns": turns}
        tasks |= {f"bare {wait}": bare(exchanges[wait]) for wait in WAITS}
        measured = {k: lambda work=work: timed(work) for k, work in tasks.items()}
        times = medians(measured, repeats)
        best = min(WAITS, key=lambda wait: times[f"bare {wait}"])
        floor = times["local"] + times[f"bare {best}"]
        shared = times["local in turns"] + times[f"bare {best}"]
        what = f"{graph}, {comm.size} ranks: iteration over"
        detail = {f"{name}, us": round(v, 1) for name, v in times.items()}
        rows += [
            {"what": f"{what} local solve plus bare exchange",
             "ratio": times["iteration"] / floor, "aim": 1.25, **detail},
            {"what": f"{what} the same, the ranks giving way after each solve",
             "ratio": times["iteration"] / shared, "aim": None, **detail},
        ]  # fmt: skip
        for exchange in exchanges.values():
            exchange.close()
    return rows


def start_up(repeats: int) -> dict:
    """Compare the start of the main job with a bare import of mpi4py and numpy.

    All modules are compiled before, as those of installed packages are.
    """
    with tempfile.TemporaryDirectory() as folder:
        compiled = {k: v for k, v in os.environ.items() if k != NOT_COMPILED}
        compiled["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
        job = ("-m", "dadmm.run", "--max-iter", "1", "--no-compare-centralised")
        job = (*job, "--quiet", "--overwrite", "--out", f"{folder}/run")
        bare = ("-c", "import mpi4py.MPI, numpy")
        tasks = {
            name: lambda words=words: seconds_of(
                lambda: on_ranks(RANKS, *words, env=compiled)
            )
            for name, words in (("bare", bare), ("job", job))
        }
        for task in tasks.values():
            task()
        times = medians(tasks, repeats)
    return {
        "what": f"start-up of {RANKS} ranks over a bare import of mpi4py and numpy",
        "ratio": times["job"] / times["bare"],
        "aim": 1.5,
        **{f"{name}, us": round(1e6 * v) for name, v in times.items()},
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--csv", type=Path, help="write the rows here, too")
    parser.add_argument("--on-ranks", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    iterations, repeats = (50, 3) if chosen.quick else (200, 9)
    if chosen.on_ranks:
        rows = of_ranks(iterations, repeats)
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(rows))
        return
    child = ("-m", "benchmarks.bench_iteration", "--on-ranks")
    child += ("--quick",) * chosen.quick
    found = on_ranks(RANKS, *child, timeout=900, stdout=subprocess.PIPE)
    rows = json.loads(found.stdout)
    rows.append(start_up(max(3, repeats // 2)))
    names = list(dict.fromkeys(name for row in rows for name in row))
    print_markdown(names, ([written(row.get(k)) for k in names] for row in rows))
    if chosen.csv:
        write_rows(rows, chosen.csv)


if __name__ == "__main__":
    os.environ.update(THREADS | os.environ)  # for the ranks
    with one_blas_thread():
        main()
