"""Random starts in the unit of all rows: the bits of one process, over MPI."""

from __future__ import annotations

from mpi4py import MPI
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.problems import PPCA
from tests.support.programs.merged import blocks
from tests.support.solving import solve

if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    for graph in (Topology.ring(comm.size), Topology.star(comm.size)):
        for init in ("shared", "independent"):
            problems = [PPCA(own, 2) for own in blocks(comm.size, False)]
            chosen = {"init": init, "max_iter": 20}
            ours = solve(problems[comm.rank], graph, comm=comm, **chosen)
            alone = solve(problems, graph, **chosen)
            assert ours.status == alone.status
            for name in ("theta", "eta", "solution"):
                assert_array_equal(getattr(ours, name), getattr(alone, name))
            assert ours.objective == alone.objective
            for name in ("edge_bytes", "tree_messages", "tree_bytes"):
                mine, theirs = (getattr(r.traffic, name) for r in (ours, alone))
                assert_array_equal(mine, theirs)
    if comm.rank == 0:
        print("units agree")
