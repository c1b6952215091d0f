"""The certificate: bounds hold at every iteration, and are not far from the truth."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm.graphs import topology
from dadmm.problems import Huber, Lasso, LeastSquares
from tests.support.problems import quadratics
from tests.support.solving import solve
from tests.support.tables import KINDS, pooled_value, table


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", ["ring", "star"])
def test_the_bounds_hold_after_any_number_of_iterations(kind, graph):
    problems, net = table(kind, 6, steep=1.0), topology.build(graph, 6)
    best = solve(problems, net, tolerance=1e-9, max_iter=3000)
    least, gaps = best.objective, []

    assert best.status == "certified"
    for max_iter in (1, 3, 8, 15, 30):
        result = solve(problems, net, tolerance=0, max_iter=max_iter)
        found = result.certificate
        true = result.objective - least
        assert -1e-9 * least <= true <= found.gap
        off = np.abs(result.solution - best.solution)
        assert (off <= found.coefficients + best.certificate.coefficients).all()
        assert result.objective == pytest.approx(
            pooled_value(problems, result.solution), rel=1e-9
        )
        gaps.append(found.gap)
    assert gaps[-1] < 1e-3 * least


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_l1_penalty_bounds_the_gap_if_columns_exceed_rows(fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 60))
    y = 3.0 * X[:, 0] + 2.0 + 0.1 * rng.standard_normal(40)
    parts = np.array_split(np.arange(40), 5)
    free = {"fit_intercept": fit_intercept}
    problems = [Lasso(X[r], y[r], 0.5, **free) for r in parts]
    net = topology.build("ring", 5)

    result = solve(problems, net)
    best = solve(problems, net, tolerance=1e-4, max_iter=5000)

    found = result.certificate
    assert result.status == best.status == "certified"
    assert found.open_directions == 20 + fit_intercept
    assert found.radius == np.inf
    assert result.objective - best.objective <= found.gap <= 1e-5 * result.objective
    assert (result.solution == 0.0).sum() > 20


def test_without_curvature_no_point_nearby_is_much_lower():
    """An own convex problem with exact steps: its Hessian is not known."""
    problems = quadratics(6, 3, seed=2)
    for problem in problems:
        problem.convex = problem.exact = True
    net = topology.build("ring", 6)
    best = solve(problems, net, tolerance=1e-12, absolute_tolerance=1e-13)

    result = solve(problems, net, max_iter=6, tolerance=0)

    assert result.coordinates == "raw"
    way = np.linalg.norm(best.solution - result.solution)
    true = result.objective - best.objective
    assert 0.0 < true <= result.certificate.lower_within(way)
    assert result.certificate.gap == np.inf
    assert not result.certificate.holds


def test_a_fit_without_error_is_certified():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    problems = [LeastSquares(x, x @ [1.0, 2.0, 3.0]) for x in np.split(X, 6)]

    result = solve(problems, topology.build("ring", 6))

    assert result.status == "certified"
    assert result.solution == pytest.approx([1.0, 2.0, 3.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("unit", [1e-310, 1e-160])
def test_a_target_that_underflows_is_not_certified(unit):
    X, y = np.random.default_rng(0).standard_normal((2, 6, 20, 3))
    problems = [LeastSquares(X[i], unit * y[i, :, 0]) for i in range(6)]
    assert solve(problems, topology.build("ring", 6)).status == "stopped"


def test_the_bound_of_an_l1_penalty_needs_constant_curvature():
    """Huber's rows at one point say nothing of the curvature at others."""
    rng = np.random.default_rng(1)
    X, errors = rng.standard_normal((2, 12, 3)), rng.standard_normal((2, 12))
    lasso = Lasso(X[0], X[0] @ [1.0, 0.0, 2.0] + errors[0], 2.0)
    huber = Huber(X[1], X[1] @ [9.0, 0.0, 2.0] + 9 + errors[1], 0.3)
    graph = topology.build("chain", 2)
    best = solve([lasso, huber], graph, tolerance=1e-7)
    assert best.status == "certified"

    for max_iter in range(1, 30):
        result = solve([lasso, huber], graph, max_iter=max_iter)

        assert result.objective - best.objective <= result.certificate.gap


@pytest.mark.parametrize("aim", [1.0, 0.0])
@pytest.mark.parametrize("weight", [1e28, 1e34, 1e100])
def test_rows_that_a_heavy_row_hides_are_not_certified(weight, aim):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(30, 3)), np.ones(30)
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=30)
    weights[7], y[7] = weight, aim * y[7]

    own = [np.arange(i, 30, 3) for i in range(3)]
    problems = [LeastSquares(X[i], y[i], sample_weight=weights[i]) for i in own]
    result = solve(problems, topology.build("ring", 3))

    assert result.status == "stopped"
    assert "weight" in result.why
