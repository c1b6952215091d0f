"""The front door: where a run starts, and what it gives back."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout, Topology
from dadmm.solver.rows import NODE_COLUMNS
from tests.support.problems import quadratics
from tests.support.solving import solve

RING = Topology.ring(5)
CHAIN = Topology.chain(4)  # its diameter is 3


def starts(**settings):
    """Return the parameters that five nodes start from, as their E-steps see them."""
    seen, problems = [], quadratics(5)
    for problem in problems:
        problem.expect = lambda theta: seen.append(theta.copy())
    solve(problems, RING, max_iter=1, scheme="nap", **settings)  # needs no curvature
    return np.array(seen[:5])  # the others are at the solution


def test_a_shared_start_is_the_same_for_all_nodes():
    shared = starts(seed=3)

    assert_array_equal(shared, shared[:1].repeat(5, axis=0))
    assert_array_equal(shared, starts(seed=3))
    assert np.all(shared != starts(seed=4))


def test_independent_starts_differ_between_nodes():
    drawn = starts(seed=3, init="independent")

    assert len(np.unique(drawn)) == drawn.size
    assert_array_equal(drawn, starts(seed=3, init="independent"))
    assert np.all(drawn != starts(seed=4, init="independent"))


def test_given_starts_are_used_and_left_alone():
    """The first iteration is the proximal step of the paper from there."""
    problems, theta0 = quadratics(4), np.arange(8.0).reshape(4, 2)
    kept = theta0.copy()

    settings = {"init": theta0, "max_iter": 1}
    result = solve(problems, CHAIN, scheme="nap", eta0=2.0, **settings)

    assert_array_equal(theta0, kept)
    assert_array_equal(starts(init=np.eye(5, 2)), np.eye(5, 2))
    for i, near in enumerate(CHAIN.neighbours):
        pull = sum(2.0 * (theta0[i] + theta0[j]) for j in near)
        A, b = problems[i].A, problems[i].b
        step = np.linalg.solve(A + 4.0 * len(near) * np.eye(2), A @ b + pull)
        assert_allclose(result.theta[i], step, rtol=1e-12)


@pytest.mark.parametrize("scheme", ["nap", "snap"])
def test_a_problem_that_works_in_place_does_not_reach_the_given_starts(scheme):
    """Each node has parameters of its own from the beginning; a survey has copies."""
    problems, theta0 = quadratics(4), np.ones((4, 2))
    for problem in problems:
        problem.prox = lambda theta, stats, centre, weight: np.multiply(
            theta, 0.5, out=theta
        )

    result = solve(problems, CHAIN, scheme=scheme, init=theta0, max_iter=2)

    assert_array_equal(theta0, np.ones((4, 2)))
    assert_array_equal(result.theta, np.full((4, 2), 0.25))


def test_the_result_names_its_parts():
    problems = quadratics(5)
    result = solve(problems, RING, max_iter=20)

    assert result.theta.shape == (5, 2)
    assert result.layout == Layout.of(x=(2,))
    assert_array_equal(result.parts(3).x, result.theta[3])
    assert result.eta.shape == (len(RING.edges),)
    values = [p.objectives(result.theta[[i]], None)[0] for i, p in enumerate(problems)]
    assert_allclose(result.objectives, values, rtol=1e-14)


def test_the_history_has_a_row_per_node_and_iteration():
    sums = {"sum": lambda theta: theta.sum(), "first": lambda theta: theta[0]}
    result = solve(quadratics(5), RING, max_iter=30, tolerance=0, observe=sums)
    history = result.history

    assert len(history) == 30
    assert history.columns[:-2] == NODE_COLUMNS
    assert history.columns[-2:] == ("sum", "first")
    assert all(history[column].shape == (30, 5) for column in history.columns)
    assert_array_equal(history["objective"][-1], result.objectives)
    assert_allclose(history["sum"][-1], result.theta.sum(axis=1))
    assert_array_equal(history["first"][-1], result.theta[:, 0])
    assert history.edges is None
    for name, total in result.seconds._asdict().items():
        if name != "observe":  # its column is one iteration behind
            assert_allclose(history[f"{name}_seconds"].sum(axis=0), total)
            assert total.shape == (5,)
    with pytest.raises(
        KeyError, match="no column 'angle'; there are objective, primal"
    ):
        history["angle"]


def test_a_run_without_record_has_an_empty_history():
    history = solve(quadratics(5), RING, max_iter=30, record=False).history

    assert len(history) == 0
    with pytest.raises(KeyError, match="not recorded"):
        history["primal"]


def test_more_than_a_thousand_nodes_are_recorded_if_asked():
    problems, graph = quadratics(1) * 1001, Topology.star(1001)
    settings = {"max_iter": 2, "tolerance": 0}

    with pytest.raises(KeyError, match="pass record=True"):
        solve(problems, graph, **settings).history["primal"]
    asked = solve(problems, graph, record=True, **settings).history
    assert asked["primal"].shape == (2, 1001)


def test_the_history_of_edges_shows_how_one_penalty_comes_about():
    """What both ends set after iteration t, its mean is used in t + 2 by both."""
    settings = {"scheme": "ap", "max_iter": 12, "tolerance": 0, "record_edges": True}
    result = solve(quadratics(5), RING, **settings)
    own = solve(quadratics(5), RING, **settings, coupling="own")

    def by_node(eta):
        return np.add.reduceat(eta, RING.indptr[:-1], axis=1) / RING.degrees

    edges = result.history.edges
    assert edges.columns == ("eta", "spent", "budget", "raised", "used_up", "bytes")
    assert edges["eta"].shape == (12, 10)
    assert_array_equal(edges["eta"][-1], result.eta)
    coupled = 0.5 * (edges["eta"] + edges["eta"][:, RING.reverse])
    assert_allclose(result.history["eta"][2:], by_node(coupled)[:-2], rtol=1e-14)
    assert_array_equal(result.history["eta"][:2], np.full((2, 5), 10.0))
    assert_allclose(own.history["eta"][1:], by_node(own.history.edges["eta"])[:-1])


@pytest.mark.parametrize("topology", [RING, CHAIN, Topology.complete(5)])
def test_traffic_is_one_message_per_directed_edge_and_iteration(topology):
    """And one to begin with, which has the penalty beside header and theta."""
    result = solve(quadratics(len(topology)), topology, max_iter=17, tolerance=0)

    assert result.traffic.messages == len(topology.edges) * 18
    each = 8 * (1 + 1 + 2) + 17 * 8 * (1 + 2)
    assert result.traffic.bytes == len(topology.edges) * each
    assert_array_equal(result.traffic.edge_messages, np.full(len(topology.edges), 18))
    assert result.traffic.collectives == result.traffic.collective_bytes == 0


def test_global_agreement_is_counted_apart():
    """One double per node and iteration; the last iteration only reads."""
    result = solve(quadratics(5), RING, agreement="global")

    assert result.traffic.messages == len(RING.edges) * (result.iterations + 1)
    assert result.traffic.collectives == result.iterations - 1
    assert result.traffic.collective_bytes == result.traffic.collectives * 5 * 8
    assert not result.history["quiet"].any()  # the neighbours' words stay out of it


@pytest.mark.parametrize(("scheme", "n_probes"), [("fixed", 0), ("vp", 0), ("nap", 2)])
@pytest.mark.parametrize("probe", ["midpoint", "neighbour"])
def test_objectives_are_asked_for_once_and_only_where_needed(scheme, n_probes, probe):
    """At the node's own parameters first, then at each probe; all in one call.

    At the end they are asked for at the solution.
    """
    tried, problems = [], quadratics(5)
    ask = problems[0].objectives

    def note(rows, stats):
        tried.append(rows.copy())
        return ask(rows, stats)

    problems[0].objectives = note
    result = solve(problems, RING, scheme=scheme, probe=probe, max_iter=1)

    (own, *others), last = tried
    assert_array_equal(last[0], result.solution)
    near = result.theta[[1, 4]][:n_probes]
    assert_array_equal(own, result.theta[0])
    assert len(others) == n_probes
    for row, theta in zip(others, near, strict=True):
        assert_array_equal(row, theta if probe == "neighbour" else (own + theta) / 2)
