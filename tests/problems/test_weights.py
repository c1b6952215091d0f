"""Weights of rows, and rows in a sparse matrix, for all linear problems."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dadmm import problems
from dadmm.core.errors import ProblemError
from dadmm.problems import linear

KINDS = {
    "least_squares": problems.LeastSquares,
    "ridge": problems.Ridge,
    "lasso": problems.Lasso,
    "elastic_net": problems.ElasticNet,
    "huber": partial(problems.Huber, alpha=0.3),
    "logistic": problems.LogisticRegression,
    "multinomial": partial(problems.MultinomialLogistic, n_classes=3),
    "poisson": problems.PoissonRegression,
}
SQUARES = ("least_squares", "ridge", "lasso", "elastic_net")


def data(kind, n=24, d=3):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(n, d))) * [1.0, 2.0, 0.5]
    y = X[:, 0] + rng.standard_t(2, size=n)
    if kind == "logistic":
        y = (y > 0).astype(float)
    if kind in ("multinomial", "poisson"):
        y = rng.integers(3, size=n).astype(float)
    return X, y, rng


def compare(one, other, rng, exact=False):
    """Compare two problems: values, proximal steps, rows and margins."""
    p = one.layout.size
    thetas, centre, T = rng.normal(size=(3, p)), rng.normal(size=p), np.eye(p) + 0.1
    same = assert_array_equal if exact else partial(assert_allclose, rtol=1e-9)
    near = assert_array_equal if exact else partial(assert_allclose, atol=1e-9)
    same(one.objectives(thetas, None), other.objectives(thetas, None))
    for weight in (1e-3, 1.0):
        steps = [f.prox(centre, None, centre, weight) for f in (one, other)]
        near(*steps)
        near(*[f.within(T).prox(centre, None, centre, weight) for f in (one, other)])
    for radius in (0.0, 0.1):
        factors = [f.rows(thetas[0], radius) for f in (one, other)]
        near(*[F.T @ F for F in factors])
    if hasattr(one, "margins"):
        near(one.margins(centre), other.margins(centre))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_counts_a_row_so_many_times(kind, fit_intercept):
    X, y, rng = data(kind)
    build = partial(KINDS[kind], fit_intercept=fit_intercept)
    times = rng.integers(0, 4, size=len(y))
    assert set(times) >= {0, 1, 2}

    weighted = build(X, y, sample_weight=times)

    compare(weighted, build(X.repeat(times, axis=0), y.repeat(times)), rng)
    compare(build(X, y, sample_weight=np.ones(len(y))), build(X, y), rng, exact=True)


@pytest.mark.parametrize("kind", KINDS)
def test_fractions_add_up(kind):
    X, y, rng = data(kind)
    part = rng.uniform(0.1, 0.9, size=len(y))
    build = partial(KINDS[kind], sample_weight=np.concatenate([part, 1 - part]))

    compare(build(np.vstack([X, X]), np.tile(y, 2)), KINDS[kind](X, y), rng)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_matrix_is_the_same_problem(kind, fit_intercept, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK", 5)
    X, y, rng = data(kind)
    X[rng.random(X.shape) < 0.3] = 0.0
    weights = rng.integers(0, 3, size=len(y))
    for given in (None, weights):
        build = partial(KINDS[kind], fit_intercept=fit_intercept, sample_weight=given)
        for form in (sparse.csr_matrix, sparse.coo_array, sparse.csc_array):
            exact = kind not in SQUARES
            compare(build(form(X), y), build(X, y), rng, exact=exact)


@pytest.mark.parametrize("kind", SQUARES)
def test_squares_of_a_sparse_matrix_need_no_dense_copy(kind, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK", 5)
    most = []
    original = sparse.csr_array.toarray

    def watched(self, *args, **named):
        most.append(self.shape[0])
        return original(self, *args, **named)

    monkeypatch.setattr(sparse.csr_array, "toarray", watched)
    X, y, _ = data(kind)
    KINDS[kind](sparse.csr_array(X), y)

    assert max(most) <= 5


X, Y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])
HOLED = sparse.csr_array(np.where(X == 3, np.nan, X))
WRONG = {
    "Ridge needs one sample_weight for each of the 3 rows of X, shape (3,), got (2,)": (
        lambda: problems.Ridge(X, Y, sample_weight=[1, 1])
    ),
    "Huber needs sample_weight of at least 0, but row 1 is -1.0": (
        lambda: problems.Huber(X, Y, sample_weight=[1, -1, 1])
    ),
    "Lasso needs finite sample_weight, but row 2 is inf": (
        lambda: problems.Lasso(X, Y, sample_weight=[1, 1, np.inf])
    ),
    "LogisticRegression needs sample_weight of numbers": (
        lambda: problems.LogisticRegression(X, Y, sample_weight=["a", "b", "c"])
    ),
    "needs a positive sample_weight, but row 0 is 0.0": (
        lambda: problems.LeastSquares(X, Y, sample_weight=np.zeros(3))
    ),
    "LeastSquares needs finite X, but row 1, column 1 is nan": (
        lambda: problems.LeastSquares(HOLED, Y)
    ),
    "Ridge needs X of shape (n, d) with n, d >= 1, got (3, 0)": (
        lambda: problems.Ridge(sparse.csr_array((3, 0)), Y)
    ),
    "PoissonRegression needs y of at least 0, got -2": (
        lambda: problems.PoissonRegression(X, [0, 1, -2])
    ),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_bad_input_gets_one_sentence(sentence):
    with pytest.raises(ProblemError) as caught:
        WRONG[sentence]()

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_counts_of_any_size_are_fitted_from_any_start(weight, scale):
    X, y, rng = data("poisson")
    problem = problems.PoissonRegression(X, scale * (1.0 + y), 0.0)
    centre = rng.normal(size=4)

    found = [
        problem.prox(start, None, centre, weight)
        for start in (0 * centre, 10 * centre, 1e3 * centre, -1e5 * centre)
    ]

    for other in found[1:]:
        assert_allclose(other, found[0], rtol=1e-7, atol=1e-7)
    fits = np.column_stack([X, np.ones(24)]) @ found[0]
    slope = (np.exp(fits) - scale * (1.0 + y)) @ np.column_stack([X, np.ones(24)])
    slope += weight * (found[0] - centre)
    assert np.abs(slope).max() <= 1e-11 * scale + 1e-11 * weight


def test_an_objective_beyond_double_precision_is_infinite():
    problem = problems.PoissonRegression(np.ones((2, 1)), [0.0, 3.0])

    values = problem.objectives(np.array([[1e3, 0.0], [-1e3, 0.0], [0.0, 0.0]]), None)

    assert_array_equal(np.isinf(values), [True, False, False])
    assert np.isfinite(problem.rows(np.array([1e3, 0.0]), 1.0)).all()
