"""A rank dies in a run that chooses its coordinates, and the others are certified.

Usage: survivors_metric.py KIND [T], on five ranks. Rank 3 dies after iteration T, or
in the middle of the first review if T is left out.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

from dadmm import Topology
from dadmm.solver.metric import MetricKind
from dadmm.solver.plan import Kind
from dadmm.solver.solve import KINDS
from tests.support.programs.survivors import Death
from tests.support.solving import solve
from tests.support.tables import table


class Dying(MetricKind):
    """A review in which a process ends, after some of its messages are sent."""

    def verdict(self, t, run):
        self._mean(run)
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    comm, kind, times = MPI.COMM_WORLD, sys.argv[1], sys.argv[2:]
    problems, graph = table(kind, comm.size), Topology.complete(comm.size)
    death = Death(int(times[0]) if times and comm.rank == 3 else None)
    if not times and comm.rank == 3:
        KINDS[Kind.METRIC] = Dying
    ours = solve(
        problems[comm.rank], graph, comm=comm, callbacks=[death], on_failure="continue"
    )
    if ours.comm.rank == 0:
        left = [problems[i] for i in ours.nodes]
        alone = solve(left, Topology.complete(len(left)), tolerance=1e-5)
        off = np.abs(ours.solution - alone.solution)
        bound = ours.certificate.coefficients + alone.certificate.coefficients
        soon = ours.iterations < 60  # in the coordinates that they had at the failure
        print(ours.status, alone.status, ours.lost, bool((off <= bound).all()), soon)
