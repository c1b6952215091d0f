"""Least squares and lasso where they are hard: singular, degenerate, perfect."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.problems import ElasticNet, Lasso, LeastSquares, Ridge, lasso
from tests.support.linear import NAMES, Case, data

BARE = {"fit_intercept": False}


def degenerate(seed):
    """Return a design with equal columns, small integers or columns of all sizes."""
    rng = np.random.default_rng(seed)
    X, y, centre = data(*rng.integers(1, 15, size=2), seed)
    if seed % 3 == 0:
        X[:, -1] = X[:, 0]
    elif seed % 3 == 1:
        X, y = np.round(X), np.round(y)
    else:
        X *= np.exp(2 * rng.normal(size=X.shape[1]))
    return X, y, centre


@pytest.mark.parametrize("name", NAMES[:-1])
def test_degenerate_designs_are_solved_exactly(name):
    """At weight zero, where many points may be best, as at any other."""
    for seed in range(60):
        X, y, centre = degenerate(seed)
        case = Case(name, X, y)
        centre = np.append(centre, 1.5)[: case.problem.layout.size]
        for weight in (0.0, 1e-3, 10.0):
            x = case.problem.prox(centre, None, centre, weight)
            unrest, rounding = case.unrest(x, centre, weight)
            assert unrest <= rounding + 1e-25, (seed, weight)


# Least squares


@pytest.mark.parametrize("shape", [(3, 6), (20, 5)])
def test_a_singular_design_gives_the_shortest_solution(shape):
    """The pseudo-inverse's; elastic nets without absolute values agree."""
    X, y, centre = data(*shape)
    X[:, 1] = X[:, 0]

    for problem in (
        LeastSquares(X, y, **BARE),
        Lasso(X, y, 0.0, **BARE),
        ElasticNet(X, y, 0.0, 0.5, **BARE),
    ):
        x = problem.prox(centre, None, centre, 0.0)
        assert_allclose(x, np.linalg.pinv(X) @ y, rtol=1e-12, atol=1e-14)


def test_directions_without_data_stay_at_the_centre():
    """For any weight but zero."""
    X, y, centre = data(3, 6)
    outside = np.linalg.svd(X)[2][3:]

    for weight in (1e-8, 1.0, 1e12):
        x = LeastSquares(X, y, **BARE).prox(centre, None, centre, weight)
        assert_allclose(outside @ x, outside @ centre, rtol=1e-12)


def test_a_perfect_fit_far_from_zero_has_no_error():
    """The objective is a sum of squares: nothing of |y|^2 = 1e18 is left over."""
    X, _, theta = data(50, 4)
    X += 1e4
    theta *= 1e4

    value = LeastSquares(X, X @ theta, **BARE).objectives(theta[None], None)

    assert 0 <= value[0] < 1e-10


def test_a_step_of_least_squares_is_independent_of_the_number_of_rows():
    """All that a problem keeps is of the size of theta, or its square."""

    def kept(problem):
        return [np.shape(value) for value in vars(problem).values()]

    for build in (LeastSquares, Ridge, Lasso):
        assert kept(build(*data(10, 3)[:2])) == kept(build(*data(5000, 3)[:2]))


def test_problems_turn_into_one_another():
    """Bit for bit, where their objectives are the same."""
    X, y, centre = data(12, 5)
    pairs = [
        (Ridge(X, y, 0.0, **BARE), LeastSquares(X, y, **BARE)),
        (ElasticNet(X, y, 0.7, 1.0, **BARE), Lasso(X, y, 0.7, **BARE)),
    ]
    for one, other in pairs:
        for weight in (0.0, 2.0):
            x = one.prox(centre, None, centre, weight)
            assert_array_equal(x, other.prox(centre, None, centre, weight))
    ridge, net = Ridge(X, y, 0.7, **BARE), ElasticNet(X, y, 0.7, 0.0, **BARE)
    x = net.prox(centre, None, centre, 2.0)
    assert_allclose(x, ridge.prox(centre, None, centre, 2.0), rtol=1e-12)


# Lasso


def test_an_orthonormal_design_is_soft_thresholding():
    """Entry by entry: shrunk by alpha, and zero below it."""
    _, y, centre = data(6, 6)
    alpha, weight = 0.5, 3.0

    x = Lasso(np.eye(6), y, alpha, **BARE).prox(0 * y, None, centre, weight)

    pull = y + weight * centre
    best = np.sign(pull) * np.maximum(np.abs(pull) - alpha, 0) / (1 + weight)
    assert_allclose(x, best, rtol=1e-14)
    assert_array_equal(x == 0, best == 0)


def test_a_strong_penalty_leaves_nothing():
    """From alpha = max |X' y| on, all entries are exactly zero."""
    X, y, centre = data(20, 5)

    alpha = 1.001 * np.abs(X.T @ y).max()
    x = Lasso(X, y, alpha, **BARE).prox(centre, None, centre, 0.0)

    assert_array_equal(x, np.zeros(5))


def test_one_sign_at_a_time_leads_to_the_same_point(monkeypatch):
    """Whether or not all signs could be guessed at once, and from any start."""
    for seed in range(30):
        X, y, centre = data(8, 12, seed)
        problem = Lasso(X, y, 0.3)
        centre = np.append(centre, 0.5)
        starts = [0 * centre, centre, problem.prox(centre, None, centre, 1.0)]
        guessed = [problem.prox(start, None, centre, 0.5) for start in starts]
        with monkeypatch.context() as patch:
            patch.setattr(lasso, "_iterate_signs", lambda *known: None)
            searched = [problem.prox(start, None, centre, 0.5) for start in starts]
        assert_allclose(searched, guessed, rtol=1e-9, atol=1e-12)
        assert_array_equal(np.sign(searched), np.sign(guessed))
