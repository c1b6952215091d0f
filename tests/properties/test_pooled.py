"""The reference of the property test is right where the minimum is known."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.campaigns.properties.cases import COUNTED, KINDS, draw
from tests.support import linear
from tests.support.pooled import LONG, NotProved, Pooled, class_rows


@pytest.mark.parametrize("name", [n for n in linear.NAMES if n != "least_squares"])
def test_a_unique_minimum_is_known_to_rounding(name):
    pooled = linear.make(name)[0]
    found = pooled.minimum()

    assert pooled.objective(found.x) == found.value
    assert found.unique
    assert not found.unbounded.any()
    assert found.gap <= 1e-17 * found.value
    assert (found.errors <= 1e-9).all()


@pytest.mark.parametrize("seed", [*range(30), *range(COUNTED, COUNTED + 20)])
def test_no_step_from_it_leads_lower(seed):
    pooled = draw(seed).pooled()
    try:
        best = pooled.minimum()
    except NotProved:
        pytest.skip("the reference is not used")
    if not best.exists:
        return
    rng = np.random.default_rng(seed)
    unit = np.sqrt((pooled.X**2).sum(axis=0)) + (pooled.X == 0).all(axis=0)
    size = np.abs(best.x).max() + np.sqrt(pooled.y @ pooled.y) + 1
    noise = 1e-2 * pooled.rounding(best.x) + 1e-17 * abs(best.value)
    for _ in range(20):
        move = rng.normal(size=len(best.x)) * (rng.random(len(best.x)) < 0.5)
        move = move * size / unit * LONG(10) ** rng.uniform(-9, 0)
        there = pooled.objective(best.x + move)
        assert there >= best.value - best.gap - noise
    for other in best.others:
        assert pooled.objective(other) == pytest.approx(best.value, rel=1e-12)


def test_separable_classes_have_no_minimum():
    X = np.column_stack([np.arange(6.0), np.ones(6)])
    zero = np.zeros(2)

    assert not Pooled("logistic", X, np.arange(6) > 2, zero, zero).minimum().exists
    assert not Pooled("logistic", X, np.arange(6) >= 0, zero, [1, 0]).minimum().exists
    quasi = np.column_stack([[0.0, 1, 1, 2], np.ones(4)])
    assert not Pooled("logistic", quasi, [0, 0, 1, 1], zero, zero).minimum().exists
    assert Pooled("logistic", X, np.arange(6) % 2, zero, zero).minimum().exists
    assert Pooled("logistic", X, np.arange(6) > 2, zero, [1, 0]).minimum().exists


def test_poisson_rows_and_classes_without_a_minimum():
    X = np.column_stack([[0.0, 1, 2, 0, 1, 2], np.ones(6)])
    zero = np.zeros(2)

    def poisson(y, l2=zero):
        return Pooled("poisson", X, y, zero, l2).minimum().exists

    assert poisson([1, 0, 3, 0, 1, 2])
    assert not poisson([0] * 6)
    assert not poisson([0] * 6, [1, 0])
    assert not poisson([1, 0, 0, 2, 0, 0])
    assert poisson([1, 0, 0, 2, 0, 0], [1, 0])
    assert poisson([0, 1, 0, 0, 2, 1])

    def softmax(y, n_classes=3, alpha=0.0):
        rows = class_rows(X[:, :1], n_classes, True)
        l2 = alpha * (np.arange(rows.shape[1]) < n_classes)
        return Pooled("softmax", rows, y, 0 * l2, l2).minimum().exists

    assert softmax([0, 1, 2, 1, 2, 0])
    assert not softmax([0, 1, 2, 0, 1, 2])
    assert softmax([0, 1, 2, 0, 1, 2], alpha=1.0)
    assert not softmax([0, 1, 2, 1, 2, 0], 4)
    assert not softmax([0, 1, 2, 1, 2, 0], 4, alpha=1.0)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_softmax_has_the_minimum_of_scikit_learn(alpha):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(3, size=60)
    rows = class_rows(X, 3, True)
    l2 = alpha * (np.arange(9) < 6)

    found = Pooled("softmax", rows, y, 0 * l2, l2).minimum()

    model = LogisticRegression(C=1 / alpha if alpha else np.inf, tol=1e-10)
    model.set_params(solver="newton-cholesky").fit(X, y)
    intercept = model.intercept_ - model.intercept_.mean()
    wanted = np.concatenate([model.coef_.ravel(), intercept])
    np.testing.assert_allclose(found.x.astype(float), wanted, atol=1e-8)
    assert found.unique
    assert found.gap <= 1e-17 * found.value


def test_open_directions_and_several_minimisers():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 20))
    twice, zero = np.column_stack([x, x, 0 * x, rng.normal(size=20)]), np.zeros(4)

    squared = Pooled("squared", twice, y, zero, zero).minimum()
    assert squared.unbounded.tolist() == [True, True, True, False]

    lasso = Pooled("squared", twice, 3 * x + y, zero + 1, zero).minimum()
    assert not lasso.unique
    assert not lasso.unbounded.any()
    # all of the weight is on one of the two, or on the other
    assert np.ptp([point[0] for point in (lasso.x, *lasso.others)]) > 1.0
    assert not any(other[2] for other in lasso.others)

    ridge = Pooled("squared", twice, y, zero, zero + 1).minimum()
    assert ridge.unique
    assert ridge.x[0] == pytest.approx(float(ridge.x[1]), rel=1e-15)


def test_the_cases_are_as_many_as_they_should_be():
    """All problems, and most of them with a reference."""
    cases = [draw(seed) for seed in (*range(60), *range(COUNTED, COUNTED + 20))]
    proved = 0
    for case in cases:
        try:
            case.pooled().minimum()
            proved += 1
        except NotProved:
            pass

    assert {case.kind for case in cases} == set(KINDS)
    assert proved >= 73
