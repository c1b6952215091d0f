"""A rank that dies does not end a run whose MPI is fault tolerant."""

import json

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Schedule, Sending, Topology
from dadmm.comm.wire import IDLE
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES
from dadmm.runs.stored import StoredRun
from dadmm.solver import checkpoint
from tests.support.problems import quadratics, random_graph
from tests.support.processes import FAULTY, fault, mpiexec, openmpi, planned, program
from tests.support.runs import arrays_of, history_of, run_of, summary_of

pytestmark = pytest.mark.mpi

# with more than seven iterations
CONTINUE = ("--on-failure", "continue", "--init", "shared", "--out", "run")


def slow(*cases):
    return [pytest.param(*case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("seed", [3, *slow((0,), (1,), (2,), (4,), (5,), (6,), (7,))])
def test_survivors_reach_the_optimum_of_their_own_data(seed):
    """A scheme of the list, random graphs, one or two deaths at random iterations."""
    ended = openmpi(5, *program("survivors.py"), seed)
    assert ended.code == 0, ended.err
    found = [json.loads(line) for line in ended.out.splitlines()]
    dead = set(found[0]["dead"])
    left = sorted(i for part in found for i in part["nodes"])
    assert left == sorted({*range(5)} - dead)
    for part in found:
        assert part["reason"] == "converged", part
        assert part["error"] < 1e-8, part
        assert dead >= set(part["lost"]) > set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 6])
def test_a_death_among_survivors_who_have_not_met_is_survived(seed):
    ended = openmpi(5, *program("survivors.py"), seed, "opening")
    assert ended.code == 0, ended.err
    (found,) = map(json.loads, ended.out.splitlines())
    assert (found["nodes"], found["lost"]) == ([0, 1, 2], [3, 4])
    assert found["back"][0] == found["back"][1]
    assert found["error"] < 1e-8


@pytest.mark.parametrize(
    ("words", "said"),  # the kind of run, and the iteration, or within a review
    [
        (("logistic",), "certified certified (3,) True True"),
        (("merged", 3), "(3,) True"),
        *slow(
            (("least_squares", 5), "certified certified (3,) True True"),
            (("logistic", 20), "certified certified (3,) True True"),
        ),
    ],
)
def test_survivors_have_bounds_on_the_error_for_their_own_rows(words, said):
    """Also after coordinates have changed, and if the death is inside a review."""
    ended = openmpi(5, *program("survivors.py"), *words)
    assert ended.out.strip() == said, ended.err


def test_who_is_left_says_what_went_wrong(tmp_path):
    """The first of them, when rank 0 is dead; and the job ends with that code."""
    full = {"what": "full disk", "at": "replace", "of": "result.npz"}
    plan = fault(0, "SIGKILL") | {"1": {"act": full}, "2": {"act": full}}
    ended = openmpi(3, FAULTY, *CONTINUE, cwd=tmp_path, **planned(plan))
    assert ended.code == 2, ended.err
    died, full = ended.said
    assert "node 0 failed" in died
    assert "nodes 1-2" in died
    assert "cannot write to run" in full


def test_a_run_writes_what_is_left_of_it(tmp_path):
    """The ends of a chain go on by themselves, with rows of a session before, too."""
    new = (*CONTINUE, "--topology", "chain", "--record-edges", "--max-iter", 3)
    mpiexec(5, "-m", "dadmm.run", *new[2:], cwd=tmp_path)
    words = ("--resume", "run", "--max-iter", 500, *CONTINUE[:2])
    dies = planned(fault(2, "SIGKILL"))
    ended = openmpi(5, FAULTY, *words, cwd=tmp_path, **dies)

    assert ended.code == 0, ended.err
    died, apart = ended.said
    # in its seventh iteration here, of which its neighbours may have heard
    assert int(died.split()[-1]) in (9, 10)
    assert "node 2 failed; nodes 0-1" in died
    assert "nodes 3-4" in apart
    assert apart.endswith("part-00003")
    check_folder(tmp_path / "run", [0, 1])
    check_folder(tmp_path / "run" / "part-00003", [3, 4])
    assert not (tmp_path / "run" / "parts").exists()
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert "failed (2)" in ended.out
    words = ("--resume", "run", "--on-failure", "abort")
    assert mpiexec(5, "-m", "dadmm.run", *words, cwd=tmp_path).code == 2


def check_folder(folder, nodes):
    """Look for results of these nodes, complete."""
    summary, arrays = summary_of(folder), arrays_of(folder)
    names = list(map(str, nodes))
    assert (summary["converged"], summary["lost_nodes"]) == (True, [2])
    assert summary["stopping"]["node"] in nodes
    rows = [[str(t + 1), i] for t in range(summary["iterations"]) for i in names]
    assert [row[:2] for row in history_of(folder)[1:]] == rows
    edges = [row[1:3] for row in history_of(folder, "edges.csv")[1:]]
    assert edges == [names, names[::-1]] * summary["iterations"]
    run = StoredRun.read(folder)  # so that it can be drawn
    assert run.topology.neighbours == Topology.chain(2).neighbours
    assert run.history["objective"].shape == (summary["iterations"], 2)
    assert_array_equal(arrays["edges"], [nodes, nodes[::-1]])
    assert len(arrays["W"]) == len(arrays["eta"]) == summary["n_nodes"] == 2


def test_an_mpi_that_cannot_is_refused(tmp_path):
    ended = mpiexec(2, "-m", "dadmm.run", *CONTINUE, cwd=tmp_path)
    assert ended.code == 2
    (line,) = ended.said
    assert "ulfm" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", SCHEMES)
def test_lost_edges_are_forgotten(name):
    """The others are known as before, by the scheme and by the gates.

    The agreement to stop begins again, and means are over the neighbours that are left.
    """
    settings = {"scheme": name, "max_iter": 5, "sending": Sending(edge_sleep=0.5)}
    run = run_of(quadratics(2), Topology.chain(2), **settings)
    before, kept = run.snapshot(), np.array([False, True])
    before.held[...], before.header[...] = 3, 0
    left = before.choose(edge=kept)
    after = checkpoint.reopened(left, Incidence(np.array([0, 1])), run.layout)
    left = after.flatten()
    for entry, array in before.flatten().items():
        if len(array.shape) and len(array) == 2 and entry.startswith(("pen", "send")):
            assert_array_equal(left[entry], array[kept], err_msg=entry)
    assert_array_equal(after.multipliers, before.multipliers[kept])
    assert_array_equal(after.mean, [after.theta[0], after.received[0]])
    assert not after.held.any()
    assert (after.header == IDLE).all()


@pytest.mark.parametrize("seed", range(8))
def test_parts_are_the_connected_components(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)))
    alive = np.flatnonzero(rng.random(len(graph)) < 0.7).tolist()
    found = checkpoint.components(graph, np.arange(len(graph)), alive)
    parts = nx.connected_components(graph.to_graph().subgraph(alive))
    assert [list(part) for part in found] == sorted(map(sorted, parts))


def test_a_rank_continues_in_the_part_with_most_of_its_nodes():
    hosts = np.array([0, 1, 2, 0, 0])  # rank 1 has died
    found = checkpoint.components(Topology.chain(5), hosts, [0, 2])
    assert found == [(2, 3, 4)]


def test_a_part_keeps_its_edges_and_their_turns():
    schedule = Schedule(5, [[(0, 1), (2, 3)], [(1, 2), (3, 4)], [(0, 4)]])
    graph, turns = checkpoint.restrict(schedule.union, schedule, (2, 3, 4))
    assert graph.neighbours == Topology.chain(3).neighbours
    want = [[(0, 1), (1, 0)], [(1, 2), (2, 1)], []]
    assert [sorted(edges) for edges in turns.rounds] == want
    assert checkpoint.restrict(Topology.ring(4), None, (1, 2, 3))[0].diameter == 2
