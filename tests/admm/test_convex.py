"""Convex problems with known optimum: every scheme gets there, on every graph.

Curvatures are near the default penalty: with one that is far off, plain ADMM converges
too, but in more iterations than a test has time for.
"""

from __future__ import annotations

import pytest

from dadmm import Topology
from dadmm.penalty import SCHEMES
from dadmm.problems import metrics
from tests.support.problems import distance, optimum, quadratics
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


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("scheme", DIFFERING)
def test_penalties_of_its_own_lead_each_scheme_to_a_wrong_point(scheme, graph):
    """coupling="own", the paper as printed: perfect consensus, on something else."""
    problems = quadratics(5)

    result = run(problems, getattr(Topology, graph)(5), scheme, 250, coupling="own")

    assert metrics.consensus_error(result.theta) < 1e-10
    assert distance(result.theta, optimum(problems)) > 1e-4
