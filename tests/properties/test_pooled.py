"""The reference of the property test is right where the minimum is known."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tests.campaigns.properties.cases import COUNTED, KINDS, draw
from tests.support import linear
from tests.support.pooled import NotProved, Pooled, class_rows


@pytest.mark.parametrize("name", [n for n in linear.NAMES if n != "least_squares"])
def test_a_unique_minimum_is_known_to_rounding(name):
    pooled = linear.make(name)[0]
    found = pooled.minimum()

    assert pooled.objective(found.x) == found.value
    assert found.unique
    assert not found.unbounded.any()
    assert found.gap <= 1e-17 * found.value
    assert (found.errors <= 1e-9).all()


LINE = np.arange(6.0)  # a column; with an intercept
QUASI = [0.0, 1, 1, 2]
SMALL = [0.0, 1, 2, 0, 1, 2]
EXISTS = [  # the loss, the column, targets, alpha, and whether there is a minimum
    ("logistic", LINE, LINE > 2, 0, False),
    ("logistic", LINE, LINE >= 0, 1, False),
    ("logistic", QUASI, [0, 0, 1, 1], 0, False),
    ("logistic", LINE, LINE % 2, 0, True),
    ("logistic", LINE, LINE > 2, 1, True),
    ("poisson", SMALL, [1, 0, 3, 0, 1, 2], 0, True),
    ("poisson", SMALL, [0] * 6, 0, False),
    ("poisson", SMALL, [0] * 6, 1, False),
    ("poisson", SMALL, [1, 0, 0, 2, 0, 0], 0, False),
    ("poisson", SMALL, [1, 0, 0, 2, 0, 0], 1, True),
    ("poisson", SMALL, [0, 1, 0, 0, 2, 1], 0, True),
    (3, SMALL, [0, 1, 2, 1, 2, 0], 0, True),  # classes
    (3, SMALL, [0, 1, 2, 0, 1, 2], 0, False),
    (3, SMALL, [0, 1, 2, 0, 1, 2], 1, True),
    (4, SMALL, [0, 1, 2, 1, 2, 0], 0, False),
    (4, SMALL, [0, 1, 2, 1, 2, 0], 1, False),
]


@pytest.mark.parametrize(("loss", "column", "y", "alpha", "exists"), EXISTS)
def test_whether_there_is_a_minimum(loss, column, y, alpha, exists):
    rows, penalised = np.column_stack([column, np.ones(len(column))]), 1
    if loss in (3, 4):
        rows, penalised, loss = class_rows(rows[:, :1], loss, True), loss, "softmax"
    l2 = alpha * (np.arange(rows.shape[1]) < penalised)

    assert Pooled(loss, rows, np.array(y), 0 * l2, l2).minimum().exists == exists


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
