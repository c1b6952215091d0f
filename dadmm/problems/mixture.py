"""A Gaussian mixture of one node's rows, by EM in proximal form.

An iteration has one pass over the rows, of cost O(N K D^2) for N rows, K components and
D dimensions, and further costs O(K D^3). The method is that of Forero, Cano and
Giannakis (2008, 2011) on distributed clustering, with exact blocks of the M-step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.checks import check_integer
from dadmm.core.errors import ProblemError
from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.problems.checks import checked_array, checked_number, checked_rows

LOG_2PI = math.log(2.0 * math.pi)
LEAST_COUNT = 1e-100  # of the rows of a component, so that logarithms are finite
LEAST_EIGENVALUE = 1e-12  # of a precision, relative to its largest eigenvalue


class Assigned(NamedTuple):
    """Statistics of the E-step, by component.

    With responsibilities r, ``sum r (x - mu)(x - mu)'`` is
    ``scatter + count (mean - mu)(mean - mu)'``.
    """

    counts: Vector  # (K,) sums of r
    means: Matrix  # (K, D) of the rows, weighted by r
    scatters: Matrix  # (K, D, D) sum of r (x - mean)(x - mean)'
    entropy: float  # sum of r log r


class GaussianMixture:
    """f = -sum over rows of log sum_k pi_k N(x; mu_k, P_k^-1), plus two terms.

    The first term is ``n (sum_k pi_k - 1)``: with it the weights sum to one at the
    minimum, without a constraint. The second is ``alpha/2 sum_k tr P_k``: with it no
    variance of a component with n_k rows is below ``alpha / n_k``. ``theta`` holds
    ``means`` (K, D), ``precisions`` (K, D, D) and ``weights`` (K,).

    Parameters
    ----------
    X : ndarray of shape (n, D)
        This node's rows. They need not contain rows of every component.
    n_components : int
        K.
    alpha : float
        This node's share of the second term. It must be positive unless every
        component has more than D rows, on all nodes together.
    means : array_like of shape (K, D), optional
        Starting means. By default they are drawn from N(0, I), which suits standardised
        data. In both cases all nodes start with the same means, and so number the
        components in the same way. With starts of their own (``init="independent"``, or
        k-means of their rows) they would not.
    scale : float
        Approximate standard deviation of a component, in the unit of X. The start is
        ``P_k = I / scale^2``, and the penalties of means and precisions have this unit.

    Notes
    -----
    The E-step bounds f from above by ``sum_nk r_nk (log r_nk - log pi_k - log N)`` plus
    the two terms; `objectives` is this bound. With w the weight and c the centre of the
    proximal term, n_k and m_k the rows of a component and their mean, and S_k their
    scatter about the new mean, a sweep is

    * ``mu_k = [n_k P_k + w I]^-1 [n_k P_k m_k + w c]``
    * ``w P^2 + (S_k / 2 + alpha I / 2 - w c) P - n_k I / 2 = 0``, the positive root,
      in the eigenvectors of the matrix in brackets
    * ``w pi^2 + (n - w c) pi - n_k = 0``, the positive root.
    """

    def __init__(
        self,
        X: Matrix,
        n_components: int,
        *,
        alpha: float = 1e-3,
        means: ArrayLike | None = None,
        scale: float = 1.0,
    ) -> None:
        self._rows = checked_rows(type(self).__name__, X)
        check_integer("n_components", n_components, 1, error=ProblemError)
        self.n_components, self.dimension = int(n_components), self._rows.shape[1]
        self.alpha = checked_number("alpha", alpha)
        self.scale = checked_number("scale", scale, positive=True)
        K, D = self.n_components, self.dimension
        self.means = None if means is None else _checked_means(means, (K, D))
        shapes = {"means": (K, D), "precisions": (K, D, D), "weights": (K,)}
        scales = {"means": self.scale**-2, "precisions": self.scale**4}
        self.layout = Layout(shapes, scales={} if self.scale == 1.0 else scales)
        self._eye = np.eye(D)

    def init(self, rng: np.random.Generator) -> Vector:
        """Return the starting means, precisions ``I / scale^2`` and equal weights."""
        K, D = self.n_components, self.dimension
        means = rng.standard_normal((K, D)) if self.means is None else self.means
        precisions = self._eye / self.scale**2
        return self.layout.pack(means=means, precisions=precisions, weights=1.0 / K)

    def expect(self, theta: Vector) -> Assigned:
        """Return the statistics of each component at ``theta`` (size,)."""
        means = self.layout.views(theta).means
        off = self._rows - means[:, None, :]  # (K, n, D)
        logs = self._log_joint(theta, off)
        logs -= np.logaddexp.reduce(logs, axis=0)
        shares = np.exp(logs)
        counts = np.maximum(shares.sum(axis=1), LEAST_COUNT)
        shift = (shares[:, None, :] @ off)[:, 0] / counts[:, None]
        off -= shift[:, None, :]
        off *= np.sqrt(shares)[:, :, None]
        entropy = np.vdot(shares, np.maximum(logs, -1e3))  # 0 log 0 is 0
        return Assigned(counts, means + shift, off.mT @ off, float(entropy))

    def prox(
        self, theta: Vector, stats: Assigned, centre: Vector, weight: float
    ) -> Vector:
        """Return one block sweep from ``theta``: means, precisions, weights."""
        views, aim = self.layout.views(theta), self.layout.views(centre)
        out = np.empty_like(theta)
        means, precisions, weights = self.layout.views(out)
        counts, heavy = stats.counts, weight * self.scale**4

        values, axes = np.linalg.eigh(_symmetric(views.precisions))
        held = weight / self.scale**2
        hold = held / (counts[:, None] * np.maximum(values, 0.0) + held + LEAST_COUNT)
        way = ((aim.means - stats.means)[:, None, :] @ axes) * hold[:, None, :]
        means[...] = stats.means + (way @ axes.mT)[:, 0]

        shift = stats.means - means
        scatter = stats.scatters + self.alpha * self._eye
        scatter += counts[:, None, None] * shift[:, :, None] * shift[:, None, :]
        slopes, axes = np.linalg.eigh(
            0.5 * scatter - heavy * _symmetric(aim.precisions)
        )
        values = _root(heavy, slopes, 0.5 * counts[:, None])
        largest = values.max(axis=1, keepdims=True)
        values = np.maximum(values, LEAST_EIGENVALUE * largest)
        precisions[...] = _symmetric((axes * values[:, None, :]) @ axes.mT)
        if weight:  # f does not depend on the antisymmetric part
            precisions += 0.5 * (aim.precisions - aim.precisions.mT)

        weights[...] = _root(weight, len(self._rows) - weight * aim.weights, counts)
        return out

    def objectives(self, thetas: Matrix, stats: Assigned) -> Vector:
        """Return the bound on f of each row of ``thetas`` (k, size), shape (k,).

        It is infinite where a weight or an eigenvalue of a precision is not positive.
        """
        means, precisions, weights = self.layout.views(thetas)
        counts, n = stats.counts, len(self._rows)
        precisions = _symmetric(precisions)
        values = np.linalg.eigvalsh(precisions)
        inside = (values > 0.0).all(axis=(1, 2)) & (weights > 0.0).all(axis=1)
        logdet = np.log(np.abs(values)).sum(axis=2)
        shift = (stats.means - means)[..., None, :]
        far = (shift @ precisions @ shift.mT)[..., 0, 0]
        own = (precisions * (stats.scatters + self.alpha * self._eye)).sum(axis=(2, 3))
        fit = counts * (0.5 * (far - logdet) - np.log(np.abs(weights))) + 0.5 * own
        fixed = stats.entropy + n * (0.5 * self.dimension * LOG_2PI - 1.0)
        found = fit.sum(axis=1) + n * weights.sum(axis=1) + fixed
        return np.where(inside, found, np.inf)

    def log_joint(self, theta: Vector, samples: Matrix) -> Matrix:
        """Return ``log pi_k N(x; mu_k, P_k^-1)`` of each row of samples, (n, K)."""
        means = self.layout.views(theta).means
        return self._log_joint(theta, samples - means[:, None, :]).T

    def responsibilities(self, theta: Vector, samples: Matrix) -> Matrix:
        """Return the probability of each component for each row of samples, (n, K)."""
        logs = self.log_joint(theta, samples)
        return np.exp(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True))

    def _log_joint(self, theta: Vector, off: Matrix) -> Matrix:
        """Return the same for rows minus the means (K, n, D), shape (K, n)."""
        _, precisions, weights = self.layout.views(theta)
        values, axes = np.linalg.eigh(_symmetric(precisions))
        distance = (((off @ axes) ** 2) @ values[:, :, None])[..., 0]
        level = np.log(weights) + 0.5 * np.log(values).sum(axis=1)
        level -= 0.5 * self.dimension * LOG_2PI
        return np.asarray(level[:, None] - 0.5 * distance)


def _symmetric(matrices: Matrix) -> Matrix:
    return 0.5 * (matrices + matrices.mT)


def _root(weight: float, slope: Vector, count: Vector) -> Vector:
    """Return the positive x with ``weight x^2 + slope x = count``, entry by entry."""
    root = np.sqrt(slope**2 + 4.0 * weight * count)
    down = slope <= 0.0
    found: Vector = 2.0 * count / (np.abs(slope) + root)
    return np.where(down, count / (weight * found), found) if down.any() else found


def _checked_means(means: ArrayLike, shape: tuple[int, int]) -> Matrix:
    found = checked_array("GaussianMixture", "means", means)
    if found.shape != shape:
        raise ProblemError(
            f"means must be {shape[0]} rows of {shape[1]} numbers, one row per "
            f"component, got shape {found.shape}"
        )
    return found
