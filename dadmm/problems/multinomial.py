"""Logistic regression of one node's rows, for several classes (softmax).

The rows X are held as ``X = Q R`` with orthonormal columns Q (n, q). So a change of
coordinates concerns R only, and a class has the logits ``Q (R_k theta)``.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Layout, Matrix, Vector
from dadmm.core.linalg import TINY, triangular
from dadmm.core.schema import FINITE, entry, integer
from dadmm.data.datasets import classification
from dadmm.problems.base import Traits
from dadmm.problems.glm import GeneralisedLinear, LocalModel, padded
from dadmm.problems.linear import BLOCK, Design

MOST_CLASSES = 1000


class Chances(NamedTuple):
    """The probability of each class, for each row of m problems at s points."""

    loss: Matrix  # (m, s, n) minus the log probability of the row's own class
    chance: Matrix  # (m, s, K, n)
    rest: Matrix  # (m, s, K, n) 1 - chance, also accurate where it is tiny


@dataclass(eq=False, repr=False)
class MultinomialLogistic(GeneralisedLinear):
    """Logistic regression of several classes (softmax).

    ``f = sum over rows of v (-log p_y + c^2 / 2) + alpha/2 |coef|^2``. Here p_k is the
    probability of class k, ``exp(u_k) / sum exp(u)`` with the logits
    ``u_k = coef_k' x + intercept_k``, c the mean of the logits of the row, and v its
    weight, 1 by default. Without c, the same numbers could be added to the coefficients
    of all classes. With c, coefficients and intercepts sum to zero over the classes at
    the minimiser, where c is zero.

    ``theta`` holds ``coef`` (K, d) and, with ``fit_intercept``, ``intercept`` (K,). A
    node may lack classes.

    Parameters
    ----------
    X, fit_intercept, sample_weight : as in `LeastSquares`
        A copy of all rows is kept, dense also if X is sparse.
    y : ndarray of shape (n,)
        Classes, integers from 0 to ``n_classes - 1``.
    n_classes : int
        Number of classes of all nodes together, from 2 to 1000.
    alpha : float
        This node's own share of the penalty; not negative.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(90) % 3
    >>> X = rng.normal(size=(90, 2)) + 1.5 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    >>> kind = dadmm.problems.MultinomialLogistic
    >>> problems = [kind(X[i::4], y[i::4], 3, alpha=0.25) for i in range(4)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(4))
    >>> result.parts(0).coef.round(1)  # a row for each class; they sum to zero
    array([[-0.5, -0.3],
           [ 1.3, -1.1],
           [-0.8,  1.4]])
    """

    n_classes: int = entry(MISSING, integer(2, MOST_CLASSES))
    alpha: float = entry(1.0, FINITE)
    stacked = ("_basis", "_maps", "_weights", "_held", "_is_free", "_is_own")
    mapped = ("_maps", "_held", "_free")
    separated = "some classes"
    traits = Traits("classification", True, classification, "margins")

    def _adopt(self, given: Design) -> None:
        y, K, p = given.y, int(self.n_classes), given.rows.shape[1]
        rule = f"integer labels from 0 to {K - 1}, because n_classes is {K}"
        self._check_targets(rule, y, (y != np.round(y)) | (y < 0.0) | (y >= K))
        d = p - self.fit_intercept
        places = np.arange(K * d).reshape(K, d)  # of each class in theta
        self.layout = Layout.of(coef=(K, d))
        if self.fit_intercept:
            self.layout = Layout.of(coef=(K, d), intercept=(K,))
            places = np.column_stack([places, K * d + np.arange(K)])
        penalised = 1.0 * (np.arange(K * p) < K * d)
        basis, factor = np.linalg.qr(given.rows)  # (n, q) and (q, p)
        maps = np.zeros((K, len(factor), K * p))
        for own, place in zip(maps, places, strict=True):
            own[:, place] = factor
        mean = maps.mean(axis=0)
        maps = (maps - mean).reshape(-1, K * p)
        centring = triangular(np.sqrt(given.weights)[:, None] * basis) @ mean
        held = given._replace(penalised=penalised).penalty_rows(self.alpha)
        held = np.vstack([held, centring])
        self._basis, self._maps = basis[None], maps[None]  # (m, n, q), (m, K q, k)
        self._held = padded(held, K * p + len(factor))
        self._is_own = (np.arange(K)[:, None] == y)[None, None]  # (m, 1, K, n)
        self._free = maps * (self.alpha * penalised == 0.0)  # of `margins`
        self._weigh(given)

    def rows(self, theta: Vector, radius: float = 0.0) -> Matrix:
        """Return rows F (r, p) with F'F at most the Hessian within the radius.

        With radius 0, F'F is the Hessian at ``theta``.

        Notes
        -----
        If no logit of a row changes by more than a_k, p_k is at least q_k = ``p_k
        exp(-a_k - max a)``. The Hessian of the loss, the sum over j < k of ``p_j p_k
        (e_j - e_k) (e_j - e_k)'``, is at least that with q instead of p.
        """
        K, n = self._is_own.shape[2:]
        found = self._chances(self._fits(theta[None, None]))
        moves = radius * self._lengths.reshape(K, n)
        chance = found.chance[0, 0] * np.exp(-moves - moves.max(axis=0))  # (K, n)
        total = np.maximum(chance.sum(axis=0), TINY)
        unit = np.sqrt(chance / total).T  # (n, K)
        # G'G = total diag(chance) - chance chance'
        G = np.eye(K) - unit[:, :, None] * unit[:, None, :]
        others = np.where(np.eye(K, dtype=bool), 0.0, (unit**2)[:, None, :])
        G[:, range(K), range(K)] = others.sum(axis=2)
        G *= (total * np.sqrt(self._weights[0, 0]))[:, None, None] * unit[:, None, :]
        maps = self._maps[0].reshape(K, -1, len(theta))
        held: Matrix = self._held[0]
        for first in range(0, n, BLOCK):
            part = slice(first, first + BLOCK)
            logits = (self._basis[0, part] @ maps).transpose(1, 0, 2)  # (b, K, k)
            more = (G[part] @ logits).reshape(-1, len(theta))
            held = triangular(np.vstack([held, more]))
        return held

    def _free_fits(self, theta: Vector) -> Vector:
        parts = (self._free @ theta).reshape(self._is_own.shape[2], -1)
        return np.asarray(parts @ self._basis[0].T)  # (K, n)

    def _margins(self, fits: Vector) -> Vector:
        own = self._is_own[0, 0]  # u_y - u_k of all rows and k other than y
        return np.asarray(((fits * own).sum(axis=0) - fits)[~own])

    def _chances(self, fits: Matrix) -> Chances:
        own = self._is_own
        u = fits.reshape(*fits.shape[:2], *own.shape[2:])
        u = u - (u * own).sum(axis=2, keepdims=True)
        top = u.argmax(axis=2, keepdims=True)
        is_top = np.arange(u.shape[2])[:, None] == top
        peak = u.max(axis=2, keepdims=True)
        sizes = np.exp(u - peak)
        others = np.where(is_top, 0.0, sizes).sum(axis=2, keepdims=True)
        rest = np.where(is_top, others, (1.0 + others) - sizes)
        loss = (peak + np.log1p(others))[:, :, 0]
        return Chances(loss, sizes / (1.0 + others), rest / (1.0 + others))

    def _losses(self, fits: Matrix) -> Matrix:
        return np.asarray((self._weights * self._chances(fits).loss).sum(axis=2))

    def _derivatives(self, fits: Matrix) -> tuple[Matrix, Matrix]:
        _, chance, rest = self._chances(fits)
        weights = self._weights[:, :, None]
        forces = weights * np.where(self._is_own, -rest, chance)
        curvature = weights * (chance * rest)
        return forces.reshape(fits.shape), curvature.reshape(fits.shape)

    def _fits(self, points: Matrix) -> Matrix:
        m, s, _ = points.shape
        parts = (points @ self._maps.mT).reshape(m, s, self._is_own.shape[2], -1)
        return np.asarray((parts @ self._basis.mT[:, None]).reshape(m, s, -1))

    def _pull(self, forces: Matrix) -> Matrix:
        m, s, _ = forces.shape
        parts = forces.reshape(m, s, self._is_own.shape[2], -1)
        pulls = (parts @ self._basis[:, None]).reshape(m, s, -1)
        return np.asarray(pulls @ self._maps)

    def _hessian(self, model: LocalModel) -> Matrix:
        chance = self._chances(model.fits).chance[:, 0]  # (m, K, n)
        basis, (m, K, n), q = self._basis, chance.shape, self._basis.shape[2]
        curvature = model.curvature.reshape(m, K, n)
        inner = np.empty((m, K, q, K, q))
        for j in range(K):
            for k in range(j + 1):
                both = -self._weights[:, 0] * chance[:, j] * chance[:, k]
                bend = curvature[:, k] if j == k else both
                block = (basis * bend[..., None]).mT @ basis
                inner[:, j, :, k], inner[:, k, :, j] = block, block
        return np.asarray(self._maps.mT @ inner.reshape(m, K * q, -1) @ self._maps)

    def _row_squares(self) -> Matrix:
        m, K = len(self._maps), self._is_own.shape[2]
        maps = self._maps.reshape(m, K, -1, self._maps.shape[2])
        factors: Matrix = np.asarray(np.linalg.qr(maps.mT, mode="r"))  # (m, K, r, q)
        logits = self._basis[:, None] @ factors.mT
        return np.asarray(np.vecdot(logits, logits).reshape(m, 1, -1))

    def _span(self, k: int) -> Matrix:
        return np.vstack([self._maps[k], self._held[k]])
