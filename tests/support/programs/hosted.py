"""Runs with any number of nodes per rank give the bits of a run in one process.

Usage: hosted.py [STEP]. Seven ranks take part; runs are on the first 1, 2, 3, 4 or 7 of
them, and nodes are placed at random: with 7 ranks, each has one. A STEP of 1 does every
run on every number of ranks; a larger STEP one out of STEP, and every run on 7 ranks.
"""

import sys
from collections.abc import Iterator
from functools import cache
from itertools import cycle, product
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal, assert_equal

import dadmm
from dadmm import Schedule, Sending, datasets, shard
from dadmm.admm.rule import RULES
from dadmm.admm.stopping import AGREEMENTS
from dadmm.comm import mpi
from dadmm.graphs import topology
from dadmm.penalty import SCHEMES
from dadmm.penalty.schemes import COUPLINGS
from dadmm.problems import PPCA, LogisticRegression, StructureFromMotion
from tests.support.problems import blocks
from tests.support.solving import solve
from tests.support.tables import KINDS, table

NODES, SIZES = 7, (1, 2, 3, 4, 7)
GRAPHS = ("ring", "cluster", "star", "grid", "complete", "random-geometric", "chain")
# short budgets and an early reset, so that each scheme goes through all its phases
SHORT = {"tolerance": 0.0, "max_iter": 16, "t_max": 9, "budget0": 0.6}
EDGES = {"record_edges": True, **SHORT}
RAW, DRAWN = {"init": "shared", "coordinates": "raw"}, {"init": "independent"}
LOOSE = {"optimality": 50.0, "residuals": 0.3, "objective": 0.3}  # rules stop the runs
FEW = {"payload": "quantised:3", "censor": 0.2, "edge_sleep": 0.7, "send_every": 2}
SENT = (
    {"payload": "float32"}, {"payload": "float16"}, {"payload": "quantised:5"}, FEW,
    {"censor": 0.3, "censor_decay": 0.9}, {"send_every": 3}, {"edge_sleep": 0.7},
)  # fmt: skip
WAYS = cycle([("snap", DRAWN), ("nap", RAW), ("snap", RAW)])
STOPPED = {"tolerance": LOOSE["optimality"], "max_iter": 60}
LOSSY = {"scheme": "fixed", "sending": Sending(drop_probability=0.2)}


def build(n_nodes: int, uneven: bool = True) -> list[PPCA]:
    """Return shards of 15 samples in 7 dimensions, or of 4 to 15."""
    samples, _ = datasets.synthetic(15 * n_nodes, 7, 2, seed=5)
    shards = shard.split(samples, n_nodes)
    return [PPCA(x[: 4 + i % 12 if uneven else 15], 2) for i, x in enumerate(shards)]


@cache
def problems(kind: str) -> list[Any]:
    if kind in KINDS:
        return table(kind, NODES)
    if kind in ("even", "uneven"):
        return build(NODES, kind == "uneven")
    if kind in ("merged", "gaps"):
        return [PPCA(own, 2) for own in blocks(NODES, gaps=kind == "gaps")]
    if kind == "cameras":
        tracks = datasets.turntable(n_frames=4 * NODES)[0]
        return list(map(StructureFromMotion, shard.split_frames(tracks, NODES)))
    if kind == "mixed":
        both = problems("ridge"), problems("huber")
        return [both[i % 2][i] for i in range(NODES)]
    samples, _ = datasets.synthetic(20 * NODES, 4, 2, seed=5)  # "changing" metric
    return [LogisticRegression(own[:, 1:], own[:, 0] > 1.0, 0.1)
            for own in shard.split(samples, NODES)]  # fmt: skip


def cases() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    graphs = cycle(topology.build(name, NODES) for name in GRAPHS)
    for scheme, coupling in product(SCHEMES, COUPLINGS):
        # a symmetric scheme makes the same run with both couplings
        if coupling == "symmetric" or not SCHEMES[scheme].is_symmetric:
            chosen = {"scheme": scheme, "coupling": coupling, "coordinates": "raw"}
            yield "even", next(graphs), {**chosen, **EDGES}
    for scheme in ("snap", "vp_nap"):
        yield "even", next(graphs), {"scheme": scheme, **DRAWN, **EDGES}  # units
        metric = {"scheme": scheme, **EDGES, "max_iter": 30}
        yield "changing", next(graphs), metric
    for rule, agreement in product(RULES, AGREEMENTS):
        chosen = {"scheme": "nap", "stopping": rule, "agreement": agreement, **RAW}
        yield "uneven", next(graphs), {**chosen, **STOPPED, "tolerance": LOOSE[rule]}
    for chosen in (
        {"scheme": "global_balance", "agreement": "global", **STOPPED, **RAW},
        {"scheme": "vp_nap", "relaxation": 1.6, **SHORT, **RAW},
        {"scheme": "nap", "probe": "neighbour", **DRAWN, "seed": 3, **SHORT},
        {"wait": "block", "scheme": "vp_nap", **SHORT, "max_iter": 6},
        {"wait": "poll", "scheme": "vp_nap", **SHORT, "max_iter": 6},
    ):
        yield "uneven", next(graphs), chosen
    cluster, several = next(graphs), Schedule.build(["ring", "star"], NODES)
    turns = ((cluster, None), (cluster, Schedule.matchings(cluster)),
             (several.union, several))  # fmt: skip
    for (graph, schedule), sent in (
        *((turns[0], sent) for sent in SENT),
        *product(turns[1:], ({}, FEW)),
    ):
        scheme, how = next(WAYS)
        chosen = {"scheme": scheme, "schedule": schedule, **EDGES, "max_iter": 24}
        yield "uneven", graph, {**chosen, **how, "sending": Sending(**sent)}
    late = {"sending": Sending(**FEW), "record_edges": True, **STOPPED, "max_iter": 80}
    for (graph, schedule), chosen in (
        *product(turns, ({**LOSSY, **SHORT}, late)),
        (turns[1], {**late, "agreement": "global"}),
    ):
        yield "uneven", graph, {**chosen, "schedule": schedule}
    for kind in ("merged", "gaps", "cameras", "mixed", *KINDS):
        yield kind, topology.build("ring", NODES), {}
    for init in ("shared", "independent"):
        yield "merged", topology.build("star", NODES), {"init": init, "max_iter": 20}


def compare(ours: dadmm.Result, alone: dadmm.Result) -> None:
    assert len(ours.history) == ours.iterations
    assert_equal(facts(ours), facts(alone))
    for i, duals in ours.duals.items():
        assert_array_equal(duals, alone.duals[i])


def facts(result: dadmm.Result) -> dict[str, Any]:
    """Return what depends neither on the ranks nor on the clock."""
    names = ("iterations", "reason", "status", "coordinates", "theta", "objectives",
             "solution", "objective", "penalties", "residuals")  # fmt: skip
    found = {name: getattr(result, name) for name in names}
    found |= {"ending": result.ending.summary(), "trail": result.ending.trail}
    found["traffic"] = result.traffic._replace(wire=None)  # of the ranks
    for name, rows in (("history", result.history), ("edges", result.history.edges)):
        columns = [] if rows is None else rows.columns
        found[name] = {c: rows[c] for c in columns if not c.endswith("seconds")}
    if result.certificate is not None:
        names = ("gap", "radius", "limit", "coefficients", "gradient", "slack")
        found |= {name: getattr(result.certificate, name) for name in names}
    if result.ending.init == "merged":
        found["start"] = result.start.angle, result.start.rounds, result.subspace_bound
    return found


def check_wire(result: dadmm.Result) -> None:
    wire, whole = result.traffic.wire, result.traffic
    assert len(np.unique(wire[:, :2], axis=0)) == len(wire)
    assert wire[:, 3].sum() <= whole.bytes
    if len(wire) == len(result.topology.edges):  # a pair of ranks for each edge
        assert_array_equal(np.sort(wire[:, 3]), np.sort(whole.edge_bytes))


def spread(comm: Any, seed: int, kind: str, graph: Any, chosen: dict[str, Any]) -> Any:
    """Solve on the ranks of a communicator, each with some nodes."""
    rng = np.random.default_rng(seed)
    more = rng.integers(comm.size, size=NODES - comm.size)
    place = rng.permutation(np.concatenate([np.arange(comm.size), more]))
    nodes = np.flatnonzero(place == comm.rank).tolist()
    return solve({i: problems(kind)[i] for i in nodes}, graph, comm=comm, **chosen)


def alone_on_a_host(comm: Any, find: Any = mpi.find_hosts) -> tuple[list[str], bool]:
    """Do `find_hosts` as if each rank were on a host of its own."""
    return [*map(str, range(comm.size))], find(comm)[1]


def check_runs(comm: MPI.Comm, step: int) -> np.ndarray:
    """Compare runs on several ranks with one process; in every second one as if apart.

    Return how many agree, and of those on 7 ranks how many were stopped by a rule, were
    silent, and lost payloads.
    """
    seen = np.zeros(4, dtype=int)
    hosts = cycle((mpi.find_hosts, alone_on_a_host))
    parts = [comm.Split(0 if comm.rank < n else MPI.UNDEFINED) for n in SIZES]
    for k, (kind, graph, chosen) in enumerate(cases()):
        some = [j for j, n in enumerate(SIZES) if (k + j) % step == 0 or n == NODES]
        mpi.find_hosts = next(hosts)
        mine = [parts[j] for j in some if parts[j] != MPI.COMM_NULL]
        found = [spread(part, k, kind, graph, chosen) for part in mine]
        if comm.rank == k % SIZES[some[0]]:
            alone = solve(problems(kind), graph, **chosen)
            for result in found:
                compare(result, alone)
                check_wire(result)
        traffic = found[-1].traffic
        quiet = traffic.silent > 0, traffic.lost > 0
        seen += len(some), found[-1].converged, *quiet
    return seen


if __name__ == "__main__":
    seen = check_runs(MPI.COMM_WORLD, int(sys.argv[1]) if sys.argv[1:] else 1)
    if MPI.COMM_WORLD.allreduce(1) and MPI.COMM_WORLD.rank == 0:
        print(*seen)
