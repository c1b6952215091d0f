"""What do checkpoints cost: iterations with and without them, and one by itself.

    mpiexec -n 20 python -m benchmarks.bench_checkpoint [--topology ring]

Two runs in one job take turns, one of which saves its state; so both meet the same
machine. With the usual interval a minute of iterations shares the cost of one save.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

from benchmarks.shared.commands import parser_of, seconds_of
from dadmm.cli import setup
from dadmm.comm.world import Checks, connect
from dadmm.runs.config import RunConfig
from dadmm.solver import checkpoint
from dadmm.solver.checkpoint import Checkpoints
from dadmm.solver.options import Stopping
from dadmm.solver.solve import solve

USUAL = RunConfig().checkpoint_seconds


class Timed(Checkpoints):
    """Checkpoints that note how long each save took."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.took: list[float] = []

    def save(self, t, request, take) -> None:
        took = seconds_of(lambda: super(Timed, self).save(t, request, take))
        if t % self.every == 0:
            self.took.append(took)


def main() -> None:
    """Measure, and print a table on rank 0."""
    parser = parser_of(__doc__)
    parser.add_argument("--topology", default="ring")
    parser.add_argument("--dimension", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=200, help="of each run")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    world = connect()
    config = RunConfig(
        topology=given.topology, dimension=given.dimension, tolerance=0.0
    )
    graph, _ = setup.share_graph(world, config)
    data = setup.shards(world, config, graph, Checks(world))
    problem = setup.problems(config, data, graph.n_nodes)[world.rank]
    folder = Path(world.share(tempfile.mkdtemp() if world.rank == 0 else ""))

    def run(checkpoints: Checkpoints | None) -> float:
        def whole() -> None:
            solve(problem, graph, comm=world.comm, record=False,
                  stopping=Stopping(tolerance=0.0, max_iter=given.iterations),
                  checkpoints=checkpoints)  # fmt: skip
            world.comm.Barrier()

        world.comm.Barrier()
        return seconds_of(whole) / given.iterations

    plain, saving, took = [], [], []
    run(None)
    for _ in range(given.rounds):
        plain.append(run(None))
        timed = Timed(folder, every=10, seconds=0)
        saving.append(run(timed))
        took += timed.took
    slowest = np.array(took)
    world.comm.Allreduce(MPI.IN_PLACE, slowest, op=MPI.MAX)
    if world.rank == 0:
        file = checkpoint.path_of(folder, given.iterations, 0)
        more, slow = np.median(saving) / np.median(plain) - 1, np.median(slowest)
        print(f"{given.topology}, {world.size} ranks, D = {given.dimension}: "
              f"{np.median(plain) * 1e3:.2f} ms an iteration; a file has "
              f"{file.stat().st_size:,} bytes")  # fmt: skip
        print(f"the slowest rank's save takes {slow * 1e3:.0f} ms, every {USUAL:.0f} s "
              f"{slow / USUAL:.2%} of the time")  # fmt: skip
        print(f"runs that save every 10 iterations take {more:+.0%} (medians of "
              f"{given.rounds})")  # fmt: skip
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
