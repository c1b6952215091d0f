"""Raw runs of PPCA, which end by their gradients: the bits of one process, over MPI."""

from __future__ import annotations

from mpi4py import MPI
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology
from dadmm.problems import PPCA, StructureFromMotion
from tests.support.programs.merged import blocks
from tests.support.solving import solve

if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    tracks, _ = dadmm.datasets.turntable(n_frames=4 * comm.size, n_points=30)
    cameras = dadmm.shard.split_frames(tracks, comm.size)
    for graph in (Topology.ring(comm.size), Topology.star(comm.size)):
        for problems in (
            [PPCA(own, 2) for own in blocks(comm.size, False)],
            [StructureFromMotion(own) for own in cameras],
        ):
            chosen = {"coordinates": "raw", "max_iter": 300}
            ours = solve(problems[comm.rank], graph, comm=comm, **chosen)
            alone = solve(problems, graph, **chosen)
            assert ours.status == alone.status, (ours.status, alone.status)
            assert ours.iterations == alone.iterations
            for name in ("theta", "eta", "solution"):
                assert_array_equal(getattr(ours, name), getattr(alone, name))
            mine, theirs = (r.traffic.tree_messages for r in (ours, alone))
            assert_array_equal(mine, theirs)
    assert alone.status == "stationary"
    if comm.rank == 0:
        print("raw runs agree")
