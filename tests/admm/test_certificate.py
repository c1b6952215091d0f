"""What "converged" proves: bounds on the distance from the optimum, and estimates."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dadmm
from dadmm.admm.certificate import connectivity
from dadmm.graphs import topology
from dadmm.problems import Lasso, LeastSquares
from tests.support.problems import optimum, quadratics


def moduli(problems):
    """Return strong convexity of the sum and the largest curvature of a part."""
    strong = np.linalg.eigvalsh(sum(problem.A for problem in problems))[0]
    return strong, max(np.linalg.eigvalsh(problem.A)[-1] for problem in problems)


@pytest.mark.parametrize("graph", ["ring", "star"])
@pytest.mark.parametrize("scheme", ["auto", "fixed", "nap"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_converged_bounds_the_distance_from_the_optimum(graph, scheme, tolerance):
    """For all nodes, with a bound that shrinks with the tolerance."""
    problems, net = quadratics(10, 4, seed=3), topology.build(graph, 10)
    best, (strong, smooth) = optimum(problems), moduli(problems)

    result = dadmm.solve(
        problems, net, scheme=scheme, tolerance=tolerance, max_iter=5000, seed=1
    )

    assert result.converged
    off = np.linalg.norm(result.theta - best, axis=1).max()
    bound = result.distance_bound(strong, smooth)
    assert off <= bound
    # both sides are of the order of the tolerance: the constant is the graph's
    pull = max(np.linalg.norm(problem.A @ (best - problem.b)) for problem in problems)
    scale = smooth / strong * math.sqrt(10) * 10 / math.sqrt(connectivity(net))
    assert bound <= tolerance * scale * (np.linalg.norm(best) + 10 * pull / smooth)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", ["least squares", "lasso"])
@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_the_gap_is_estimated_within_two_orders(kind, graph, fit_intercept):
    """Against the objective at the pooled optimum; never far below it."""
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
        result = dadmm.solve(
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
    """The identity behind the bound, at an arbitrary iteration and relaxation."""
    problems, net = quadratics(8, 3, seed=4), topology.build("ring", 8)
    totals = []

    def watch(t, run):
        gradients = sum(
            problem.A @ (theta - problem.b)
            for problem, theta in zip(problems, run.theta, strict=True)
        )
        totals.append(np.abs(run.work.slope.sum(axis=0) + gradients).max())

    dadmm.solve(problems, net, scheme="fixed", relaxation=1.6, max_iter=30,
                tolerance=0, callbacks=[watch])  # fmt: skip

    assert max(totals) < 1e-11
