"""Principal subspaces, angles and PPCA in extended precision, without the library."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import subspace_angles

from benchmarks.shared.pooled import LONG, rotate


class Axes(NamedTuple):
    variances: np.ndarray  # (D,) largest first
    axes: np.ndarray  # (D, D), columns

    def gap(self, M: int) -> float:
        """Return by how much variance M + 1 is below variance M, relative to it."""
        least = self.variances[M - 1]
        return float(1 - self.variances[M] / least) if least > 0 else 0.0

    def loadings(self, M: int) -> np.ndarray:
        """Return the W (D, M) of largest likelihood (Tipping and Bishop 1999)."""
        noise = self.variances[M:].mean()
        signal = np.maximum(self.variances[:M] - noise, 0)
        return self.axes[:, :M] * np.sqrt(signal)


def principal_axes(X: np.ndarray, zero_mean: bool = False) -> Axes:
    """Return the axes of rows (n, D) about their mean, or about zero."""
    A = np.asarray(X, LONG)
    lengths, axes = rotate(A if zero_mean else A - A.mean(axis=0))
    order = np.argsort(-lengths)
    return Axes(lengths[order] ** 2 / len(A), axes[order].T)


def largest_angle(W: np.ndarray, axes: np.ndarray) -> float:
    W, axes = W / np.linalg.norm(W, axis=0), axes.astype(float)
    return float(np.degrees(subspace_angles(W, axes).max()))


def expected_objective(
    X: np.ndarray, W: np.ndarray, mu: np.ndarray, a: float
) -> tuple[float, float]:
    """Return the expected complete-data -log likelihood, and the sum of |terms|."""
    X, W, mu, a = (np.asarray(part, LONG) for part in (X, W, mu, a))
    (n, D), M = X.shape, W.shape[1]
    lengths, V = rotate(np.vstack([W, np.eye(M, dtype=LONG) / np.sqrt(a)]))
    inverse = (V.T / lengths**2) @ V
    Z = (X - mu) @ W @ inverse
    off = X - mu - Z @ W.T
    misfit = np.sum(off**2) + n * np.sum((W @ inverse) * W) / a
    energy = np.sum(Z**2) + n * np.trace(inverse) / a
    terms = np.array([
        a * misfit / 2, -n * D * np.log(a) / 2, energy / 2,
        n * (D + M) * np.log(2 * LONG(np.pi)) / 2,
    ])  # fmt: skip
    return float(terms.sum()), float(np.abs(terms).sum())
