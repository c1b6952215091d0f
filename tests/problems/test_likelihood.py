"""Equation (14), ``-log p(X_i | theta_i)``, against dense normal densities."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

import dadmm
from dadmm.problems import PPCA, StructureFromMotion

D, M = 6, 2


def some_samples(seed=0, n=30, gaps=0.0, offset=0.0):
    """Return samples (n, D), of which a share of entries is NaN."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(size=(n, M)) @ rng.normal(size=(M, D)) + offset
    samples += 0.4 * rng.normal(size=samples.shape)
    samples[rng.random(samples.shape) < gaps] = np.nan
    return samples


def some_theta(problem, seed=1):
    """Return parameters that fit nothing."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(problem.dimension, problem.n_components))
    mu = 0.0 if problem.zero_mean else rng.normal(size=problem.dimension)
    return problem.layout.pack(W=W, mu=mu, a=rng.uniform(0.5, 3.0))


def dense(problem, theta, samples):
    """Return minus the sum of normal log densities of the observed entries."""
    W, mu, a = problem.layout.views(theta)
    covariance = W @ W.T + np.eye(len(mu)) / a
    total = 0.0
    for sample in samples:
        seen = ~np.isnan(sample)
        if seen.any():
            total -= multivariate_normal.logpdf(
                sample[seen], mu[seen], covariance[np.ix_(seen, seen)]
            )
    return total


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("n", [1, 4, 30])
def test_it_is_the_sum_of_normal_densities(gaps, zero_mean, n):
    samples = some_samples(n=n, gaps=gaps, offset=2.0)
    problem = PPCA(samples, M, zero_mean=zero_mean)
    theta = some_theta(problem)

    found = problem.neg_log_likelihood(theta)

    assert_allclose(found, dense(problem, theta, samples), rtol=1e-12)
    own = dadmm.metrics.ppca_log_likelihood(samples, *problem.layout.views(theta))
    assert_allclose(found, -own, rtol=1e-12)


def test_the_expected_objective_is_above_it_and_turns_do_not_matter():
    """Above by the entropy of the posterior, which is positive here."""
    problem = PPCA(some_samples(), M)
    theta = some_theta(problem)
    expected = problem.objectives(theta[None], problem.expect(theta))[0]

    rotation, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(M, M)))
    W, mu, a = problem.layout.views(theta)
    turned = problem.layout.pack(W=W @ rotation, mu=mu, a=a)

    assert expected > problem.neg_log_likelihood(theta)
    assert_allclose(
        problem.neg_log_likelihood(turned), problem.neg_log_likelihood(theta)
    )


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_its_slope_is_the_gradient(gaps):
    problem = PPCA(some_samples(gaps=gaps), M)
    theta, step = some_theta(problem), 1e-6
    moves = step * np.eye(len(theta))

    slopes = [
        (problem.neg_log_likelihood(theta + d) - problem.neg_log_likelihood(theta - d))
        / (2.0 * step)
        for d in moves
    ]

    assert_allclose(slopes, problem.gradient(theta), rtol=1e-6, atol=1e-5)


def test_a_lost_track_has_a_free_translation():
    """The density of a row is that of what does not depend on its translation.

    With a flat prior of the translation this is the density of all contrasts.
    """
    rows = 20.0 * some_samples(n=8)
    rows[0, 1] = rows[3, 2:5] = np.nan
    problem = StructureFromMotion(rows)
    theta = some_theta(problem)
    W, _, a = problem.layout.views(theta)
    covariance, total = W @ W.T + np.eye(D) / a, 0.0
    for row in rows:
        seen = ~np.isnan(row)
        inverse = np.linalg.inv(covariance[np.ix_(seen, seen)])
        ones, x = np.ones(seen.sum()), row[seen]
        shift = (ones @ inverse @ x) / (ones @ inverse @ ones)
        left = x - shift
        total += 0.5 * (
            (seen.sum() - 1) * np.log(2.0 * np.pi)
            - np.linalg.slogdet(inverse)[1]
            + np.log(ones @ inverse @ ones)
            + left @ inverse @ left
        )

    assert type(problem).__name__ == "LostTracks"
    assert_allclose(problem.neg_log_likelihood(theta), total, rtol=1e-10)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_other_units_give_the_same_number(gaps):
    """It is the density of the samples, whatever the coordinates of theta."""
    problem = PPCA(some_samples(gaps=gaps, offset=3.0), M)
    theta, mean, unit = some_theta(problem), 1.5, 0.3
    W, mu, a = problem.layout.views(theta)
    inside = problem.layout.pack(W=W / unit, mu=(mu - mean) / unit, a=a * unit**2)

    found = problem.standardised(mean, unit).neg_log_likelihood(inside)

    assert_allclose(found, problem.neg_log_likelihood(theta), rtol=1e-12)


def test_logarithms_of_lengths_give_the_same_number():
    problem = PPCA(some_samples(), M, zero_mean=True)
    other = problem.with_log_lengths(1.5, 1e3, 2.0)
    theta = some_theta(problem)

    found = other.neg_log_likelihood(other.inside(theta))

    assert_allclose(found, problem.neg_log_likelihood(theta), rtol=1e-12)


@pytest.mark.parametrize("kind", ["complete", "gaps", "log lengths"])
def test_a_stack_has_the_bits_of_each(kind):
    gaps = 0.3 if kind == "gaps" else 0.0
    samples = [some_samples(seed, gaps=gaps) for seed in range(5)]
    if gaps:
        lost = np.isnan(samples[0])
        samples = [np.where(lost, np.nan, some_samples(seed)) for seed in range(5)]
    problems = [PPCA(x, M, zero_mean=kind == "log lengths") for x in samples]
    if kind == "log lengths":
        problems = [p.with_log_lengths(1.5, 1e3, 2.0) for p in problems]
    thetas = np.array([some_theta(PPCA(samples[0], M), k) for k in range(5)])

    found = type(problems[0]).stack(problems).neg_log_likelihood(thetas)

    assert found.shape == (5,)
    alone = [p.neg_log_likelihood(x) for p, x in zip(problems, thetas, strict=True)]
    assert_array_equal(found, alone)
