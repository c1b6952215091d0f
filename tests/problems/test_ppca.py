"""PPCA, complete or with gaps, beside sums over samples; metrics and log lengths."""

import copy
import math
from functools import lru_cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from dadmm.core.errors import ProblemError
from dadmm.problems import PPCA, IncompletePPCA, metrics
from tests.support import problems as support

LOG_2PI = math.log(2 * math.pi)
WEIGHTS = (0.0, 1e-6, 1.0, 1e6)


def lost_entries(kind, rng, n, D):
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
    (30, 5, 2, "scattered"), (60, 6, 2, "repeated"), (9, 6, 3, "blocked"),
    (40, 4, 1, "blocked"), (3, 6, 3, "scattered"),
    (30, 5, 2, "none"), (4, 6, 2, "none"), (2, 6, 3, "none"), (1, 4, 1, "none"),
]  # fmt: skip


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
    seen = ~np.isnan(x)
    covariance = np.linalg.inv(np.eye(W.shape[1]) + a * W[seen].T @ W[seen])
    return covariance @ (a * (x - mu)[seen] @ W[seen]), covariance


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
    known, n_latent = ~np.isnan(samples), W.shape[1]
    beliefs = [posterior(W, mu, a, x) for x in samples]
    W_new, mu_new, misfit = W.copy(), mu.copy(), 0.0
    for d in range(len(mu)):
        seen = [(samples[k, d], *beliefs[k]) for k in np.flatnonzero(known[:, d])]
        if not seen and not weight:
            continue
        left, right = weight * np.eye(n_latent), weight * centre.W[d]
        for x, mean, covariance in seen:
            left = left + a * (covariance + np.outer(mean, mean))
            right = right + a * (x - mu[d]) * mean
        W_new[d] = np.linalg.solve(left, right)
        top = sum(a * (x - W_new[d] @ mean) for x, mean, _ in seen)
        mu_new[d] = (top + weight * centre.mu[d]) / (len(seen) * a + weight)
        mu_new[d] *= not zero_mean
        for x, mean, covariance in seen:
            misfit += (x - mu_new[d] - W_new[d] @ mean) ** 2
            misfit += W_new[d] @ covariance @ W_new[d]
    roots = np.roots([weight, misfit / 2 - weight * centre.a, -known.sum() / 2])
    return W_new, mu_new, roots[roots.real > 0].real.max()


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_sweep_is_the_sum_over_the_samples_that_observe_each_column(case, zero_mean):
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
    slopes = support.differences(problem.neg_log_likelihood, theta)
    views(slopes).mu[...] *= not zero_mean
    assert_allclose(problem.gradient(theta), slopes, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_missing_entries_are_filled_in_as_a_gaussian_says(case):
    samples, problem, theta, _ = make(case)
    W, mu, a = problem.layout.views(theta)
    C, D = W @ W.T + np.eye(len(mu)) / a, len(mu)
    means, variances = samples.copy(), np.zeros(samples.shape)
    products = np.zeros((D, D))
    for x, own, variance in zip(samples, means, variances, strict=True):
        lost = np.isnan(x)
        gain = np.linalg.solve(C[np.ix_(~lost, ~lost)], C[np.ix_(~lost, lost)]).T
        left = C[np.ix_(lost, lost)] - gain @ C[np.ix_(~lost, lost)]
        own[lost], variance[lost] = mu[lost] + gain @ (x - mu)[~lost], np.diag(left)
        if not lost.all():
            products += np.outer(own, own)
            products[np.ix_(lost, lost)] += left

    present = ~np.isnan(samples).all(axis=1)
    rows, zero = problem.completed(theta), problem.raw_factor
    total = means[present].sum(axis=0)
    assert_allclose(problem.completed_sum(theta), total, atol=1e-9)
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
    moment = 0.0  # of a column, of the samples that observe it; their mean
    for x in samples:
        mean, covariance = posterior(W, mu, a, x)
        moment += (np.outer(mean, mean) + covariance) * (~np.isnan(x)).mean()
    assert_allclose(problem.moment(theta), moment, rtol=1e-9)


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
    views, mu = problem.layout.views, offset + 1e-4 * rng.normal(size=6)
    theta = problem.layout.pack(W=W, mu=mu, a=1e6)

    stats = problem.expect(theta)
    new = problem.prox(theta, stats, theta, 1.0)

    for row in (theta, new):
        slow = slow_objective(samples, views(theta), views(row))
        assert problem.objectives(row[None], stats)[0] == pytest.approx(slow, rel=limit)
    assert 0.5e-3 < views(new).a ** -0.5 < 2e-3


def test_a_nan_chooses_the_class_and_the_start_is_orthonormal():
    (samples, holed, *_), problem = make(CASES[0]), make(CASES[5])[1]
    assert type(PPCA(samples=samples, n_components=2)) is IncompletePPCA
    masked = np.ma.masked_array(np.nan_to_num(samples, nan=9.0), np.isnan(samples))
    assert_array_equal(PPCA(masked, 2).raw_factor, holed.raw_factor)
    assert type(problem) is PPCA
    assert type(copy.deepcopy(holed)) is IncompletePPCA
    with pytest.raises(ProblemError, match="nan"):
        type("Own", (PPCA,), {})(samples, 2)
    starts = [problem.init(np.random.default_rng(seed)) for seed in (7, 8)]
    W, mu, a = problem.layout.views(starts[0])
    assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    assert (a, *mu) == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert np.abs(problem.layout.views(starts[1]).W - W).min() > 0


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-9, 1e-3, 1.5, math.pi / 2])
def test_angles_keep_their_digits_near_zero_and_near_ninety_degrees(angle):
    """The largest one, in degrees; any basis of a space will do."""
    rng = np.random.default_rng(0)
    frame = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    flat, turned = np.eye(6)[:, :3], np.eye(6)[:, :3]
    for k, by in ((1, angle), (2, angle / 3)):
        turned[[k, k + 3], k] = math.cos(by), math.sin(by)
    bases = frame @ turned @ (np.eye(3) + 0.2 * rng.normal(size=(4, 2, 3, 3)))

    found = metrics.subspace_angle(bases, frame @ flat)
    alone = metrics.subspace_angle(frame @ flat, frame @ turned)

    assert isinstance(alone, float)
    assert math.radians(alone) == pytest.approx(angle, rel=1e-6, abs=1e-15)
    assert_allclose(np.radians(found), np.full((4, 2), angle), rtol=1e-5, atol=1e-14)


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize(("n", "M"), [(40, 2), (40, 4), (4, 2), (6, 1)])
def test_the_reference_has_the_eigenvalues_of_the_covariance(n, M, zero_mean):
    """W W' + I/a keeps the M largest and replaces the others by their mean."""
    X = support.samples(n, 5) + 1.0
    W, mu, a = metrics.ppca_reference(X, M, zero_mean=zero_mean)

    same = metrics.ppca_reference(metrics.summarise(X), M, zero_mean=zero_mean)
    for part, other in zip((W, mu, a), same, strict=True):
        assert_array_equal(part, other)
    assert_allclose(mu, np.zeros(5) if zero_mean else X.mean(axis=0))
    values, axes = np.linalg.eigh((X - mu).T @ (X - mu) / n)
    kept = np.r_[np.full(5 - M, values[: 5 - M].mean()), values[5 - M :]]
    model = W @ W.T + np.eye(5) / a
    assert_allclose(model, (axes * kept) @ axes.T, rtol=1e-9, atol=1e-11)
    with np.errstate(all="raise"):  # without noise, the likelihood has no maximum
        exact = metrics.ppca_reference(X[:3], 3)
    assert exact.a == math.inf
    off = (X[:3] - exact.mu).T
    assert_allclose(exact.W @ np.linalg.pinv(exact.W) @ off, off, atol=1e-12)


# PPCA with the logarithms of long lengths
KNEE, LONGEST, RNG = 4.0, 90.0, np.random.default_rng(0)
ROWS = RNG.standard_normal((9, 6)) * [20.0, 9.0, 2.0, 1.0, 1.0, 1.0] + 0.3
LOGS = PPCA(ROWS, 3).with_log_lengths(KNEE, LONGEST, 2.5)
LEFT, RIGHT = (np.linalg.qr(RNG.standard_normal((n, 3)))[0] for n in (6, 3))
VIEWS = LOGS.layout.views


def point_of(lengths, turn=RIGHT):
    """Return (W, mu = 0, a) whose W has these lengths."""
    return LOGS.layout.pack(W=LEFT * lengths @ turn, mu=0.0, a=1.3)


LENGTHS = [15.0, 6.0, 2.0]  # on both sides of the knee
THETA = LOGS.inside(point_of(LENGTHS))


def test_log_lengths_are_coordinates_of_the_same_model():
    plain, point = PPCA(ROWS, 3, zero_mean=True), point_of(LENGTHS)
    assert_allclose(LOGS.outside(THETA), point, rtol=1e-12, atol=1e-12)
    axes = LOGS.axes(THETA)
    assert_allclose(axes.long, LENGTHS)
    short = [KNEE + np.sqrt(2.0) * np.log(each / KNEE) for each in LENGTHS[:2]]
    assert_allclose(axes.short, [*short, 2.0])
    found = LOGS.objectives(THETA[None], LOGS.expect(THETA))
    assert_allclose(found, plain.objectives(point[None], plain.expect(point)))
    found, wanted = LOGS.neg_log_likelihood(THETA), plain.neg_log_likelihood(point)
    assert_allclose(found, wanted, rtol=1e-12)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    turned = LOGS.inside(point_of(LENGTHS, RIGHT @ turn))
    assert_allclose(VIEWS(turned).W, VIEWS(THETA).W @ turn, atol=1e-12)


@pytest.mark.parametrize("lengths", [LENGTHS, (9.0, 9.0, 1.0), (3.0, 2.0, 0)])
def test_slopes_of_log_lengths_are_derivatives(lengths):
    point = point_of(lengths)
    theta = LOGS.inside(point)
    gradient = VIEWS(LOGS.plain.gradient(point)).W

    def along(at):  # the gradient, of W as a function of V
        return np.vdot(gradient, VIEWS(LOGS.outside(at)).W)

    wanted = VIEWS(support.differences(along, theta, 1e-6)).W
    found = VIEWS(LOGS.gradient(theta)).W
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
    back = LOGS.slopes(LOGS.axes(theta), found, out=True)
    assert_allclose(back, gradient, rtol=1e-6, atol=1e-9 * np.abs(gradient).max())


def test_steps_make_no_component_longer_than_the_bound():
    """Multipliers that would, as a centre far away; one that is longer may shrink."""
    far = THETA.copy()
    VIEWS(far).W[...] *= 100.0
    pulled = LOGS.prox(THETA, LOGS.expect(THETA), far, 12.0)
    assert_allclose(LOGS.axes(pulled).long.max(), LONGEST)
    long = LOGS.inside(point_of([300.0, 120.0, 40.0]))
    for centre, smaller in ((far, False), (THETA, True)):
        new = LOGS.prox(long, LOGS.expect(long), centre, 12.0)
        after = LOGS.axes(new).long.max()
        assert after <= 300.0 * (1.0 + 1e-12)
        assert (after < 270.0) == smaller
