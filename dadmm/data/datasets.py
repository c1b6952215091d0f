"""Data sets: random ones by name, and readers of data files.

Examples
--------
>>> import dadmm
>>> samples, true_W = dadmm.datasets.synthetic()
>>> samples.shape, true_W.shape
((500, 20), (20, 5))
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data.files import ARCHIVES, load_array, open_named
from dadmm.data.frame import Array
from dadmm.data.synthetic import (
    classification,
    counts,
    regression,
    synthetic,
    turntable,
)

__all__ = [
    "classification",
    "counts",
    "load_array",
    "load_matrix",
    "load_tracks",
    "regression",
    "synthetic",
    "turntable",
]


def load_tracks(path: str | PathLike[str]) -> Matrix:
    """Return the image coordinates of tracked points, for structure from motion.

    Parameters
    ----------
    path : path-like
        As in `load_matrix`. In a file with several arrays, such as those of Caltech
        Turntable and Hopkins 155, the array is ``measurement_matrix``.

    Returns
    -------
    measurements : ndarray of shape (2 F, N)
        x and y of one frame after the other, one column per point; NaN where a point
        is lost.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import dadmm, numpy as np
    >>> tracks, _ = dadmm.datasets.turntable(n_frames=4, n_points=10)
    >>> with TemporaryDirectory() as folder:
    ...     np.save(Path(folder, "cube.npy"), tracks)
    ...     read = dadmm.datasets.load_tracks(Path(folder, "cube.npy"))
    >>> read.shape
    (8, 10)
    """
    key = "measurement_matrix" if "::" not in str(path) else None
    several = Path(str(path)).suffix in ARCHIVES
    matrix = np.array(open_matrix(path, key if several else None), dtype=np.float64)
    if len(matrix) % 2:
        raise ShardError(
            f"{path} has {len(matrix)} rows; tracks need an even number, x and y of "
            "each frame"
        )
    if matrix.shape[1] < 4:
        raise ShardError(f"{path} has {matrix.shape[1]} points; use at least 4")
    if np.isinf(matrix).any():
        row, point = np.argwhere(np.isinf(matrix))[0]
        raise ShardError(
            f"{path}: row {row}, point {point} is {matrix[row, point]}; coordinates "
            "must be finite, or NaN where a point is lost"
        )
    return matrix


def load_matrix(path: str | PathLike[str], key: str | None = None) -> Matrix:
    """Return the samples in a file, one per row.

    Parameters
    ----------
    path : path-like
        A .npy, .npz, .csv, .parquet, .txt or .mat file; ``data.npz::name`` also gives
        the key. A .npy file of float64 is memory-mapped and read-only.
    key : str, optional
        Name of the array, in a file with several.

    Returns
    -------
    samples : ndarray of shape (n_samples, dimension)

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import dadmm, numpy as np
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "data.npz")
    ...     np.savez(file, train=np.eye(3), test=np.ones((2, 3)))
    ...     samples = dadmm.datasets.load_matrix(file, "test")
    >>> samples
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    return np.asarray(open_matrix(path, key), dtype=np.float64)


def open_matrix(path: str | PathLike[str], key: str | None = None) -> Array:
    """Return a matrix as `load_matrix` does, with the stored type of numbers.

    A .npy file is memory-mapped: rows are read when they are used.
    """
    return open_named(path, key)[0]
