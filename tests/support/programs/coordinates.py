"""Runs that choose and change their coordinates: the bits of one process, over MPI."""

from __future__ import annotations

import sys

from mpi4py import MPI
from numpy.testing import assert_array_equal

from dadmm import Topology
from tests.support.solving import solve
from tests.support.tables import table

if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    graph, kinds = Topology.ring(comm.size), sys.argv[1:]
    for kind in kinds:
        both = [table(name, comm.size) for name in kind.split("+")]
        problems = [both[i % len(both)][i] for i in range(comm.size)]
        ours = solve(problems[comm.rank], graph, comm=comm)
        alone = solve(problems, graph)
        again = solve(problems[comm.rank], graph, comm=comm, warm_start=ours)
        assert ours.status == alone.status == again.status == "certified"
        assert ours.iterations == alone.iterations
        assert len(both) > 1 or again.iterations == 0
        assert ours.duals.keys() == {comm.rank}
        assert_array_equal(ours.duals[comm.rank], alone.duals[comm.rank])
        for name in ("theta", "eta", "solution"):
            assert_array_equal(getattr(ours, name), getattr(alone, name))
        assert ours.objective == alone.objective
        for name in ("gap", "radius", "limit", "coefficients", "gradient", "slack"):
            mine, theirs = (getattr(r.certificate, name) for r in (ours, alone))
            assert_array_equal(mine, theirs)
        for name in ("edge_bytes", "tree_messages", "tree_bytes"):
            mine, theirs = (getattr(r.traffic, name) for r in (ours, alone))
            assert_array_equal(mine, theirs)
    if comm.rank == 0:
        print(f"{len(kinds)} agree")
