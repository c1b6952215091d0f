"""Random data sets for regression, classification and clustering."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix, Vector


def regression(
    n_samples: int = 500,
    dimension: int = 20,
    noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Vector, Vector]:
    """Draw rows, and targets that are a linear function of them plus noise.

    Returns
    -------
    X : ndarray of shape (n_samples, dimension)
        From N(0, 1).
    y : ndarray of shape (n_samples,)
    coef : ndarray of shape (dimension,)
        The true coefficients: every other one from N(0, 1), the rest zero.
    """
    rng = np.random.default_rng(seed)
    coef = rng.standard_normal(dimension)
    coef[1::2] = 0.0
    X = rng.standard_normal((n_samples, dimension))
    noise = np.sqrt(noise_variance) * rng.standard_normal(n_samples)
    return X, X @ coef + noise, coef


def classification(
    n_samples: int = 500,
    dimension: int = 20,
    noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Vector, Vector]:
    """Draw rows of two classes: 1 where a noisy linear function is positive, else 0.

    Returns
    -------
    X : ndarray of shape (n_samples, dimension)
    y : ndarray of shape (n_samples,)
    coef : ndarray of shape (dimension,)
        Of the linear function, as in `regression`.
    """
    X, y, coef = regression(n_samples, dimension, noise_variance, seed)
    return X, (y > 0.0).astype(np.float64), coef


def clusters(
    n_samples: int = 500,
    dimension: int = 20,
    n_components: int = 3,
    noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Matrix]:
    """Draw rows from a mixture of Gaussians with equal weights.

    Returns
    -------
    X : ndarray of shape (n_samples, dimension)
        Each row is a mean plus noise of ``noise_variance`` per entry.
    means : ndarray of shape (n_components, dimension)
        From N(0, 4).
    """
    rng = np.random.default_rng(seed)
    means = 2.0 * rng.standard_normal((n_components, dimension))
    which = rng.integers(n_components, size=n_samples)
    noise = rng.standard_normal((n_samples, dimension))
    return means[which] + np.sqrt(noise_variance) * noise, means
