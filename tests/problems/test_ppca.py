"""PPCA, complete or with missing entries, against sums over samples and entries."""

from __future__ import annotations

import copy
import math
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

import dadmm
from dadmm.core.errors import ProblemError
from dadmm.data.patterns import remove_entries
from dadmm.problems import (
    PPCA,
    IncompletePPCA,
    LostTracks,
    StructureFromMotion,
    metrics,
)

LOG_2PI = math.log(2 * math.pi)
WEIGHTS = (0.0, 1e-6, 1.0, 1e6)


def complete(rng, n, D):
    """Return that no entry is missing."""
    return np.zeros((n, D), dtype=bool)


def scattered(rng, n, D):
    """Return which entries are missing: a third of them."""
    return rng.random((n, D)) < 0.3


def repeated(rng, n, D):
    """Return three patterns, with more samples each than they observe columns."""
    return (rng.random((3, D)) < 0.3)[np.arange(n) % 3]


def blocked(rng, n, D):
    """Return a column that nobody observes, an empty row, and a block."""
    lost = np.zeros((n, D), dtype=bool)
    lost[:, 1] = lost[2] = lost[: n // 2, D // 2 :] = True
    return lost


# samples, dimension, components, and which entries are missing
CASES = [
    (30, 5, 2, scattered),
    (60, 6, 2, repeated),
    (9, 6, 3, blocked),
    (40, 4, 1, blocked),
    (3, 6, 3, scattered),
    (30, 5, 2, complete),
    (4, 6, 2, complete),
    (2, 6, 3, complete),
    (1, 4, 1, complete),
]


@lru_cache
def make(case, zero_mean=False, seed=0):
    """Return samples, problem, theta and a centre, whose a may be negative."""
    n, D, M, lose = case
    rng = np.random.default_rng([seed, n, D, M])
    samples = rng.normal(size=(n, M)) @ rng.normal(size=(M, D)) + rng.normal(size=D)
    samples += 0.3 * rng.normal(size=(n, D))
    samples[lose(rng, n, D)] = np.nan
    problem = PPCA(samples, M, zero_mean=zero_mean)
    W, mu = rng.normal(size=(D, M)), (not zero_mean) * rng.normal(size=D)
    theta = problem.layout.pack(W=W, mu=mu, a=np.exp(rng.normal()))
    centre = rng.normal(size=problem.layout.size)
    problem.layout.views(centre).mu[...] *= not zero_mean
    return samples, problem, theta, centre


def posterior(W, mu, a, x):
    """Return mean and covariance of z given the observed entries of one sample."""
    seen = np.flatnonzero(~np.isnan(x))
    precision, pull = np.eye(W.shape[1]), np.zeros(W.shape[1])
    for d in seen:
        precision = precision + a * np.outer(W[d], W[d])
        pull = pull + a * (x[d] - mu[d]) * W[d]
    covariance = np.linalg.inv(precision)
    return covariance @ pull, covariance


def slow_objective(samples, at, tried):
    """Return -E log p(observed x, z) under ``tried``, with z from ``at``."""
    W, mu, a = tried
    terms = []
    for x in samples:
        if np.isnan(x).all():
            continue
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
    W_new, mu_new = W.copy(), mu.copy()
    for d in range(len(mu)):
        own = [k for k in range(len(samples)) if known[k, d]]
        if not own and not weight:
            continue
        left, right = weight * np.eye(W.shape[1]), weight * centre.W[d]
        for k in own:
            mean, covariance = beliefs[k]
            left = left + a * (covariance + np.outer(mean, mean))
            right = right + a * (samples[k, d] - mu[d]) * mean
        W_new[d] = np.linalg.solve(left, right)
        top = sum(a * (samples[k, d] - W_new[d] @ beliefs[k][0]) for k in own)
        mu_new[d] = (top + weight * centre.mu[d]) / (len(own) * a + weight)
    mu_new = np.zeros_like(mu) if zero_mean else mu_new
    misfit = 0.0
    for k, d in np.argwhere(known):
        mean, covariance = beliefs[k]
        misfit += (samples[k, d] - mu_new[d] - W_new[d] @ mean) ** 2
        misfit += W_new[d] @ covariance @ W_new[d]
    b = misfit / 2 - weight * centre.a
    roots = np.roots([weight, b, -known.sum() / 2])
    return W_new, mu_new, roots[roots.real > 0].real.max()


def differences(value, theta):
    """Return the gradient of a function by central differences."""
    steps = 1e-5 * np.eye(len(theta))
    ends = [value(theta + step) - value(theta - step) for step in steps]
    return np.array(ends) / 2e-5


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_is_that_of_the_likelihood_of_observed_entries(case, zero_mean):
    _, problem, theta, _ = make(case, zero_mean)

    wanted = problem.layout.views(differences(problem.neg_log_likelihood, theta))

    found = problem.layout.views(problem.gradient(theta))
    assert_allclose(found.W, wanted.W, rtol=1e-5, atol=1e-4)
    assert_allclose(found.mu, (not zero_mean) * wanted.mu, rtol=1e-5, atol=1e-4)
    assert_allclose(found.a, wanted.a, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_completed_rows_have_the_expected_moments(case):
    """Of each sample x given what is observed of it, at theta."""
    samples, problem, theta, _ = make(case)
    W, mu, a = problem.layout.views(theta)
    D = len(W)
    total, products = np.zeros(D), np.zeros((D, D))
    for x in samples[~np.isnan(samples).all(axis=1)]:
        mean, covariance = posterior(W, mu, a, x)
        lost = np.isnan(x)
        own = np.where(lost, mu + W @ mean, x)
        total += own
        products += np.outer(own, own)
        spread = W @ covariance @ W.T + np.eye(D) / a
        products += np.where(np.outer(lost, lost), spread, 0.0)

    found, rows = problem.completed_sum(theta), problem.completed(theta)

    assert_allclose(found, total, atol=1e-9)
    assert_allclose(rows.T @ rows, products, atol=1e-8)
    filled = np.where(np.isnan(samples), 0.0, samples)
    zero = problem.raw_factor
    assert_allclose(zero.T @ zero, filled.T @ filled, atol=1e-8)
    assert max(len(rows), len(zero)) <= D + 1


@pytest.mark.parametrize("case", CASES)
def test_objectives_are_sums_over_observed_entries(case):
    samples, problem, theta, _ = make(case)
    views, rng = problem.layout.views, np.random.default_rng(1)
    rows = theta + rng.normal(size=(5, len(theta))) * np.arange(5)[:, None]
    views(rows).a[...] = np.exp(rng.normal(size=5))

    found = problem.objectives(rows, problem.expect(theta))

    slow = [slow_objective(samples, views(theta), views(row)) for row in rows]
    assert_allclose(found, slow, rtol=1e-12)


@pytest.mark.parametrize(
    ("case", "zero_mean", "weight"), list(product(CASES, [False, True], WEIGHTS))
)
def test_a_sweep_is_the_sum_over_the_samples_that_observe_each_column(
    case, zero_mean, weight
):
    """W row by row, mu entry by entry, and a by the number of observed entries."""
    samples, problem, theta, centre = make(case, zero_mean)
    views, before = problem.layout.views, theta.copy()

    new = views(problem.prox(theta, problem.expect(theta), centre, weight))

    slow = slow_sweep(samples, views(theta), views(centre), weight, zero_mean)
    assert_allclose(new.W, slow[0], rtol=1e-9, atol=1e-12)
    assert_allclose(new.mu, slow[1], rtol=1e-9, atol=1e-12)
    assert_allclose(new.a, slow[2], rtol=1e-9)
    assert_array_equal(theta, before)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(("offset", "limit"), [(0, 1e-12), (1e4, 1e-9), (1e6, 1e-7)])
def test_data_far_from_zero_lose_only_the_digits_that_they_lack(offset, limit, missing):
    """Noise of 1e-3 on an offset of 1e6: uncentred sums would even be negative."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(6, 2))
    samples = rng.normal(size=(80, 2)) @ W.T + 1e-3 * rng.normal(size=(80, 6)) + offset
    lost = np.vstack([scattered(rng, 40, 6), repeated(rng, 40, 6)])
    samples[lost & missing] = np.nan
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


@pytest.mark.parametrize("case", CASES)
def test_the_likelihood_is_that_of_the_observed_entries(case):
    """Equation (14): a Gaussian in as many dimensions as a sample observes."""
    samples, problem, theta, _ = make(case)
    W, mu, a = problem.layout.views(theta)
    covariance, terms = W @ W.T + np.eye(len(mu)) / a, []
    for x in samples:
        seen = ~np.isnan(x)
        if seen.any():
            own = covariance[np.ix_(seen, seen)]
            terms.append(multivariate_normal.logpdf(x[seen], mu[seen], own))

    given = (
        [samples] if np.isnan(samples).any() else [samples, metrics.summarise(samples)]
    )
    for data in given:
        found = metrics.ppca_log_likelihood(data, W, mu, a)
        assert found == pytest.approx(math.fsum(terms), rel=1e-11)
    assert -problem.neg_log_likelihood(theta) == pytest.approx(found, rel=1e-11)


@pytest.mark.parametrize("case", CASES[:5])
def test_missing_entries_are_filled_in_as_a_gaussian_says(case):
    """Mean and variance given the observed entries, from the covariance of all."""
    samples, problem, theta, _ = make(case)
    W, mu, a = problem.layout.views(theta)
    C = W @ W.T + np.eye(len(mu)) / a

    filled, variances = problem.impute(theta, samples)

    for x, full, variance in zip(samples, filled, variances, strict=True):
        lost = np.isnan(x)
        gain = np.linalg.solve(C[np.ix_(~lost, ~lost)], C[np.ix_(~lost, lost)]).T
        left = C[np.ix_(lost, lost)] - gain @ C[np.ix_(~lost, lost)]
        assert_array_equal(full[~lost], x[~lost])
        assert not variance[~lost].any()
        assert_allclose(full[lost], mu[lost] + gain @ (x - mu)[~lost], atol=1e-9)
        assert_allclose(variance[lost], np.diag(left), rtol=1e-9)
    z = [posterior(W, mu, a, x)[0] for x in samples]
    assert_allclose(problem.latent(theta, samples), z, rtol=1e-9, atol=1e-12)


def test_a_nan_chooses_the_class():

    class Own(PPCA):
        pass

    samples = make((30, 5, 2, scattered))[0]
    assert type(PPCA(samples=samples, n_components=2)) is IncompletePPCA
    assert type(PPCA(samples[:, :1].repeat(3, 1) * 0 + 1, 1)) is IncompletePPCA
    assert type(PPCA(np.ones((3, 4)), 2)) is PPCA
    assert type(StructureFromMotion(rows=samples)) is LostTracks
    assert type(copy.deepcopy(PPCA(samples, 2))) is IncompletePPCA
    with pytest.raises(ProblemError, match="nan"):
        Own(samples, 2)


def tracks(lost=0.2, seed=0):
    """Return tracks of a turning cube of which some are lost, and the cube."""
    rows, points = dadmm.datasets.turntable(8, 12, seed=seed)
    return remove_entries(rows, lost, seed, together=2), points


def test_a_rows_translation_does_not_matter():
    rows, _ = tracks()
    shift = 100.0 * np.arange(len(rows))[:, None]
    problems = LostTracks(rows), LostTracks(rows + shift)
    theta = problems[0].init(np.random.default_rng(0))

    ends = [p.prox(theta, p.expect(theta), theta, 1.0) for p in problems]
    here, there = (problems[0].impute(theta, x)[0] for x in (rows, rows + shift))

    assert_allclose(ends[0], ends[1], rtol=1e-8)
    assert_allclose(there - here, np.broadcast_to(shift, rows.shape), atol=1e-6)


def flat_likelihood(rows, W, a):
    """Return the log likelihood of differences within rows, blind to their offsets."""
    total = 0.0
    for x in rows:
        seen = ~np.isnan(x)
        n = np.count_nonzero(seen)
        basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
        C = basis.T @ (W[seen] @ W[seen].T + np.eye(n) / a) @ basis
        total += multivariate_normal.logpdf(basis.T @ x[seen], np.zeros(n - 1), C)
    return total


def test_the_gradient_with_free_offsets_is_that_of_differences():
    rows = tracks()[0] / 100
    problem = StructureFromMotion(rows)
    theta = problem.init(np.random.default_rng(0))

    def value(at):
        W, _, a = problem.layout.views(at)
        return -flat_likelihood(rows, W, a)

    wanted = differences(value, theta)
    assert_allclose(problem.gradient(theta), wanted, rtol=1e-5, atol=1e-4)
    prior = 0.5 * np.log((~np.isnan(rows)).sum(axis=1)).sum()  # flat, of translations
    assert_allclose(problem.neg_log_likelihood(theta), value(theta) + prior)


def test_cameras_start_from_where_points_are_seen_first_and_last():
    rows, _ = tracks(0.0)
    rows[:4, 3] = rows[-2:, 5] = rows[:, 7] = np.nan
    problem = StructureFromMotion(rows)
    W = problem.layout.views(problem.init(np.random.default_rng(0))).W
    centred = rows - np.nanmean(rows, axis=1, keepdims=True)

    ends = np.column_stack([centred[0] + 0.1, centred[1] + 0.1, centred[-2]])
    assert_allclose(np.delete(W, [3, 5, 7], axis=0), np.delete(ends, [3, 5, 7], axis=0))
    assert_allclose(W[3, :2], centred[4:6, 3] + 0.1)
    assert_allclose(W[5, 2], centred[-4, 5])
    assert_allclose(W[7], [0.1, 0.1, 0.0])
    one = StructureFromMotion(rows[:2])
    assert_array_equal(one.layout.views(one.init(np.random.default_rng(0))).W[:, 2], 1)


def test_a_frame_without_points_has_no_place():
    """Its coordinates stay unknown, with infinite variance; its camera is the prior."""
    rows, _ = tracks()
    rows[4:6] = np.nan
    problem = StructureFromMotion(rows)
    theta = problem.init(np.random.default_rng(0))

    filled, variances = problem.impute(theta, rows)

    assert np.isnan(filled[4:6]).all()
    assert np.isinf(variances[4:6]).all()
    assert np.isfinite(np.delete(filled, [4, 5], axis=0)).all()
    assert not problem.motion(theta)[4:6].any()


def test_the_start_is_orthonormal_and_drawn_from_the_given_stream():
    """mu = 0 and a = 1, as the paper's program starts."""
    problem = PPCA(np.random.default_rng(0).normal(size=(30, 5)), 2)
    starts = [problem.init(np.random.default_rng(seed)) for seed in (7, 8)]
    W, mu, a = problem.layout.views(starts[0])

    assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    assert (a, *mu) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert np.abs(problem.layout.views(starts[1]).W - W).min() > 0
