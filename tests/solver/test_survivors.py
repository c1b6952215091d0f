"""A rank that dies does not end a run whose MPI is fault tolerant."""

from __future__ import annotations

import json
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Schedule, Sending, Topology
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES
from dadmm.runs.stored import StoredRun
from dadmm.solver import recovery
from tests.support import openmpi
from tests.support.problems import quadratics, random_graph
from tests.support.processes import PROGRAMS, mpiexec, program
from tests.support.runs import run_of

pytestmark = pytest.mark.mpi

# Over MPI; each case takes seconds, so that all schemes are for `./launch/test --all`
SEEDS = range(len(SCHEMES)) if os.environ.get("DADMM_ALL") else (0, 3)  # snap, ap


@pytest.mark.parametrize("seed", SEEDS)
def test_survivors_reach_the_optimum_of_their_own_data(seed):
    """A scheme of the list, random graphs, one or two deaths at random iterations."""
    ended = openmpi.start(5, *program("survivors.py"), seed).end()

    assert ended.code == 0, ended.err
    found = [json.loads(line) for line in ended.out.splitlines()]
    dead = set(found[0]["dead"])
    assert sorted(i for part in found for i in part["nodes"]) == sorted(
        {*range(5)} - dead
    )
    for part in found:
        assert part["reason"] == "converged", part
        assert part["error"] < 1e-8, part
        assert dead >= set(part["lost"]) > set()


@pytest.mark.parametrize("seed", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_a_death_among_survivors_who_have_not_met_is_survived(seed):
    ended = openmpi.start(5, *program("survivors.py"), seed, "opening").end()

    assert ended.code == 0, ended.err
    (found,) = map(json.loads, ended.out.splitlines())
    assert (found["nodes"], found["lost"]) == ([0, 1, 2], [3, 4])
    assert found["back"][0] == found["back"][1]
    assert found["error"] < 1e-8


def test_who_is_left_says_what_went_wrong(tmp_path):
    """The first of them, when rank 0 is dead; and the job ends with that code."""
    script, words = PROGRAMS / "failing_rank.py", ("--on-failure", "continue")
    words += ("--init", "shared")  # which has more than seven iterations
    ended = openmpi.start(
        3, script, 0, "SIGKILL+full", *words, "--out", "run", cwd=tmp_path
    ).end()

    assert ended.code == 2, ended.err
    died, full = ended.said
    assert "node 0 failed" in died
    assert "nodes 1-2" in died
    assert "cannot write to run" in full


@pytest.mark.parametrize("resumed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_writes_what_is_left_of_it(tmp_path, resumed):
    """The ends of a chain go on by themselves, each with results of its own.

    They have all their rows, also those of a session before.
    """
    script, words = PROGRAMS / "failing_rank.py", ("--on-failure", "continue")
    new = ("--topology", "chain", "--record-edges", "--out", "run")
    new += ("--init", "shared")  # which has more than seven iterations
    if resumed:
        mpiexec(5, "-m", "dadmm.run", *new, "--max-iter", 3, cwd=tmp_path)
        new = ("--resume", "run", "--max-iter", 500)
    ended = openmpi.start(5, script, 2, "SIGKILL", *words, *new, cwd=tmp_path).end()

    assert ended.code == 0, ended.err
    died, apart = ended.said
    # in its seventh iteration here, of which its neighbours may have heard
    assert int(died.split()[-1]) in ((9, 10) if resumed else (6, 7))
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


def test_survivors_of_a_merged_start_go_on_to_the_solution_of_their_own_rows(tmp_path):
    script, words = PROGRAMS / "failing_rank.py", ("--on-failure", "continue")
    words += ("--topology", "ring", "--tolerance", "1e-7", "--max-iter", "200")
    words += ("--init", "merged")
    ended = openmpi.start(
        5, script, 2, "SIGKILL", *words, "--out", "run", cwd=tmp_path
    ).end()

    assert ended.code == 0, ended.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["lost_nodes"] == [2]
    assert summary["start"]["init"] == "merged"
    assert summary["start"]["angle_to_result_degrees"] > 0.3
    assert summary["metrics"]["angle_to_centralised_degrees"] < 0.01


def check_folder(folder: Path, nodes: list[int]) -> None:
    """Look for results of these nodes, complete."""
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["converged"], summary["lost_nodes"]) == (True, [2])
    assert summary["n_nodes"] == len(nodes)
    assert summary["stopping"]["node"] in nodes
    assert f"node {summary['stopping']['node']}," in summary["waited_for"]
    rows = np.loadtxt(folder / "history.csv", delimiter=",", skiprows=1)
    every = np.arange(1, summary["iterations"] + 1)
    assert_array_equal(rows[:, 0], np.repeat(every, len(nodes)))
    assert_array_equal(rows[:, 1], np.tile(nodes, len(every)))
    edges = np.loadtxt(folder / "edges.csv", delimiter=",", skiprows=1)
    assert_array_equal(edges[:, 1:3], np.tile([nodes, nodes[::-1]], (len(every), 1)))
    run = StoredRun.read(folder)  # so that it can be drawn
    assert run.topology.neighbours == Topology.chain(2).neighbours
    assert run.history["objective"].shape == (summary["iterations"], 2)
    with np.load(folder / "result.npz") as arrays:
        assert_array_equal(arrays["edges"], [nodes, nodes[::-1]])
        assert len(arrays["W"]) == len(arrays["eta"]) == 2


def test_an_mpi_that_cannot_is_refused(tmp_path):
    words = ("-m", "dadmm.run", "--on-failure", "continue", "--out", "run")
    ended = mpiexec(2, *words, cwd=tmp_path)

    assert ended.code == 2
    assert len(ended.said) == 1
    assert "ulfm" in ended.said[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", SCHEMES)
def test_lost_edges_are_forgotten(name):
    """The others are known as before, by the scheme and by the gates."""
    run = run_of(
        quadratics(2), Topology.chain(2), scheme=name, max_iter=5,
        sending=Sending(edge_sleep=0.5),
    )  # fmt: skip
    before, kept = run.snapshot(), np.array([False, True])

    left = before.choose(edge=kept)
    after = recovery.reopened(left, Incidence(np.array([0, 1])), run.layout)

    left = after.flatten()
    for entry, array in before.flatten().items():
        if len(array.shape) and len(array) == 2 and entry.startswith(("pen", "send")):
            assert_array_equal(left[entry], array[kept], err_msg=entry)
    assert_array_equal(after.multipliers, before.multipliers[kept])


@pytest.mark.parametrize(
    ("kind", "t"), [("least_squares", 5), ("logistic", 20), ("logistic", "")]
)
def test_survivors_are_certified_in_chosen_coordinates(kind, t):
    """Also after coordinates have changed, and if the death is inside a review."""
    words = (kind, t) if t else (kind,)
    ended = openmpi.start(5, *program("survivors.py"), *words).end()

    assert ended.out.strip() == "certified certified (3,) True True", ended.err


def test_survivors_have_a_bound_on_the_angle_to_their_own_rows():
    ended = openmpi.start(5, *program("survivors.py"), "merged", 3).end()

    assert ended.out.strip() == "(3,) True", ended.err


@pytest.mark.parametrize("seed", range(8))
def test_parts_are_the_connected_components(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(2, 12)))
    alive = np.flatnonzero(rng.random(len(graph)) < 0.7).tolist()

    found = recovery.components(graph, np.arange(len(graph)), alive)

    left = graph.to_graph().subgraph(alive)
    components = sorted(sorted(part) for part in nx.connected_components(left))
    assert [list(part) for part in found] == components


def test_a_part_keeps_its_edges_and_their_turns():
    schedule = Schedule(5, [[(0, 1), (2, 3)], [(1, 2), (3, 4)], [(0, 4)]])

    graph, turns = recovery.restrict(schedule.union, schedule, (2, 3, 4))

    assert graph.neighbours == Topology.chain(3).neighbours
    assert [sorted(edges) for edges in turns.rounds] == [
        [(0, 1), (1, 0)], [(1, 2), (2, 1)], []
    ]  # fmt: skip
    assert recovery.restrict(Topology.ring(4), None, (1, 2, 3))[0].diameter == 2
