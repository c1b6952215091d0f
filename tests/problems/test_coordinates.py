"""Convex problems in coordinates z with theta = T z, and bounds of their Hessians."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import TransformableProblem
from dadmm.problems import (
    ElasticNet,
    Huber,
    Lasso,
    LogisticRegression,
    MultinomialLogistic,
)
from tests.support.linear import LONG, NAMES, SIZES, Case, make, targets

SMOOTH = [name for name in NAMES if not name.startswith(("lasso", "elastic"))]
ABSOLUTE = [name for name in NAMES if name not in SMOOTH]
WEIGHTS = [1e-3, 1.0, 1e6]


def coordinates(problem, floor=1e-12):
    """Return T that makes the Hessian at zero the identity, in the data's units."""
    F = problem.rows(np.zeros(problem.layout.size))
    lengths = np.sqrt((F**2).sum(axis=0))
    lengths[lengths == 0.0] = 1.0
    _, values, axes = np.linalg.svd(F / lengths)
    values = np.append(values, np.zeros(len(lengths) - len(values)))
    return axes.T / lengths[:, None] / np.maximum(values, floor * values[0])


def in_units(name, seed, nearly_equal=False):
    """Return a case whose columns are in units from 1e-6 to 1e6."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 6))
    if nearly_equal:
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    y = X @ np.array([1.0, 0, 1, 0, 1, 0]) + 0.5 * rng.standard_t(2, size=30)
    scales = np.array([1e-6, 1e6, 1e-2, 1.0, 1e3, 1e-4])
    return Case(name, X * rng.permutation(scales), targets(name, y, rng)), rng


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


def metric(case, x):
    """Return F'F: the Hessian, or for some problems another metric.

    Huber's is that of reweighted least squares. Poisson's has the mean of the counts
    and the expected counts.
    """
    X, fits = case.X.astype(float), (case.X @ x).astype(float)
    if case.name == "huber":
        weights = np.minimum(1.0, 0.7 / np.abs(fits - case.y.astype(float)))
    elif case.name == "poisson":
        weights = (np.exp(fits) + case.y.astype(float)) / 2
    else:
        return case.hessian(x)
    return (X.T * weights) @ X + np.diag(case.l2)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_a_factor_of_the_metric_and_of_that_in_z(name, size):
    case, x = make(name, size)
    p, rng, problem = len(x), np.random.default_rng(0), case.problem
    k = p if problem.needs_inverse else p - 1
    T, z = rng.normal(size=(p, k)), rng.normal(size=k)
    inside, point = problem.within(T), problem.theta_of(T, z)

    F, G = problem.rows(x), inside.rows(z)

    assert_allclose(F.T @ F, metric(case, x), rtol=1e-12, atol=1e-12)
    assert_allclose(G.T @ G, T.T @ metric(case, point) @ T, rtol=1e-9, atol=1e-9)
    assert isinstance(problem, TransformableProblem)
    assert inside.layout == Layout.of(z=(k,))
    constant = not name.startswith(("logistic", "poisson", "multinomial", "huber"))
    assert (inside.convex, inside.quadratic, problem.quadratic) == (
        True,
        *[constant] * 2,
    )
    if constant:
        assert_array_equal(problem.rows(9 * x, 3.0), F)
    values = inside.objectives(z[None], None), problem.objectives(point[None], None)
    assert_allclose(*values, rtol=1e-12)


@pytest.mark.parametrize("columns", [4, 1, "units", "nearly equal"])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_proximal_step_is_exact_in_z(name, columns):
    """In fewer coordinates, and in those of columns in units from 1e-6 to 1e6."""
    for seed in range(10):
        if isinstance(columns, int):
            case, centre = make(name, (30, 4), seed)
            T = np.random.default_rng(seed).normal(size=(len(centre), columns))
        else:
            case, _ = in_units(name, seed, columns == "nearly equal")
            T = coordinates(case.problem)
        inside = case.problem.within(T)
        centre = np.random.default_rng(seed).normal(size=T.shape[1])
        for weight in WEIGHTS:
            z = inside.prox(3 * centre, None, centre, weight)
            gradient, rounding = slope(case, T, z, centre, weight)
            assert np.abs(gradient).max() <= rounding


@pytest.mark.parametrize("nearly_equal", [False, True])
@pytest.mark.parametrize("name", ABSOLUTE)
def test_a_step_with_absolute_values_is_a_subgradient_in_any_units(name, nearly_equal):
    """weight (centre - z) = T' (gradient + l1 sign), where a zero has any sign."""
    zeros = 0
    for seed in range(20):
        case, rng = in_units(name, seed, nearly_equal)
        T = coordinates(case.problem)
        inside = case.problem.within(T)
        lengths = np.sqrt((T**2).sum(axis=1)).astype(LONG)
        for weight in WEIGHTS:
            centre = rng.normal(size=len(T))
            z = inside.prox(0 * centre, None, centre, weight)
            x = case.problem.theta_of(T, z)
            zero = (x == 0) & (case.l1 > 0)
            zeros += zero.sum()
            rest, rounding = slope(case, T, z, centre, weight)
            rest += T.T @ (case.l1 * np.sign(x))
            rounding += 1e-13 * (lengths * case.l1 * np.abs(np.sign(x))).max()
            rows = T[zero].astype(LONG) / lengths[zero, None]
            forces = np.zeros(len(rows), dtype=LONG)
            for _ in range(3):
                left = (rest + forces @ rows).astype(float)
                forces -= np.linalg.lstsq(rows.T.astype(float), left)[0]
            assert (np.abs(forces) <= (lengths * case.l1)[zero] + rounding).all()
            noise = 1e-16 * np.abs(forces).max(initial=0)
            assert np.abs(rest + forces @ rows).max() <= rounding + noise
    assert zeros > 20


def almost_singular(name, seed):
    """Return a problem with two equal columns, and indicators that sum to one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 12))
    X[:, 1], X[:, 6:] = X[:, 0], np.eye(6)[rng.integers(6, size=25)]
    y = X @ (np.arange(12.0) % 2) + 0.5 * rng.standard_t(2, size=25)
    return Case(name, X, y, 10.0 ** rng.uniform(-4, 0)).problem, rng


@pytest.mark.parametrize("floor", [1e-12, 1e-6])
@pytest.mark.parametrize("name", ["lasso", "lasso with intercept"])
def test_a_subgradient_bounds_f_where_coordinates_are_almost_singular(name, floor):
    """Indicators of classes, whose sum is the intercept, and two equal columns."""
    for seed in range(8):
        problem, rng = almost_singular(name, seed)
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


def test_zeros_of_a_point_are_exact():
    problem = Lasso(np.eye(3), np.ones(3), 0.1)
    T = np.array([[1.0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0]])
    z = np.array([[1.0, -1 + 1e-15, 0, 5], [1, -1 + 1e-9, 2, 5]])

    found = problem.theta_of(T, z)

    assert_array_equal(found == 0, [[1, 0, 1, 0], [0, 0, 0, 0]])  # not the intercept
    assert found[0, 3] == z[0, 0] + z[0, 1]


def test_absolute_values_need_an_inverse():
    X, y = np.ones((3, 2)), np.arange(3.0)
    assert Lasso(X, y, 1.0).needs_inverse
    for plain in (Lasso(X, y, 0.0), ElasticNet(X, y, 1.0, 0.0), Huber(X, y)):
        assert not plain.needs_inverse
        assert plain.within(np.ones((3, 1))).layout.size == 1

    with pytest.raises(ProblemError, match="square"):
        Lasso(X, y, 1.0).within(np.ones((3, 1)))


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_margins_are_those_of_the_entries_without_penalty(alpha, fit_intercept, K):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9, 2)), np.array([0, 1, K - 1] * 3)
    known = {"alpha": alpha, "fit_intercept": fit_intercept}
    problem = (
        MultinomialLogistic(X, y, K, **known)
        if K > 2
        else LogisticRegression(X, y, **known)
    )
    theta = rng.normal(size=problem.layout.size)

    found = problem.margins(theta)

    coef, *level = problem.layout.views(theta)
    u = X @ np.atleast_2d(0 * coef if alpha else coef).T + sum(level)
    u = u if K > 2 else np.column_stack([0 * u, u])
    sides = [u[i, y[i]] - u[i, k] for i in range(9) for k in range(K) if k != y[i]]
    assert_allclose(found, [min(sides), max(sides)], rtol=1e-12, atol=1e-12)
    T = rng.normal(size=(len(theta), len(theta)))
    again = problem.within(T).margins(np.linalg.solve(T, theta))
    assert_allclose(again, found, rtol=1e-9, atol=1e-9)


def test_the_best_point_is_kept_where_signs_recur():
    """By rounding, in coordinates that are almost singular."""
    problem, rng = almost_singular("lasso with intercept", 265)
    inside = problem.within(coordinates(problem, 1e-12))
    z = np.zeros(inside.layout.size)
    for weight, scale in product([1e-3, 1.0], [1.0, 1e-3, 1e-6]):
        centre = scale * rng.normal(size=len(z))
        z = inside.prox(z, None, centre, weight)
        rng.normal(size=(120, len(z))), rng.uniform(size=120)  # for the next centre
        points = np.vstack([z, np.zeros_like(z), centre])
        off = points - centre
        values = inside.objectives(points, None)
        values += 0.5 * weight * np.vecdot(off, off)
        assert values.argmin() == 0


@pytest.mark.parametrize("radius", [1e-9, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", NAMES)
def test_rows_bound_the_hessian_from_below_in_a_ball(name, radius):
    for seed in range(10):
        case, x = make(name, SIZES[seed % 3], seed)  # also of a single row
        rng = np.random.default_rng(seed)
        F = case.problem.rows(0.3 * x, radius)
        rows = rng.choice([-1.0, 1.0], (20, 1)) * rng.choice(case.X.astype(float), 20)
        for away in (*rng.normal(size=(5, len(x))), *rows):  # along rows, losses bend
            away *= radius * rng.choice([0.5, 1.0]) / np.sqrt(away @ away)
            there = case.hessian(0.3 * x + away)
            gap = np.linalg.eigvalsh(there - F.T @ F)[0]
            assert gap >= -1e-12 * (1 + np.abs(there).max())
