"""Metrics of solutions: angles, consensus, reconstruction, and references."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import subspace_angle, triangular
from dadmm.data.patterns import posterior

__all__ = [
    "MaximumLikelihood",
    "Pooled",
    "consensus_error",
    "pool",
    "ppca_log_likelihood",
    "ppca_reference",
    "subspace_angle",
    "summarise",
]
LOG_2PI = math.log(2.0 * math.pi)


def consensus_error(theta: Matrix) -> float:
    """Return the largest relative distance of a row of theta from the mean of all."""
    mean = theta.mean(axis=0)
    scale = np.linalg.norm(mean)
    worst = np.linalg.norm(theta - mean, axis=1).max()
    return float(worst / scale) if scale > 0 else float(worst)


class Pooled(NamedTuple):
    """Sufficient statistics of samples: number, mean (D,) and scatter factor (k, D)."""

    n_samples: int
    mean: Vector
    factor: Matrix


def pool(counts: Vector, means: Matrix, factors: Matrix) -> Pooled:
    """Return the sufficient statistics of all shards together.

    Each shard has a count and a row of ``means``; ``factors`` are those of all shards,
    one below the other.
    """
    count = counts.sum()
    mean = counts @ means / count
    between = np.sqrt(counts)[:, None] * (means - mean)
    stacked = np.vstack([factors, between])
    return Pooled(int(count), mean, triangular(stacked))


def summarise(samples: Matrix) -> Pooled:
    """Return the sufficient statistics of samples (n, D)."""
    mean = samples.mean(axis=0)
    return Pooled(len(samples), mean, triangular(samples - mean))


class MaximumLikelihood(NamedTuple):
    """The centralised PPCA solution."""

    W: Matrix  # (D, M)
    mu: Vector  # (D,)
    a: float


def ppca_reference(
    data: Pooled | Matrix, n_components: int, *, zero_mean: bool = False
) -> MaximumLikelihood:
    """Return the maximum-likelihood PPCA of all data (n, D) in closed form.

    Tipping and Bishop (1999): with eigenvalues l_1 >= l_2 >= ... of the covariance,
    ``1/a`` is the mean of those beyond M, and ``W = U (L - I / a)^(1/2)``.
    """
    data = data if isinstance(data, Pooled) else summarise(data)
    factor, mu = data.factor, data.mean
    if zero_mean:
        factor = np.vstack([factor, math.sqrt(data.n_samples) * mu])
        mu = np.zeros_like(mu)
    _, singular, axes = np.linalg.svd(factor, full_matrices=False)
    variances = singular**2 / data.n_samples
    noise = variances[n_components:].sum() / (len(mu) - n_components)
    signal = np.maximum(variances[:n_components] - noise, 0.0)
    W = np.zeros((len(mu), n_components))  # columns without data stay zero
    W[:, : len(signal)] = axes[:n_components].T * np.sqrt(signal)
    return MaximumLikelihood(W, mu, 1.0 / noise if noise > 0 else math.inf)


def ppca_log_likelihood(
    data: Pooled | Matrix, W: Matrix, mu: Vector, a: float
) -> float:
    """Return the marginal log likelihood of samples (n, D) under PPCA.

    With NaN it is the likelihood of the observed entries.
    """
    if not isinstance(data, Pooled):
        if np.isnan(data).any():
            return _observed_log_likelihood(data, W, mu, float(a))
        data = summarise(data)
    D, M = W.shape
    shift = math.sqrt(data.n_samples) * (data.mean - mu)
    rows = np.vstack([data.factor, shift])
    inner = W.T @ W + np.eye(M) / a
    logdet = np.linalg.slogdet(inner)[1] - (D - M) * math.log(a)
    fitted = np.linalg.solve(inner, W.T @ rows.T)
    # |x|^2 - x' W inner^-1 W' x as a sum of squares, which is never negative
    left = rows.T - W @ fitted
    distance = a * (np.vdot(left, left) + np.vdot(fitted, fitted) / a)
    return float(-0.5 * (data.n_samples * (D * LOG_2PI + logdet) + distance))


def _observed_log_likelihood(samples: Matrix, W: Matrix, mu: Vector, a: float) -> float:
    z, covariances, found = posterior(samples, W, mu, a, np.eye(W.shape[1]))
    left = np.where(np.isnan(samples), 0.0, samples - mu - z @ W.T)
    entries = found.mask.sum(axis=1)
    logdet = -np.linalg.slogdet(covariances)[1] - entries * math.log(a)
    distance = a * np.vdot(left, left) + np.vdot(z, z)
    return float(-0.5 * (found.counts @ (entries * LOG_2PI + logdet) + distance))
