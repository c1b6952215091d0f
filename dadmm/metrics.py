"""How good an estimate is: angles, agreement, reconstruction, and the best possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dadmm.layout import Matrix, Vector

LOG_2PI = math.log(2.0 * math.pi)


def subspace_angle(A: Matrix, B: Matrix) -> float:
    """Return the largest principal angle between two column spaces, in degrees.

    Parameters
    ----------
    A, B : ndarray of shape (D, M)

    Notes
    -----
    The sine comes from what is left of one basis outside the other, so that small
    angles keep all their digits (Knyazev and Argentati, 2002).
    """
    A, B = np.linalg.qr(A)[0], np.linalg.qr(B)[0]
    inside = A.T @ B
    sine = np.linalg.norm(B - A @ inside, 2)
    cosine = np.linalg.svd(inside, compute_uv=False)[-1]
    return math.degrees(math.atan2(sine, cosine))


def consensus_error(theta: Matrix) -> float:
    """Return the largest relative distance of a node from the mean of all.

    Parameters
    ----------
    theta : ndarray of shape (n_nodes, size)
    """
    mean = theta.mean(axis=0)
    scale = np.linalg.norm(mean)
    worst = np.linalg.norm(theta - mean, axis=1).max()
    return float(worst / scale) if scale > 0 else float(worst)


def reconstruction_error(samples: Matrix, W: Matrix, mu: Vector) -> float:
    """Return the root mean square of what the subspace misses of the samples (n, D)."""
    centred = samples - mu
    basis = np.linalg.qr(W)[0]
    return float(np.sqrt(np.mean((centred - centred @ basis @ basis.T) ** 2)))


class Pooled(NamedTuple):
    """Sufficient statistics of samples: count, mean (D,), and scatter factor (k, D)."""

    count: int
    mean: Vector
    factor: Matrix


def pool(shards: Sequence[Pooled]) -> Pooled:
    """Return the statistics of all shards together."""
    count = sum(shard.count for shard in shards)
    mean = sum(shard.count * shard.mean for shard in shards) / count
    between = [math.sqrt(s.count) * (s.mean - mean)[None] for s in shards]
    stacked = np.vstack([*(shard.factor for shard in shards), *between])
    return Pooled(count, mean, np.linalg.qr(stacked, mode="r"))


def summarise(samples: Matrix) -> Pooled:
    """Return the sufficient statistics of samples (n, D)."""
    mean = samples.mean(axis=0)
    return Pooled(len(samples), mean, np.linalg.qr(samples - mean, mode="r"))


class MaximumLikelihood(NamedTuple):
    """The centralised PPCA solution."""

    W: Matrix  # (D, M)
    mu: Vector  # (D,)
    a: float


def ppca_reference(
    data: Pooled | Matrix, n_components: int, *, zero_mean: bool = False
) -> MaximumLikelihood:
    """Return the maximum-likelihood PPCA of all data in closed form.

    Parameters
    ----------
    data : ndarray of shape (n, D), or Pooled
    n_components : int
    zero_mean : bool
        Fix mu at zero.

    Notes
    -----
    Tipping and Bishop (1999): with eigenvalues l_1 >= l_2 >= ... of the covariance,
    ``1/a`` is the mean of those beyond M, and ``W = U (L - I / a)^(1/2)``.
    """
    data = data if isinstance(data, Pooled) else summarise(data)
    factor, mu = data.factor, data.mean
    if zero_mean:
        factor, mu = np.vstack([factor, math.sqrt(data.count) * mu]), np.zeros_like(mu)
    _, singular, axes = np.linalg.svd(factor, full_matrices=False)
    variances = singular**2 / data.count
    noise = variances[n_components:].sum() / (len(mu) - n_components)
    signal = np.maximum(variances[:n_components] - noise, 0.0)
    W = axes[:n_components].T * np.sqrt(signal)
    return MaximumLikelihood(W, mu, 1.0 / noise if noise > 0 else math.inf)


def ppca_log_likelihood(
    data: Pooled | Matrix, W: Matrix, mu: Vector, a: float
) -> float:
    """Return the marginal log likelihood of samples under PPCA.

    Parameters
    ----------
    data : ndarray of shape (n, D), or Pooled
    W : ndarray of shape (D, M)
    mu : ndarray of shape (D,)
    a : float
        Noise precision.
    """
    data = data if isinstance(data, Pooled) else summarise(data)
    D, M = W.shape
    shift = math.sqrt(data.count) * (data.mean - mu)
    rows = np.vstack([data.factor, shift])
    inner = W.T @ W + np.eye(M) / a
    logdet = np.linalg.slogdet(inner)[1] - (D - M) * math.log(a)
    fitted = np.linalg.solve(inner, W.T @ rows.T)
    # |x|^2 - x' W inner^-1 W' x as a sum of squares, so that it cannot be negative
    left = rows.T - W @ fitted
    distance = a * (np.vdot(left, left) + np.vdot(fitted, fitted) / a)
    return float(-0.5 * (data.count * (D * LOG_2PI + logdet) + distance))
