"""Ranks die, and the others go on; on five ranks.

Usage: survivors.py SEED [opening]. Ranks die at random iterations. The first rank of
each part that is left says what its nodes found: they must be at the optimum of their
own data, and have the bits of a run in one process that drops the same nodes after the
same iteration. With "opening" the ranks are a chain, the last of which dies, and then
the one before it, before the others have met again.

Usage: survivors.py KIND [T]. Rank 3 dies after iteration T in a run that chooses its
coordinates, or in the middle of its first review if T is left out. The others must be
certified, or have a true bound if KIND is "merged".
"""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal

from dadmm import Checkpoints, Schedule, Sending, Topology
from dadmm.admm.state import State
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA
from dadmm.solver import recovery
from dadmm.solver.metric import MetricKind
from dadmm.solver.plan import Kind
from dadmm.solver.solve import KINDS
from tests.support.problems import (
    blocks,
    distance,
    optimum,
    quadratics,
    random_graph,
)
from tests.support.solving import solve
from tests.support.subspaces import largest_angle, principal_axes
from tests.support.tables import table

WAYS = (
    Sending(), Sending(payload="float32"), Sending(payload="quantised:8"),
    Sending(censor=1e-3), Sending(send_every=2, edge_sleep=0.1),
)  # fmt: skip


class Death:
    """A callback that ends its own process, and notes losses.

    That is after an iteration, or at the first loss of somebody else.
    """

    def __init__(self, t: int | None = None, at_loss: bool = False) -> None:
        self.t, self.at_loss, self.losses = t, at_loss, []

    def __call__(self, t, run):
        if t == self.t:
            os.kill(os.getpid(), signal.SIGKILL)

    def rewind(self, loss):
        self.losses.append(loss)
        if self.at_loss:
            os.kill(os.getpid(), signal.SIGKILL)


class Given(Checkpoints):
    """Stands in for checkpoints: a run goes on from, and leaves, states in memory."""

    found = rows = coordinates = None

    def __init__(self, start=0, given=None):
        super().__init__("")
        self.start, self.given = start, given

    def open(self, *arguments):
        """Read nothing."""

    def state(self, nodes):
        return self.given and State.join([self.given[i] for i in nodes.tolist()])

    def __call__(self, t, run):
        if run.due == "max_iter":
            self.found = run.snapshot()
            self.rows = run.names.tolist(), run.incidence


def alone(problems, graph, schedule, losses, settings):
    """Return the run of one part in one process, which drops nodes as was done."""
    names, since, states = list(range(len(graph))), 0, None
    for loss in losses:
        if loss.t > since:  # else nothing was done between two losses
            keeper = Given(since, states)
            solve(
                [problems[i] for i in names], graph, schedule=schedule,
                checkpoints=keeper, **{**settings, "tolerance": 0, "max_iter": loss.t},
            )  # fmt: skip
            rows, incidence = keeper.rows
            states = {
                i: keeper.found.choose([row], incidence.edges_of(row))
                for row, i in enumerate(rows)
            }
        part = [names.index(i) for i in loss.component]
        layout, left = problems[0].layout, {}
        for k, i in enumerate(part):
            kept = np.isin(graph.neighbours[i], part)
            degrees = Incidence(np.array([kept.sum()]))
            left[k] = recovery.reopened(states[i].choose(edge=kept), degrees, layout)
        states = left
        graph, schedule = recovery.restrict(graph, schedule, part)
        names, since = list(loss.component), loss.t
    return solve(
        [problems[i] for i in names], graph, schedule=schedule,
        checkpoints=Given(since, states), **settings,
    )  # fmt: skip


def check(comm: MPI.Comm, seed: int, opening: bool) -> None:
    """Run, lose some, and say what became of the rest."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, comm.size) if seed % 2 else Topology.ring(comm.size)
    schedule = Schedule.matchings(graph) if rng.random() < 0.3 else None
    agreement = "global" if rng.random() < 0.2 else "neighbours"
    scheme = list(SCHEMES)[seed % len(SCHEMES)]
    settings = {
        "scheme": scheme, "sending": WAYS[rng.integers(len(WAYS))],
        "agreement": agreement, "tolerance": 1e-11, "absolute_tolerance": 1e-12,
        "max_iter": 4000,
    }  # fmt: skip
    dead = rng.choice(comm.size, size=int(rng.integers(1, 3)), replace=False)
    times = rng.integers(6, 30, size=len(dead))
    problems, death = quadratics(comm.size, seed=seed), Death()
    if opening:
        graph, schedule = Topology.chain(comm.size), None
        dead = np.array([comm.size - 2, comm.size - 1])
        death.at_loss = comm.rank == comm.size - 2
        times[-1:] = 8
    if comm.rank in dead and not death.at_loss:
        death.t = int(times[dead.tolist().index(comm.rank) - len(dead)])

    ours = solve(
        problems[comm.rank], graph, comm=comm, schedule=schedule, callbacks=[death],
        on_failure="continue", **settings,
    )  # fmt: skip

    if ours.comm.rank:
        return
    again = alone(problems, graph, schedule, death.losses, settings)
    assert (ours.iterations, ours.reason) == (again.iterations, again.reason)
    assert_array_equal(ours.theta, again.theta)
    assert_array_equal(ours.eta, again.eta)
    assert ours.history["objective"].shape == (ours.iterations, len(ours.nodes))
    best = optimum([problems[i] for i in ours.nodes])
    found = {
        "nodes": ours.nodes.tolist(), "lost": list(ours.lost), "reason": ours.reason,
        "error": distance(ours.theta, best),
        "scheme": scheme, "dead": sorted(dead.tolist()),
        "back": [loss.t for loss in death.losses],
    }  # fmt: skip
    print(json.dumps(found), flush=True)


class Dying(MetricKind):
    """A review in which a process ends, after some of its messages are sent."""

    def verdict(self, t, run):
        self.mean(run)
        os.kill(os.getpid(), signal.SIGKILL)


def check_bound(comm: MPI.Comm, kind: str, *times: str) -> None:
    """Lose rank 3, and print whether what the others state of their rows is true."""
    if kind == "merged":
        rows = blocks(comm.size)
        problems = [PPCA(own, 2) for own in rows]
    else:
        problems = table(kind, comm.size)
    death = Death(int(times[0]) if times and comm.rank == 3 else None)
    if not times and comm.rank == 3:
        KINDS[Kind.METRIC] = Dying
    graph = Topology.complete(comm.size)
    ours = solve(
        problems[comm.rank], graph, comm=comm, callbacks=[death], on_failure="continue"
    )
    if ours.comm.rank:
        return
    if kind == "merged":
        axes = principal_axes(np.vstack([rows[i] for i in ours.nodes])).axes[:, :2]
        W = ours.layout.views(ours.theta).W
        true = max(largest_angle(own, axes) for own in W)
        print(ours.lost, true <= ours.subspace_bound.angle < 1.0)
        return
    left = [problems[i] for i in ours.nodes]
    alone = solve(left, Topology.complete(len(left)), tolerance=1e-5)
    off = np.abs(ours.solution - alone.solution)
    bound = ours.certificate.coefficients + alone.certificate.coefficients
    soon = ours.iterations < 60  # in the coordinates that they had at the failure
    print(ours.status, alone.status, ours.lost, bool((off <= bound).all()), soon)


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first.isdecimal():
        check(MPI.COMM_WORLD, int(first), others == ["opening"])
    else:
        check_bound(MPI.COMM_WORLD, first, *others)
