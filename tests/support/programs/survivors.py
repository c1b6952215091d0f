"""Ranks die, and the others go on; on five ranks of an MPI that tolerates it.

Usage: survivors.py SEED [opening]. Ranks die at random iterations. The first rank of
each part that is left says what its nodes found: they must be at the optimum of their
own data, and have the bits of a run in one process that drops the same nodes after the
same iteration. With "opening" the ranks are a chain, the last of which dies, and then
the one before it, before the others have met again.

Usage: survivors.py KIND [T]. Rank 3 dies after iteration T in a run that chooses its
coordinates, or in the middle of its first review if T is left out. The others must be
certified, or have a true bound if KIND is "merged".
"""

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
from dadmm.solver import checkpoint
from dadmm.solver.metric import MetricKind
from dadmm.solver.plan import Kind
from dadmm.solver.solve import KINDS
from tests.support.problems import blocks, distance, optimum, quadratics, random_graph
from tests.support.solving import solve
from tests.support.subspaces import largest_angle, principal_axes
from tests.support.tables import table

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
WAYS = (
    Sending(), Sending(payload="float32"), Sending(payload="quantised:8"),
    Sending(censor=1e-3), Sending(send_every=2, edge_sleep=0.1),
)  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """Ends its process after an iteration or at the first loss; notes losses."""

    def __init__(self, t: int | None = None, at_loss: bool = False) -> None:
        self.t, self.at_loss, self.losses = t, at_loss, []

    def __call__(self, t, run):
        if t == self.t:
            die()

    def rewind(self, loss):
        self.losses.append(loss)
        if self.at_loss:
            die()


class Given(Checkpoints):
    """Stands in for checkpoints: a run goes on from, and leaves, states in memory."""

    def __init__(self, start=0, given=None):
        super().__init__("")
        self.start, self.given, self.found = start, given, {}

    def open(self, *arguments):
        pass

    def restore(self, run):
        state = State.join([self.given[i] for i in run.names.tolist()])
        run.restore(state)
        return state

    def __call__(self, t, run):
        if run.due == "max_iter":
            whole = run.snapshot()
            for row, i in enumerate(run.names.tolist()):
                self.found[i] = whole.choose([row], run.incidence.edges_of(row))


def alone(problems, graph, schedule, losses, settings):
    """Return the run of one part in one process, which drops nodes as was done."""
    names, since, states = list(range(len(graph))), 0, None
    for loss in losses:
        own = [problems[i] for i in names]
        if loss.t > since:  # else nothing was done between two losses
            keeper = Given(since, states)
            part = {**settings, "tolerance": 0, "max_iter": loss.t}
            solve(own, graph, schedule=schedule, checkpoints=keeper, **part)
            states = keeper.found
        part, layout, left = [names.index(i) for i in loss.component], own[0].layout, {}
        for k, i in enumerate(part):
            kept = np.isin(graph.neighbours[i], part)
            degrees = Incidence(np.array([kept.sum()]))
            left[k] = checkpoint.reopened(states[i].choose(edge=kept), degrees, layout)
        graph, schedule = checkpoint.restrict(graph, schedule, part)
        names, since, states = list(loss.component), loss.t, left
    own, given = [problems[i] for i in names], Given(since, states)
    return solve(own, graph, schedule=schedule, checkpoints=given, **settings)


def check(seed: int, opening: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, SIZE) if seed % 2 else Topology.ring(SIZE)
    schedule = Schedule.matchings(graph) if rng.random() < 0.3 else None
    agreement = "global" if rng.random() < 0.2 else "neighbours"
    settings = {
        "scheme": list(SCHEMES)[seed % len(SCHEMES)], "agreement": agreement,
        "sending": WAYS[rng.integers(len(WAYS))], "tolerance": 1e-11,
        "absolute_tolerance": 1e-12, "max_iter": 4000,
    }  # fmt: skip
    dead = rng.choice(SIZE, size=int(rng.integers(1, 3)), replace=False)
    times = dict(zip(dead.tolist(), rng.integers(6, 30, len(dead)), strict=True))
    death = Death(times.get(RANK))
    if opening:
        graph, schedule, times = Topology.chain(SIZE), None, {SIZE - 2: None}
        times[SIZE - 1] = 8
        death = Death(times.get(RANK), at_loss=RANK == SIZE - 2)
    problems, how = quadratics(SIZE, seed=seed), {"on_failure": "continue"}

    ours = solve(
        problems[RANK], graph, comm=COMM, schedule=schedule, callbacks=[death], **how,
        **settings,
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
        "error": distance(ours.theta, best), "dead": sorted(times),
        "back": [loss.t for loss in death.losses],
    }  # fmt: skip
    print(json.dumps(found), flush=True)


class Dying(MetricKind):
    def verdict(self, t, run):
        self.mean(run)
        die()


def check_bound(kind: str, *times: str) -> None:
    """Lose rank 3, and print whether what the others state of their rows is true."""
    rows = blocks(SIZE)
    problems = [PPCA(x, 2) for x in rows] if kind == "merged" else table(kind, SIZE)
    death = Death(int(times[0]) if times and RANK == 3 else None)
    if not times and RANK == 3:
        KINDS[Kind.METRIC] = Dying
    graph, how = Topology.complete(SIZE), {"on_failure": "continue"}
    ours = solve(problems[RANK], graph, comm=COMM, callbacks=[death], **how)
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
        check(int(first), others == ["opening"])
    else:
        check_bound(first, *others)
