"""Runs from merged axes: the bits of one process, over MPI."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.problems import PPCA
from tests.support.solving import solve


def blocks(n: int, gaps: bool) -> list[np.ndarray]:
    """Return rows of n nodes, of unlike number; with gaps, not all are complete."""
    rng = np.random.default_rng(4)
    scale, shift = 1e3 * 2.0 ** -np.arange(20), rng.standard_normal((n, 20))
    found = [scale * (rng.standard_normal((6 + 2 * i, 20)) + own) + 50.0
             for i, own in enumerate(shift)]  # fmt: skip
    if gaps:
        found[-1][0, 0] = found[1][:, 3] = found[2][::2, 1:4] = np.nan
    return found


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    for graph in (Topology.ring(comm.size), Topology.star(comm.size)):
        for gaps in (False, True):
            problems = [PPCA(own, 2) for own in blocks(comm.size, gaps)]
            ours = solve(problems[comm.rank], graph, comm=comm)
            alone = solve(problems, graph)
            assert ours.ending.init == "merged"
            assert ours.status == alone.status == "stationary"
            assert ours.iterations == alone.iterations
            for name in ("theta", "eta", "solution"):
                assert_array_equal(getattr(ours, name), getattr(alone, name))
            assert ours.objective == alone.objective
            if not gaps:
                assert ours.status == "stationary"
                assert ours.subspace_bound.angle < 0.1
            assert ours.start.angle == alone.start.angle
            assert (ours.start.rounds > 0) == gaps
            assert ours.subspace_bound == alone.subspace_bound
            for name in ("edge_bytes", "tree_messages", "tree_bytes"):
                mine, theirs = (getattr(r.traffic, name) for r in (ours, alone))
                assert_array_equal(mine, theirs)
    if comm.rank == 0:
        print("merged agree")
