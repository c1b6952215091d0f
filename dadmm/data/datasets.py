"""Data sets: random subspaces, tracks, regression and classification; data files."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.data.files import load_array, load_tracks

__all__ = ["classification", "counts", "load_array", "load_tracks"]
__all__ += ["regression", "synthetic", "turntable"]


def synthetic(
    n_samples: int = 500,
    dimension: int = 20,
    n_components: int = 5,
    noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Matrix]:
    """Draw samples from a random subspace, plus noise.

    These are the data of Song, Yoon and Pavlovic, section 5.1: ``x = W z + e``, with
    entries of W and z from N(0, 1) and entries of e from N(0, noise_variance).

    Returns
    -------
    samples : ndarray of shape (n_samples, dimension)
    W : ndarray of shape (dimension, n_components)
        The true projection matrix.

    Examples
    --------
    >>> import dadmm
    >>> samples, W = dadmm.datasets.synthetic(100, 6, n_components=2)
    >>> samples.shape, W.shape
    ((100, 6), (6, 2))
    """
    # Not from `seed` alone: to numpy it is [seed, 0], from which `solve` draws starts.
    rng = np.random.default_rng([seed, 3])
    W = rng.standard_normal((dimension, n_components))
    latent = rng.standard_normal((n_samples, n_components))
    noise = rng.standard_normal((n_samples, dimension))
    return latent @ W.T + np.sqrt(noise_variance) * noise, W


def turntable(
    n_frames: int = 30, n_points: int = 100, noise: float = 0.5, seed: int = 0
) -> tuple[Matrix, Matrix]:
    """Draw the image coordinates of a cube of points on a turntable.

    The table turns by 3 degrees per frame, and the camera looks from above. ``noise``
    is the standard deviation of the tracking error, in pixels.

    Returns
    -------
    measurements : ndarray of shape (2 n_frames, n_points)
        x and y of one frame after the other, in pixels.
    structure : ndarray of shape (n_points, 3)
        The points, on the faces of a cube of 200 pixels.

    Examples
    --------
    >>> import dadmm
    >>> measurements, structure = dadmm.datasets.turntable(n_frames=12, n_points=40)
    >>> measurements.shape, structure.shape
    ((24, 40), (40, 3))
    """
    rng = np.random.default_rng(seed)
    points = rng.uniform(-100.0, 100.0, (n_points, 3))
    face = rng.integers(0, 3, n_points)
    points[np.arange(n_points), face] = rng.choice([-100.0, 100.0], n_points)
    turn, tilt = np.radians(3.0) * np.arange(n_frames), np.radians(25.0)
    x = np.column_stack([np.cos(turn), np.sin(turn), np.zeros(n_frames)])
    back = np.column_stack([-np.sin(turn), np.cos(turn), np.zeros(n_frames)])
    y = np.cos(tilt) * np.array([0.0, 0.0, 1.0]) - np.sin(tilt) * back
    cameras = np.stack([x, y], axis=1).reshape(2 * n_frames, 3)
    centre = np.tile([320.0, 240.0], n_frames)[:, None]
    error = noise * rng.standard_normal((2 * n_frames, n_points))
    return cameras @ points.T + centre + error, points


def regression(
    n_samples: int = 500, dimension: int = 20, noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Vector, Vector]:  # fmt: skip
    """Draw rows, and targets that are a linear function of them plus noise.

    Returns
    -------
    X : ndarray of shape (n_samples, dimension)
        Entries are from N(0, 1).
    y : ndarray of shape (n_samples,)
    coef : ndarray of shape (dimension,)
        The true coefficients: every other one from N(0, 1), the rest zero.

    Examples
    --------
    >>> import dadmm
    >>> X, y, coef = dadmm.datasets.regression(50, 4)
    >>> X.shape, coef.round(1)
    ((50, 4), array([0.1, 0. , 0.6, 0. ]))
    """
    rng = np.random.default_rng(seed)
    coef = rng.standard_normal(dimension)
    coef[1::2] = 0.0
    X = rng.standard_normal((n_samples, dimension))
    noise = np.sqrt(noise_variance) * rng.standard_normal(n_samples)
    return X, X @ coef + noise, coef


def classification(
    n_samples: int = 500, dimension: int = 20, noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Vector, Vector]:  # fmt: skip
    """Draw rows of two classes: 1 where y of `regression` is positive, else 0.

    Examples
    --------
    >>> import dadmm
    >>> X, y, coef = dadmm.datasets.classification(50, 4)
    >>> X.shape, set(y.tolist())
    ((50, 4), {0.0, 1.0})
    """
    X, y, coef = regression(n_samples, dimension, noise_variance, seed)
    return X, (y > 0.0).astype(np.float64), coef


def counts(
    n_samples: int = 500, dimension: int = 20, noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Vector, Vector]:  # fmt: skip
    """Draw rows, and counts whose logarithm is about a linear function of them.

    X and coef are those of `regression`; coef is divided by the root of the dimension.

    Examples
    --------
    >>> import dadmm
    >>> X, y, coef = dadmm.datasets.counts(50, 4)
    >>> X.shape, y[:5]
    ((50, 4), array([4., 1., 1., 2., 1.]))
    """
    X, y, coef = regression(n_samples, dimension, noise_variance, seed)
    scale = np.sqrt(dimension)
    return X, np.floor(np.exp(1.0 + y / scale)), coef / scale
