"""PPCA, complete or with missing entries, against sums over samples and entries."""

import copy
import math
from functools import lru_cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from dadmm.core.errors import ProblemError
from dadmm.problems import (
    PPCA,
    IncompletePPCA,
    LostTracks,
    StructureFromMotion,
    metrics,
)

LOG_2PI = math.log(2 * math.pi)
WEIGHTS = (0.0, 1e-6, 1.0, 1e6)


def lost_entries(kind, rng, n, D):
    """Return which entries (n, D) are missing."""
    lost = np.zeros((n, D), dtype=bool)
    if kind == "scattered":
        lost = rng.random((n, D)) < 0.3
    elif kind == "repeated":  # three patterns of more samples than they have columns
        lost = (rng.random((3, D)) < 0.3)[np.arange(n) % 3]
    elif kind == "blocked":  # a column that nobody observes, an empty row, and a block
        lost[:, 1] = lost[2] = lost[: n // 2, D // 2 :] = True
    return lost


# samples, dimension, components, and which entries are missing
CASES = [
    (30, 5, 2, "scattered"),
    (60, 6, 2, "repeated"),
    (9, 6, 3, "blocked"),
    (40, 4, 1, "blocked"),
    (3, 6, 3, "scattered"),
    (30, 5, 2, "none"),
    (4, 6, 2, "none"),
    (2, 6, 3, "none"),
    (1, 4, 1, "none"),
]


@lru_cache
def make(case, zero_mean=False):
    """Return samples, problem, theta and a centre, whose a may be negative."""
    n, D, M, kind = case
    rng = np.random.default_rng([0, n, D, M])
    samples = rng.normal(size=(n, M)) @ rng.normal(size=(M, D)) + rng.normal(size=D)
    samples += 0.3 * rng.normal(size=(n, D))
    samples[lost_entries(kind, rng, n, D)] = np.nan
    problem = PPCA(samples, M, zero_mean=zero_mean)
    W, mu = rng.normal(size=(D, M)), (not zero_mean) * rng.normal(size=D)
    theta = problem.layout.pack(W=W, mu=mu, a=np.exp(rng.normal()))
    centre = rng.normal(size=problem.layout.size)
    problem.layout.views(centre).mu[...] *= not zero_mean
    return samples, problem, theta, centre


def posterior(W, mu, a, x):
    """Return mean and covariance of z given the observed entries of one sample."""
    precision, pull = np.eye(W.shape[1]), np.zeros(W.shape[1])
    for d in np.flatnonzero(~np.isnan(x)):
        precision = precision + a * np.outer(W[d], W[d])
        pull = pull + a * (x[d] - mu[d]) * W[d]
    covariance = np.linalg.inv(precision)
    return covariance @ pull, covariance


def slow_objective(samples, at, tried):
    """Return -E log p(observed x, z) under ``tried``, with z from ``at``."""
    W, mu, a = tried
    terms = []
    for x in samples[~np.isnan(samples).all(axis=1)]:
        mean, covariance = posterior(*at, x)
        for d in np.flatnonzero(~np.isnan(x)):
            misfit = (x[d] - mu[d] - W[d] @ mean) ** 2 + W[d] @ covariance @ W[d]
            terms.append(0.5 * a * misfit + 0.5 * (LOG_2PI - np.log(a)))
        energy = mean @ mean + np.trace(covariance)
        terms.append(0.5 * energy + 0.5 * len(mean) * LOG_2PI)
    return math.fsum(terms)


def slow_sweep(samples, at, centre, weight, zero_mean):
    """Return W, mu and a after one sweep, as the paper's M-step has it."""
    W, mu, a = (np.array(part) for part in at)
    beliefs = [posterior(W, mu, a, x) for x in samples]
    known = ~np.isnan(samples)
    W_new, mu_new, misfit = W.copy(), mu.copy(), 0.0
    for d in range(len(mu)):
        own = np.flatnonzero(known[:, d])
        if not len(own) and not weight:
            continue
        left, right = weight * np.eye(W.shape[1]), weight * centre.W[d]
        for k in own:
            mean, covariance = beliefs[k]
            left = left + a * (covariance + np.outer(mean, mean))
            right = right + a * (samples[k, d] - mu[d]) * mean
        W_new[d] = np.linalg.solve(left, right)
        top = sum(a * (samples[k, d] - W_new[d] @ beliefs[k][0]) for k in own)
        mu_new[d] = (top + weight * centre.mu[d]) / (len(own) * a + weight)
        mu_new[d] *= not zero_mean
        for k in own:
            mean, covariance = beliefs[k]
            misfit += (samples[k, d] - mu_new[d] - W_new[d] @ mean) ** 2
            misfit += W_new[d] @ covariance @ W_new[d]
    roots = np.roots([weight, misfit / 2 - weight * centre.a, -known.sum() / 2])
    return W_new, mu_new, roots[roots.real > 0].real.max()


def differences(value, theta):
    """Return the gradient of a function by central differences."""
    steps = 1e-5 * np.eye(len(theta))
    ends = [value(theta + step) - value(theta - step) for step in steps]
    return np.array(ends) / 2e-5


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_sweep_is_the_sum_over_the_samples_that_observe_each_column(case, zero_mean):
    """W row by row, mu entry by entry, and a by the number of observed entries."""
    samples, problem, theta, centre = make(case, zero_mean)
    views, before = problem.layout.views, theta.copy()
    for weight in WEIGHTS:
        new = views(problem.prox(theta, problem.expect(theta), centre, weight))
        slow = slow_sweep(samples, views(theta), views(centre), weight, zero_mean)
        for found, wanted in zip(new, slow, strict=True):
            assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    assert_array_equal(theta, before)


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_values_and_slopes_are_those_of_observed_entries(case, zero_mean):
    """Equation (14): a Gaussian in as many dimensions as a sample observes."""
    samples, problem, theta, _ = make(case, zero_mean)
    views, rng = problem.layout.views, np.random.default_rng(1)
    rows = theta + rng.normal(size=(5, len(theta))) * np.arange(5)[:, None]
    views(rows).a[...] = np.exp(rng.normal(size=5))
    W, mu, a = views(theta)
    covariance, terms = W @ W.T + np.eye(len(mu)) / a, []
    for x in samples[~np.isnan(samples).all(axis=1)]:
        seen = ~np.isnan(x)
        own = covariance[np.ix_(seen, seen)]
        terms.append(multivariate_normal.logpdf(x[seen], mu[seen], own))

    found = problem.objectives(rows, problem.expect(theta))
    slow = [slow_objective(samples, views(theta), views(row)) for row in rows]
    assert_allclose(found, slow, rtol=1e-12)
    complete = not np.isnan(samples).any()
    for data in [samples, metrics.summarise(samples)][: 1 + complete]:
        found = metrics.ppca_log_likelihood(data, W, mu, a)
        assert found == pytest.approx(math.fsum(terms), rel=1e-11)
    assert -problem.neg_log_likelihood(theta) == pytest.approx(found, rel=1e-11)
    slopes = differences(problem.neg_log_likelihood, theta)
    views(slopes).mu[...] *= not zero_mean
    assert_allclose(problem.gradient(theta), slopes, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_missing_entries_are_filled_in_as_a_gaussian_says(case):
    """Mean and covariance given the observed entries, from the covariance of all."""
    samples, problem, theta, _ = make(case)
    W, mu, a = problem.layout.views(theta)
    C, D = W @ W.T + np.eye(len(mu)) / a, len(mu)
    means, products, variances = [], np.zeros((D, D)), np.zeros(samples.shape)
    for x, variance in zip(samples, variances, strict=True):
        lost = np.isnan(x)
        gain = np.linalg.solve(C[np.ix_(~lost, ~lost)], C[np.ix_(~lost, lost)]).T
        left = C[np.ix_(lost, lost)] - gain @ C[np.ix_(~lost, lost)]
        own = x.copy()
        own[lost] = mu[lost] + gain @ (x - mu)[~lost]
        means.append(own)
        variance[lost] = np.diag(left)
        if not lost.all():
            products += np.outer(own, own)
            products[np.ix_(lost, lost)] += left

    present = ~np.isnan(samples).all(axis=1)
    rows, zero = problem.completed(theta), problem.raw_factor
    assert_allclose(
        problem.completed_sum(theta), np.array(means)[present].sum(axis=0), atol=1e-9
    )
    assert_allclose(rows.T @ rows, products, atol=1e-8)
    filled = np.nan_to_num(samples)
    assert_allclose(zero.T @ zero, filled.T @ filled, atol=1e-8)
    assert max(len(rows), len(zero)) <= D + 1
    if isinstance(problem, IncompletePPCA):
        filled, spread = problem.impute(theta, samples)
        assert_allclose(filled, means, atol=1e-9)
        assert_array_equal(filled[variances == 0], samples[variances == 0])
        assert_allclose(spread, variances, rtol=1e-9)
        z = [posterior(W, mu, a, x)[0] for x in samples]
        assert_allclose(problem.latent(theta, samples), z, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("offset", "limit"), [(0, 1e-12), (1e4, 1e-9), (1e6, 1e-7)])
def test_data_far_from_zero_lose_only_the_digits_that_they_lack(offset, limit, missing):
    """Noise of 1e-3 on an offset of 1e6: uncentred sums would even be negative."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(6, 2))
    samples = rng.normal(size=(80, 2)) @ W.T + 1e-3 * rng.normal(size=(80, 6)) + offset
    lost = [lost_entries(kind, rng, 40, 6) for kind in ("scattered", "repeated")]
    samples[np.vstack(lost) & missing] = np.nan
    problem = PPCA(samples, 2)
    mu = offset + 1e-4 * rng.normal(size=6)
    theta = problem.layout.pack(W=W, mu=mu, a=1e6)

    stats = problem.expect(theta)
    new = problem.prox(theta, stats, theta, 1.0)

    at = problem.layout.views(theta)
    for row in (theta, new):
        slow = slow_objective(samples, at, problem.layout.views(row))
        assert problem.objectives(row[None], stats)[0] == pytest.approx(slow, rel=limit)
    assert 0.5e-3 < problem.layout.views(new).a ** -0.5 < 2e-3


def test_a_nan_chooses_the_class_and_the_start_is_orthonormal():
    """mu = 0 and a = 1, as the paper's program starts."""
    (samples, holed, *_), problem = make(CASES[0]), make(CASES[5])[1]
    own = type("Own", (PPCA,), {})
    assert type(PPCA(samples=samples, n_components=2)) is IncompletePPCA
    assert type(problem) is PPCA
    assert type(StructureFromMotion(rows=samples)) is LostTracks
    assert type(copy.deepcopy(holed)) is IncompletePPCA
    with pytest.raises(ProblemError, match="nan"):
        own(samples, 2)
    starts = [problem.init(np.random.default_rng(seed)) for seed in (7, 8)]
    W, mu, a = problem.layout.views(starts[0])
    assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    assert (a, *mu) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert np.abs(problem.layout.views(starts[1]).W - W).min() > 0
