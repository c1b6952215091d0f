"""What a library user sees who passes a communicator: four ranks."""

from __future__ import annotations

import hashlib

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology
from tests.support.programs.hosted import build, compare
from tests.support.solving import solve

COMM = MPI.COMM_WORLD
PROBLEMS = build(COMM.size)
OWN, RING = PROBLEMS[COMM.rank], Topology.ring(COMM.size)


def same_everywhere(value: object) -> bool:
    """Return whether all ranks hold the same value."""
    return len(set(COMM.allgather(value))) == 1


def check_every_rank_has_the_whole_result() -> None:
    """To the bit, the seconds of the nodes and a column of the user included."""
    seen = {"size": lambda theta: float(np.abs(theta).sum())}
    ours = solve(OWN, RING, comm=COMM, max_iter=12, record_edges=True, observe=seen)

    arrays = [ours.theta, ours.eta, ours.objectives, *ours.seconds, ours.history.rows]
    arrays += [ours.history.edges.rows, *ours.traffic[:2]]
    digest = hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest()
    assert same_everywhere((digest, ours.iterations, ours.reason))
    assert ours.theta.shape == (COMM.size, OWN.layout.size)
    assert ours.traffic.messages == len(RING.edges) * (ours.iterations + 1)
    assert_array_equal(ours.history["size"][-1], np.abs(ours.theta).sum(axis=1))


def refusal(kind: type[Exception], *call: object, **settings: object) -> str:
    """Return the one sentence with which all ranks are refused."""
    try:
        solve(*call, comm=COMM, **settings)
    except kind as error:
        said = str(error)
        assert "\n" not in said
        assert same_everywhere(said)
        return said
    raise AssertionError(f"{call} and {settings} are accepted")


def check_mistakes_are_told_on_every_rank() -> None:
    """And the communicator can be used afterwards."""
    width = 7 if COMM.rank == 2 else 6
    samples = np.random.default_rng(0).standard_normal((9, width))
    wider = dadmm.problems.PPCA(samples, 2)
    line = dadmm.problems.LeastSquares(samples[:, :3], samples[:, 3])  # has set-up sums
    refusal(dadmm.ProblemError, PROBLEMS, RING)
    assert "rank 2" in refusal(dadmm.ProblemError, wider, RING)
    for own, n in ((OWN, 5), (line, 3)):
        assert f"{n} nodes" in refusal(dadmm.TopologyError, own, Topology.ring(n))
    one, me = {COMM.rank: OWN}, COMM.rank
    other = one if me != 1 else {1: OWN, 4: wider}
    for kind, words, given, n in (
        (dadmm.ConfigError, "4 ranks", {me % 3: OWN}, 3),
        (dadmm.ConfigError, "node 4", one, 5),
        (dadmm.ConfigError, "node 2", one | {2: OWN}, 4),
        (dadmm.ProblemError, "4", one | {4: OWN}, 4),
        (dadmm.ProblemError, "rank 3", one if me < 3 else {}, 4),
        (dadmm.ProblemError, "node 4", other, 5),
        (dadmm.ProblemError, "rank 2", one if me != 2 else OWN, 4),
        (dadmm.ProblemError, "'a'", {"a": OWN}, 4),
    ):
        assert words in refusal(kind, given, Topology.ring(n))
    compare(*both(scheme="vp", max_iter=5))


def check_ranks_that_do_not_belong_together_are_told() -> None:
    """Instead of waiting for ever, or of solving something that nobody asked for."""
    odd, even = COMM.rank == 2, COMM.rank % 2 == 0
    for name, value, usual in (
        ("scheme", "nap", "snap"), ("max_iter", 9, 8), ("wait", "poll", "auto"),
        ("scheme", "npa", "snap"),  # which is not a scheme
        ("sending", dadmm.Sending("float32"), dadmm.Sending("quantised:8")),
        ("init", np.zeros((COMM.size, OWN.layout.size)), "shared"),
        ("observe", {"a": np.sum}, {}),
    ):  # fmt: skip
        chosen = {name: value if odd else usual}
        said = refusal(dadmm.ConfigError, OWN, RING, **chosen)
        assert said.startswith("rank 2")
        assert ("payload" if name == "sending" else name) in said
    said = refusal(dadmm.ConfigError, OWN, RING, max_iter=8 if even else 9)
    assert said.startswith("ranks 1 and 3 have")
    turns = {"schedule": dadmm.Schedule.matchings(RING) if odd else None}
    star = Topology.star(COMM.size) if odd else RING
    for graph, chosen in ((star, {}), (RING, turns)):
        assert "rank 2" in refusal(dadmm.TopologyError, OWN, graph, **chosen)
    like = {"eta0": 10 if odd else 10.0, "max_iter": np.int64(5) if odd else 5}
    solve(OWN, RING, comm=COMM, max_seconds=60 + COMM.rank, **like)
    named = {"scheme": "nap", "stopping": "residuals", "sending": "float32"}
    objects = {
        "scheme": dadmm.penalty.NAP(), "stopping": dadmm.Stopping("residuals"),
        "sending": dadmm.Sending("float32"), "record": dadmm.Record(),
    }  # fmt: skip
    dadmm.solve(OWN, RING, comm=COMM, **(objects if odd else named))


def check_any_communicator_serves() -> None:
    """Two pairs of ranks, counted backwards, solve two problems at the same time."""
    pair = COMM.Split(COMM.rank % 2, key=-COMM.rank)
    graph, offset = Topology.chain(2), COMM.rank % 2
    problems = PROBLEMS[offset : offset + 2]
    ours = solve(problems[pair.rank], graph, comm=pair, max_iter=9)

    compare(ours, solve(problems, graph, max_iter=9))
    pair.Free()


def check_one_rank_stops_all() -> None:
    """A request of rank 3 at t = 5 is fulfilled by all at the end of the next round."""
    chain = Topology.chain(COMM.size)
    request = {"tolerance": 0.0, "max_iter": 50}
    mine = [lambda t, run: "signal" if t == 5 else None] * (COMM.rank == 3)
    ours = solve(OWN, chain, comm=COMM, callbacks=mine, **request)

    assert (ours.iterations, ours.reason) == (3 * chain.diameter, "signal")
    deadline = 1e-9 if COMM.rank == 1 else None
    ours = solve(OWN, chain, comm=COMM, max_seconds=deadline, **request)
    assert (ours.iterations, ours.reason) == (2 * chain.diameter, "max_seconds")


def check_results_stay_where_they_are_asked_to() -> None:
    """On rank 0 alone, or with each node; the degrees of a star differ."""
    star = Topology.star(COMM.size)
    whole = solve(OWN, star, comm=COMM, max_iter=8, record_edges=True)
    mine_of = star.edges[:, 0] == COMM.rank
    for gather in ("root", "none"):
        settings = {"max_iter": 8, "record_edges": True, "gather": gather}
        found = solve(OWN, star, comm=COMM, **settings)
        if gather == "root" and COMM.rank == 0:
            compare(found, whole)
            continue
        assert found.nodes.tolist() == [COMM.rank]
        assert found.iterations == whole.iterations
        rows, edges = found.history["primal"], found.history.edges["eta"]
        for mine, theirs in (
            (found.theta, whole.theta[[COMM.rank]]),
            (found.eta, whole.eta[mine_of]),
            (found.traffic.edge_bytes, whole.traffic.edge_bytes[mine_of]),
            (rows[:, 0], whole.history["primal"][:, COMM.rank]),
            (edges, whole.history.edges["eta"][:, mine_of]),
        ):
            assert_array_equal(mine, theirs)


def both(graph: Topology = RING, **settings) -> tuple[dadmm.Result, dadmm.Result]:
    """Return the same run over MPI and in this process."""
    ours = solve(OWN, graph, comm=COMM, **settings)
    return ours, solve(PROBLEMS, graph, **settings)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            if COMM.rank == 0:
                print(name)
