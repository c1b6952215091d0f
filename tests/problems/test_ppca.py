"""Probabilistic PCA of complete data: digits, size, EM alone, and the start."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm.problems import PPCA, metrics
from dadmm.problems.ppca import _precision
from tests.support.solving import solve


@pytest.mark.parametrize("centre", [-1e9, -1.0, 0.0, 1.0, 1e9])
@pytest.mark.parametrize("weight", [0.0, 1e-9, 1.0, 1e9])
def test_the_precision_keeps_all_its_digits(weight, centre):
    """In exact arithmetic the quadratic changes its sign within 1e-13 of the root."""
    w, c, Q, count = (Fraction(x) for x in (weight, centre, 40.0, 150.0))

    a = Fraction(_precision(150.0, 40.0, weight, centre))

    lower, upper = a - a / 10**13, a + a / 10**13
    assert w * lower**2 + (Q / 2 - w * c) * lower < count / 2
    assert w * upper**2 + (Q / 2 - w * c) * upper > count / 2


def test_a_shard_is_read_once():
    """Its statistics have at most D rows, however many samples, and no samples."""
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(6, 5)), rng.normal(size=(5000, 5))
    problem, kept = PPCA(many, 2), PPCA(many.copy(), 2)
    theta = problem.init(rng)
    many[:] = np.nan

    assert PPCA(few, 2).factor.shape == problem.factor.shape == (5, 5)
    assert PPCA(few[:3], 2).factor.shape == (3, 5)
    assert_array_equal(problem.expect(theta).best, kept.expect(theta).best)


@pytest.mark.parametrize("zero_mean", [False, True])
def test_one_node_alone_finds_the_maximum_likelihood(zero_mean):
    """EM never lowers the marginal likelihood, and ends at the closed form's."""
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(60, 5)) * [4.0, 3.0, 1.0, 1.0, 1.0] + 0.1
    problem, likelihood = PPCA(samples, 2, zero_mean=zero_mean), [-math.inf]

    def watch(t, run):
        parts = problem.layout.views(run.theta[0])
        likelihood.append(metrics.ppca_log_likelihood(samples, *parts))

    alone = dadmm.Topology.chain(1)
    result = solve([problem], alone, tolerance=0, max_iter=300, callbacks=[watch])

    best = metrics.ppca_reference(samples, 2, zero_mean=zero_mean)
    top = metrics.ppca_log_likelihood(samples, *best)
    assert np.all(np.diff(likelihood) >= -1e-12 * abs(top))
    assert likelihood[-1] == pytest.approx(top, rel=1e-12)
    assert result.parts(0).a == pytest.approx(best.a, rel=1e-9)
    assert metrics.subspace_angle(result.parts(0).W, best.W) < 1e-6


def test_the_start_is_orthonormal_and_drawn_from_the_given_stream():
    """mu = 0 and a = 1, as the paper's program starts."""
    problem = PPCA(np.random.default_rng(0).normal(size=(30, 5)), 2)
    starts = [problem.init(np.random.default_rng(seed)) for seed in (7, 8)]
    W, mu, a = problem.layout.views(starts[0])

    assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    assert (a, *mu) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert np.abs(problem.layout.views(starts[1]).W - W).min() > 0


@pytest.mark.parametrize("zero_mean", [False, True])
def test_the_gradient_is_that_of_the_marginal_likelihood(zero_mean):
    rng = np.random.default_rng(5)
    samples = rng.standard_normal((9, 4)) * [3.0, 2.0, 1.0, 0.5] + 1.0
    problem = PPCA(samples, 2, zero_mean=zero_mean)
    W = rng.standard_normal((4, 2))
    theta = problem.layout.pack(
        W=W, mu=0.0 if zero_mean else rng.standard_normal(4), a=1.7
    )

    def value(at):
        return -metrics.ppca_log_likelihood(samples, *problem.layout.views(at))

    steps = 1e-5 * np.eye(len(theta))
    wanted = [(value(theta + s) - value(theta - s)) / 2e-5 for s in steps]
    if zero_mean:
        wanted[8:12] = [0.0] * 4
    assert_allclose(problem.gradient(theta), wanted, rtol=1e-6, atol=1e-5)


def test_a_standardised_problem_has_the_same_objectives_and_steps():
    """Its parameters are those of (x - m) / s; a weight is in other units."""
    rng = np.random.default_rng(6)
    samples, m, s = 5.0 * rng.standard_normal((9, 4)) + 2.0, rng.standard_normal(4), 3.0
    problem, direct = PPCA(samples, 2), PPCA((samples - m) / s, 2)
    other = problem.standardised(m, s)
    theta = direct.init(rng)
    W, mu, a = direct.layout.views(theta)
    raw = direct.layout.pack(W=s * W, mu=m + s * mu, a=a / s**2)

    found, wanted = (
        p.objectives(at[None], p.expect(at))
        for p, at in ((other, theta), (problem, raw))
    )
    assert_allclose(found, wanted, rtol=1e-12)
    near, same = (p.prox(theta, p.expect(theta), theta, 0.3) for p in (other, direct))
    assert_allclose(near, same, rtol=1e-10, atol=1e-12)
    assert_allclose(
        other.raw_factor.T @ other.raw_factor,
        ((samples - m) / s).T @ ((samples - m) / s),
        atol=1e-10,
    )
