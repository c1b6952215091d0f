"""Multinomial logistic regression beside its formula, a row at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dadmm
from dadmm import Layout
from dadmm.problems import MultinomialLogistic
from tests.support.pooled import LONG, Pooled, class_rows

CASES = [(30, 4, 3, True), (30, 3, 2, False), (3, 5, 4, True), (1, 2, 3, True)]
WEIGHTS = [1e-6, 1.0, 1e6]


def make(n=30, d=4, K=3, fit_intercept=True, alpha=0.1, seed=0, units=0):
    """Return a problem, the same one in extended precision, and a point.

    Columns are in units from 10^-units to 10^units.
    """
    rng = np.random.default_rng([seed, n, d])
    X, y = rng.normal(size=(n, d)) * np.linspace(0.5, 2, d), rng.integers(K, size=n)
    X *= 10.0 ** rng.permutation(np.linspace(-units, units, d))
    problem = MultinomialLogistic(X, y, K, alpha, fit_intercept=fit_intercept)
    rows = class_rows(X, K, fit_intercept)
    l2 = alpha * (np.arange(rows.shape[1]) < K * d)
    return problem, Pooled("softmax", rows, y, 0 * l2, l2), rng.normal(size=len(l2))


def derivatives(known, x, T=None):
    """Return gradient and Hessian in z, x = T z."""
    T = np.eye(len(x), dtype=LONG) if T is None else T.astype(LONG)
    return known._derivatives(T, known.X @ T, known.l2[:, None] * T, x.astype(LONG))


def whitening(F):
    """Return T with which rows F have orthonormal columns."""
    lengths = np.sqrt((F**2).sum(axis=0))
    _, s, axes = np.linalg.svd(F / lengths, full_matrices=False)
    return (axes[s > 1e-9 * s[0]].T / s[s > 1e-9 * s[0]]) / lengths[:, None]


@pytest.mark.parametrize("case", CASES)
def test_objectives_rows_and_layout(case):
    problem, known, x = make(*case)
    _, d, K, fit_intercept = case
    shapes = {"intercept": (K,)} if fit_intercept else {}
    thetas = x * np.array([[0.0], [1.0], [-3.0], [1000.0]])

    assert problem.layout == Layout.of(coef=(K, d), **shapes)
    values = [float(known.objective(theta)) for theta in thetas]
    assert_allclose(problem.objectives(thetas, None), values, rtol=1e-13)
    F = problem.rows(x)
    assert_allclose(F.T @ F, derivatives(known, x)[1].astype(float), atol=1e-12)
    dadmm.testing.check_problem(problem)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("case", CASES)
def test_proximal_steps_are_exact_in_any_coordinates(case, alpha):
    for seed, kind in product(range(2), ("as is", "fewer", "any units")):
        units = 6 if kind == "any units" else 0
        problem, known, x = make(*case, alpha, seed, units)
        rng, p = np.random.default_rng(seed), len(x)
        T = np.eye(p) if kind == "as is" else rng.normal(size=(p, max(p - 2, 1)))
        if units:
            T = whitening(problem.rows(0 * x))
        inside, centre = problem.within(T), rng.normal(size=T.shape[1])
        rows = known.X @ T
        terms = np.vstack([np.abs(known.X), np.diag(np.sqrt(known.l2))]) @ np.abs(T)
        for weight, start in [(w, s) for w in WEIGHTS for s in (0, 1, 100)]:
            z = inside.prox(start * centre, None, centre, weight)
            slope = derivatives(known, z, T)[0] + weight * (z - centre)
            forces = np.abs(known.forces(rows @ z)) @ np.abs(rows)
            size = np.sqrt((terms**2).sum()) + weight
            noise = 1e-12 * (forces.max() + weight * np.abs(z - centre).max())
            noise += 1e-14 * size * (size * np.sqrt(z @ z) + np.abs(z).max())
            assert np.abs(slope).max() <= noise, (seed, kind, weight, start)


def test_the_shortest_minimiser_without_penalty():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(3, size=40)
    twice = np.column_stack([X, X[:, 0]])
    problem = MultinomialLogistic(twice, y, 3, 0.0)

    x = problem.layout.views(problem.prox(np.ones(12), None, np.ones(12), 0.0))

    assert_allclose(x.coef[:, 0], x.coef[:, 2], rtol=1e-9)
    assert_allclose(x.coef.sum(axis=0), 0.0, atol=1e-9)


@pytest.mark.parametrize("radius", [1e-9, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("case", CASES)
def test_rows_bound_the_hessian_from_below_in_a_ball(case, radius):
    for seed in range(5):
        problem, known, x = make(*case, seed=seed)
        rng = np.random.default_rng(seed)
        F = problem.rows(x, radius)
        assert np.isfinite(F).all()
        for _ in range(10):
            away = rng.normal(size=len(x))
            away *= radius * rng.choice([0.5, 1.0]) / np.sqrt(away @ away)
            there = derivatives(known, x + away)[1].astype(float)
            assert np.linalg.eigvalsh(there - F.T @ F)[0] >= -1e-12
