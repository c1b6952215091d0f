"""Warm starts: from parameters and multipliers, also of another graph or penalty."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import ConfigError, Topology
from dadmm.problems import LeastSquares, Ridge
from tests.support.problems import quadratics
from tests.support.solving import solve
from tests.support.tables import KINDS, table

RING = Topology.ring(6)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_to_do_if_nothing_changed(kind):
    problems = table(kind, 6)
    first = solve(problems, RING)

    again = solve(problems, RING, warm_start=first)
    on_a_star = solve(problems, Topology.star(6), warm_start=first)

    assert again.status == on_a_star.status == "certified"
    assert again.iterations == 0
    assert on_a_star.iterations <= 4 + 2 * 2
    assert again.traffic.messages == len(RING.edges)  # those with the start


def test_a_problem_without_metric_needs_only_the_time_to_agree():
    problems = quadratics(6)
    first = solve(problems, RING, tolerance=1e-6)

    again = solve(problems, RING, tolerance=1e-4, warm_start=first)

    assert again.iterations <= 2 + 4 + 2 * RING.diameter


def rows(n, alpha):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 4)) * [1e-3, 1.0, 1e3, 1.0] + [0, 10, 0, 0]
    y = X @ [1e3, 1.0, 1e-3, 0.0] + rng.standard_normal(n)
    parts = np.array_split(np.arange(n), 6)
    return [Ridge(X[part], y[part], alpha) for part in parts]


def test_the_next_penalty_and_more_rows_take_fewer_iterations():
    first = solve(rows(240, 1.0), RING, tolerance=1e-5)
    for problems in (rows(240, 1.1), rows(246, 1.0)):
        cold = solve(problems, RING, tolerance=1e-5)
        warm = solve(problems, RING, tolerance=1e-5, warm_start=first)

        assert warm.status == cold.status == "certified"
        assert warm.iterations < cold.iterations
        bound = warm.certificate.coefficients + cold.certificate.coefficients
        assert (np.abs(warm.solution - cold.solution) <= bound).all()


def test_duals_sum_to_zero_and_are_minus_the_gradients():
    problems = rows(240, 0.0)
    result = solve(problems, RING, tolerance=1e-7)

    duals = np.array([result.duals[i] for i in range(6)])
    assert np.abs(duals.sum(axis=0)).max() < 1e-9 * np.abs(duals).max()
    for problem, dual in zip(problems, duals, strict=True):
        F, target = problem.equations
        gradient = (F @ result.solution - target) @ F
        assert dual == pytest.approx(-gradient, rel=1e-3, abs=1e-3 * np.abs(dual).max())


def test_a_warm_start_that_does_not_fit_is_refused():
    first = solve(rows(240, 1.0), RING)
    with pytest.raises(ConfigError, match="warm_start must be a result of"):
        solve(rows(240, 1.0), RING, warm_start=first.theta)
    with pytest.raises(ConfigError, match="give init or warm_start, not both"):
        solve(rows(240, 1.0), RING, warm_start=first, init="independent")
    rng = np.random.default_rng(0)
    other = [LeastSquares(rng.standard_normal((9, 2)), np.ones(9)) for _ in range(6)]
    with pytest.raises(ConfigError, match="warm_start has 6 nodes with Layout"):
        solve(other, RING, warm_start=first)
