"""Huber regression: between squares and the median, whatever the outliers are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.problems import Huber, Ridge
from tests.support.linear import Case, data, make


def test_a_wide_band_is_ridge_regression():
    """When every error is within delta."""
    X, y, centre = data(30, 4)

    for weight in (0.0, 1e-3, 5.0):
        x = Huber(X, y, 1e6, 0.2).prox(centre, None, centre, weight)
        ridge = Ridge(X, y, 0.2).prox(centre, None, centre, weight)
        assert_allclose(x, ridge, rtol=1e-11)


def test_a_narrow_band_is_the_median():
    """Of an odd number of values, to delta."""
    y = data(21, 1)[1]

    x = Huber(np.ones((21, 1)), y, 1e-9).prox(np.zeros(1), None, np.zeros(1), 0.0)

    assert_allclose(x[0], np.median(y), atol=1e-8)


def test_it_does_not_matter_how_wrong_an_outlier_is():
    """Only on which side."""
    X, y, centre = data(30, 4)
    steps = []
    for error in (1e2, 1e9):
        y[3] = error
        steps.append(Huber(X, y, 1.0).prox(0 * centre, None, centre, 1.0))

    assert_allclose(steps[1], steps[0], rtol=1e-12)


def test_all_rows_may_be_outliers_at_first():
    """Then the objective has no curvature of its own to step by."""
    X, y, centre = data(40, 5)
    case = Case("huber", X, y)
    problem = Huber(X, y, 0.7)

    x = problem.prox(1e6 * centre, None, centre, 0.0)

    case.l2[:] = 0.0
    unrest, rounding = case.unrest(x, centre, 0.0)
    assert unrest <= rounding


def test_errors_of_exactly_delta_do_not_stop_the_search():
    """Two values and a band that just reaches both: the mean, as for squares."""
    X, centre = np.ones((2, 1)), np.zeros(1)

    x = Huber(X, np.array([-1.0, 1.0]), 1.0).prox(centre + 5, None, centre, 0.0)

    assert_allclose(x, [0.0], atol=1e-15)


def test_make_gives_errors_on_both_sides_of_delta():
    """Or the tests of this problem would be those of another."""
    case, centre = make("huber")
    x = case.problem.prox(centre, None, centre, 1.0)

    assert 3 < np.count_nonzero(np.abs(case.X @ x - case.y) > 0.7) < 27


@pytest.mark.parametrize("weight", [0.0, 1e-3, 1.0])
def test_an_intercept_is_a_column_of_ones_without_penalty(weight):
    """However large the penalty of the others."""
    X, y, centre = data(30, 4)
    problem, centre = Huber(X, y, 0.7, 5.0, intercept=True), np.append(centre, 2.0)

    x = problem.prox(0 * centre, None, centre, weight)

    assert problem.layout.views(x).intercept == x[-1]
    pull = np.append(5.0 * x[:-1], 0.0) + weight * (x - centre)
    rows = np.column_stack([X, np.ones(30)])
    force = np.clip(rows @ x - y, -0.7, 0.7)
    assert_allclose(force @ rows, -pull, atol=1e-12)
    loss = Huber(rows, y, 0.7).objectives(x[None], None)
    value = problem.objectives(x[None], None)
    assert_allclose(value, loss + 2.5 * (x[:-1] @ x[:-1]))
