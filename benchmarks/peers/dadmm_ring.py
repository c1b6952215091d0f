"""The least-squares ring by dadmm, one rank per node, or all in one process.

    mpiexec -n 20 python dadmm_ring.py auto --iterations 2000 [--count]
    python dadmm_ring.py fixed --setting 20 --iterations 60 --nodes 20 --count

Prints one line of JSON, the same fields as disropt_ring.py. Without `--count` nothing
but the run is measured; with it every iterate is kept, and the time is not to be used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any

import numpy as np

import dadmm
from benchmarks.peers import problem
from dadmm.problems import LeastSquares

PACKAGES = ("mpi4py", "mpich", "numpy")
WARM_UP = 20  # iterations


class Path:
    """A callback that keeps every iterate of the nodes of this process."""

    def __init__(self) -> None:
        self.points: list[np.ndarray] = []

    def __call__(self, t: int, nodes: Sequence[Any]) -> None:
        self.points.append(np.array([node.theta for node in nodes]))


class Clock:
    """A callback that notes when the first and the last iteration ended."""

    def __init__(self) -> None:
        self.first = self.last = 0.0

    def __call__(self, t: int, nodes: Sequence[Any]) -> None:
        self.last = perf_counter()
        self.first = self.first or self.last


def run(
    scheme: str,
    setting: float = 10.0,
    iterations: int = 2000,
    nodes: int = problem.NODES,
    comm: Any = None,
    count: bool = False,
) -> dict[str, Any]:
    """Run one scheme for a number of iterations; return its row, on every rank.

    Parameters
    ----------
    scheme : str
        `auto` needs no setting.
    setting : float
        The penalty eta0 of the other schemes.
    iterations : int
    nodes : int
        Of the ring; with ``comm``, its number of ranks.
    comm : MPI.Comm, optional
        One node per rank; without it all nodes run in this process.
    count : bool
        Whether to keep the iterates, and return traffic and errors.
    """
    ring = dadmm.Topology.ring(nodes) if nodes > 2 else dadmm.Topology.chain(nodes)
    hosted = range(nodes) if comm is None else [comm.rank]
    problems = [
        LeastSquares(*problem.shard(node), fit_intercept=False) for node in hosted
    ]

    def solve(max_iter: int, *callbacks: Any) -> dadmm.Result:
        return dadmm.solve(
            problems if comm is None else problems[0],
            ring,
            comm=comm,
            scheme=scheme,
            eta0=setting,
            tolerance=0.0,
            max_iter=max_iter,
            record=False,
            callbacks=callbacks,
        )

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
    best = problem.optimum(nodes)
    share = result.seconds.exchange / sum(result.seconds)
    row = {
        "program": "dadmm",
        "method": scheme,
        "setting": None if scheme == "auto" else setting,
        "nodes": nodes,
        "iterations": result.iterations,
        "seconds": seconds,
        "loop_seconds": loop,
        "error": float(problem.error(result.theta, best)),
        "messages": result.traffic.messages,
        "bytes": result.traffic.bytes,
        "exchange_share": float(share.mean()),
    }
    if count:
        points = np.array(path.points)  # (iterations, hosted, UNKNOWNS)
        if comm is not None:
            points = np.concatenate(comm.allgather(points), axis=1)
        row["errors"] = problem.error(points, best).tolist()
    return row | {"versions": versions()}


def versions() -> dict[str, str]:
    """Return the versions of what runs, and of what is installed beside it."""
    found = {"dadmm": dadmm.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scheme", choices=sorted(dadmm.penalty.SCHEMES))
    parser.add_argument("--setting", type=float, default=10.0, help="eta0")
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--count", action="store_true", help="bytes and errors")
    parser.add_argument("--nodes", type=int, help="in one process, without MPI")
    chosen = parser.parse_args()
    comm = None
    if chosen.nodes is None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    nodes = chosen.nodes or comm.size
    row = run(
        chosen.scheme, chosen.setting, chosen.iterations, nodes, comm, chosen.count
    )
    if comm is None or comm.rank == 0:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
