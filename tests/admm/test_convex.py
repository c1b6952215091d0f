"""Convex problems: schemes that adapt for ever, and penalties of one end's own.

That every scheme reaches the optimum is shown in `tests/comm/test_sending.py`.
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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_converges_from_a_small_penalty(scheme):
    """eta0 = 0.1 suits these curvatures, and plain ADMM is done in 200 iterations.

    A high penalty holds the ends of an edge together, so that tau is near zero: then
    ``vp_nap``, which pays |tau| only, would double and halve for ever and diverge, if
    its adaptation had no last iteration.
    """
    problems = quadratics(8, curvature=(0.03, 1.0), seed=1)
    best = optimum(problems)

    def watch(t, run):
        near = distance(run.theta, best) < 1e-9
        return "signal" if near and scheme != "vp_nap" else None

    result = solve(
        problems, Topology.ring(8), scheme=scheme, eta0=0.1, tolerance=0, max_iter=2000,
        record=False, callbacks=[watch],
    )  # fmt: skip

    assert distance(result.theta, best) < 1e-8


@pytest.mark.parametrize("graph", ["ring", "complete", "cluster"])
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name not in AGREEING])
def test_penalties_of_its_own_lead_each_scheme_to_a_wrong_point(scheme, graph):
    """coupling="own", the paper as printed: perfect consensus, on something else."""
    problems = quadratics(5)

    result = solve(
        problems, getattr(Topology, graph)(5), scheme=scheme, coupling="own",
        tolerance=0, max_iter=250, record=False,
    )  # fmt: skip

    assert metrics.consensus_error(result.theta) < 1e-10
    assert distance(result.theta, optimum(problems)) > 1e-4
