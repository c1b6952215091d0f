"""Convex problems with known optimum: every scheme gets there, on every graph.

Curvatures are near the default penalty: with one that is far off, plain ADMM converges
too, but in more iterations than a test has time for.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.penalty import SCHEMES
from dadmm.problems import metrics
from tests.support.problems import (
    distance,
    optimum,
    quadratics,
    random_graph,
)
from tests.support.solving import solve

# Both ends of an edge come to one penalty by themselves, or each to its own
AGREEING = [name for name in SCHEMES if SCHEMES[name].is_symmetric or name == "fixed"]
DIFFERING = [name for name in SCHEMES if name not in AGREEING]
# graph: curvatures of its nodes, and iterations until 1e-9 with some to spare
GRAPHS = {
    "ring": ((5.0, 20.0), 600),
    "complete": ((30.0, 100.0), 250),
    "cluster": ((20.0, 60.0), 550),
}
# These settle on penalties too small for wide graphs: they get there, but not soon
SLOW = ("global_balance",)


def run(problems, topology, scheme, max_iter, **settings):
    """Solve with the default penalty settings for exactly so many iterations."""
    settings = {"record": False, **settings}
    return solve(
        problems, topology, scheme=scheme, tolerance=0, max_iter=max_iter, **settings
    )


def reach(problems, topology, scheme, max_iter, **settings):
    """Solve until the worst node is within 1e-9, and as long as it takes to say so."""
    best = optimum(problems)

    def watch(t, run):
        return "signal" if distance(run.theta, best) < 1e-9 else None

    return run(problems, topology, scheme, max_iter, callbacks=[watch], **settings)


@pytest.mark.parametrize(
    ("scheme", "relaxation"),
    [(scheme, 1.0) for scheme in SCHEMES] + [("fixed", 1.6), ("snap", 1.6)],
)
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_scheme_reaches_the_optimum(graph, scheme, relaxation):
    """To 1e-8, though each node has its own axes, curvatures and centre.

    Five nodes, where a scheme is slow.
    """
    curvature, enough = GRAPHS[graph]
    n_nodes = 5 if scheme in SLOW else 10
    problems = quadratics(n_nodes, curvature=curvature)
    topology = getattr(Topology, graph)(n_nodes)

    result = reach(problems, topology, scheme, enough, relaxation=relaxation)

    assert distance(result.theta, optimum(problems)) < 1e-8
    assert result.iterations < enough


@pytest.mark.parametrize("scheme", ["nap", "vp_nap"])
def test_budgets_that_are_never_spent_do_no_harm(scheme):
    """With f near 1e15 all objectives look equal: tau is zero, and so is its price."""
    problems = quadratics(4, floor=1e15)

    result = run(problems, Topology.cluster(4), scheme, 800, record_edges=True)

    assert_array_equal(result.history.edges["spent"][-1], np.zeros(6))
    assert distance(result.theta, optimum(problems)) < 1e-8


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_converges_from_a_small_penalty(scheme):
    """eta0 = 0.1 suits these curvatures, and plain ADMM is done in 200 iterations.

    A high penalty holds the ends of an edge together, so that tau is near zero: then
    ``vp_nap``, which pays |tau| only, would double and halve for ever and diverge, if
    its adaptation had no last iteration.
    """
    problems = quadratics(8, curvature=(0.03, 1.0), seed=1)
    until = run if scheme == "vp_nap" else reach

    result = until(problems, Topology.ring(8), scheme, 2000, eta0=0.1)

    assert distance(result.theta, optimum(problems)) < 1e-8


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", range(3))
def test_any_graph_and_any_start_lead_to_the_optimum(scheme, seed):
    """Random trees with a few more edges, each node starting elsewhere, by theta_j."""
    rng = np.random.default_rng(seed)
    topology, problems = random_graph(rng, 5), quadratics(5, size=3, seed=seed)
    theta0 = 10 * rng.normal(size=(5, 3))

    result = run(problems, topology, scheme, 500, init=theta0, probe="neighbour")

    assert distance(result.theta, optimum(problems)) < 1e-8


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("scheme", DIFFERING)
def test_penalties_of_its_own_lead_each_scheme_to_a_wrong_point(scheme, graph):
    """coupling="own", the paper as printed: perfect consensus, on something else."""
    problems = quadratics(5)

    result = run(problems, getattr(Topology, graph)(5), scheme, 250, coupling="own")

    assert metrics.consensus_error(result.theta) < 1e-10
    assert distance(result.theta, optimum(problems)) > 1e-4


@pytest.mark.parametrize(
    ("scheme", "curvature", "off"),
    [("vp", (30.0, 100.0), 0.0105), ("ap", (5.0, 20.0), 1.231)],
)
def test_the_range_that_the_pages_have_for_this(scheme, curvature, off):
    """1 to 123 %: least and most of the paper's schemes on these three graphs.

    On five nodes, and on twenty with curvatures as in `GRAPHS` or all from 5 to 20.
    """
    problems = quadratics(20, curvature=curvature)

    result = run(problems, Topology.complete(20), scheme, 600, coupling="own")

    assert metrics.consensus_error(result.theta) < 1e-9
    assert_allclose(distance(result.theta, optimum(problems)), off, rtol=0.01)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("scheme", AGREEING)
def test_coupling_makes_no_difference_where_both_ends_agree(scheme, graph):
    """It is one number per edge as it stands, so the paper's version is exact too."""
    problems, topology = quadratics(5), getattr(Topology, graph)(5)

    own = run(problems, topology, scheme, 250, coupling="own")

    assert_array_equal(own.theta, run(problems, topology, scheme, 250).theta)
    assert_array_equal(own.eta, own.eta[topology.reverse])
    assert distance(own.theta, optimum(problems)) < 1e-8


def balance_of_multipliers(scheme, coupling):
    """Return the largest sum of all multipliers in a run, relative to the largest."""
    topology, worst = Topology.cluster(6), []
    reverse = topology.reverse

    def watch(t, run):
        rows = run.by_edge(run.state.multipliers)
        worst.append(np.abs(rows.sum(axis=0)).max() / np.abs(rows).max())
        if coupling == "symmetric" or scheme in AGREEING:
            assert_array_equal(rows, -rows[reverse])

    settings = {"coupling": coupling, "callbacks": [watch]}
    run(quadratics(6), topology, scheme, 120, **settings)
    return max(worst)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_multipliers_of_the_two_ends_are_opposite_in_every_iteration(scheme):
    """Bit for bit, so that their sum over the network stays zero to rounding."""
    assert balance_of_multipliers(scheme, "symmetric") < 1e-13


@pytest.mark.parametrize("scheme", DIFFERING)
def test_multipliers_drift_when_each_end_has_its_own_penalty(scheme):
    """That sum is what leads to the wrong point: at the optimum it must be zero."""
    assert balance_of_multipliers(scheme, "own") > 1e-4


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_node_alone_is_done_in_one_iteration(scheme):
    """Its proximal term has weight zero, so it solves the whole problem at once."""
    (problem,) = quadratics(1)

    result = run([problem], Topology.chain(1), scheme, 1)

    assert_allclose(result.theta[0], problem.b, rtol=1e-14)
    assert result.traffic.messages == 0
    assert result.eta.shape == (0,)
