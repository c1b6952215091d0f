"""Linear problems, in theta and in coordinates z with theta = T z, beside formulas."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dadmm import Layout, problems
from dadmm.core.interfaces import TransformableProblem
from dadmm.problems import Huber, Lasso, LeastSquares, PoissonRegression, linear
from tests.support.linear import LONG, NAMES, OTHERS, SIZES, Case, data, make, targets

GENERALISED = ("logistic", "poisson", "multinomial", "huber")
SQUARES = ("least_squares", "ridge", "lasso", "elastic_net")
KINDS = {name: problems.PROBLEMS[name] for name in (*SQUARES, *GENERALISED)}
KINDS["huber"] = partial(Huber, alpha=0.3)
KINDS["multinomial"] = partial(problems.MultinomialLogistic, n_classes=3)
BARE = {"fit_intercept": False}


def metric(case, x):
    """Return F'F: the Hessian, or for some problems another metric."""
    X, fits = case.X.astype(float), (case.X @ x).astype(float)
    if case.name == "huber":  # as in reweighted least squares
        weights = np.minimum(1.0, 0.7 / np.abs(fits - case.y.astype(float)))
    elif case.name == "poisson":  # the mean of the counts and the expected counts
        weights = (np.exp(fits) + case.y.astype(float)) / 2
    else:
        return case.hessian(x)
    return (X.T * weights) @ X + np.diag(case.l2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_curvatures_are_sums_over_the_rows(name, size):
    case, x = make(name, size)
    p, rng, problem = len(x), np.random.default_rng(0), case.problem
    k = p if problem.needs_inverse else p - 1
    T, z = rng.normal(size=(p, k)), rng.normal(size=k)
    inside, point = problem.within(T), problem.theta_of(T, z)
    thetas = x * np.array([[0.0], [1.0], [-3.0], [100.0]])

    wanted = [float(case.objective(theta)) for theta in thetas]
    found = problem.objectives(thetas, problem.expect(x))
    assert_allclose(found, wanted, rtol=1e-13)
    found = inside.objectives(z[None], None)
    assert_allclose(found, [float(case.objective(point))], rtol=1e-12)
    F, G = problem.rows(x), inside.rows(z)
    assert_allclose(F.T @ F, metric(case, x), rtol=1e-12, atol=1e-12)
    assert_allclose(G.T @ G, T.T @ metric(case, point) @ T, rtol=1e-9, atol=1e-9)
    constant = not name.startswith(GENERALISED)
    if constant:
        assert_array_equal(problem.rows(9 * x, 3.0), F)
    assert (inside.quadratic, problem.quadratic) == (constant, constant)
    assert inside.convex
    assert isinstance(problem, TransformableProblem)
    assert inside.layout == Layout.of(z=(k,))


@pytest.mark.parametrize("radius", [1e-9, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", NAMES)
def test_rows_bound_the_hessian_from_below_in_a_ball(name, radius):
    for seed in range(6):
        case, x = make(name, SIZES[seed % 3], seed)  # also of a single row
        rng = np.random.default_rng(seed)
        F = case.problem.rows(0.3 * x, radius)
        rows = rng.choice([-1.0, 1.0], (20, 1)) * rng.choice(case.X.astype(float), 20)
        for away in (*rng.normal(size=(5, len(x))), *rows):  # along rows, losses bend
            away *= radius * rng.choice([0.5, 1.0]) / np.sqrt(away @ away)
            there = case.hessian(0.3 * x + away)
            gap = np.linalg.eigvalsh(there - F.T @ F)[0]
            assert gap >= -1e-12 * (1 + np.abs(there).max())


def slope(case, T, z, centre, weight):
    """Return the gradient in z but for absolute values, and the size of its terms."""
    T, z = T.astype(LONG), z.astype(LONG)
    x, rows = T @ z, case.X @ T
    parts = rows * case.forces(rows @ z)[:, None]
    pull = T.T @ (case.l2 * x) + weight * (z - centre)
    lengths = np.sqrt((rows**2).sum(axis=1))
    misfit = lengths.sum() * np.sqrt(z @ z) + np.abs(case.y).max()
    terms = np.abs(parts).sum(axis=0).max() + weight * np.abs(z - centre).max()
    rounding = lengths.max() * misfit + 4 * weight * np.abs(z).max()
    return parts.sum(axis=0) + pull, 1e-12 * terms + 1e-15 * rounding


def check_step(case, T, z, x, centre, weight):
    """Assert that z, where theta is x, is the argmin; return how many zeros x has.

    There is weight (centre - z) = T' (gradient + l1 sign), where a zero has any sign.
    """
    zero, lengths = (x == 0) & (case.l1 > 0), np.sqrt((T**2).sum(axis=1)).astype(LONG)
    rest, rounding = slope(case, T, z, centre, weight)
    rest += T.T @ (case.l1 * np.sign(x))
    rounding += 1e-13 * (lengths * case.l1 * np.abs(np.sign(x))).max()
    rows = T[zero].astype(LONG) / lengths[zero, None]
    forces = np.zeros(len(rows), dtype=LONG)
    for _ in range(3 * zero.any()):
        left = (rest + forces @ rows).astype(float)
        forces -= np.linalg.lstsq(rows.T.astype(float), left)[0]
    assert (np.abs(forces) <= (lengths * case.l1)[zero] + rounding).all()
    noise = 1e-16 * np.abs(forces).max(initial=0) + 1e-25
    assert np.abs(rest + forces @ rows).max() <= rounding + noise
    return zero.sum()


def designs(name):
    """Return cases, centres and weights: of all sizes, with columns of all kinds."""
    for size in SIZES:
        rows = {"logistic": 1, "multinomial": 3}.get(name.split()[0], 0)
        least = size[0] <= rows  # rows of one class each have no best intercept
        yield *make(name, size), (0.0, 1e-8, 1.0, 1e12)[least:]
    for seed in range(0 if name in OTHERS else 40):
        rng = np.random.default_rng(seed)
        X, y, centre = data(*rng.integers(1, 15, size=2), seed)
        if seed % 3 == 0:
            X[:, -1] = X[:, 0]
        elif seed % 3 == 1:
            X, y = np.round(X), np.round(y)
        else:
            X *= np.exp(2 * rng.normal(size=X.shape[1]))
        case = Case(name, X, y)
        centre = np.append(centre, 1.5)[: case.problem.layout.size]
        yield case, centre, (0.0, 1e-3, 10.0)


@pytest.mark.parametrize("name", NAMES)
def test_proximal_steps_are_exact(name):
    for case, centre, weights in designs(name):
        for weight, start in product(weights, (0.0, 1.0, 30.0)):
            x = case.problem.prox(start * centre, None, centre, weight)
            check_step(case, np.eye(len(x)), x, x, centre, weight)
            again = case.problem.prox(x, None, centre, weight)
            assert_allclose(again, x, rtol=1e-10, atol=1e-25)


def coordinates(problem, floor=1e-12):
    """Return T that makes the Hessian at zero the identity, in the data's units."""
    F = problem.rows(np.zeros(problem.layout.size))
    lengths = np.sqrt((F**2).sum(axis=0))
    lengths[lengths == 0.0] = 1.0
    _, values, axes = np.linalg.svd(F / lengths)
    values = np.append(values, np.zeros(len(lengths) - len(values)))
    return axes.T / lengths[:, None] / np.maximum(values, floor * values[0])


def in_units(name, seed, nearly_equal):
    """Return a case whose columns are in units from 1e-6 to 1e6."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 6))
    if nearly_equal:
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    y = X @ np.array([1.0, 0, 1, 0, 1, 0]) + 0.5 * rng.standard_t(2, size=30)
    scales = np.array([1e-6, 1e6, 1e-2, 1.0, 1e3, 1e-4])
    return Case(name, X * rng.permutation(scales), targets(name, y, rng)), rng


@pytest.mark.parametrize("columns", ["few", "units", "nearly equal"])
@pytest.mark.parametrize("name", NAMES)
def test_the_proximal_step_is_exact_in_z(name, columns):
    zeros = 0
    for seed in range(10):
        case, rng = in_units(name, seed, columns == "nearly equal")
        T = coordinates(case.problem)
        if columns == "few":
            case, p = make(name, (30, 4), seed)[0], 4
            size = case.problem.layout.size
            T = rng.normal(size=(size, size if case.l1.any() else 1 + seed % p))
        inside = case.problem.within(T)
        for weight in (1e-3, 1.0, 1e6):
            centre = rng.normal(size=T.shape[1])
            z = inside.prox(3 * centre, None, centre, weight)
            x = case.problem.theta_of(T, z)
            zeros += check_step(case, T, z, x, centre, weight)
    assert zeros >= 5 * case.l1.any()


@pytest.mark.parametrize("floor", [1e-12, 1e-6])
@pytest.mark.parametrize("name", ["lasso", "lasso with intercept"])
def test_a_subgradient_bounds_f_where_coordinates_are_almost_singular(name, floor):
    for seed in (0, 1, 2, 3, 265):  # with the last one, signs recur by rounding
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(25, 12))
        # two equal columns, and indicators of classes, whose sum is the intercept
        X[:, 1], X[:, 6:] = X[:, 0], np.eye(6)[rng.integers(6, size=25)]
        y = X @ (np.arange(12.0) % 2) + 0.5 * rng.standard_t(2, size=25)
        problem = Case(name, X, y, 10.0 ** rng.uniform(-4, 0)).problem
        T = coordinates(problem, floor)
        inside, p = problem.within(T), len(T)
        z = np.zeros(p)
        for weight, scale in product([1e-3, 1.0, 30.0], [1.0, 1e-3, 1e-6]):
            centre = scale * rng.normal(size=p)
            z = inside.prox(z, None, centre, weight)
            off = rng.normal(size=(120, p)) * 10.0 ** rng.uniform(-9, 0, (120, 1))
            points = problem.theta_of(T, z) + off[:60]  # near in theta, and near in z
            others = np.vstack([np.linalg.solve(T, points.T).T, z + off[60:]])
            values = inside.objectives(others, None)
            rise = values - inside.objectives(z[None], None)
            force = weight * (centre - z)
            size = values + np.abs(others - z) @ np.abs(force)
            assert (rise - (others - z) @ force >= -1e-12 * size).all()
            points = np.vstack([z, np.zeros_like(z), centre])
            values = inside.objectives(points, None)
            values += 0.5 * weight * ((points - centre) ** 2).sum(axis=1)
            assert values.argmin() == 0


def test_zeros_of_a_point_are_exact_and_absolute_values_need_an_inverse():
    data = np.eye(3), np.arange(3.0)
    problem = Lasso(*data, 0.1)
    T = np.array([[1.0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
    z = np.array([[1.0, -1 + 1e-15, 0, 5], [1, -1 + 1e-9, 2, 5]])
    found = problem.theta_of(T, z)

    assert_array_equal(found == 0, [[1, 0, 1, 0], [0, 0, 0, 0]])  # not the intercept
    assert found[0, 3] == z[0, 0] + z[0, 1]
    assert problem.needs_inverse
    for plain in (Lasso(*data, 0.0), problems.ElasticNet(*data, 1.0, 0.0)):
        assert not plain.needs_inverse
        assert plain.within(np.ones((4, 1))).layout.size == 1


@pytest.mark.parametrize("name", ["logistic", "multinomial", "poisson"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_margins_are_those_of_the_entries_without_penalty(alpha, fit_intercept, name):
    rng, most = np.random.default_rng(0), 2 if name == "multinomial" else 1
    X, y = rng.normal(size=(9, 2)), np.array([0, 1, most] * 3)
    problem = KINDS[name](X, y, alpha=alpha, fit_intercept=fit_intercept)
    theta = rng.normal(size=problem.layout.size)

    found = problem.margins(theta)

    coef, *level = problem.layout.views(theta)
    u = X @ np.atleast_2d(0 * coef if alpha else coef).T + sum(level)
    if name == "logistic":
        u = np.column_stack([0 * u, u])
    if name == "poisson":
        sides = np.where(y > 0, -np.abs(u[:, 0]), -u[:, 0])
    else:
        places = [(i, j) for i, j in np.ndindex(u.shape) if j != y[i]]
        sides = [u[i, y[i]] - u[i, j] for i, j in places]
    assert_allclose(found, [min(sides), max(sides)], rtol=1e-12, atol=1e-12)
    T = rng.normal(size=(len(theta), len(theta)))
    again = problem.within(T).margins(np.linalg.solve(T, theta))
    assert_allclose(again, found, rtol=1e-9, atol=1e-9)


def rows_of(kind, n=24):
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(n, 3))) * [1.0, 2.0, 0.5]
    return X, targets(kind, X[:, 0] + rng.standard_t(2, size=n), rng), rng


def facts(problem):
    """Return values, proximal steps, curvatures and margins; steps also in z."""
    p, rng = problem.layout.size, np.random.default_rng(1)
    thetas, centre, T = rng.normal(size=(3, p)), rng.normal(size=p), np.eye(p) + 0.1
    found = [problem.objectives(thetas, None)]
    for each, weight in product((problem, problem.within(T)), (1e-3, 1.0)):
        found.append(each.prox(centre, None, centre, weight))
    for radius in (0.0, 0.1):
        F = problem.rows(thetas[0], radius)
        found.append(F.T @ F)
    return [*found, problem.margins(centre)] if hasattr(problem, "margins") else found


def compare(one, other, exact=False):
    digits = 0.0 if exact else 1e-9
    for found, wanted in zip(facts(one), facts(other), strict=True):
        assert_allclose(found, wanted, rtol=digits, atol=digits)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_weight_counts_a_row_so_many_times(kind, fit_intercept):
    X, y, rng = rows_of(kind)
    build = partial(KINDS[kind], fit_intercept=fit_intercept)
    times = rng.integers(0, 4, size=len(y)).astype(float)
    plain, ones = build(X, y), build(X, y, sample_weight=np.ones(len(y)))
    weighted = build(X, y, sample_weight=times)
    again = times.astype(int)
    repeated = build(X.repeat(again, axis=0), y.repeat(again))
    X[:], y[:], times[:] = 0.0, 0.0, 0.0  # problems keep copies

    compare(weighted, repeated)
    compare(ones, plain, exact=True)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sparse_matrix_is_the_same_problem(kind, fit_intercept, monkeypatch):
    monkeypatch.setattr(linear, "BLOCK", 5)
    most, whole = [], sparse.csr_array.toarray

    def watched(own):
        most.append(own.shape[0])
        return whole(own)

    monkeypatch.setattr(sparse.csr_array, "toarray", watched)
    X, y, rng = rows_of(kind)
    X[rng.random(X.shape) < 0.3] = 0.0
    for weights in (None, rng.integers(0, 3, size=len(y))):
        build = partial(KINDS[kind], fit_intercept=fit_intercept, sample_weight=weights)
        for form in (sparse.csr_matrix, sparse.coo_array, sparse.csc_array):
            compare(build(form(X), y), build(X, y), exact=kind not in SQUARES)
        build(sparse.csr_array(X), y)
    assert (max(most) <= 5) == (kind in SQUARES)  # squares need few dense rows


@pytest.mark.parametrize("shape", [(3, 6), (20, 5)])
def test_a_singular_design_gives_the_shortest_solution(shape):
    X, y, centre = data(*shape)
    X[:, 1] = X[:, 0]
    for problem in (LeastSquares(X, y, **BARE), Lasso(X, y, 0.0, **BARE)):
        x = problem.prox(centre, None, centre, 0.0)
        assert_allclose(x, np.linalg.pinv(X) @ y, rtol=1e-12, atol=1e-14)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(3, size=40)
    problem = problems.MultinomialLogistic(np.column_stack([X, X[:, 0]]), y, 3, 0.0)
    x = problem.layout.views(problem.prox(np.ones(12), None, np.ones(12), 0.0))
    assert_allclose(x.coef[:, 0], x.coef[:, 2], rtol=1e-9)
    assert_allclose(x.coef.sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1.0])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_counts_of_any_size_are_fitted_from_any_start(weight, scale):
    X, y, rng = rows_of("poisson")
    y = scale * (1.0 + y)
    problem, centre = PoissonRegression(X, y, 0.0), rng.normal(size=4)
    rows = np.column_stack([X, np.ones(24)])

    for start in (0.0, 10.0, 1e3, -1e5):
        x = problem.prox(start * centre, None, centre, weight)
        slope = (np.exp(rows @ x) - y) @ rows + weight * (x - centre)
        assert np.abs(slope).max() <= 1e-11 * scale + 1e-11 * weight


def test_extreme_values_keep_their_digits_or_are_infinite():
    X, _, theta = data(50, 4)
    X, theta = X + 1e4, theta * 1e4  # a perfect fit: nothing of |y|^2 = 1e18 is left
    value = LeastSquares(X, X @ theta, **BARE).objectives(theta[None], None)
    assert 0 <= value[0] < 1e-10
    huge = PoissonRegression(np.ones((2, 1)), [0.0, 3.0])
    values = huge.objectives(np.array([[1e3, 0.0], [-1e3, 0.0], [0.0, 0.0]]), None)
    assert_array_equal(np.isinf(values), [True, False, False])
    assert np.isfinite(huge.rows(np.array([1e3, 0.0]), 1.0)).all()
    # two values and a band that just reaches both: the mean, as for squares
    ends = Huber(np.ones((2, 1)), np.array([-1.0, 1.0]), 1.0, **BARE)
    x = ends.prox(np.full(1, 5.0), None, np.zeros(1), 0.0)
    assert_allclose(x, [0.0], atol=1e-15)


def test_labels_may_be_zero_and_one_or_plus_and_minus_one():
    (X, y, _), build = rows_of("logistic"), problems.LogisticRegression
    for labels in (2 * y - 1, y > 0, y.astype(int).tolist()):
        compare(build(X, labels), build(X, y), exact=True)
