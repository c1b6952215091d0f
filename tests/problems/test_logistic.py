"""Logistic regression: labels, one class, separable classes, saturated starts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from dadmm.problems import LogisticRegression
from tests.support.linear import Case, data


def labelled(n, d, seed=0):
    X, y, centre = data(n, d, seed)
    return X, (X[:, 0] + y > 0).astype(float), np.append(centre, 0.5)


def test_labels_may_be_zero_and_one_or_plus_and_minus_one():
    """Or truth values; the steps are the same."""
    X, y, centre = labelled(20, 3)

    steps = [
        LogisticRegression(X, labels, 1.0).prox(centre, None, centre, 1.0)
        for labels in (y, 2 * y - 1, y > 0, y.astype(int).tolist())
    ]

    for step in steps[1:]:
        assert_array_equal(step, steps[0])


@pytest.mark.parametrize("label", [0, 1, -1])
def test_a_node_with_one_class_is_pulled_towards_it_by_its_weight(label):
    """Only without a weight has it no finite minimum."""
    X, _, centre = labelled(10, 3)
    problem = LogisticRegression(X, np.full(10, label), 0.1)

    x = problem.prox(0 * centre, None, 0 * centre, 1e-3)

    assert np.sign(x[-1]) == (1 if label > 0 else -1)
    assert np.isfinite(problem.prox(centre, None, centre, 0.0)).all()


def test_separable_classes_are_separated():
    """Without weight and penalty the steps go on to infinity, but end."""
    X, _, centre = labelled(15, 3)
    problem = LogisticRegression(X, X[:, 0] > 0.1, 0.0)

    x = problem.prox(0 * centre, None, centre, 0.0)

    assert np.isfinite(x).all()
    assert problem.objectives(x[None], None)[0] < 1e-6
    assert_array_equal(X @ x[:-1] + x[-1] > 0, X[:, 0] > 0.1)


@pytest.mark.parametrize("weight", [1e-6, 1e-2, 1.0])
def test_saturated_starts_are_left(weight):
    """Where all losses are straight or flat, and a Newton step leaps."""
    X, y, centre = labelled(25, 4)
    case = Case("logistic", 50 * X, y)

    with np.errstate(over="raise", invalid="raise", divide="raise"):
        x = case.problem.prox(1e4 * centre, None, centre, weight)
        values = case.problem.objectives(np.stack([x, 1e6 * centre]), None)

    unrest, rounding = case.unrest(x, centre, weight)
    assert unrest <= rounding
    assert np.isfinite(values).all()


def test_equal_columns_share_their_coefficient():
    """Without weight and penalty, the shortest of all best points."""
    X, y, centre = labelled(40, 3)
    X[:, 1] = X[:, 0]

    x = LogisticRegression(X, y, 0.0).prox(centre, None, centre, 0.0)

    assert_allclose(x[0], x[1], rtol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_logistic_steps_agree_with_scipy(intercept):
    """Of the objective as it stands, with or without an intercept."""
    X, y, centre = labelled(30, 3)
    problem = LogisticRegression(X, y, 0.5, intercept=intercept)
    centre = centre[: problem.layout.size]

    def value(x):
        off = x - centre
        return problem.objectives(x[None], None)[0] + 0.35 * off @ off

    found = minimize(value, 0 * centre, tol=1e-10).x

    x = problem.prox(0 * centre, None, centre, 0.7)
    assert_allclose(x, found, atol=1e-6)
    assert value(x) <= value(found)
