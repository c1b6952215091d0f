"""Probabilistic PCA of samples in which entries are missing (NaN).

With O_n the columns that sample n observes, ``x_nd = w_d' z_n + mu_d + noise`` for d in
O_n. Each pattern O_n is compressed to a mean and at most as many rows as columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import triangular
from dadmm.data import patterns
from dadmm.data.patterns import Compressed, Patterns, precisions
from dadmm.problems.base import Reals, check_entries, stacked
from dadmm.problems.metrics import LOG_2PI
from dadmm.problems.ppca import PPCA, inner_product, with_axes


class Observed(NamedTuple):
    """Statistics of the E-step of a shard with missing entries, by column.

    ``E sum (x_d - mu_d - w_d' z)^2`` over the N_d samples that observe column d is
    ``floor_d + (w_d - best_d)' spread_d (w_d - best_d) + N_d gap_d^2`` with
    ``gap_d = m_d - mu_d - w_d' z_d``, where m_d and z_d are means over these samples.
    K is M, or M + 1 with free offsets.
    """

    z_mean: Matrix  # (D, K) z_d
    spread: Matrix  # (D, K, K) sum of E[(z_n - z_d)(z_n - z_d)']
    cross: Matrix  # (D, K) sum of E[z_n] (x_nd - m_d)
    best: Matrix  # (D, K) minimisers w_d of the quadratics
    floor: float  # sum of their minima
    prior: float  # -E sum log p(z_n)


class IncompletePPCA(PPCA):
    """Expected negative log likelihood of observed entries and latent variables.

    ``PPCA(samples, n_components)`` returns an object of this class if the samples have
    a NaN. Nodes with and without missing entries work in one network. Samples without
    observed entries are left out. For a column that this node never observes, W and mu
    equal the proximal centre; with weight 0 they do not change.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, D), NaN where an entry is missing
    n_components, zero_mean : as in `PPCA`

    Notes
    -----
    E-step, for each sample over its observed columns O: covariance ``M_O^-1 / a`` and
    mean ``M_O^-1 W_O' (x_O - mu_O)``, with ``M_O = W_O' W_O + I / a``. A sweep is that
    of `PPCA` for each column, with sums over the N_d samples that observe column d:

    * ``w_d = [a sum E[z z'] + w I]^-1 [a sum (x_d - mu_d) E[z] + w c_d]``
    * ``mu_d = [a sum (x_d - w_d' E[z]) + w c_mu_d] / (N_d a + w)`` with the new W

    and N D of the equation for a is the number of observed entries. A free offset of
    each sample is one more latent variable, with loading one and a flat prior.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> samples, _ = dadmm.datasets.synthetic(200, 8, n_components=2)
    >>> rows = dadmm.shard.split(samples, 4)
    >>> truth, rows[0][3, 5] = rows[0][3, 5], np.nan
    >>> problems = [dadmm.problems.PPCA(own, n_components=2) for own in rows]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> filled, variances = problems[0].impute(result.theta[0], rows[0])
    >>> abs(filled[3, 5] - truth) < 4 * variances[3, 5] ** 0.5
    np.True_
    """

    neg_log_likelihood = PPCA.neg_log_likelihood  # by the methods of this class

    def _read(self, samples: Matrix) -> None:
        check_entries("PPCA", "finite samples", samples, np.isinf(samples))
        samples = samples[~np.isnan(samples).all(axis=1)]
        if not len(samples):
            raise ProblemError(
                f"PPCA needs an observed entry, but all of the {self.n_samples} x "
                f"{self.dimension} samples are missing; leave this node out"
            )
        found = patterns.patterns(samples)
        self.mean = patterns.observed_means(samples, axis=0)[0]
        self._observed = found.mask.T @ found.counts[:, None]  # (D, 1)
        self.observed_counts = self._observed[:, 0]
        self._unobserved = (self._observed == 0.0).astype(np.float64)
        self.count = float(len(samples))
        self._entry_count, self._most = float(self._observed.sum()), math.inf
        self._ridge = np.diag([1.0] * self.n_components + [0.0] * self.free_offsets)
        self._set(patterns.compress(samples - self.mean, found))

    def _set(self, data: Compressed) -> None:
        self._data, self._has_unobserved = data, bool(self._unobserved.any())
        self._divisor = self._observed + self._unobserved
        self._unobserved_eye = self._unobserved[..., None] * np.eye(len(self._ridge))
        self._first_rows = (..., slice(None, None, data.height), slice(None))

    @property
    def kind(self) -> tuple[object, ...]:
        shapes = self._data.rows.shape, self._data.mask.shape
        return *shapes, self.n_components, self.zero_mean, self._log_unit

    @classmethod
    def stack(cls, problems: Sequence[Self]) -> Self:  # type: ignore[override]
        names = ("mean", "_observed", "_unobserved", "count", "_entry_count", "_most")
        whole = stacked(problems, names)
        fields = zip(*(p._data for p in problems), strict=True)
        whole._set(Compressed(*map(np.array, fields)))
        return whole

    def standardised(self, mean: Vector | float, unit: float) -> Self:
        found = self._moved(mean, unit)
        found._data = self._data._replace(rows=self._data.rows / unit)
        return found

    @property
    def raw_factor(self) -> Matrix:
        rows = self._data.rows.copy()
        rows[self._first_rows] += self._data.roots * self._data.mask * self.mean
        return triangular(rows)

    def completed_sum(self, theta: Vector) -> Vector:
        rows = self._completed(theta)[0]
        return np.asarray((self._data.roots.T @ rows[self._first_rows])[0])

    def completed(self, theta: Vector) -> Matrix:
        """Return rows as `PPCA` does; free offsets are subtracted."""
        rows, inner = self._completed(theta)
        W, _, a = self.layout.views(theta)
        # covariances of the missing entries: by the latent variables, and the noise
        lost = np.sqrt(self._data.counts / a) * (1.0 - self._data.mask)
        by_latent = (self._loadings(W) @ np.linalg.cholesky(inner)).mT
        by_latent = (by_latent * lost[:, None, :]).reshape(-1, self.dimension)
        products = by_latent.T @ by_latent
        products[np.diag_indices(self.dimension)] += (lost * lost).sum(axis=0)
        values, axes = np.linalg.eigh(products)
        factor = np.vstack([rows, np.sqrt(np.maximum(values, 0.0))[:, None] * axes.T])
        if self.free_offsets:
            factor -= factor.mean(axis=1, keepdims=True)
        return triangular(factor)

    def _completed(self, theta: Vector) -> tuple[Matrix, Matrix]:
        """Return the rows with expected entries, and the matrices of `expect`."""
        W, mu, a = self.layout.views(theta)
        data, first_rows, H = self._data, self._first_rows, self._loadings(W)
        inner = np.linalg.inv(precisions(data.mask, H) + self._ridge / a)
        z_mean, z = self._latent(H, mu, inner)
        z[first_rows] += data.roots * z_mean
        rows = data.rows + (1.0 - data.entries) * (z @ H.T)
        rows[first_rows] += data.roots * np.where(data.mask > 0.0, self.mean, mu)
        return rows, inner

    def gradient(self, theta: Vector) -> Vector:
        W, mu, a = self.layout.views(theta)
        stats, precision = self.expect(theta), float(a)
        H, observed = self._loadings(W), self.observed_counts
        shift = observed * (self.mean - mu - np.vecdot(H, stats.z_mean))
        slope = (stats.spread @ H[..., None])[..., 0] - stats.cross
        slope -= shift[:, None] * stats.z_mean
        misfit = self._misfit(W[None], mu[None], stats)[0]
        of_W = precision * slope[:, : self.n_components]
        of_mu = 0.0 if self.zero_mean else -precision * shift
        of_a = 0.5 * (misfit - self._entry_count / precision)
        return self.layout.pack(W=of_W, mu=of_mu, a=of_a)

    def moment(self, theta: Vector) -> Matrix:
        """Return the mean over the columns of ``E sum z z'`` at ``theta``, (M, M)."""
        stats, M = self.expect(theta), self.n_components
        z_mean = stats.z_mean[:, :M]
        whole = z_mean.T @ (self._observed * z_mean) + stats.spread.sum(axis=0)[:M, :M]
        return np.asarray(whole / self.dimension)

    def expect(self, theta: Vector) -> Observed:  # type: ignore[override]
        W, mu, a = self.layout.views(theta)
        H, M, n = self._loadings(W), self.n_components, self.count
        data = self._data
        inner = np.linalg.inv(precisions(data.mask, H) + self._ridge / with_axes(a, 3))
        z_mean, z = self._latent(H, mu, inner)
        covariances = inner * (data.counts / with_axes(a, 2))[..., None]
        squares = inner_product(z[..., :M], z[..., :M])
        squares += n * inner_product(z_mean[..., :M], z_mean[..., :M])
        total = _weighted_sums(data.counts.mT, inner)[..., 0, :, :]
        squares += inner_product(total, self._ridge) / a
        prior = 0.5 * (squares + n * M * LOG_2PI)

        by_column, first_rows = data.mask.mT, self._first_rows
        blocks = z.reshape(*covariances.shape[:-2], -1, z.shape[-1])
        shared = _weighted_sums(by_column, covariances)
        shift = by_column @ (data.roots * z[first_rows])
        shift /= self._divisor
        # the copy makes the product twice as fast
        spread = _weighted_sums(by_column, blocks.mT.copy() @ blocks)
        spread += shared
        spread -= (self._observed * shift)[..., None] * shift[..., None, :]
        cross = data.rows.mT @ z
        best = np.linalg.solve(spread + self._unobserved_eye, cross[..., None])[..., 0]
        misfit = z @ best.mT
        misfit[first_rows] -= data.roots * np.vecdot(shift, best)[..., None, :]
        np.subtract(data.rows, misfit, out=misfit)
        misfit *= data.entries
        floor = inner_product(misfit, misfit)
        floor += inner_product((best[..., None, :] @ shared)[..., 0, :], best)
        return Observed(z_mean + shift, spread, cross, best, floor, prior)

    def _latent(self, H: Matrix, mu: Vector, inner: Matrix) -> tuple[Matrix, Matrix]:
        """Return the mean of E[z] (1, K), and rows E[z] - mean (R, K), rotated as x."""
        data, first_rows, blocks = self._data, self._first_rows, (*inner.shape[:-2], -1)
        z = data.rows @ H
        z[first_rows] += data.roots * (data.mask @ ((self.mean - mu)[..., None] * H))
        z = (z.reshape(*blocks, z.shape[-1]) @ inner).reshape(z.shape)
        z_mean = (data.roots.mT @ z[first_rows]) / with_axes(self.count, 2)
        z[first_rows] -= data.roots * z_mean
        return z_mean, z

    def prox(  # type: ignore[override]
        self, theta: Vector, stats: Observed, centre: Vector, weight: Reals
    ) -> Vector:
        _, mu, a = self.layout.views(theta)
        held = centre
        if self._has_unobserved:
            held = np.where(np.asarray(weight)[..., None] > 0.0, centre, theta)
        held_W, held_mu, _ = self.layout.views(held)
        out = np.empty_like(theta)
        W_new, mu_new, a_new = self.layout.views(out)
        M, observed, z_mean = self.n_components, self._observed, stats.z_mean
        pull = with_axes(weight / a, 2) + self._unobserved  # (..., D, 1)

        scaled = observed * z_mean
        total = stats.spread + scaled[..., None] * z_mean[..., None, :]
        moment = stats.cross + scaled * (self.mean - mu)[..., None]
        if self.free_offsets:
            moment = moment[..., :M] - total[..., :M, M]
            total = total[..., :M, :M]
        total = total + pull[..., None] * self._eye
        moment = (moment + pull * held_W)[..., None]
        W_new[...] = np.linalg.solve(total, moment)[..., 0]

        if self.zero_mean:
            mu_new[...] = 0.0
        else:
            share = (observed / (observed + pull))[..., 0]
            own = self.mean - np.vecdot(self._loadings(W_new), z_mean)
            mu_new[...] = share * own + (1.0 - share) * held_mu

        centre_a = self.layout.views(centre).a
        a_new.flat = self.precisions(W_new, mu_new, stats, weight, centre_a)
        return out

    def _entropy(self, theta: Vector) -> Reals:
        W, _, a = self.layout.views(theta)
        data, K = self._data, len(self._ridge)
        inner = precisions(data.mask, self._loadings(W)) + self._ridge / with_axes(a, 3)
        volume = np.vecdot(data.counts[..., 0], np.linalg.slogdet(inner)[1])
        return 0.5 * (self.count * K * (1.0 + LOG_2PI - np.log(a)) - volume)

    def latent(self, theta: Vector, samples: Matrix) -> Matrix:
        return self._infer(theta, samples)[0][:, : self.n_components]

    def impute(self, theta: Vector, samples: Matrix) -> tuple[Matrix, Matrix]:
        """Return samples (n, D) with NaN filled in, and the variances (n, D).

        The samples need not belong to this node. A missing entry becomes
        ``mu_d + w_d' E[z_n]``, with variance ``w_d' Cov[z_n] w_d + 1 / a``; observed
        ones have variance zero. With free offsets, a row of NaN stays NaN.
        """
        means, covariances, found = self._infer(theta, samples)
        W, mu, a = self.layout.views(theta)
        H, lost = self._loadings(W), np.isnan(samples)
        filled = np.where(lost, mu + means @ H.T, samples)
        by_pattern = np.vecdot(H @ covariances, H) + 1.0 / a
        variances = np.where(lost, by_pattern[found.which], 0.0)
        if self.free_offsets:
            empty = lost.all(axis=1)
            filled[empty], variances[empty] = np.nan, np.inf
        return filled, variances

    def _infer(self, theta: Vector, samples: Matrix) -> tuple[Matrix, Matrix, Patterns]:
        W, mu, a = self.layout.views(theta)
        samples = np.asarray(samples, dtype=np.float64)
        return patterns.posterior(samples, self._loadings(W), mu, a.item(), self._ridge)

    def _loadings(self, W: Matrix) -> Matrix:
        """Return W (..., D, M), with a column of ones if there are free offsets."""
        if not self.free_offsets:
            return W
        return np.concatenate([W, np.ones((*W.shape[:-1], 1))], axis=-1)

    def _misfit(self, W: Matrix, mu: Matrix, stats: Observed) -> Vector:
        H = self._loadings(W)
        off = (H - stats.best[..., None, :, :]).swapaxes(-2, -3)  # (..., D, k, K)
        drift = np.vecdot(off @ stats.spread, off).sum(axis=-2)
        shift = self.mean[..., None, :] - mu
        shift -= np.vecdot(H, stats.z_mean[..., None, :, :])
        between = ((shift * shift) @ self._observed)[..., 0]
        return np.asarray(with_axes(stats.floor, 1) + drift + between)


def _weighted_sums(weights: Matrix, matrices: Matrix) -> Matrix:
    """Return sums (..., D, k, k) of matrices (..., B, k, k), by weights (..., D, B)."""
    *lead, B, k, _ = matrices.shape
    flat = weights @ matrices.reshape(*lead, B, k * k)
    return np.asarray(flat.reshape(*lead, -1, k, k))


PPCA.with_gaps = IncompletePPCA
