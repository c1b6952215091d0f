"""Regression problems: what they minimise, and that their proximal steps are exact."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LeastSquares,
    LogisticRegression,
    Ridge,
)
from tests.support.linear import NAMES, SIZES, Case, make

WEIGHTS = [1e-8, 1.0, 1e12]
# a single row is of one class, which has no best intercept
BOUNDED = [
    case
    for case in product(NAMES, SIZES)
    if case != ("logistic with intercept", (1, 5))
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_objectives_are_sums_over_the_rows(name, size):
    """One half of squared errors, and the penalty as it was passed: no 1/n."""
    case, centre = make(name, size)
    thetas = centre * np.array([[0.0], [1.0], [-3.0], [100.0]])

    found = case.problem.objectives(thetas, case.problem.expect(centre))

    assert_allclose(found, [case.objective(x) for x in thetas], rtol=1e-13)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_proximal_steps_are_exact(name, size, weight):
    """From zero, from afar and from the solution itself, for any weight."""
    case, centre = make(name, size)

    for theta in (0 * centre, 30 * centre, centre):
        x = case.problem.prox(theta, None, centre, weight)
        unrest, rounding = case.unrest(x, centre, weight)
        assert unrest <= rounding
        assert_allclose(case.problem.prox(x, None, centre, weight), x, rtol=1e-10)


@pytest.mark.parametrize(("name", "size"), BOUNDED)
def test_weight_zero_gives_a_minimum_of_the_objective(name, size):
    """Whatever the centre is."""
    case, centre = make(name, size)

    x = case.problem.prox(centre, None, centre, 0.0)

    unrest, rounding = case.unrest(x, 0 * centre, 0.0)
    assert unrest <= rounding


@pytest.mark.parametrize("name", NAMES)
def test_a_minimum_is_below_its_surroundings(name):
    """By the objectives alone, which know nothing of the gradients above."""
    case, centre = make(name)
    x = case.problem.prox(0 * centre, None, centre, 2.0)
    nearby = x + 1e-4 * np.random.default_rng(1).normal(size=(50, len(x)))

    rows = np.vstack([x, nearby])
    values = case.problem.objectives(rows, None) + np.sum((rows - centre) ** 2, axis=1)

    assert (values[1:] > values[0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_pure(name):
    """The same bits each time, arguments left alone, and memory of its own."""
    case, centre = make(name)
    problem, start = case.problem, np.zeros(len(centre))
    before = centre.copy()

    x = problem.prox(start, None, centre, 1.0)
    again = make(name)[0].problem.prox(start, None, centre, 1.0)
    fixed = problem.prox(x, None, centre, 1.0)

    assert_array_equal(again, x)
    assert_array_equal(centre, before)
    assert not np.shares_memory(fixed, x)
    assert_array_equal(start, np.zeros(len(centre)))


@pytest.mark.parametrize("name", NAMES)
def test_problems_keep_the_protocol(name):
    """Zeros to start with, nothing latent, and named parts."""
    problem = make(name)[0].problem
    theta = problem.init(np.random.default_rng(0))

    assert isinstance(problem, Problem)
    assert_array_equal(theta, np.zeros(problem.layout.size))
    assert problem.expect(theta) is None
    assert problem.layout.views(theta).coef.shape == (4,)


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_may_be_changed_afterwards(name):
    """A problem keeps what it needs of them."""
    centre, rng = make(name)[1], np.random.default_rng(2)
    X, y = rng.normal(size=(9, 4)), rng.integers(2, size=9).astype(float)
    problem = Case(name, X, y).problem
    first = problem.prox(0 * centre, None, centre, 1.0)

    X[:], y[:] = 0.0, 0.0

    assert_array_equal(problem.prox(0 * centre, None, centre, 1.0), first)


# What a user can get wrong

X, Y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])
WRONG = {
    "Ridge needs X of shape (n, d) with n, d >= 1, got (3,)": lambda: Ridge(Y, Y),
    "Lasso needs X of shape (n, d) with n, d >= 1, got (0, 2)": (
        lambda: Lasso(X[:0], Y[:0])
    ),
    "LeastSquares needs one y for each of the 3 rows of X, shape (3,), got (2,)": (
        lambda: LeastSquares(X, Y[:2])
    ),
    "Huber needs one y for each of the 3 rows of X, shape (3,), got (3, 1)": (
        lambda: Huber(X, Y[:, None])
    ),
    "ElasticNet needs finite X, but row 1, column 0 is nan": (
        lambda: ElasticNet(np.where(X == 2, np.nan, X), Y)
    ),
    "LogisticRegression needs finite y, but row 2 is inf": (
        lambda: LogisticRegression(X, [0, 1, np.inf])
    ),
    "LeastSquares needs X and y of numbers": lambda: LeastSquares([["a"]], [1.0]),
    "alpha must be a number, not negative and finite, got -1": lambda: Ridge(X, Y, -1),
    "alpha must be a number, not negative and finite, got nan": (
        lambda: LogisticRegression(X, Y, float("nan"))
    ),
    "alpha must be a number, not negative and finite, got 'much'": (
        lambda: Lasso(X, Y, "much")
    ),
    "l1_ratio must be a number, from 0 to 1, got 1.5": (
        lambda: ElasticNet(X, Y, 1.0, 1.5)
    ),
    "fit_intercept must be true or false, got 'no'": (
        lambda: Ridge(X, Y, fit_intercept="no")
    ),
    "delta must be a number, positive and finite, got 0": lambda: Huber(X, Y, 0),
    "labels 0 and 1 or -1 and 1, got -1, 0, 1": (
        lambda: LogisticRegression(X, [-1, 0, 1])
    ),
    "labels 0 and 1 or -1 and 1, got 0, 1, 2, 3, 4, ...": (
        lambda: LogisticRegression(np.ones((7, 1)), np.arange(7))
    ),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_bad_input_gets_one_sentence(sentence):
    """That names the argument, the rule and what came."""
    with pytest.raises(ProblemError) as caught:
        WRONG[sentence]()

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layouts_name_the_parts():
    """With an intercept, unless told otherwise."""
    for kind in (LeastSquares, Ridge, Lasso, ElasticNet, Huber, LogisticRegression):
        assert kind(X, Y).layout == Layout.of(coef=(2,), intercept=())
        bare = kind(X, Y, fit_intercept=False)
        assert bare.layout == Layout.of(coef=(2,))
