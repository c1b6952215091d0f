"""A rank dies in a run from merged axes; the bound is about the remaining rows.

Usage: survivors_merged.py, on five ranks. Rank 3 dies after iteration 3.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from dadmm import Topology
from dadmm.problems import PPCA
from tests.support.programs.kinds import blocks
from tests.support.programs.survivors import Death
from tests.support.solving import solve
from tests.support.subspaces import largest_angle, principal_axes

if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    rows = blocks(comm.size, gaps=False)
    death = Death(3 if comm.rank == 3 else None)
    ours = solve(
        PPCA(rows[comm.rank], 2), Topology.complete(comm.size), comm=comm,
        callbacks=[death], on_failure="continue",
    )  # fmt: skip
    if ours.comm.rank == 0:
        axes = principal_axes(np.vstack([rows[i] for i in ours.nodes])).axes[:, :2]
        W = ours.layout.views(ours.theta).W
        true, bound = max(largest_angle(own, axes) for own in W), ours.subspace_bound
        print(ours.lost, true <= bound.angle < 1.0)
