"""What a library user sees who passes a communicator: four ranks.

Also what `dadmm.comm` promises: texts, checked steps and sums of all ranks.
"""

import tracemalloc

import numpy as np
import pytest
from mpi4py import MPI
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Topology, baselines
from dadmm.comm import traffic
from dadmm.comm import world as worlds
from dadmm.comm.tree import TreeReduction
from dadmm.comm.world import Checks, World, from_rank_0
from dadmm.core.errors import ConfigError, DadmmError, ShardError
from dadmm.graphs import topology
from dadmm.problems import Lasso, LeastSquares
from tests.support.programs.hosted import build, compare
from tests.support.solving import solve

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
PROBLEMS = build(SIZE)
OWN, RING = PROBLEMS[RANK], Topology.ring(SIZE)


def same_everywhere(value: object) -> bool:
    return len(set(COMM.allgather(value))) == 1


def refused(kind, culprit, *call, begins="", by=solve, **settings) -> None:
    """Assert that all ranks are refused by the same sentence, which names this."""
    with pytest.raises(kind) as raised:
        by(*call, comm=COMM, **settings)
    said = str(raised.value)
    assert "\n" not in said
    assert culprit in said, said
    assert said.startswith(begins), said
    assert same_everywhere(said)


def check_other_algorithms_know_what_the_problems_of_others_are() -> None:
    """One node has absolute values, and others have not."""
    X, y, _ = dadmm.datasets.regression(40, 3)
    kinds = [Lasso if i == 1 else LeastSquares for i in range(SIZE)]
    own = [kind(X[i::SIZE], y[i::SIZE]) for i, kind in enumerate(kinds)]
    for name in ("extra", "allreduce"):
        alone = baselines.solve(own, RING, name, max_iter=20)
        over = baselines.solve(own[RANK], RING, name, max_iter=20, comm=COMM)
        assert_array_equal(over.theta[0], alone.theta[RANK])
    with pytest.raises(ConfigError, match="Lasso"):
        baselines.solve(own[RANK], RING, "diging", comm=COMM)


def check_ranks_of_other_algorithms_belong_together() -> None:
    line, other = (LeastSquares(np.eye(3)[:, :d], np.ones(3)) for d in (2, 1))
    rank_2 = {"begins": "rank 2", "by": baselines.solve, "max_iter": 3}
    for culprit, usual, odd in (
        ("algorithm", {}, {"algorithm": "diging"}),
        ("'extr'", {}, {"algorithm": "extr"}),
        ("step", {}, {"algorithm": baselines.ALGORITHMS["extra"](step=0.3)}),
        ("payload", {}, {"sending": "float32"}),
        ("coordinates", {}, {"coordinates": "metric"}),
        ("max_iter", {}, {"max_iter": 4}),
        ("graph", {"topology": RING}, {"topology": Topology.star(SIZE)}),
        ("layout", {"problems": line}, {"problems": other}),
    ):
        given = {"problems": line, "topology": RING} | rank_2
        given |= odd if RANK == 2 else usual
        refused(dadmm.DadmmError, culprit, **given)


def check_a_start_that_one_rank_cannot_take_is_told() -> None:
    holed = np.where(RANK == 2, np.nan, np.zeros((SIZE, OWN.layout.size)))
    refused(dadmm.ProblemError, "init", OWN, RING, begins="rank 2", init=holed)
    first = solve({RANK: OWN}, RING, comm=COMM, max_iter=3)
    node = (0, 2, 1, 3)[RANK]
    given = {node: PROBLEMS[node]}, RING
    refused(dadmm.ConfigError, "same", *given, begins="rank 1", warm_start=first)


def check_mistakes_are_told_on_every_rank() -> None:
    samples = np.random.default_rng(0).standard_normal((9, 7 if RANK == 2 else 6))
    wider = dadmm.problems.PPCA(samples, 2)
    line = dadmm.problems.LeastSquares(samples[:, :3], samples[:, 3])  # has set-up sums
    one = {RANK: OWN}
    for kind, culprit, given, n in (
        (dadmm.ProblemError, "", PROBLEMS, 4),
        (dadmm.ProblemError, "rank 2", wider, 4),
        (dadmm.TopologyError, "5 nodes", OWN, 5),
        (dadmm.TopologyError, "3 nodes", line, 3),
        (dadmm.ConfigError, "4 ranks", {RANK % 3: OWN}, 3),
        (dadmm.ConfigError, "node 4", one, 5),
        (dadmm.ConfigError, "node 2", one | {2: OWN}, 4),
        (dadmm.ProblemError, "4", one | {4: OWN}, 4),
        (dadmm.ProblemError, "rank 3", one if RANK < 3 else {}, 4),
        (dadmm.ProblemError, "node 4", one if RANK != 1 else {1: OWN, 4: wider}, 5),
        (dadmm.ProblemError, "rank 2", one if RANK != 2 else OWN, 4),
        (dadmm.ProblemError, "'a'", {"a": OWN}, 4),
    ):
        refused(kind, culprit, given, Topology.ring(n))


def check_ranks_that_do_not_belong_together_are_told() -> None:
    odd = RANK == 2
    for name, value, usual, culprit in (
        ("scheme", "nap", "snap", "scheme"),
        ("scheme", "npa", "snap", "scheme"),  # which is not a scheme
        ("max_iter", 9, 8, "max_iter"),
        ("wait", "poll", "auto", "wait"),
        ("sending", dadmm.Sending("float32"), dadmm.Sending("quantised:8"), "payload"),
        ("init", np.zeros((SIZE, OWN.layout.size)), "shared", "init"),
        ("observe", {"a": np.sum}, {}, "observe"),
    ):
        chosen = {name: value if odd else usual}
        refused(dadmm.ConfigError, culprit, OWN, RING, begins="rank 2", **chosen)
    own = {"begins": "ranks 1, 3 have", "max_iter": 8 + RANK % 2}
    refused(dadmm.ConfigError, "max_iter", OWN, RING, **own)
    star = Topology.star(SIZE) if odd else RING
    refused(dadmm.TopologyError, "rank 2", OWN, star)
    turns = dadmm.Schedule.matchings(RING) if odd else None
    refused(dadmm.TopologyError, "rank 2", OWN, RING, schedule=turns)
    like = {"eta0": 10 if odd else 10.0, "max_iter": np.int64(5) if odd else 5}
    solve(OWN, RING, comm=COMM, max_seconds=60 + RANK, **like)
    named = {"scheme": "nap", "stopping": "residuals", "sending": "float32"}
    objects = {
        "scheme": dadmm.penalty.NAP(), "stopping": dadmm.Stopping("residuals"),
        "sending": dadmm.Sending("float32"), "record": dadmm.Record(),
    }  # fmt: skip
    dadmm.solve(OWN, RING, comm=COMM, **(objects if odd else named))


def check_any_communicator_serves() -> None:
    """Two pairs of ranks, counted backwards, solve two problems at the same time."""
    pair = COMM.Split(RANK % 2, key=-RANK)
    graph, problems = Topology.chain(2), PROBLEMS[RANK % 2 : RANK % 2 + 2]
    ours = solve(problems[pair.rank], graph, comm=pair, max_iter=9)
    compare(ours, solve(problems, graph, max_iter=9))
    pair.Free()


def check_results_stay_where_they_are_asked_to() -> None:
    """On rank 0 alone, or with each node; the degrees of a star differ."""
    star, settings = Topology.star(SIZE), {"max_iter": 8, "record_edges": True}
    whole = solve(OWN, star, comm=COMM, **settings)
    mine_of = star.edges[:, 0] == RANK
    for gather in ("root", "none"):
        found = solve(OWN, star, comm=COMM, gather=gather, **settings)
        if gather == "root" and RANK == 0:
            compare(found, whole)
            continue
        assert found.nodes.tolist() == [RANK]
        assert found.iterations == whole.iterations
        rows, edges = found.history["primal"], found.history.edges["eta"]
        for mine, theirs in (
            (found.theta, whole.theta[[RANK]]),
            (found.eta, whole.eta[mine_of]),
            (found.traffic.edge_bytes, whole.traffic.edge_bytes[mine_of]),
            (rows[:, 0], whole.history["primal"][:, RANK]),
            (edges, whole.history.edges["eta"][:, mine_of]),
        ):
            assert_array_equal(mine, theirs)


def check_texts_of_all_ranks() -> None:
    """Of any length, in bytes of more than one to a letter."""
    world, lengths = World(COMM), (0, 1, 52, 53, 54, 5000)
    for own in lengths:
        for longest in lengths:
            mine = "é" * (own // 2) if RANK else "x" * longest
            assert world.gather_json(mine) == ["x" * longest, *["é" * (own // 2)] * 3]
            assert from_rank_0(world, lambda text=mine: text) == "x" * longest
    records = Checks(world).gather(number=RANK, long="y" * 300 * RANK)
    assert [record["number"] for record in records] == [0, 1, 2, 3]


def check_a_step_that_fails_is_named_on_all_ranks() -> None:
    """Of several ranks the lowest; facts are compared if no step has failed."""

    def fails_on(ranks, error=None):
        def step():
            if RANK in ranks:
                raise error or ShardError(f"step of {RANK}")

        return step

    world = World(COMM)
    for kind, culprit, steps, seed in (
        (ShardError, "rank 2", [fails_on([3]), fails_on([2, 3])], "same"),
        (ConfigError, "rank 3", [fails_on([])], str(RANK // 3)),
        (ShardError, "rank 1", [fails_on([1])], str(RANK)),
        (ConfigError, "rank 0", [fails_on([0], ConfigError("of rank 0"))], "same"),
    ):
        checks = Checks(world)
        for step in steps:
            checks.run(step)
        with pytest.raises(kind) as raised:
            checks.gather(lambda seed=seed: {"seed": seed})
        assert culprit in str(raised.value)
        assert same_everywhere(str(raised.value))
    checks = Checks(world)
    checks.run(fails_on([]))
    checks.gather(lambda: {"seed": "1"})
    assert from_rank_0(world, lambda: f"text of {RANK}") == "text of 0"
    assert from_rank_0(world, fails_on([1])) is None  # which no other rank does
    with pytest.raises(DadmmError, match="step of 0"):
        from_rank_0(world, fails_on([0, 1]))


def check_arrays_of_rank_0_are_sent_in_parts_from_their_own_memory() -> None:
    """Of any type, order and length; beside the arrays, none needs much memory."""
    world, draw = World(COMM), np.random.default_rng(0)
    world.hosts, long = np.array([0, 3, 1, 3, 2]), draw.random((1000, 400))
    nodes = [
        [long + i, np.arange(i), long[:7] > 0.5, long[:9, ::2].T] for i in range(5)
    ]
    given = nodes if RANK == 0 else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, "MOST_BYTES", 100_001)
        tracemalloc.start()
        before = traffic.outside[1]
        found = world.scatter(given)
        sent = traffic.outside[1] - before
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        shared = from_rank_0(world, long.tolist)
    assert_array_equal(shared, long)
    hosted = world.hosted(5)
    for i, arrays in zip(hosted, found, strict=True):
        for mine, theirs in zip(arrays, nodes[i], strict=True):
            assert mine.dtype == theirs.dtype
            assert_array_equal(mine, theirs)
    whole = sum(each.nbytes for own in nodes[1:] for each in own)
    assert sent == 0 if RANK else whole < sent < whole + 1000
    received = 0 if RANK == 0 else len(hosted) * long.nbytes
    assert peak < received + 0.1 * long.nbytes


def check_sums_along_a_tree_have_the_bits_of_one_process() -> None:
    """One node per rank, and several, in blocks and at random; bytes by edge too."""
    draw, merged = np.random.default_rng(0), lambda mine, other: f"({mine} {other})"
    values = (
        (lambda i: draws(i) * 10.0 ** (i % 5), np.add),  # depends on the order
        (lambda i: np.float64(0.1 * i), np.add),
        (lambda i: np.full((i % 3, 2), i, np.int32), lambda *a: np.concatenate(a)),
        (str, merged),
        (lambda i: {str(i): [0.1 * i, None]}, lambda mine, other: mine | other),
        (lambda i: np.full(100_000, 0.1 * i), np.add),  # too long to be sent eagerly
    )
    for name in topology.GRAPHS:
        blocks = np.repeat(np.arange(SIZE), 3)
        for hosts in (np.arange(SIZE), blocks, draw.permutation(blocks)):
            graph = topology.build(name, len(hosts))
            over, alone = (
                TreeReduction(graph, COMM, hosts.tolist()),
                TreeReduction(graph),
            )
            mine = np.flatnonzero(hosts == RANK).tolist()
            for value, merge in values:
                found = over.reduce({i: value(i) for i in mine}, merge)
                wanted = alone.reduce({i: value(i) for i in range(len(hosts))}, merge)
                assert type(found) is type(wanted)
                assert_array_equal(found, wanted)
            assert_array_equal(COMM.allreduce(over.sent), alone.sent)


def draws(i: int) -> np.ndarray:
    return np.random.default_rng(i).standard_normal((3, 2))


def run_checks(found: dict[str, object]) -> None:
    """Call all functions of a module that check something, and print their names."""
    for name, check in found.items():
        if name.startswith("check_"):
            check()
            if RANK == 0:
                print(name, flush=True)


if __name__ == "__main__":
    run_checks(dict(globals()))
