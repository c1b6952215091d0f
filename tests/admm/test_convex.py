"""Quadratics: a scheme that would adapt for ever, and penalties of one end's own.

That every scheme reaches the optimum is shown in `tests/comm/test_sending.py`.
"""

import pytest

from dadmm import Topology
from dadmm.penalty import SCHEMES
from dadmm.problems import metrics
from tests.support.problems import distance, optimum, quadratics
from tests.support.solving import solve

# Schemes that give the ends of an edge unlike penalties
DIRECTED = [name for name, kind in SCHEMES.items() if not kind.is_symmetric]
ENDLESS = {"tolerance": 0, "record": False}


def test_vp_nap_converges_from_a_small_penalty():
    """It pays |tau| only, and would double and halve forever if it had no last time."""
    problems = quadratics(8, curvature=(0.03, 1.0), seed=1)
    given = {"scheme": "vp_nap", "eta0": 0.1, "max_iter": 1500}
    result = solve(problems, Topology.ring(8), **given, **ENDLESS)

    assert distance(result.theta, optimum(problems)) < 1e-8


@pytest.mark.parametrize("scheme", DIRECTED)
def test_penalties_of_its_own_lead_each_scheme_to_a_wrong_point(scheme):
    """coupling="own", the paper as printed: perfect consensus, on something else."""
    problems = quadratics(5)
    for graph in (Topology.ring(5), Topology.complete(5), Topology.cluster(5)):
        given = {"scheme": scheme, "coupling": "own", "max_iter": 250}
        theta = solve(problems, graph, **given, **ENDLESS).theta

        assert metrics.consensus_error(theta) < 1e-10
        assert distance(theta, optimum(problems)) > 1e-4
