"""Probabilistic PCA of one node's shard, by EM in proximal form.

The model is ``x = W z + mu + noise``, z ~ N(0, I), noise ~ N(0, I / a). After one pass
over the shard the samples are never touched again: with their mean ``m`` and a factor
``R`` of their scatter about it (``R' R = sum (x - m)(x - m)'``, at most D rows), an
iteration costs O(min(N, D) D M) whatever N is. Everything is kept about the mean and
every residual is a sum of squares, so data far from zero lose no digits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dadmm.errors import ProblemError
from dadmm.layout import Layout, Matrix, Vector
from dadmm.metrics import triangular

LOG_2PI = math.log(2.0 * math.pi)


class Expected(NamedTuple):
    """The E-step's view of the latent variables of a shard.

    ``E sum |x - mu - W z|^2`` is a quadratic in (W, mu). About the latent mean it is
    ``floor + tr((W - best) spread (W - best)') + N |m - mu - W z_mean|^2``.
    """

    z_mean: Vector  # (M,) mean of E[z_n]
    spread: Matrix  # (M, M) sum of E[(z_n - z_mean)(z_n - z_mean)']
    cross: Matrix  # (M, D) sum of E[z_n] (x_n - m)'
    best: Matrix  # (M, D) the transposed W that minimises the quadratic
    floor: float  # its minimum
    prior: float  # -E sum log p(z_n)


class PPCA:
    """Expected complete-data negative log likelihood of a shard under PPCA.

    ``theta`` holds ``W`` (D, M), ``mu`` (D,) and the noise precision ``a``.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, D)
        This node's rows.
    n_components : int
        M, the dimension of the subspace; less than D.
    zero_mean : bool
        Fix mu at zero, as structure from motion does.

    Notes
    -----
    With ``w`` the weight and ``c`` the centre of the proximal term, one sweep is the
    paper's M-step (section 4.3; a := noise precision before the sweep):

    * ``W = [a sum (x - mu) E[z]' + w c_W] [a sum E[z z'] + w I]^-1``
    * ``mu = [a sum (x - W E[z]) + w c_mu] / (N a + w)`` with the new W
    * ``w a^2 + (Q / 2 - w c_a) a - N D / 2 = 0``, the positive root, with
      ``Q = E sum |x - mu - W z|^2`` at the new W and mu.
    """

    def __init__(
        self, samples: Matrix, n_components: int, *, zero_mean: bool = False
    ) -> None:
        samples = _checked(samples, n_components)
        n, dimension = samples.shape
        self.n_samples, self.dimension = n, dimension
        self.n_components, self.zero_mean = int(n_components), bool(zero_mean)
        self.layout = Layout.of(W=(dimension, n_components), mu=(dimension,), a=())
        self.mean = samples.mean(axis=0)
        self.factor = triangular(samples - self.mean)
        self._eye = np.eye(self.n_components)

    def init(self, rng: np.random.Generator) -> Vector:
        """Return a random orthonormal W, mu = 0 and a = 1."""
        draw = rng.standard_normal((self.dimension, self.n_components))
        return self.layout.pack(W=np.linalg.qr(draw)[0], mu=0.0, a=1.0)

    def expect(self, theta: Vector) -> Expected:
        """Return the posterior of the latent variables at ``theta`` (size,).

        Notes
        -----
        Equation (posterior_zx): ``E[z] = M^-1 W' (x - mu)`` with covariance
        ``M^-1 / a`` and ``M = W' W + I / a``.
        """
        W, mu, a = self.layout.views(theta)
        n = self.n_samples
        inner = np.linalg.inv(W.T @ W + self._eye / a)
        z_mean = inner @ ((self.mean - mu) @ W)
        latent = (self.factor @ W) @ inner  # E[z] of the factor's rows, about z_mean
        shared = (n / a) * inner  # the posterior covariances of all samples
        spread = latent.T @ latent
        spread += shared
        cross = latent.T @ self.factor
        best = np.linalg.solve(spread, cross)
        misfit = self.factor - latent @ best
        floor = np.vdot(misfit, misfit) + np.vdot(shared @ best, best)
        energy = np.vdot(spread, self._eye) + n * z_mean.dot(z_mean)
        prior = 0.5 * (energy + n * self.n_components * LOG_2PI)
        return Expected(z_mean, spread, cross, best, float(floor), float(prior))

    def prox(
        self, theta: Vector, stats: Expected, centre: Vector, weight: float
    ) -> Vector:
        """Return one block sweep from ``theta``: W, then mu, then a."""
        _, mu, a = self.layout.views(theta)
        centre_W, centre_mu, centre_a = self.layout.views(centre)
        out = np.empty_like(theta)
        W_new, mu_new, a_new = self.layout.views(out)
        n, z_mean, pull = self.n_samples, stats.z_mean, weight / float(a)

        scaled = (n * z_mean)[:, None]
        total = stats.spread + scaled * z_mean + pull * self._eye
        moment = stats.cross + scaled * (self.mean - mu) + pull * centre_W.T
        W_new[...] = np.linalg.solve(total, moment).T

        if self.zero_mean:
            mu_new[...] = 0.0
        else:
            np.subtract(self.mean, W_new @ z_mean, out=mu_new)
            mu_new *= n / (n + pull)
            mu_new += (pull / (n + pull)) * centre_mu

        misfit = float(self._misfit(W_new, mu_new, stats))
        a_new[...] = _precision(n * self.dimension, misfit, weight, float(centre_a))
        return out

    def objectives(self, thetas: Matrix, stats: Expected) -> Vector:
        """Return the expected complete-data negative log likelihood of each row.

        Parameters
        ----------
        thetas : ndarray of shape (n, size)
        stats : Expected
            This node's own posterior, held fixed while others' parameters are tried.

        Returns
        -------
        objectives : ndarray of shape (n,)
        """
        W, mu, a = self.layout.views(thetas)
        fit = 0.5 * a * self._misfit(W, mu, stats)
        entropy = 0.5 * self.n_samples * self.dimension * (LOG_2PI - np.log(a))
        return fit + entropy + stats.prior

    def latent(self, theta: Vector, samples: Matrix) -> Matrix:
        """Return E[z] of each row of ``samples`` (n, D) at ``theta``, (n, M)."""
        W, mu, a = self.layout.views(theta)
        return np.linalg.solve(W.T @ W + self._eye / a, W.T @ (samples - mu).T).T

    def _misfit(self, W: Matrix, mu: Vector, stats: Expected) -> Any:
        """Return ``E sum |x - mu - W z|^2`` for W (..., D, M), mu (..., D)."""
        shift = self.mean - mu
        shift -= W @ stats.z_mean
        off = W - stats.best.T
        flat = (*mu.shape[:-1], -1)
        drift = np.vecdot((off @ stats.spread).reshape(flat), off.reshape(flat))
        return stats.floor + drift + self.n_samples * np.vecdot(shift, shift)


def _precision(count: int, misfit: float, weight: float, centre: float) -> float:
    """Return the positive root of the a update, without cancellation."""
    b = 0.5 * misfit - weight * centre
    root = math.sqrt(b * b + 2.0 * weight * count)
    return count / (b + root) if b > 0.0 else (root - b) / (2.0 * weight)


def _checked(samples: Matrix, n_components: int) -> Matrix:
    samples = np.asarray(samples, dtype=np.float64)
    if samples.ndim != 2 or samples.shape[0] < 1:
        raise ProblemError(
            f"PPCA needs samples of shape (n, d) with n >= 1, got {samples.shape}"
        )
    if not 1 <= n_components < samples.shape[1]:
        raise ProblemError(
            f"n_components must be at least 1 and less than the {samples.shape[1]} "
            f"dimensions of the samples, got {n_components}"
        )
    if not np.isfinite(samples).all():
        row, column = np.argwhere(~np.isfinite(samples))[0]
        raise ProblemError(
            f"PPCA needs finite samples, but row {row}, column {column} is "
            f"{samples[row, column]}"
        )
    return samples
