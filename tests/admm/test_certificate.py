"""The certificate: the gap, the connectivity, and the identity behind the bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dadmm.admm.certificate import connectivity
from dadmm.graphs import topology
from dadmm.problems import Lasso, LeastSquares
from tests.support.problems import quadratics
from tests.support.solving import solve


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", ["least squares", "lasso"])
@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_the_gap_is_estimated_within_two_orders(kind, graph, fit_intercept):
    free = {"fit_intercept": fit_intercept}
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 5))
    y = X @ [1.0, -2.0, 0.0, 0.0, 3.0] + rng.standard_normal(60) + 4 * fit_intercept
    rows = np.array_split(np.arange(60), 6)
    if kind == "lasso":
        problems = [Lasso(X[r], y[r], 2.0, **free) for r in rows]
        pooled = Lasso(X, y, 12.0, **free)
    else:
        problems = [LeastSquares(X[r], y[r], **free) for r in rows]
        pooled = LeastSquares(X, y, **free)
    zero = np.zeros(pooled.layout.size)
    best = pooled.prox(zero, None, zero, 0.0)
    least = pooled.objectives(best[None], None)[0]

    for tolerance in (1e-2, 1e-3, 1e-4):
        result = solve(
            problems, topology.build(graph, 6), tolerance=tolerance, max_iter=3000
        )
        assert result.converged
        true = abs(result.objectives.sum() - least)
        assert true <= result.certificate.gap <= 1e3 * tolerance * least


def test_connectivity_of_known_graphs():
    """Complete: n. Ring and chain: 2 - 2 cos of the longest wave's angle."""
    ring, chain = 2 - 2 * math.cos(2 * math.pi / 12), 2 - 2 * math.cos(math.pi / 12)

    assert connectivity(topology.build("complete", 12)) == pytest.approx(12)
    assert connectivity(topology.build("ring", 12)) == pytest.approx(ring)
    assert connectivity(topology.build("chain", 12)) == pytest.approx(chain)


def test_the_residuals_sum_to_the_gradient_of_the_whole():
    problems, net = quadratics(8, 3, seed=4), topology.build("ring", 8)
    totals = []

    def watch(t, run):
        gradients = sum(
            problem.A @ (theta - problem.b)
            for problem, theta in zip(problems, run.theta, strict=True)
        )
        totals.append(np.abs(run.work.stationarity.sum(axis=0) + gradients).max())

    solve(problems, net, scheme="fixed", relaxation=1.6, max_iter=30,
                tolerance=0, callbacks=[watch])  # fmt: skip

    assert max(totals) < 1e-11
