"""Regression over a network: the optimum of all rows."""

from __future__ import annotations

from functools import cache

import pytest

from dadmm import Topology
from dadmm.penalty import SCHEMES
from tests.support.linear import NAMES, make, pooled
from tests.support.problems import distance
from tests.support.solving import solve

GRAPHS = {"ring": Topology.ring(4), "cluster": Topology.cluster(4)}
PAIRS = [(name, "snap") for name in NAMES] + [("lasso", each) for each in SCHEMES]


@cache
def network(name, n):
    """Return n nodes' problems, and the optimum of all their rows by other means."""
    cases = [make(name, (12, 4), seed, scale=1 / n)[0] for seed in range(n)]
    return [case.problem for case in cases], pooled(cases)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(("name", "scheme"), dict.fromkeys(PAIRS))
def test_every_scheme_finds_the_optimum_of_all_rows(name, scheme, graph):
    """To 1e-6; f_i is a plain sum over rows, alpha is shared evenly by the nodes."""
    problems, best = network(name, len(GRAPHS[graph]))

    def watch(t, run):
        return "signal" if distance(run.theta, best) < 1e-7 else None

    eta0 = 0.3 if name.startswith("logistic") else 4.0
    result = solve(
        problems, GRAPHS[graph], scheme=scheme, eta0=eta0, tolerance=0,
        max_iter=1000, record=False, callbacks=[watch],
    )  # fmt: skip

    assert distance(result.theta, best) < 1e-6
