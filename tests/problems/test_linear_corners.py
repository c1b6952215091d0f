"""Regressions where they are hard: singular, degenerate, perfect, saturated."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LeastSquares,
    LogisticRegression,
    Ridge,
    lasso,
)
from tests.campaigns.properties.cases import draw
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


@pytest.mark.parametrize("name", NAMES[:-2])
def test_degenerate_designs_are_solved_exactly(name):
    for seed in range(60):
        X, y, centre = degenerate(seed)
        case = Case(name, X, y)
        centre = np.append(centre, 1.5)[: case.problem.layout.size]
        for weight in (0.0, 1e-3, 10.0):
            x = case.problem.prox(centre, None, centre, weight)
            unrest, rounding = case.unrest(x, centre, weight)
            assert unrest <= rounding + 1e-25, (seed, weight)


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


def test_one_sign_at_a_time_leads_to_the_same_point(monkeypatch):
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


def test_all_rows_may_be_outliers_at_first():
    X, y, centre = data(40, 5)
    case = Case("huber", X, y)
    problem = Huber(X, y, 0.7, **BARE)

    x = problem.prox(1e6 * centre, None, centre, 0.0)

    case.l2[:] = 0.0
    unrest, rounding = case.unrest(x, centre, 0.0)
    assert unrest <= rounding


def test_errors_of_exactly_delta_do_not_stop_the_search():
    """Two values and a band that just reaches both: the mean, as for squares."""
    problem = Huber(np.ones((2, 1)), np.array([-1.0, 1.0]), 1.0, **BARE)

    x = problem.prox(np.full(1, 5.0), None, np.zeros(1), 0.0)

    assert_allclose(x, [0.0], atol=1e-15)


def labelled(n, d, seed=0):
    X, y, centre = data(n, d, seed)
    return X, (X[:, 0] + y > 0).astype(float), np.append(centre, 0.5)


def test_labels_may_be_zero_and_one_or_plus_and_minus_one():
    X, y, centre = labelled(20, 3)

    steps = [
        LogisticRegression(X, labels, 1.0).prox(centre, None, centre, 1.0)
        for labels in (y, 2 * y - 1, y > 0, y.astype(int).tolist())
    ]

    for step in steps[1:]:
        assert_array_equal(step, steps[0])


@pytest.mark.parametrize("label", [0, 1, -1])
def test_a_node_with_one_class_is_pulled_towards_it_by_its_weight(label):
    X, _, centre = labelled(10, 3)
    problem = LogisticRegression(X, np.full(10, label), 0.1)

    x = problem.prox(0 * centre, None, 0 * centre, 1e-3)

    assert np.sign(x[-1]) == (1 if label > 0 else -1)
    assert np.isfinite(problem.prox(centre, None, centre, 0.0)).all()


def test_separable_classes_are_separated():
    X, _, centre = labelled(15, 3)
    problem = LogisticRegression(X, X[:, 0] > 0.1, 0.0)

    x = problem.prox(0 * centre, None, centre, 0.0)

    assert np.isfinite(x).all()
    assert problem.objectives(x[None], None)[0] < 1e-6
    assert_array_equal(X @ x[:-1] + x[-1] > 0, X[:, 0] > 0.1)


@pytest.mark.parametrize("weight", [1e-6, 1e-2, 1.0])
def test_saturated_starts_are_left(weight):
    X, y, centre = labelled(25, 4)
    case = Case("logistic with intercept", 50 * X, y)

    with np.errstate(over="raise", invalid="raise", divide="raise"):
        x = case.problem.prox(1e4 * centre, None, centre, weight)
        values = case.problem.objectives(np.stack([x, 1e6 * centre]), None)

    unrest, rounding = case.unrest(x, centre, weight)
    assert unrest <= rounding
    assert np.isfinite(values).all()


def test_equal_columns_share_their_coefficient():
    X, y, centre = labelled(40, 3)
    X[:, 1] = X[:, 0]

    x = LogisticRegression(X, y, 0.0).prox(centre, None, centre, 0.0)

    assert_allclose(x[0], x[1], rtol=1e-9)


def test_huber_steps_where_only_a_singular_penalty_bends():
    """All rows are beyond delta, and the penalty leaves one direction flat."""
    case = draw(10607)

    result = case.solve()

    pooled = case.pooled()
    above = pooled.objective(result.solution) - pooled.minimum().value
    assert result.status == "certified"
    assert above <= result.certificate.gap
