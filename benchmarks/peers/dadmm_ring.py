"""The least-squares ring by dadmm, one rank per node, or all in one process."""

from time import perf_counter
from typing import Any

import numpy as np

import dadmm
from benchmarks.peers import problem
from dadmm.problems import LeastSquares

PACKAGES = ("dadmm", "mpi4py", "mpich", "numpy")
WARM_UP = 20  # iterations


class Path:
    """A callback that keeps every iterate of the nodes of this process."""

    def __init__(self) -> None:
        self.points: list[np.ndarray] = []

    def __call__(self, t: int, run: Any) -> None:
        self.points.append(run.theta.copy())


class Clock:
    """A callback that notes when the first and the last iteration ended."""

    def __init__(self) -> None:
        self.first = self.last = 0.0

    def __call__(self, t: int, run: Any) -> None:
        self.last = perf_counter()
        self.first = self.first or self.last


def run(
    scheme: str,
    setting: float | None = None,
    iterations: int = 2000,
    comm: Any = None,
    count: bool = False,
    nodes: int = problem.NODES,
) -> dict[str, Any]:
    """Run one scheme with eta0 = ``setting``, or its own; return its row.

    With ``comm`` each rank is a node, else all nodes are in this process. With
    ``count`` the row has the error of every iterate.
    """
    nodes = nodes if comm is None else comm.size
    ring = dadmm.Topology.ring(nodes) if nodes > 2 else dadmm.Topology.chain(nodes)
    hosted = range(nodes) if comm is None else [comm.rank]
    local = [LeastSquares(*problem.shard(i), fit_intercept=False) for i in hosted]

    def solve(max_iter: int, *callbacks: Any) -> dadmm.Result:
        return dadmm.solve(
            local if comm is None else local[0], ring, comm=comm,
            scheme=dadmm.penalty.build(scheme, eta0=setting), callbacks=callbacks,
            stopping=dadmm.Stopping(tolerance=0.0, max_iter=max_iter), record=False,
            coordinates="raw",  # the peers have no set-up either
        )  # fmt: skip

    solve(WARM_UP)
    path, clock = Path(), Clock()
    if comm is not None:
        comm.Barrier()
    start = perf_counter()
    result = solve(iterations, path if count else clock)
    seconds = perf_counter() - start
    loop = (clock.last - clock.first) * iterations / max(iterations - 1, 1)
    if comm is not None:
        from mpi4py import MPI

        seconds = comm.allreduce(seconds, MPI.MAX)
        loop = comm.allreduce(loop, MPI.MAX)
    points = np.array(path.points) if count else None  # (iterations, hosted, UNKNOWNS)
    if count and comm is not None:
        points = problem.gathered(comm, points[:, 0])
    row = problem.row(
        "dadmm", scheme, setting, nodes, result.iterations, PACKAGES, points,
        seconds=seconds, loop_seconds=loop, messages=result.traffic.messages,
        bytes=result.traffic.bytes,
    )  # fmt: skip
    row["versions"] |= {"dadmm": dadmm.__version__}  # which need not be installed
    return row
