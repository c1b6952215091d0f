"""Graphs that change in turns, and how all nodes agree to stop on them."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.admm.rule import RULES
from dadmm.comm.wire import HEADER
from dadmm.core.errors import TopologyError
from dadmm.graphs.schedule import Schedule
from tests.support.problems import optimum, quadratics, random_graph
from tests.support.solving import solve

RING = Topology.ring(5)
NAMED = Topology.from_edges(3, [(0, 1), (1, 2)], ("a", "b", "c"))


@pytest.mark.parametrize("seed", range(10))
def test_matchings_are_matchings_and_cover_every_edge_once(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)))
    schedule = Schedule.matchings(graph)

    for edges in schedule.rounds:
        ends = [i for i, _ in edges]
        assert len(set(ends)) == len(ends)
        assert {(j, i) for i, j in edges} == set(edges)
    together = sorted(edge for edges in schedule.rounds for edge in edges)
    assert together == [tuple(edge) for edge in graph.edges.tolist()]
    assert schedule.union == graph
    assert schedule.period < 2 * max(graph.degrees)  # greedy needs few


def test_a_round_is_a_mask_of_the_edges_of_the_union():
    schedule = Schedule(4, [[(0, 1), (2, 3)], [(2, 1)], [(3, 2), (1, 2)]])
    masks = [[1, 1, 0, 0, 1, 1], [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]

    assert (schedule.period, schedule.span) == (3, 3)
    assert schedule.union == Topology.chain(4)  # (0 1, 1 0, 1 2, 2 1, 2 3, 3 2)
    assert_array_equal(schedule.active_edges(schedule.union), masks)


def test_random_schedules_have_each_edge_with_its_probability():
    graph = Topology.complete(6)
    schedule = Schedule.random(graph, 0.3, seed=2)
    up = schedule.active_edges(graph)

    assert abs(up.mean() - 0.3) < 0.02
    assert (up == up[:, graph.reverse]).all()
    assert schedule.union is graph
    windows = [np.roll(up, -k, axis=0)[: schedule.span] for k in range(len(up))]
    assert all(window.any(axis=0).all() for window in windows)
    assert not all(window[1:].any(axis=0).all() for window in windows)


FILES = {
    "parts.edges": "0 1\n2 3\n",
    "bridge.edges": "1 2\n",
    "named.edges": "x y\n",
    "more.edges": "z y\n",
    "times.csv": "source,target,t\na,b,1\nb,c,4\nc,b,2\na,b,4\n",
} | {
    f"{k}.csv": f"t,source,target\n{row}\n"
    for k, row in enumerate(("1,a,b", "1,a,c", "0,a,b", "1,a,d"))
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)


@pytest.mark.usefixtures("files")
def test_graphs_of_names_and_files_take_turns():
    """A file need neither be connected nor name all nodes."""
    schedule = Schedule.build(["parts.edges", "bridge.edges"], 4)
    assert schedule.union == Topology.chain(4)
    assert [len(edges) for edges in schedule.rounds] == [4, 2]
    assert Schedule.build(["ring", "parts.edges"], 4).union == Topology.ring(4)
    random = Schedule.build(["erdos-renyi", "star"], 9, seed=3)
    drawn = Topology.erdos_renyi(9, seed=3).edges.tolist()
    assert random.rounds[0] == set(map(tuple, drawn))
    named = Schedule.build(["named.edges", "more.edges"])
    assert named.union.names == ("x", "y", "z")
    assert named.rounds == ({(0, 1), (1, 0)}, {(1, 2), (2, 1)})
    timed = Schedule.from_times(NAMED, "times.csv")
    assert (timed.period, timed.span) == (4, 3)
    assert timed.rounds[1:3] == ({(1, 2), (2, 1)}, frozenset())


REFUSED = {
    "node 2": lambda: Schedule(4, [[(0, 1)], [(2, 3)]]),  # only the union is connected
    "node 3": lambda: Schedule(4, [[(0, 1)], [(1, 2)]]),
    "none": lambda: Schedule(4, []),
    r"\(0, 4\)": lambda: Schedule(4, [[(0, 4)]]),
    r"no\.edges": lambda: Schedule.build(["ring", "no.edges"], 4),
    r"bridge\.edges": lambda: Schedule.build(["named.edges", "bridge.edges"]),
    "union": lambda: solve(
        quadratics(5), Topology.chain(5), schedule=Schedule.matchings(RING)
    ),
    "probability": lambda: Schedule.random(RING, 0.0),
    "0 to 1": lambda: Schedule.random(RING, 1e-5),
    "b to c": lambda: Schedule.from_times(NAMED, "0.csv"),
    "1, a, c": lambda: Schedule.from_times(NAMED, "1.csv"),
    "0, a, b": lambda: Schedule.from_times(NAMED, "2.csv"),
    "1, a, d": lambda: Schedule.from_times(NAMED, "3.csv"),
}


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("culprit", REFUSED)
def test_what_is_no_schedule_is_refused(culprit):
    with pytest.raises(TopologyError, match=culprit):
        REFUSED[culprit]()


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize("rule", RULES)
def test_runs_of_a_schedule_stop_together_and_close(rule, agreement):
    """A node whose edges were not used has not changed, and is not satisfied yet."""
    problems, ends = quadratics(6, curvature=(2.0, 8.0)), []
    order = reversed(range(5))  # which delays headers most
    schedule = Schedule(6, [[(i, i + 1)] for i in order])

    def watch(t, run):
        ends.append(run.state.header.view(HEADER)["stop_at"] <= t)

    result = solve(
        problems, schedule.union, schedule=schedule, send_every=3, stopping=rule,
        agreement=agreement, tolerance=1e-4, max_iter=5000, callbacks=[watch],
    )  # fmt: skip

    assert result.converged
    assert all(done.any() == done.all() for done in ends)
    if agreement == "neighbours" or rule != "objective":
        assert np.abs(result.theta - optimum(problems)).max() < 0.02
