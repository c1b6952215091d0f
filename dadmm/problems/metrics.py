"""Metrics of solutions: angles, consensus, likelihoods, and references."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import subspace_angle, triangular
from dadmm.core.schema import integer
from dadmm.data.patterns import posterior

__all__ = ["MaximumLikelihood", "Pooled", "consensus_error", "pool"]
__all__ += ["ppca_log_likelihood", "ppca_reference", "subspace_angle", "summarise"]
LOG_2PI = math.log(2.0 * math.pi)


def consensus_error(theta: Matrix) -> float:
    """Return the largest relative distance of a row of theta from the mean of all.

    Parameters
    ----------
    theta : ndarray of shape (n_nodes, size)

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> round(dadmm.metrics.consensus_error(np.array([[3.0, 4.0], [3.0, 4.1]])), 3)
    0.01
    """
    mean = theta.mean(axis=0)
    scale = np.linalg.norm(mean)
    worst = np.linalg.norm(theta - mean, axis=1).max()
    return float(worst / scale) if scale > 0 else float(worst)


class Pooled(NamedTuple):
    """Sufficient statistics of samples."""

    n_samples: int
    mean: Vector  #: (D,)
    #: (k, D); ``factor' factor`` is the sum of squares and products about the mean
    factor: Matrix


def pool(counts: Vector, means: Matrix, factors: Matrix) -> Pooled:
    """Return the statistics of all shards together, a `Pooled`.

    Parameters
    ----------
    counts : ndarray of shape (n_shards,)
    means : ndarray of shape (n_shards, D)
    factors : ndarray of shape (k, D), those of all shards below each other

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> dadmm.metrics.pool(np.array([1, 3]), np.array([[0.0], [4.0]]), np.eye(1))[:2]
    (4, array([3.]))
    """
    count = counts.sum()
    mean = counts @ means / count
    between = np.sqrt(counts)[:, None] * (means - mean)
    return Pooled(int(count), mean, triangular(np.vstack([factors, between])))


def summarise(samples: Matrix) -> Pooled:
    """Return the statistics of samples, a `Pooled`.

    Parameters
    ----------
    samples : ndarray of shape (n, D)

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> dadmm.metrics.summarise(np.array([[0.0, 1.0], [2.0, 1.0]]))[:2]
    (2, array([1., 1.]))
    """
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
    """Return the marginal log likelihood of samples, or of their observed entries.

    Parameters
    ----------
    data : Pooled, or ndarray of shape (n, D)
    W : ndarray of shape (D, M)
    mu : ndarray of shape (D,)
    a : float, the noise precision

    Examples
    --------
    >>> import dadmm
    >>> samples, true_W = dadmm.datasets.synthetic(100, 6, n_components=2)
    >>> best = dadmm.metrics.ppca_reference(samples, 2)
    >>> most = dadmm.metrics.ppca_log_likelihood(samples, *best)
    >>> most > dadmm.metrics.ppca_log_likelihood(samples, true_W, best.mu, best.a)
    True
    """
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
