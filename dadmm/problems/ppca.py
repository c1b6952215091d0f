"""Probabilistic PCA of one node's shard, by EM in proximal form.

The model is ``x = W z + mu + noise``, z ~ N(0, I), noise ~ N(0, I / a). After one pass
over the shard the samples are never touched again: with their mean ``m`` and a factor
``R`` of their scatter about it (``R' R = sum (x - m)(x - m)'``, at most D rows), an
iteration costs O(min(N, D) D M) whatever N is. Everything is kept about the mean and
every residual is a sum of squares, so data far from zero lose no digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dadmm.core.checks import MOST, check_integer
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import triangular, with_one_thread
from dadmm.problems.stacking import deep, listed, plain, product, wide

LOG_2PI = math.log(2.0 * math.pi)


class Expected(NamedTuple):
    """The E-step's view of the latent variables of a shard, or of a stack of shards.

    ``E sum |x - mu - W z|^2`` is a quadratic in (W, mu). About the latent mean it is
    ``floor + tr((W - best) spread (W - best)') + N |m - mu - W z_mean|^2``.
    """

    z_mean: Vector  # (..., M) mean of E[z_n]
    spread: Matrix  # (..., M, M) sum of E[(z_n - z_mean)(z_n - z_mean)']
    cross: Matrix  # (..., M, D) sum of E[z_n] (x_n - m)'
    best: Matrix  # (..., M, D) the transposed W that minimises the quadratic
    floor: Vector  # (...) its minimum
    prior: Vector  # (...) -E sum log p(z_n)


class PPCA:
    """Expected complete-data negative log likelihood of a shard under PPCA.

    ``theta`` holds ``W`` (D, M), ``mu`` (D,) and the noise precision ``a``.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, D)
        This node's rows; with NaN among them this is an `IncompletePPCA`.
    n_components : int
        M, the dimension of the subspace; less than D.
    zero_mean : bool
        Fix mu at zero, as structure from motion does.

    Notes
    -----
    With ``w`` the weight and ``c`` the centre of the proximal term, one sweep is the
    paper's M-step (section 4.3, which prints mu only, as equation (15); a is the noise
    precision before the sweep):

    * ``W = [a sum (x - mu) E[z]' + w c_W] [a sum E[z z'] + w I]^-1``
    * ``mu = [a sum (x - W E[z]) + w c_mu] / (N a + w)`` with the new W
    * ``w a^2 + (Q / 2 - w c_a) a - N D / 2 = 0``, the positive root, with
      ``Q = E sum |x - mu - W z|^2`` at the new W and mu.
    """

    with_gaps: ClassVar[type[PPCA]]  # what a NaN makes of this very class

    def __new__(cls, samples: Any = (), *_: Any, **__: Any) -> Self:
        """Make an object of the class that can cope with the samples."""
        gaps = np.isnan(np.asarray(samples, dtype=np.float64)).any()
        able: Any = vars(cls).get("with_gaps", cls) if gaps else cls
        return super().__new__(able)

    @with_one_thread
    def __init__(
        self, samples: Matrix, n_components: int, *, zero_mean: bool = False
    ) -> None:
        samples = _checked(samples, n_components)
        self.n_samples, self.dimension = samples.shape
        self.n_components, self.zero_mean = int(n_components), bool(zero_mean)
        shapes = {"W": (self.dimension, self.n_components), "mu": (self.dimension,)}
        self.layout = Layout(shapes | {"a": ()})
        self._eye = np.eye(self.n_components)
        self._read(samples)

    def _read(self, samples: Matrix) -> None:
        refuse(~np.isfinite(samples), samples)
        self.mean = samples.mean(axis=0)
        self.factor = triangular(samples - self.mean)
        self._count: Any = float(self.n_samples)  # (n,) in a stack
        rounding = np.finfo(float).eps * float(np.abs(samples).max())
        self._most: Any = rounding**-2 if rounding else math.inf

    @property
    def kind(self) -> tuple[Any, ...]:
        """What problems must have in common to be stacked."""
        return self.factor.shape, self.n_components, self.zero_mean

    @classmethod
    def stack(cls, problems: Sequence[PPCA]) -> PPCA:
        """Return n problems of one kind as one problem.

        Its `expect`, `prox` and `objectives` take and return arrays with a leading
        axis of n, and give each problem the bits that it would get alone.
        """
        first = problems[0]
        stacked = object.__new__(PPCA)
        stacked.layout, stacked.dimension = first.layout, first.dimension
        stacked.n_components, stacked.zero_mean = first.n_components, first.zero_mean
        stacked.mean = np.array([p.mean for p in problems])
        stacked.factor = np.array([p.factor for p in problems])
        stacked._count = np.array([p._count for p in problems])
        stacked._most = np.array([p._most for p in problems])
        stacked._eye = first._eye
        return stacked

    def init(self, rng: np.random.Generator) -> Vector:
        """Return a random orthonormal W, mu = 0 and a = 1."""
        draw = rng.standard_normal((self.dimension, self.n_components))
        return self.layout.pack(W=np.linalg.qr(draw)[0], mu=0.0, a=1.0)

    def expect(self, theta: Vector) -> Expected:
        """Return the posterior of the latent variables at ``theta`` (size,).

        Notes
        -----
        Equation (13): ``E[z] = M^-1 W' (x - mu)`` with covariance
        ``M^-1 / a`` and ``M = W' W + I / a``.
        """
        W, mu, a = self.layout.views(theta)
        n, a, factor = self._count, plain(a), self.factor
        inner = np.linalg.inv(W.mT @ W + self._eye / deep(a))
        z_mean = (((self.mean - mu)[..., None, :] @ W) @ inner)[..., 0, :]
        latent = (factor @ W) @ inner  # E[z] of the factor's rows, about z_mean
        shared = deep(n / a) * inner  # the posterior covariances of all samples
        spread = latent.mT @ latent
        spread += shared
        cross = latent.mT @ factor
        best = np.linalg.solve(spread, cross)
        misfit = factor - latent @ best
        floor = product(misfit, misfit) + product(shared @ best, best)
        energy = product(spread, self._eye) + n * np.vecdot(z_mean, z_mean)
        prior = 0.5 * (energy + n * self.n_components * LOG_2PI)
        return Expected(z_mean, spread, cross, best, floor, prior)

    def prox(
        self, theta: Vector, stats: Expected, centre: Vector, weight: Any
    ) -> Vector:
        """Return one block sweep from ``theta``: W, then mu, then a."""
        _, mu, a = self.layout.views(theta)
        centre_W, centre_mu, centre_a = self.layout.views(centre)
        out = np.empty_like(theta)
        W_new, mu_new, a_new = self.layout.views(out)
        n, z_mean, pull = self._count, stats.z_mean, weight / plain(a)

        scaled = (wide(n) * z_mean)[..., None]
        total = stats.spread + scaled * z_mean[..., None, :]
        total += deep(pull) * self._eye
        moment = stats.cross + scaled * (self.mean - mu)[..., None, :]
        moment += deep(pull) * centre_W.mT
        W_new[...] = np.linalg.solve(total, moment).mT

        if self.zero_mean:
            mu_new[...] = 0.0
        else:
            share = wide(n / (n + pull))
            np.subtract(self.mean, (W_new @ z_mean[..., None])[..., 0], out=mu_new)
            mu_new *= share
            mu_new += (1.0 - share) * centre_mu

        misfit = self._misfit(W_new[..., None, :, :], mu_new[..., None, :], stats)
        known = (n * self.dimension, misfit[..., 0], weight, centre_a, self._most)
        cases = zip(*map(listed, known), strict=True)
        a_new.flat = [_precision(*case) for case in cases]
        return out

    def objectives(self, thetas: Matrix, stats: Expected) -> Vector:
        """Return the expected complete-data negative log likelihood of each row.

        EM minimises it in place of equation (14), ``-log p(X_i | theta_i)``.

        Parameters
        ----------
        thetas : ndarray of shape (k, size)
        stats : Expected
            This node's own posterior, held fixed while others' parameters are tried.

        Returns
        -------
        objectives : ndarray of shape (k,)
        """
        W, mu, a = self.layout.views(thetas)
        fit = 0.5 * a * self._misfit(W, mu, stats)
        half = wide(0.5 * self._count * self.dimension)
        return fit + half * (LOG_2PI - np.log(a)) + wide(stats.prior)

    def latent(self, theta: Vector, samples: Matrix) -> Matrix:
        """Return E[z] of each row of ``samples`` (n, D) at ``theta``, (n, M)."""
        W, mu, a = self.layout.views(theta)
        return np.linalg.solve(W.T @ W + self._eye / a, W.T @ (samples - mu).T).T

    def _misfit(self, W: Matrix, mu: Matrix, stats: Expected) -> Vector:
        """Return ``E sum |x - mu - W z|^2`` for W (..., k, D, M) and mu (..., k, D)."""
        shift = self.mean[..., None, :] - mu
        shift -= (W @ stats.z_mean[..., None, :, None])[..., 0]
        off = W - stats.best.mT[..., None, :, :]
        drift = product(off @ stats.spread[..., None, :, :], off)
        return wide(stats.floor) + drift + wide(self._count) * np.vecdot(shift, shift)


def _precision(
    count: float,
    misfit: float,
    weight: float,
    centre: float,
    most: float = math.inf,
) -> float:
    """Return the positive root of the a update, without cancellation.

    Raises
    ------
    ZeroDivisionError
        If the noise 1/a vanishes: a exceeds ``most``, the precision at which the noise
        is as small as the rounding errors of the samples.
    """
    b = 0.5 * misfit - weight * centre
    root = math.sqrt(b * b + 2.0 * weight * count)
    a = count / (b + root) if b > 0.0 else (root - b) / (2.0 * weight)
    if a > most:
        raise ZeroDivisionError("the noise variance is zero")
    return a


def _checked(samples: Matrix, n_components: int) -> Matrix:
    samples = np.asarray(samples, dtype=np.float64)
    if samples.ndim != 2 or samples.shape[0] < 1:
        raise ProblemError(
            f"PPCA needs samples of shape (n, d) with n >= 1, got {samples.shape}"
        )
    check_integer("n_components", n_components, -MOST, error=ProblemError)
    if not 1 <= n_components < samples.shape[1]:
        raise ProblemError(
            f"n_components must be at least 1 and less than the {samples.shape[1]} "
            f"dimensions of the samples, got {n_components}"
        )
    return samples


def refuse(bad: Any, samples: Matrix) -> None:
    """Name the first entry of the samples that is bad, if any is."""
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ProblemError(
            f"PPCA needs finite samples, but row {row}, column {column} is "
            f"{samples[row, column]}"
        )
