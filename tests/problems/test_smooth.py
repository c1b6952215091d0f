"""Smooth: its proximal steps, its curvature, and its check of the gradient."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.core.errors import ProblemError
from dadmm.problems import LogisticRegression, PoissonRegression, Smooth

D = 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, D))
Y = (X @ RNG.normal(size=D) + RNG.logistic(size=40) > 0).astype(float)
MIXED = 10.0 ** np.array([-6, 6, 0, 3, -3])
UNITS = (1.0, 1e-6, 1e6, MIXED)


def function(units=1.0, alpha=0.0, kind=LogisticRegression):
    problem = kind(X * units, Y, alpha, fit_intercept=False)
    return lambda w: (problem.objectives(w[None], None)[0], problem.gradient(w))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3])
def test_proximal_steps_are_accurate_in_any_unit(unit, weight):
    problem = Smooth(function(1 / unit, 0.5 / unit**2), D)
    theta, centre = np.ones(D) * unit, np.arange(D) * unit
    weight = weight / unit**2

    def slope(x):
        return np.abs(problem.subgradient(x) + weight * (x - centre)).max()

    x = problem.prox(theta, None, centre, weight)

    assert slope(x) <= 1e-3 * slope(theta)
    assert slope(problem.prox(x, None, centre, weight)) <= 2e-3 * slope(x)


def test_a_step_leaves_points_where_f_is_not_finite():
    def barrier(x):  # the first trial is at a negative x
        inside = x.min() > 0.0
        return (np.sum(x - np.log(x)) if inside else np.nan), 1.0 - 1.0 / x

    problem = Smooth(barrier, 2, start=[0.5, 30.0], convex=True)

    found = problem.prox(problem.init(np.random.default_rng(0)), None, np.ones(2), 1e-3)

    assert_allclose(found, 1.0, atol=0.02)
    assert np.isinf(problem.objectives(-np.ones((1, 2)), None)).all()


@pytest.mark.parametrize("scales", [np.ones(D), MIXED])
def test_with_a_hessian_there_are_rows_and_coordinates(scales):
    exact = LogisticRegression(X * scales, Y, 0.0, fit_intercept=False)

    def hessian(w):
        return exact.rows(w).T @ exact.rows(w)

    bare = Smooth(function(scales), D, convex=True)
    problem = Smooth(function(scales), D, hessian=hessian, convex=True)
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


KINDS = list(product((LogisticRegression, PoissonRegression), UNITS))


def test_right_gradients_are_accepted_in_any_unit_and_with_noise():
    for (kind, units), of_f in product(KINDS, (1e-6, 1.0, 1e6)):
        right = function(units, 0.0, kind)
        Smooth(lambda w: [of_f * part for part in right(w)], D)  # noqa: B023
    right = function(1.0, 0.5)
    Smooth(lambda w: [np.float32(part) for part in right(w)], D)
    Smooth(lambda w: (right(w)[0] + 1e9, right(w)[1]), D)


WRONG = [(-1.0, "gradient"), (1.01, "gradient"), ([1, 1, -1, 1, 1], "entry 2 ")]
WRONG += [([1, 1, 1, 1, 2], "entry 4 "), ([1, 0, 1, 1, 1], "entry 1 ")]
WRONG += [([0, 1, 1, 1, 1], "entry 0 ")]


@pytest.mark.parametrize(("factors", "culprit"), WRONG)
def test_wrong_gradients_are_found(factors, culprit):
    for kind, units in KINDS:
        right = function(units, 0.0, kind)
        with pytest.raises(ProblemError, match=culprit):
            Smooth(lambda w: (right(w)[0], factors * right(w)[1]), D)  # noqa: B023
    with pytest.raises(ProblemError, match="gradient"):  # a term that is zero at first
        Smooth(lambda w: (function(alpha=1.0)(w)[0], function()(w)[1]), D)
