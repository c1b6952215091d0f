"""Probabilistic PCA: its objective sample by sample, its sweep block by block, EM."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm.core.errors import ProblemError
from dadmm.problems import PPCA, metrics
from dadmm.problems.ppca import _precision

LOG_2PI = math.log(2 * math.pi)
# (n_samples, dimension, n_components): N > D, N <= D, N <= M, and one sample
SIZES = [(30, 5, 2), (4, 6, 2), (2, 6, 3), (1, 4, 1)]
SWEEPS = list(product(SIZES, [False, True], [0.0, 1e-6, 1.0, 1e6]))


@lru_cache
def make(size, zero_mean=False, seed=0):
    """Return samples, problem, theta and a centre, whose a may be negative."""
    (n, D, M), rng = size, np.random.default_rng([seed, *size])
    samples = rng.normal(size=(n, M)) @ rng.normal(size=(M, D)) + rng.normal(size=D)
    samples += 0.3 * rng.normal(size=(n, D))
    problem = PPCA(samples, M, zero_mean=zero_mean)
    W, mu = rng.normal(size=(D, M)), (not zero_mean) * rng.normal(size=D)
    theta = problem.layout.pack(W=W, mu=mu, a=np.exp(rng.normal()))
    centre = rng.normal(size=problem.layout.size)
    problem.layout.views(centre).mu[...] *= not zero_mean
    return samples, problem, theta, centre


def posterior(W, mu, a, x):
    """Return mean and covariance of z given one sample, as the paper has them."""
    M = W.T @ W + np.eye(W.shape[1]) / a
    return np.linalg.solve(M, W.T @ (x - mu)), np.linalg.inv(M) / a


def slow_objective(samples, at, tried):
    """Return -E log p(x, z) under ``tried``, z from ``at``, one sample at a time."""
    W, mu, a = tried
    terms = []
    for x in samples:
        mean, covariance = posterior(*at, x)
        misfit = np.sum((x - mu - W @ mean) ** 2) + np.trace(W @ covariance @ W.T)
        terms.append(0.5 * a * misfit - 0.5 * len(x) * (np.log(a) - LOG_2PI))
        energy = mean @ mean + np.trace(covariance)
        terms.append(0.5 * energy + 0.5 * len(mean) * LOG_2PI)
    return math.fsum(terms)


@pytest.mark.parametrize("size", SIZES)
def test_objectives_are_sums_over_samples(size):
    """For any rows tried, under the posterior of the node's own parameters."""
    samples, problem, theta, _ = make(size)
    views, rng = problem.layout.views, np.random.default_rng(1)
    rows = theta + rng.normal(size=(5, len(theta))) * np.arange(5)[:, None]
    views(rows).a[...] = np.exp(rng.normal(size=5))

    found = problem.objectives(rows, problem.expect(theta))

    slow = [slow_objective(samples, views(theta), views(row)) for row in rows]
    assert_allclose(found, slow, rtol=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_expectations_are_those_of_the_samples(size):
    """Means, covariances and cross moments, about the mean latent and mean sample."""
    samples, problem, theta, _ = make(size)
    beliefs = [posterior(*problem.layout.views(theta), x) for x in samples]
    z = np.array([mean for mean, _ in beliefs])
    off, about = z - z.mean(axis=0), samples - samples.mean(axis=0)

    found = problem.expect(theta)

    close = {"rtol": 1e-10, "atol": 1e-12}
    assert_allclose(found.z_mean, z.mean(axis=0), **close)
    assert_allclose(found.spread, off.T @ off + sum(c for _, c in beliefs), **close)
    assert_allclose(found.cross, off.T @ about, **close)
    assert_allclose(problem.latent(theta, samples), z, **close)


def newton_steps(problem, stats, centre, weight, at, block):
    """Return how far each entry of a block is from its optimum, by differences.

    The sum is a parabola in W and mu, for which a step of any length is exact.
    """
    numbers = problem.layout.views(np.arange(float(len(at))))
    index = getattr(numbers, block).astype(int).ravel()
    length = 1e-3 * abs(at[index[0]]) if block == "a" else 1.0
    steps = np.zeros((len(index), len(at)))
    steps[np.arange(len(index)), index] = length

    def total(rows):
        gap = rows - centre
        return problem.objectives(rows, stats) + weight / 2 * np.vecdot(gap, gap)

    above, here, below = total(at + steps), total(at[None]), total(at - steps)
    return -0.5 * length * (above - below) / (above - 2 * here + below)


@pytest.mark.parametrize(("size", "zero_mean", "weight"), SWEEPS)
def test_each_block_is_at_its_optimum_in_its_turn(size, zero_mean, weight):
    """W with the old mu and a, then mu with the old a, then a: the gradient is zero."""
    _, problem, theta, centre = make(size, zero_mean)
    views, at, stats = problem.layout.views, theta.copy(), problem.expect(theta)

    new = problem.prox(theta, stats, centre, weight)

    assert_array_equal(theta, at)
    for block in ("W", "mu", "a"):
        getattr(views(at), block)[...] = getattr(views(new), block)
        if block == "mu" and zero_mean:
            assert not views(new).mu.any()
            continue
        steps = newton_steps(problem, stats, centre, weight, at, block)
        assert np.abs(steps).max() < 1e-6 * np.abs(getattr(views(new), block)).max()
    assert_array_equal(at, new)


@pytest.mark.parametrize(("size", "zero_mean", "weight"), SWEEPS)
def test_a_sweep_never_raises_what_it_minimises(size, zero_mean, weight):
    """From any start to any centre, over ten sweeps each."""
    for seed in range(10):
        _, problem, theta, centre = make(size, zero_mean, seed)
        for _ in range(10):
            stats = problem.expect(theta)
            new = problem.prox(theta, stats, centre, weight)
            assert problem.layout.views(new).a > 0
            both = np.array([theta, new])
            pull = weight / 2 * np.sum((both - centre) ** 2, axis=1)
            before, after = problem.objectives(both, stats) + pull
            assert after <= before + 1e-12 * abs(before)
            theta = new


@pytest.mark.parametrize("centre", [-1e9, -1.0, 0.0, 1.0, 1e9])
@pytest.mark.parametrize("weight", [0.0, 1e-9, 1.0, 1e9])
def test_the_precision_keeps_all_its_digits(weight, centre):
    """In exact arithmetic the quadratic changes its sign within 1e-13 of the root."""
    w, c, Q, count = (Fraction(x) for x in (weight, centre, 40.0, 150.0))

    a = Fraction(_precision(150.0, 40.0, weight, centre))

    lower, upper = a - a / 10**13, a + a / 10**13
    assert w * lower**2 + (Q / 2 - w * c) * lower < count / 2
    assert w * upper**2 + (Q / 2 - w * c) * upper > count / 2


@pytest.mark.parametrize(("offset", "limit"), [(0, 1e-12), (1e4, 1e-9), (1e6, 1e-7)])
def test_data_far_from_zero_lose_only_the_digits_that_they_lack(offset, limit):
    """Noise of 1e-3 on an offset of 1e6: uncentred sums would even be negative."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(6, 2))
    samples = rng.normal(size=(80, 2)) @ W.T + 1e-3 * rng.normal(size=(80, 6)) + offset
    problem = PPCA(samples, 2)
    mu = samples.mean(axis=0) + 1e-4 * rng.normal(size=6)
    theta = problem.layout.pack(W=W, mu=mu, a=1e6)

    stats = problem.expect(theta)
    new = problem.prox(theta, stats, theta, 1.0)

    # x - mu is exact in float64, as the two are close, and fsum adds without rounding
    at = problem.layout.views(theta)
    for row in (theta, new):
        slow = slow_objective(samples, at, problem.layout.views(row))
        assert problem.objectives(row[None], stats)[0] == pytest.approx(slow, rel=limit)
    assert 0.5e-3 < problem.layout.views(new).a ** -0.5 < 2e-3


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

    def watch(t, nodes):
        parts = problem.layout.views(nodes[0].theta)
        likelihood.append(metrics.ppca_log_likelihood(samples, *parts))

    alone = dadmm.Topology.chain(1)
    result = dadmm.solve([problem], alone, tolerance=0, max_iter=300, callbacks=[watch])

    best = metrics.ppca_reference(samples, 2, zero_mean=zero_mean)
    top = metrics.ppca_log_likelihood(samples, *best)
    assert np.all(np.diff(likelihood) >= -1e-12 * abs(top))
    assert likelihood[-1] == pytest.approx(top, rel=1e-12)
    assert result.parts(0).a == pytest.approx(best.a, rel=1e-9)
    assert metrics.subspace_angle(result.parts(0).W, best.W) < 1e-6


def test_the_start_is_orthonormal_and_drawn_from_the_given_stream():
    """mu = 0 and a = 1, as the paper's program starts."""
    problem = make((30, 5, 2))[1]
    W, mu, a = problem.layout.views(problem.init(np.random.default_rng(7)))

    assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    assert (a, *mu) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    other = problem.layout.views(problem.init(np.random.default_rng(8)))
    assert np.abs(other.W - W).min() > 0


@pytest.mark.parametrize(
    ("samples", "n_components", "sentence"),
    [
        (np.ones(4), 1, "PPCA needs samples of shape (n, d) with n >= 1, got (4,)"),
        (np.ones((0, 4)), 1, "of shape (n, d) with n >= 1, got (0, 4)"),
        (np.ones((9, 4)), 4, "less than the 4 dimensions of the samples, got 4"),
        (np.ones((9, 4)), 0, "n_components must be at least 1 and less than the 4"),
        (np.diag([1, -np.inf]), 1, "finite samples, but row 1, column 1 is -inf"),
    ],
)
def test_unusable_samples_are_refused(samples, n_components, sentence):
    """With the rule and what was given."""
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        PPCA(samples, n_components)
