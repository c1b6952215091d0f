"""Regression problems: what they minimise, and that their proximal steps are exact."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout
from dadmm.core.errors import ProblemError
from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LeastSquares,
    LogisticRegression,
    PoissonRegression,
    Ridge,
)
from tests.support.linear import NAMES, SIZES, Case, make

WEIGHTS = [0.0, 1e-8, 1.0, 1e12]
# a single row is of one class, which has no best intercept
UNBOUNDED = ("logistic with intercept", (1, 5), 0.0)
CASES = [case for case in product(NAMES, SIZES, WEIGHTS) if case != UNBOUNDED]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_objectives_are_sums_over_the_rows(name, size):
    """One half of squared errors, and the penalty as it was passed: no 1/n."""
    case, centre = make(name, size)
    thetas = centre * np.array([[0.0], [1.0], [-3.0], [100.0]])

    found = case.problem.objectives(thetas, case.problem.expect(centre))

    wanted = [float(case.objective(x)) for x in thetas]
    assert_allclose(found, wanted, rtol=1e-13)


@pytest.mark.parametrize(("name", "size", "weight"), CASES)
def test_proximal_steps_are_exact(name, size, weight):
    case, centre = make(name, size)

    for theta in (0 * centre, 30 * centre, centre):
        x = case.problem.prox(theta, None, centre, weight)
        unrest, rounding = case.unrest(x, centre, weight)
        assert unrest <= rounding
        assert_allclose(case.problem.prox(x, None, centre, weight), x, rtol=1e-10)


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_may_be_changed_afterwards(name):
    centre, rng = make(name)[1], np.random.default_rng(2)
    X, y = rng.normal(size=(9, 4)), rng.integers(2, size=9).astype(float)
    problem = Case(name, X, y).problem
    first = problem.prox(0 * centre, None, centre, 1.0)

    X[:], y[:] = 0.0, 0.0

    assert_array_equal(problem.prox(0 * centre, None, centre, 1.0), first)


X, Y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])
WRONG = {
    "Ridge needs X of shape (n, d) with n, d >= 1, got (3,)": lambda: Ridge(Y, Y),
    "LeastSquares needs one y for each of the 3 rows of X, shape (3,), got (2,)": (
        lambda: LeastSquares(X, Y[:2])
    ),
    "ElasticNet needs finite X, but row 1, column 0 is nan": (
        lambda: ElasticNet(np.where(X == 2, np.nan, X), Y)
    ),
    "LogisticRegression needs finite y, but row 2 is inf": (
        lambda: LogisticRegression(X, [0, 1, np.inf])
    ),
    "LeastSquares needs X of numbers": lambda: LeastSquares([["a"]], [1.0]),
    "alpha must be at least 0 and finite, got -1": lambda: Ridge(X, Y, -1),
    "alpha must be a number, got 'much'": (lambda: Lasso(X, Y, "much")),
    "l1_ratio must be from 0 to 1, got 1.5": (lambda: ElasticNet(X, Y, 1.0, 1.5)),
    "fit_intercept must be true or false, got 'no'": (
        lambda: Ridge(X, Y, fit_intercept="no")
    ),
    "delta must be above 0 and finite, got 0": lambda: Huber(X, Y, 0),
    "labels 0 and 1 or -1 and 1, got -1, 0, 1": (
        lambda: LogisticRegression(X, [-1, 0, 1])
    ),
    "labels 0 and 1 or -1 and 1, got 0, 1, 2, 3, 4, ...": (
        lambda: LogisticRegression(np.ones((7, 1)), np.arange(7))
    ),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_bad_input_gets_one_sentence(sentence):
    with pytest.raises(ProblemError) as caught:
        WRONG[sentence]()

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layouts_name_the_parts_and_starts_are_zero():
    plain = (LeastSquares, Ridge, Lasso, ElasticNet, Huber, LogisticRegression)
    for kind in (*plain, PoissonRegression):
        problem = kind(X, Y)
        assert problem.layout == Layout.of(coef=(2,), intercept=())
        assert_array_equal(problem.init(np.random.default_rng(0)), np.zeros(3))
        bare = kind(X, Y, fit_intercept=False)
        assert bare.layout == Layout.of(coef=(2,))
