"""Metrics of solutions: angles, likelihoods, and references."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import subspace_angle, triangular
from dadmm.core.schema import integer
from dadmm.data.patterns import posterior

__all__ = ["MaximumLikelihood", "ppca_reference", "subspace_angle"]
LOG_2PI = math.log(2.0 * math.pi)


class Pooled(NamedTuple):
    """Sufficient statistics of samples."""

    n_samples: int
    mean: Vector  #: (D,)
    #: (k, D); ``factor' factor`` is the sum of squares and products about the mean
    factor: Matrix


def pool(counts: Vector, means: Matrix, factors: Matrix) -> Pooled:
    """Return the statistics of all shards; ``factors`` (k, D) are below each other."""
    count = counts.sum()
    mean = counts @ means / count
    between = np.sqrt(counts)[:, None] * (means - mean)
    return Pooled(int(count), mean, triangular(np.vstack([factors, between])))


def summarise(samples: Matrix) -> Pooled:
    """Return the statistics of samples (n, D)."""
    mean = samples.mean(axis=0)
    return Pooled(len(samples), mean, triangular(samples - mean))


class MaximumLikelihood(NamedTuple):
    """The centralised PPCA solution."""

    W: Matrix  #: (D, M)
    mu: Vector  #: (D,)
    a: float  #: the noise precision; infinite if there is no noise


def ppca_reference(
    data: Pooled | Matrix, n_components: int, *, zero_mean: bool = False
) -> MaximumLikelihood:
    """Return the PPCA of all data in closed form, a `MaximumLikelihood`.

    Tipping and Bishop (1999): with eigenvalues l_1 >= l_2 >= ... of the covariance,
    ``1/a`` is the mean of those beyond M, and ``W = U (L - I / a)^(1/2)``.

    Parameters
    ----------
    data : Pooled, or ndarray of shape (n, D)
    n_components : int
    zero_mean : bool, whether mu is fixed at zero, as in structure from motion

    Examples
    --------
    >>> import dadmm
    >>> samples, true_W = dadmm.datasets.synthetic(500, 6, n_components=2)
    >>> found = dadmm.metrics.ppca_reference(samples, 2)
    >>> dadmm.metrics.subspace_angle(found.W, true_W) < 3.0, round(1 / found.a, 1)
    (True, np.float64(0.2))
    """
    data = data if isinstance(data, Pooled) else summarise(data)
    factor, mu = data.factor, data.mean
    integer(1, len(mu) - 1).check("n_components", n_components, ProblemError)
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


def log_likelihoods(samples: Matrix, W: Matrix, mu: Vector, a: float) -> Vector:
    """Return the log likelihood of each sample's observed entries, (n,)."""
    z, covariances, found = posterior(samples, W, mu, a, np.eye(W.shape[1]))
    left = np.nan_to_num(samples - mu - z @ W.T)
    distance = a * np.vecdot(left, left) + np.vecdot(z, z)
    constants = found.mask.sum(axis=1) * (LOG_2PI - math.log(a))
    constants -= np.linalg.slogdet(covariances)[1]
    return np.asarray(-0.5 * (distance + constants[found.which]))


def ppca_log_likelihood(
    data: Pooled | Matrix, W: Matrix, mu: Vector, a: float
) -> float:
    """Return the marginal log likelihood of samples, or of their observed entries."""
    D, M = W.shape
    if not isinstance(data, Pooled) and np.isnan(data).any():
        return float(log_likelihoods(data, W, mu, float(a)).sum())
    data = data if isinstance(data, Pooled) else summarise(data)
    rows = np.vstack([data.factor, math.sqrt(data.n_samples) * (data.mean - mu)])
    inner = W.T @ W + np.eye(M) / a
    logdet = np.linalg.slogdet(inner)[1] - (D - M) * math.log(a)
    fitted = np.linalg.solve(inner, W.T @ rows.T)
    # |x|^2 - x' W inner^-1 W' x as a sum of squares, which is never negative
    left = rows.T - W @ fitted
    distance = a * (np.vdot(left, left) + np.vdot(fitted, fitted) / a)
    return float(-0.5 * (data.n_samples * (D * LOG_2PI + logdet) + distance))
