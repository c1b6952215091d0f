"""Metrics of estimates, against scipy, eigenvalues and plain sums."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.problems import PPCA, metrics
from tests.support.problems import samples


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
    wanted = np.full((4, 2), angle)
    assert_allclose(np.radians(found), wanted, rtol=1e-5, atol=1e-14)


def test_the_consensus_error_is_that_of_the_worst_node():
    """Relative to the length of the mean, (3, 4), unless that is zero."""
    theta = np.array([[3.0, 4.0], [3.0, 5.0], [3.0, 3.0]])

    assert metrics.consensus_error(1e9 * theta) == pytest.approx(1 / 5)
    assert metrics.consensus_error(theta[:1]) == 0.0
    assert metrics.consensus_error(np.array([[2.0], [-2.0]])) == 2.0


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("sizes", [(7,), (1, 1), (1, 4, 30, 2), (100, 200)])
def test_pooling_statistics_pools_the_samples(sizes, offset):
    shards = [samples(n, 5, k) + offset + k for k, n in enumerate(sizes)]
    problems = [PPCA(shard, 2) for shard in shards]
    everything = np.vstack(shards)
    mean = [math.fsum(column) / len(everything) for column in everything.T]
    about = everything - mean

    for found in (
        metrics.summarise(everything),
        metrics.pool(
            np.array(sizes, dtype=float),
            np.array([problem.mean for problem in problems]),
            np.vstack([problem.factor for problem in problems]),
        ),
    ):
        assert found.n_samples == sum(sizes)
        assert_allclose(found.mean, mean, rtol=1e-14)
        scatter = found.factor.T @ found.factor
        assert_allclose(scatter, about.T @ about, rtol=1e-7, atol=1e-7)
        assert len(found.factor) <= max(5, len(everything))


@pytest.mark.parametrize("zero_mean", [False, True])
@pytest.mark.parametrize(("n", "M"), [(40, 2), (40, 4), (4, 2), (6, 1)])
def test_the_reference_has_the_eigenvalues_of_the_covariance(n, M, zero_mean):
    """W W' + I/a keeps the M largest and replaces the others by their mean."""
    X = samples(n, 5) + 1.0
    best, same = (
        metrics.ppca_reference(data, M, zero_mean=zero_mean)
        for data in (X, metrics.summarise(X))
    )

    W, mu, a = best
    for part, other in zip(best, same, strict=True):
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
