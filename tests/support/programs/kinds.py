"""Every kind of run has the bits of one process, over MPI.

Usage: kinds.py KIND...: "raw", "units", "merged", or a name of `tests.support.tables`
(two with + between them take turns).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.problems import PPCA, StructureFromMotion
from tests.support.programs.parity import compare
from tests.support.solving import solve
from tests.support.tables import table


def blocks(n: int, gaps: bool) -> list[np.ndarray]:
    """Return rows of n nodes, of unlike number; with gaps, not all are complete."""
    rng = np.random.default_rng(4)
    scale, shift = 1e3 * 2.0 ** -np.arange(20), rng.standard_normal((n, 20))
    found = [scale * (rng.standard_normal((6 + 2 * i, 20)) + own) + 50.0
             for i, own in enumerate(shift)]  # fmt: skip
    if gaps:
        found[-1][0, 0] = found[1][:, 3] = found[2][::2, 1:4] = np.nan
    return found


def cases(kind: str, n: int) -> Iterator[tuple[list[Any], str, dict[str, Any]]]:
    """Yield the problems of n nodes, the status they come to, and settings."""
    whole, holed = ([PPCA(own, 2) for own in blocks(n, gaps)] for gaps in (False, True))
    if kind == "raw":
        tracks, _ = dadmm.datasets.turntable(n_frames=4 * n, n_points=30)
        cameras = map(StructureFromMotion, dadmm.shard.split_frames(tracks, n))
        chosen = {"coordinates": "raw", "max_iter": 300}
        yield whole, "not converged", chosen
        yield list(cameras), "stationary", chosen
    elif kind == "units":
        for init in ("shared", "independent"):
            yield whole, "not converged", {"init": init, "max_iter": 20}
    elif kind == "merged":
        yield whole, "stationary", {}
        yield holed, "stationary", {}
    else:
        both = [table(name, n) for name in kind.split("+")]
        yield [both[i % len(both)][i] for i in range(n)], "certified", {}


def facts(result: dadmm.Result) -> list[Any]:
    """Return what a result states, beside what `parity.compare` compares."""
    found = [result.solution, result.objective, result.coordinates]
    if result.certificate is not None:
        names = ("gap", "radius", "limit", "coefficients", "gradient", "slack")
        found += [getattr(result.certificate, name) for name in names]
    if result.ending.init == "merged":
        found += [result.start.angle, result.start.rounds]
        found += list(result.subspace_bound or ())
    return found


def check(kind: str, comm: MPI.Comm) -> None:
    """Compare all runs of a kind, and warm starts from their results."""
    graphs = [Topology.ring(comm.size), Topology.star(comm.size)]
    for graph in graphs if kind in ("raw", "units", "merged") else graphs[:1]:
        for problems, status, chosen in cases(kind, comm.size):
            ours = solve(problems[comm.rank], graph, comm=comm, **chosen)
            alone = solve(problems, graph, **chosen)
            compare(ours, alone)
            assert ours.status == status
            for mine, theirs in zip(facts(ours), facts(alone), strict=True):
                assert_array_equal(mine, theirs)
            assert ours.duals.keys() == {comm.rank}
            assert_array_equal(ours.duals[comm.rank], alone.duals[comm.rank])
            if status == "certified":
                again = solve(problems[comm.rank], graph, comm=comm, warm_start=ours)
                assert again.status == status
                assert "+" in kind or again.iterations == 0


if __name__ == "__main__":
    for kind in sys.argv[1:]:
        check(kind, MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        print(f"{len(sys.argv) - 1} agree")
