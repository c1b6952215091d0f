"""Samples that are drawn: their distribution and their seeds."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.data.datasets import synthetic
from dadmm.problems import PPCA
from dadmm.problems.metrics import subspace_angle


def test_samples_have_the_covariance_of_the_model():
    """It is W W' + noise_variance I, and the mean is zero."""
    samples, W = synthetic(200_000, dimension=4, n_components=2, noise_variance=0.5)
    expected = W @ W.T + 0.5 * np.eye(4)

    assert_allclose(samples.mean(axis=0), 0, atol=0.03)
    assert_allclose(np.cov(samples.T), expected, atol=0.02 * np.abs(expected).max())


def test_samples_follow_their_seed_and_starts_are_unrelated():
    """A shared start drawn from the samples' stream would be the true subspace."""
    samples, W = synthetic(seed=4)
    start = PPCA(samples, 5).init(np.random.default_rng([4, 0]))

    assert_array_equal(samples, synthetic(seed=4)[0])
    assert (samples != synthetic(seed=3)[0]).all()
    assert subspace_angle(start[:100].reshape(20, 5), W) > 45
