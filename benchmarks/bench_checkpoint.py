"""What do checkpoints cost: iterations with and without them, and one by itself.

    mpiexec -n 20 python -m benchmarks.bench_checkpoint [--topology ring]

Two runs in one job take turns, one of which saves its state; so both meet the same
machine. With the usual interval a minute of iterations shares the cost of one save.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from mpi4py import MPI

import dadmm
from benchmarks.shared.commands import parser_of, seconds_of
from dadmm.admm.loop import Run
from dadmm.data.datasets import synthetic
from dadmm.data.shard import split
from dadmm.graphs import topology
from dadmm.runs.config import RunConfig
from dadmm.solver import checkpoint

USUAL = RunConfig().checkpoint_seconds
EVERY = 10  # iterations


class Timed(checkpoint.Checkpoints):
    """Checkpoints that note how long each save took."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.took: list[float] = []

    def __call__(self, t: int, run: Run) -> str | None:
        start = perf_counter()
        asked = super().__call__(t, run)
        if t % self.every == 0:
            self.took.append(perf_counter() - start)
        return asked


def main() -> None:
    """Measure, and print the costs on rank 0."""
    parser = parser_of(__doc__)
    parser.add_argument("--topology", default="ring")
    parser.add_argument("--dimension", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=200, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    comm = MPI.COMM_WORLD
    graph = topology.build(given.topology, comm.size)
    samples, _ = synthetic(25 * comm.size, given.dimension)
    problem = dadmm.problems.PPCA(split(samples, comm.size)[comm.rank], 5)
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else ""))

    def run(checkpoints: Timed | None) -> float:
        def whole() -> None:
            stopping = dadmm.Stopping(tolerance=0.0, max_iter=given.iterations)
            dadmm.solve(problem, graph, comm=comm, record=False, stopping=stopping,
                        checkpoints=checkpoints)  # fmt: skip
            comm.Barrier()

        comm.Barrier()
        return seconds_of(whole) / given.iterations

    plain, saving, took = [], [], []
    run(None)
    for _ in range(given.rounds):
        plain.append(run(None))
        timed = Timed(folder, every=EVERY, seconds=0)
        saving.append(run(timed))
        took += timed.took
    slowest = np.array(took)
    comm.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)
    if comm.rank == 0:
        file = checkpoint.path_of(folder, given.iterations // EVERY * EVERY, 0)
        more, slow = np.median(saving) / np.median(plain) - 1, np.median(slowest)
        print(f"{given.topology}, {comm.size} ranks, D = {given.dimension}: "
              f"{np.median(plain) * 1e3:.2f} ms an iteration; a file has "
              f"{file.stat().st_size:,} bytes")  # fmt: skip
        print(f"the slowest rank's save takes {slow * 1e3:.0f} ms, every {USUAL:.0f} s "
              f"{slow / USUAL:.2%} of the time")  # fmt: skip
        print(f"runs that save every {EVERY} iterations take {more:+.0%} (medians of "
              f"{given.rounds})")  # fmt: skip
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
