"""Probabilistic PCA, by EM in proximal form, also with lengths as logarithms.

The model is ``x = W z + mu + noise``, z ~ N(0, I), noise ~ N(0, I / a). Of the samples
only the mean ``m`` and a factor ``R`` of their scatter about it are kept (``R' R = sum
(x - m)(x - m)'``, at most D rows). All quantities are relative to the mean and every
residual is a sum of squares, so data far from zero lose no digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import EPS, triangular, with_one_blas_thread
from dadmm.core.schema import FLAG, integer
from dadmm.data.encoding import RowBlocks, row_blocks
from dadmm.problems.base import Reals, Traits, as_floats, check_entries, stacked
from dadmm.problems.metrics import LOG_2PI, Pooled, pool, summarise

# of coordinates in which lengths are logarithms, see `LogLengthPPCA`
ROOT = math.sqrt(2.0)
STEPS = 5  # of the proximal step
SHORTER = 4.0  # factor of the curvature after a step that does not descend
ROUNDING = 1e-13  # of the objective, by entry of the rows
ALIKE = 1e-6  # relative difference of lengths that count as equal
SIZE = integer(1)
LEAST = 1e-150  # length, so that quotients exist


# Arithmetic for one problem or a stack of problems, with the same bits
def with_axes(scalars: Reals, n_axes: int) -> Reals:
    """Return scalars (...) as arrays of one entry, (..., 1) for one more axis."""
    return scalars if np.isscalar(scalars) else scalars[(..., *[None] * n_axes)]


def inner_product(A: Matrix, B: Matrix) -> Reals:
    """Return the inner products of matrices (..., m, n), shape (...)."""
    return np.vecdot(A.reshape(*A.shape[:-2], -1), B.reshape(*B.shape[:-2], -1))


class Expected(NamedTuple):
    """Statistics of the E-step of a shard, or of a stack of shards.

    ``E sum |x - mu - W z|^2`` is a quadratic in (W, mu). About the latent mean it is
    ``floor + tr((W - best) spread (W - best)') + N |m - mu - W z_mean|^2``.
    """

    z_mean: Vector  # (..., M) mean of E[z_n]
    spread: Matrix  # (..., M, M) sum of E[(z_n - z_mean)(z_n - z_mean)']
    cross: Matrix  # (..., M, D) sum of E[z_n] (x_n - m)'
    best: Matrix  # (..., M, D) transposed minimiser W of the quadratic
    floor: Vector  # (...) its minimum
    prior: Vector  # (...) -E sum log p(z_n)


class PPCA(Problem):
    """Expected complete-data negative log likelihood of a shard under PPCA.

    ``theta`` holds ``W`` (D, M), ``mu`` (D,) and the noise precision ``a``.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, D)
        This node's rows. If some entry is NaN, the object is an `IncompletePPCA`.
    n_components : int, M, the dimension of the subspace; less than D
    zero_mean : bool, whether mu is fixed at zero, as in structure from motion

    Notes
    -----
    With ``w`` the weight and ``c`` the centre of the proximal term, one sweep is the
    paper's M-step (section 4.3; equation (15) is mu; a is the value before the sweep):

    * ``W = [a sum (x - mu) E[z]' + w c_W] [a sum E[z z'] + w I]^-1``
    * ``mu = [a sum (x - W E[z]) + w c_mu] / (N a + w)`` with the new W
    * ``w a^2 + (Q / 2 - w c_a) a - N D / 2 = 0``, the positive root, with
      ``Q = E sum |x - mu - W z|^2`` at the new W and mu.

    Examples
    --------
    >>> import dadmm
    >>> samples, true_W = dadmm.datasets.synthetic(200, 8, n_components=2)
    >>> shards = dadmm.shard.split(samples, 4)
    >>> problems = [dadmm.problems.PPCA(rows, n_components=2) for rows in shards]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.status, result.parts(0).W.shape
    ('stationary', (8, 2))
    >>> dadmm.metrics.subspace_angle(result.parts(0).W, true_W) < 5.0  # degrees
    True
    """

    with_gaps: ClassVar[type[PPCA]]  # the class of an object whose samples have NaN
    free_axes = False  # whether only the column space of W is of interest
    free_offsets = False  # whether each sample has an offset of its own
    usual_init: ClassVar[str] = "merged"
    traits = Traits("subspace", sends="W, mu and a", title="PPCA", blocks=True)
    _log_unit = 0.0  # of the samples, see `standardised`

    @with_one_blas_thread
    def __init__(
        self, samples: Any, n_components: int, *, zero_mean: bool = False
    ) -> None:
        if not isinstance(samples, RowBlocks):
            samples = as_floats("PPCA", "samples", samples)
            if np.isnan(samples).any():  # the class for gaps, if there is one
                self.__class__ = vars(type(self)).get("with_gaps", type(self))
        if samples.ndim != 2 or samples.shape[0] < 1:
            raise ProblemError(
                f"PPCA needs samples of shape (n, d) with n >= 1, got {samples.shape}"
            )
        self.n_samples, self.dimension = samples.shape
        SIZE.check("n_components", n_components, ProblemError)
        if n_components >= self.dimension:
            raise ProblemError(
                f"n_components must be less than the {self.dimension} dimensions of "
                f"the samples, got {n_components}"
            )
        FLAG.check("zero_mean", zero_mean, ProblemError)
        self.n_components, self.zero_mean = int(n_components), bool(zero_mean)
        shapes = {"W": (self.dimension, self.n_components), "mu": (self.dimension,)}
        self.layout = Layout(shapes | {"a": ()})
        self._eye = np.eye(self.n_components)
        self._read(samples)

    def _read(self, samples: Matrix) -> None:
        largest, parts = 0.0, list[Pooled]()
        for rows in row_blocks(samples):
            largest = max(largest, size := float(np.abs(rows).max()))
            if not math.isfinite(size):
                check_entries("PPCA", "finite samples", rows, ~np.isfinite(rows))
            parts = [*parts, summarise(rows)]
            if len(parts) > 1:
                counts, means, factors = zip(*parts, strict=True)
                parts = [pool(np.array(counts), np.array(means), np.vstack(factors))]
        _, self.mean, self.factor = parts[0]
        self.count: Reals = float(self.n_samples)
        self.observed_counts = np.full(self.dimension, self.count)  # by column
        self._entry_count: Reals = self.count * self.dimension
        rounding = np.float64(EPS * largest)  # its square may underflow
        self._most: Reals = rounding**-2 if rounding else math.inf

    @property
    def kind(self) -> tuple[object, ...]:
        return self.factor.shape, self.n_components, self.zero_mean, self._log_unit

    @classmethod
    def stack(cls, problems: Sequence[PPCA]) -> PPCA:
        return stacked(problems, ("mean", "factor", "count", "_entry_count", "_most"))

    def standardised(self, mean: Vector | float, unit: float) -> Self:
        """Return the problem of ``(x - mean) / unit``, with the objectives of x."""
        found = self._moved(mean, unit)
        found.factor = self.factor / unit
        return found

    def _moved(self, mean: Vector | float, unit: float) -> Self:
        found = copy(self)
        found.mean = (self.mean - mean) / unit
        found._most = self._most * unit * unit
        found._log_unit = self._log_unit + math.log(unit)
        return found

    def with_log_lengths(
        self, knee: float, longest: float, a_scale: float
    ) -> LogLengthPPCA:
        """Return the problem with mu = 0, in other coordinates of W."""
        plain = copy(self)
        plain.factor, plain.zero_mean = triangular(self.raw_factor), True
        plain.mean = np.zeros_like(self.mean)
        return LogLengthPPCA(plain, knee, longest, a_scale)

    @property
    def raw_factor(self) -> Matrix:
        """At most D + 1 rows R with ``R' R = sum x x'``; missing entries are zero."""
        return np.vstack([self.factor, math.sqrt(self.n_samples) * self.mean])

    def completed_sum(self, theta: Vector) -> Vector:
        """Return the sum of the samples (D,), expected at ``theta`` where missing."""
        return np.asarray(self.n_samples * self.mean)

    def completed(self, theta: Vector) -> Matrix:
        """Return rows R with ``R' R = sum x x'``, expected at ``theta`` if missing."""
        return self.raw_factor

    def gradient(self, theta: Vector) -> Vector:
        """Return the gradient of ``-log p(X)`` at ``theta``."""
        W, mu, a = self.layout.views(theta)
        stats, n, precision = self.expect(theta), self.count, float(a)
        shift = self.mean - mu - W @ stats.z_mean
        slope = W @ stats.spread - stats.cross.T - n * np.outer(shift, stats.z_mean)
        misfit = self._misfit(W[None], mu[None], stats)[0]
        of_mu = 0.0 if self.zero_mean else -precision * n * shift
        of_a = 0.5 * (misfit - self._entry_count / precision)
        return self.layout.pack(W=precision * slope, mu=of_mu, a=of_a)

    def moment(self, theta: Vector) -> Matrix:
        """Return ``E sum z z'`` at ``theta``, (M, M); it is N I if all samples fit."""
        z_mean, spread, *_ = self.expect(theta)
        return np.asarray(spread + self.count * np.outer(z_mean, z_mean))

    def init(self, rng: np.random.Generator) -> Vector:
        """Return a random orthonormal W, mu = 0 and a = 1."""
        draw = rng.standard_normal((self.dimension, self.n_components))
        return self.layout.pack(W=np.linalg.qr(draw)[0], mu=0.0, a=1.0)

    def expect(self, theta: Vector) -> Expected:
        """Return the posterior of the latent variables at ``theta``, equation (13).

        ``E[z] = M^-1 W' (x - mu)``, covariance ``M^-1 / a`` and ``M = W' W + I / a``.
        """
        W, mu, a = self.layout.views(theta)
        n, factor = self.count, self.factor
        inner = np.linalg.inv(W.mT @ W + self._eye / with_axes(a, 2))
        z_mean = (((self.mean - mu)[..., None, :] @ W) @ inner)[..., 0, :]
        latent = (factor @ W) @ inner  # E[z] of the factor's rows, about z_mean
        shared = with_axes(n / a, 2) * inner  # the posterior covariances of all samples
        spread = latent.mT @ latent
        spread += shared
        cross = latent.mT @ factor
        best = np.linalg.solve(spread, cross)
        misfit = factor - latent @ best
        floor = inner_product(misfit, misfit) + inner_product(shared @ best, best)
        energy = inner_product(spread, self._eye) + n * np.vecdot(z_mean, z_mean)
        prior = 0.5 * (energy + n * self.n_components * LOG_2PI)
        return Expected(z_mean, spread, cross, best, floor, prior)

    def prox(
        self, theta: Vector, stats: Expected, centre: Vector, weight: Reals
    ) -> Vector:
        """Return one block sweep from ``theta``: W, then mu, then a."""
        _, mu, a = self.layout.views(theta)
        centre_W, centre_mu, centre_a = self.layout.views(centre)
        out = np.empty_like(theta)
        W_new, mu_new, a_new = self.layout.views(out)
        n, z_mean, pull = self.count, stats.z_mean, weight / a

        scaled = (with_axes(n, 1) * z_mean)[..., None]
        total = stats.spread + scaled * z_mean[..., None, :]
        total += with_axes(pull, 2) * self._eye
        moment = stats.cross + scaled * (self.mean - mu)[..., None, :]
        moment += with_axes(pull, 2) * centre_W.mT
        W_new[...] = np.linalg.solve(total, moment).mT

        if self.zero_mean:
            mu_new[...] = 0.0
        else:
            share = with_axes(n / (n + pull), 1)
            np.subtract(self.mean, (W_new @ z_mean[..., None])[..., 0], out=mu_new)
            mu_new *= share
            mu_new += (1.0 - share) * centre_mu

        a_new.flat = self.precisions(W_new, mu_new, stats, weight, centre_a)
        return out

    def precisions(
        self, W: Matrix, mu: Vector, stats: Any, weight: Reals, centre: Reals
    ) -> list[float]:
        """Return the new a of each problem, given the new W and mu."""
        misfit = self._misfit(W[..., None, :, :], mu[..., None, :], stats)
        known = (self._entry_count, misfit[..., 0], weight, centre, self._most)
        columns = (np.atleast_1d(values).tolist() for values in known)
        found = []
        for count, squares, w, c, most in zip(*columns, strict=True):
            b = 0.5 * squares - w * c
            root = math.sqrt(b * b + 2.0 * w * count)
            a = count / (b + root) if b > 0.0 else (root - b) / (2.0 * w)
            if a > most:  # the noise is as small as the rounding errors of the samples
                raise ZeroDivisionError("the noise variance is zero")
            found.append(a)
        return found

    def objectives(self, thetas: Matrix, stats: Any) -> Vector:
        """Return the expected complete-data negative log likelihood of each row.

        EM minimises it in place of equation (14), with one posterior for all rows.
        """
        W, mu, a = self.layout.views(thetas)
        fit = 0.5 * a * self._misfit(W, mu, stats)
        half = with_axes(0.5 * self._entry_count, 1)
        noise = half * (LOG_2PI + 2.0 * self._log_unit - np.log(a))
        return np.asarray(fit + noise + with_axes(stats.prior, 1))

    def neg_log_likelihood(self, theta: Vector) -> Reals:
        """Return ``-log p(X_i | theta)``, given theta (..., size); equation (14)."""
        expected = self.objectives(theta[..., None, :], self.expect(theta))[..., 0]
        return expected - self._entropy(theta)

    def _entropy(self, theta: Vector) -> Reals:
        W, _, a = self.layout.views(theta)
        M = self.n_components
        inner = W.mT @ W + self._eye / with_axes(a, 2)
        volume = np.linalg.slogdet(inner)[1] + M * np.log(a)
        return 0.5 * self.count * (M * (1.0 + LOG_2PI) - volume)

    def latent(self, theta: Vector, samples: Matrix) -> Matrix:
        """Return E[z] of each row of ``samples`` (n, D) at ``theta``, (n, M)."""
        W, mu, a = self.layout.views(theta)
        return np.linalg.solve(W.T @ W + self._eye / a, W.T @ (samples - mu).T).T

    def _misfit(self, W: Matrix, mu: Matrix, stats: Any) -> Vector:
        """Return ``E sum |x - mu - W z|^2`` for W (..., k, D, M) and mu (..., k, D)."""
        shift = self.mean[..., None, :] - mu
        shift -= (W @ stats.z_mean[..., None, :, None])[..., 0]
        off = W - stats.best.mT[..., None, :, :]
        drift = inner_product(off @ stats.spread[..., None, :, :], off)
        between = with_axes(self.count, 1) * np.vecdot(shift, shift)
        return np.asarray(with_axes(stats.floor, 1) + drift + between)


class Axes(NamedTuple):
    """The singular value decompositions of V and W, which differ in lengths only."""

    left: Matrix  # (..., D, M)
    right: Matrix  # (..., M, M)
    short: Vector  # (..., M) of V
    long: Vector  # (..., M) of W

    def product(self, lengths: Vector) -> Matrix:
        """Return V or W (..., D, M), given its lengths."""
        return np.asarray((self.left * lengths[..., None, :]) @ self.right)


class LogLengthPPCA:
    """Centred PPCA with ``theta`` = (V, mu = 0, a); methods are those of `PPCA`.

    The rows are in the unit of the noise. Let l be the length of a component, and N the
    number of rows. The likelihood has a curvature of about N along changes of W that
    turn the component out of the column space of W, but of about 2 N / l^2 along those
    that change its length. With one penalty for both, lengths are found slowly. The
    coordinates are ``V = U g(l) R'``, where ``W = U l R'`` is the singular value
    decomposition, and g(l) is l up to the knee k, and ``k + sqrt(2) log(l / k)``
    beyond. If k is near the lengths, both curvatures are about N. A rotation of the
    columns of W is the same rotation of the columns of V.

    ``plain`` has zero mean, ``knee`` is at least sqrt(2), ``longest``, at least the
    knee, is the most that a step reaches, and ``a_scale`` the layout's scale of a.
    """

    def __init__(self, plain: PPCA, knee: float, longest: float, a_scale: float):
        self.plain, self.knee = plain, knee
        self.longest, self.a_scale = longest, a_scale
        self._most = knee + ROOT * math.log(longest / knee)  # of the lengths of V
        self.layout = Layout(plain.layout.shapes, scales={"a": a_scale})

    @property
    def kind(self) -> tuple[object, ...]:
        return self.plain.kind, self.knee, self.longest, self.a_scale

    @classmethod
    def stack(cls, problems: Sequence[Self]) -> LogLengthPPCA:
        first = problems[0]
        plain = type(first.plain).stack([each.plain for each in problems])
        return cls(plain, first.knee, first.longest, first.a_scale)

    def axes(self, theta: Vector, most: Reals = math.inf) -> Axes:
        """Return the decomposition of V and W; lengths of V are at most ``most``."""
        V = self.layout.views(theta).W
        left, short, right = np.linalg.svd(V, full_matrices=False)
        short, knee = np.minimum(np.maximum(short, LEAST), most), self.knee
        growth = np.exp(np.maximum(short - knee, 0.0) / ROOT)
        return Axes(left, right, short, np.minimum(short, knee) * growth)

    def outside(self, theta: Vector) -> Vector:
        """Return (W, mu, a), given theta (..., size)."""
        axes = self.axes(theta)
        return self._with(theta, axes.product(axes.long))

    def inside(self, theta: Vector) -> Vector:
        """Return theta, given (W, mu, a); mu becomes zero."""
        W = self.layout.views(theta).W
        left, long, right = np.linalg.svd(W, full_matrices=False)
        long, knee = np.maximum(long, LEAST), self.knee
        short = np.minimum(long, knee) + ROOT * np.log(np.maximum(long / knee, 1.0))
        return self._with(theta, (left * short[..., None, :]) @ right)

    def _with(self, theta: Vector, W: Matrix) -> Vector:
        found = theta.copy()
        views = self.layout.views(found)
        views.W[...], views.mu[...] = W, 0.0
        return found

    def slopes(self, axes: Axes, gradient: Matrix, *, out: bool = False) -> Matrix:
        """Return a gradient along V, given that along W; with ``out`` the opposite.

        The derivative of V by W is diagonal in the basis of the axes: for pairs of
        components, for their rotations, and for changes out of the column space.
        """
        within = axes.left.mT @ gradient @ axes.right.mT
        beyond = gradient @ axes.right.mT - axes.left @ within
        long, other = axes.long[..., :, None], axes.long[..., None, :]
        short, its = axes.short[..., :, None], axes.short[..., None, :]
        apart, both = long - other, long + other
        alike = np.abs(apart) <= ALIKE * both
        slope = np.where(0.5 * both > self.knee, 2.0 * ROOT / both, 1.0)
        quotient = np.where(alike, slope, (short - its) / np.where(alike, 1.0, apart))
        turning, leaving = (short + its) / both, (axes.short / axes.long)[..., None, :]
        power = 1.0 if out else -1.0
        even, odd = 0.5 * (within + within.mT), 0.5 * (within - within.mT)
        found = even * quotient**power + odd * turning**power
        return np.asarray((axes.left @ found + beyond * leaving**power) @ axes.right)

    def gradients(self, rows: Matrix, theta: Matrix, *, out: bool = False) -> Matrix:
        """Return gradients along theta, given those along (W, mu, a), as `slopes`."""
        found = rows.copy()
        W = self.layout.views(found).W
        W[...] = self.slopes(self.axes(theta), W, out=out)
        return found

    def gradient(self, theta: Vector) -> Vector:
        return self.gradients(self.plain.gradient(self.outside(theta)), theta)

    def expect(self, theta: Vector) -> Expected:
        return self.plain.expect(self.outside(theta))

    def objectives(self, thetas: Matrix, stats: Expected) -> Vector:
        return self.plain.objectives(self.outside(thetas), stats)

    def neg_log_likelihood(self, theta: Vector) -> Reals:
        return self.plain.neg_log_likelihood(self.outside(theta))

    def prox(
        self, theta: Vector, stats: Expected, centre: Vector, weight: Reals
    ) -> Vector:
        """Return ``theta`` after some descent steps of the proximal objective."""
        plain, axes = self.plain, self.axes(theta)
        value = self._value(theta, axes, centre, weight)
        allowed = ROUNDING * plain.count * plain.dimension
        curvature = plain.count  # it grows after a step that does not descend
        for k in range(STEPS):
            if k:
                stats = plain.expect(self._with(theta, axes.product(axes.long)))
            trial, its_axes = self._step(theta, axes, stats, centre, weight, curvature)
            found = self._value(trial, its_axes, centre, weight)
            lower = np.asarray(found <= value + allowed)
            curvature = np.where(lower, curvature, SHORTER * curvature)
            value = np.where(lower, found, value)
            theta = np.where(lower[..., None], trial, theta)
            axes = Axes(*(
                np.where(with_axes(lower, more), new, old)
                for more, new, old in zip((2, 2, 1, 1), its_axes, axes, strict=True)
            ))  # fmt: skip
        return theta

    def _step(
        self, theta: Vector, axes: Axes, stats: Expected, centre: Vector,
        weight: Reals, curvature: Reals,
    ) -> tuple[Vector, Axes]:  # fmt: skip
        """Return theta after one step, and its axes; a takes the step of EM."""
        W, found = axes.product(axes.long), theta.copy()
        V, mu, a = self.layout.views(found)
        middle, _, centre_a = self.layout.views(centre)
        slope = with_axes(a, 2) * (W @ stats.spread - stats.cross.mT)
        slope = self.slopes(axes, slope) + with_axes(weight, 2) * (V - middle)
        a.flat = self.plain.precisions(W, mu, stats, weight * self.a_scale, centre_a)
        V -= slope / with_axes(np.asarray(curvature + weight), 2)
        its_axes = self.axes(found, np.maximum(axes.short[..., :1], self._most))
        V[...] = its_axes.product(its_axes.short)
        return found, its_axes

    def _value(self, theta: Vector, axes: Axes, centre: Vector, weight: Reals) -> Reals:
        """Return ``-log p(X)``, without constants, plus the proximal term."""
        plain, a = self.plain, self.layout.views(theta).a
        shrunk = axes.long / (axes.long**2 + 1.0 / with_axes(a, 1))
        latent = (plain.factor @ axes.left) * shrunk[..., None, :]
        left = plain.factor - (latent * axes.long[..., None, :]) @ axes.left.mT
        squares = a * inner_product(left, left) + inner_product(latent, latent)
        volume = np.log1p(with_axes(a, 1) * axes.long**2).sum(axis=-1)
        volume = volume - plain.dimension * np.log(a)
        off = theta - centre
        near = weight * np.vecdot(off * self.layout.pull, off)
        return 0.5 * (plain.count * volume + squares + near)
