"""Smooth: its proximal steps, and its check of the gradient."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

import dadmm
from dadmm.core.errors import ProblemError
from dadmm.problems import Smooth

N, D = 40, 5


def logistic(X, y, alpha=0.5):
    """Return the value and gradient of logistic regression, and its Hessian."""
    signs = np.where(y > 0, 1.0, -1.0)

    def value_and_gradient(w):
        margins = signs * (X @ w)
        slopes = -signs * expit(-margins)
        value = np.logaddexp(0.0, -margins).sum() + 0.5 * alpha * w @ w
        return value, X.T @ slopes + alpha * w

    def hessian(w):
        p = expit(X @ w)
        return (X.T * (p * (1.0 - p))) @ X + alpha * np.eye(X.shape[1])

    return value_and_gradient, hessian


def poisson(X, y):
    def value_and_gradient(w):
        rate = np.exp(X @ w)
        return rate.sum() - y @ (X @ w), X.T @ (rate - y)

    return value_and_gradient


def samples(seed=0, n=N, d=D):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = (X @ rng.normal(size=d) + rng.logistic(size=n) > 0).astype(float)
    return X, y


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3])
def test_proximal_steps_are_accurate_in_any_unit(unit, weight):
    X, y = samples()
    problem = Smooth(logistic(X / unit, y, 0.5 / unit**2)[0], D)
    theta, centre = np.ones(D) * unit, np.arange(D) * unit
    weight = weight / unit**2

    def slope(x):
        return np.abs(problem.subgradient(x) + weight * (x - centre)).max()

    x = problem.prox(theta, None, centre, weight)

    assert slope(x) <= 1e-3 * slope(theta)
    closer = problem.prox(x, None, centre, weight)
    assert slope(closer) <= 2e-3 * slope(x)


def test_a_step_leaves_points_where_f_is_not_finite():
    """f is x - log x; the first trial is at a negative x."""

    def barrier(x):
        inside = x.min() > 0.0
        return (np.sum(x - np.log(x)) if inside else np.nan), 1.0 - 1.0 / x

    problem = Smooth(barrier, 2, start=[0.5, 30.0], convex=True)

    found = problem.prox(problem.init(np.random.default_rng(0)), None, np.ones(2), 1e-3)

    assert_allclose(found, 1.0, atol=0.02)
    assert np.isinf(problem.objectives(-np.ones((1, 2)), None)).all()


@pytest.mark.parametrize("scales", [np.ones(D), 10.0 ** np.array([-6, 6, 0, 3, -3])])
def test_with_a_hessian_there_are_rows_and_coordinates(scales):
    """In mixed units too; without it there are none."""
    X, y = samples()
    value_and_gradient, hessian = logistic(X * scales, y, 0.0)
    bare = Smooth(value_and_gradient, D, convex=True)
    problem = Smooth(value_and_gradient, D, hessian=hessian, convex=True)
    theta, T = np.linspace(-1, 1, D) / scales, np.linspace(-2, 3, 2 * D).reshape(D, 2)
    z, T = np.array([0.3, -0.2]), T / scales[:, None]

    assert not hasattr(bare, "rows")
    assert not hasattr(bare, "within")
    wanted, inner = hessian(theta) / np.outer(scales, scales), problem.within(T)
    for radius, share in ((0.0, 1.0), (0.1, 0.5)):
        rows = problem.rows(theta, radius) / scales
        assert_allclose(rows.T @ rows, share * wanted, rtol=1e-9, atol=1e-12)
    assert_allclose(inner.subgradient(z), T.T @ problem.subgradient(T @ z))
    rows = inner.rows(z)
    assert_allclose(rows.T @ rows, T.T @ hessian(T @ z) @ T, rtol=1e-9)
    dadmm.testing.check_problem(inner, rtol=1e-2)


UNITS = {
    "1": 1.0,
    "1e-6": 1e-6,
    "1e6": 1e6,
    "mixed": 10.0 ** np.array([-6, 6, 0, 3, -3]),
}
FUNCTIONS = {"logistic": lambda X, y: logistic(X, y, 0.0)[0], "poisson": poisson}


def changed(function, factors):
    """Return a function whose gradient is multiplied by these factors."""

    def wrong(theta):
        value, gradient = function(theta)
        return value, factors * gradient

    return wrong


@pytest.mark.parametrize("of_f", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_gradients_are_accepted_in_any_unit(name, units, of_f):
    function = FUNCTIONS[name](samples()[0] * UNITS[units], samples()[1])

    Smooth(lambda w: [of_f * part for part in function(w)], D)


def test_right_gradients_of_noisy_functions_are_accepted():
    """Of single precision, and beside a large constant."""
    function = logistic(*samples())[0]

    Smooth(lambda w: [np.float32(part) for part in function(w)], D)
    Smooth(lambda w: (function(w)[0] + 1e9, function(w)[1]), D)


WRONG_FACTORS = {
    "sign": -1.0,
    "twice": 2.0,
    "one percent": 1.01,
    "one sign": np.array([1, 1, -1, 1, 1]),
    "one twice": np.array([1, 1, 1, 1, 2]),
    "one zero": np.array([1, 0, 1, 1, 1]),
}


@pytest.mark.parametrize("factors", WRONG_FACTORS)
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_gradients_are_found(name, units, factors):
    factors = WRONG_FACTORS[factors]
    function = FUNCTIONS[name](samples()[0] * UNITS[units], samples()[1])

    with pytest.raises(ProblemError, match="gradient") as caught:
        Smooth(changed(function, factors), D)

    if np.ndim(factors):
        assert f"entry {np.argmax(factors != 1)} " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_term_that_vanishes_at_the_start_is_missed_elsewhere():
    X, y = samples()
    with_penalty, without = logistic(X, y, 1.0)[0], logistic(X, y, 0.0)[0]

    with pytest.raises(ProblemError, match="gradient"):
        Smooth(lambda w: (with_penalty(w)[0], without(w)[1]), D)
