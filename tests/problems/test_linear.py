"""Linear problems: objectives, exact steps, weights and sparse rows."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LeastSquares,
    LogisticRegression,
    MultinomialLogistic,
    PoissonRegression,
    Ridge,
    linear,
)
from tests.support.linear import NAMES, OTHERS, SIZES, Case, data, make

WEIGHTS = [0.0, 1e-8, 1.0, 1e12]
# a few rows are of one class each, which have no best intercept
UNBOUNDED = [
    (f"{name} with intercept", size, 0.0)
    for name, size in [("logistic", (1, 5)), *product(["multinomial"], SIZES[1:])]
]
CASES = [case for case in product(NAMES, SIZES, WEIGHTS) if case not in UNBOUNDED]
BARE = {"fit_intercept": False}
KINDS = {
    "least_squares": LeastSquares,
    "ridge": Ridge,
    "lasso": Lasso,
    "elastic_net": ElasticNet,
    "huber": partial(Huber, alpha=0.3),
    "logistic": LogisticRegression,
    "multinomial": partial(MultinomialLogistic, n_classes=3),
    "poisson": PoissonRegression,
}
SQUARES = ("least_squares", "ridge", "lasso", "elastic_net")


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


@pytest.mark.parametrize("name", NAMES[: -len(OTHERS)])
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
    """The pseudo-inverse's; a lasso without absolute values agrees."""
    X, y, centre = data(*shape)
    X[:, 1] = X[:, 0]

    for problem in (LeastSquares(X, y, **BARE), Lasso(X, y, 0.0, **BARE)):
        x = problem.prox(centre, None, centre, 0.0)
        assert_allclose(x, np.linalg.pinv(X) @ y, rtol=1e-12, atol=1e-14)


def test_the_shortest_minimiser_of_several_classes():
    """Equal columns have equal coefficients, and those of all classes sum to zero."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(3, size=40)
    problem = MultinomialLogistic(np.column_stack([X, X[:, 0]]), y, 3, 0.0)

    x = problem.layout.views(problem.prox(np.ones(12), None, np.ones(12), 0.0))

    assert_allclose(x.coef[:, 0], x.coef[:, 2], rtol=1e-9)
    assert_allclose(x.coef.sum(axis=0), 0.0, atol=1e-9)


def test_a_perfect_fit_far_from_zero_has_no_error():
    """The objective is a sum of squares: nothing of |y|^2 = 1e18 is left over."""
    X, _, theta = data(50, 4)
    X += 1e4
    theta *= 1e4

    value = LeastSquares(X, X @ theta, **BARE).objectives(theta[None], None)

    assert 0 <= value[0] < 1e-10


def labelled(n, d, seed=0):
    X, y, centre = data(n, d, seed)
    return X, (X[:, 0] + y > 0).astype(float), np.append(centre, 0.5)


def rows_of(kind, n=24, d=3):
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
    X, y, rng = rows_of(kind)
    build = partial(KINDS[kind], fit_intercept=fit_intercept)
    times = rng.integers(0, 4, size=len(y))
    assert set(times) >= {0, 1, 2}

    weighted = build(X, y, sample_weight=times)

    compare(weighted, build(X.repeat(times, axis=0), y.repeat(times)), rng)
    compare(build(X, y, sample_weight=np.ones(len(y))), build(X, y), rng, exact=True)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_matrix_is_the_same_problem(kind, fit_intercept, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK", 5)
    X, y, rng = rows_of(kind)
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
    X, y, _ = rows_of(kind)
    KINDS[kind](sparse.csr_array(X), y)

    assert max(most) <= 5


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_counts_of_any_size_are_fitted_from_any_start(weight, scale):
    X, y, rng = rows_of("poisson")
    problem = PoissonRegression(X, scale * (1.0 + y), 0.0)
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
    problem = PoissonRegression(np.ones((2, 1)), [0.0, 3.0])

    values = problem.objectives(np.array([[1e3, 0.0], [-1e3, 0.0], [0.0, 0.0]]), None)

    assert_array_equal(np.isinf(values), [True, False, False])
    assert np.isfinite(problem.rows(np.array([1e3, 0.0]), 1.0)).all()


X, Y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_may_be_changed_afterwards(name):
    centre, rng = make(name)[1], np.random.default_rng(2)
    X, y = rng.normal(size=(9, 4)), rng.integers(2, size=9).astype(float)
    problem = Case(name, X, y).problem
    first = problem.prox(0 * centre, None, centre, 1.0)

    X[:], y[:] = 0.0, 0.0

    assert_array_equal(problem.prox(0 * centre, None, centre, 1.0), first)


def test_errors_of_exactly_delta_do_not_stop_the_search():
    """Two values and a band that just reaches both: the mean, as for squares."""
    problem = Huber(np.ones((2, 1)), np.array([-1.0, 1.0]), 1.0, **BARE)

    x = problem.prox(np.full(1, 5.0), None, np.zeros(1), 0.0)

    assert_allclose(x, [0.0], atol=1e-15)


def test_labels_may_be_zero_and_one_or_plus_and_minus_one():
    X, y, centre = labelled(20, 3)

    steps = [
        LogisticRegression(X, labels, 1.0).prox(centre, None, centre, 1.0)
        for labels in (y, 2 * y - 1, y > 0, y.astype(int).tolist())
    ]

    for step in steps[1:]:
        assert_array_equal(step, steps[0])
