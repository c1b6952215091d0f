"""Samples: the generator of the paper's experiments, and readers of matrices."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data.synthetic import classification as classification
from dadmm.data.synthetic import clusters as clusters
from dadmm.data.synthetic import regression as regression

Array = NDArray[Any]


def synthetic(
    n_samples: int = 500,
    dimension: int = 20,
    n_components: int = 5,
    noise_variance: float = 0.2,
    seed: int = 0,
) -> tuple[Matrix, Matrix]:
    """Draw samples from a random subspace, plus noise.

    Returns
    -------
    samples : ndarray of shape (n_samples, dimension)
    W : ndarray of shape (dimension, n_components)
        The true projection matrix.

    Notes
    -----
    Song, Yoon and Pavlovic, section 5.1: ``x = W z + e``, the entries of W and z
    from N(0, 1), those of e from N(0, noise_variance).
    """
    # `solve` draws starts from [seed, 0], to numpy the same as seed: not from here too
    rng = np.random.default_rng([seed, 3])
    W = rng.standard_normal((dimension, n_components))
    latent = rng.standard_normal((n_samples, n_components))
    noise = rng.standard_normal((n_samples, dimension))
    return latent @ W.T + np.sqrt(noise_variance) * noise, W


def turntable(
    n_frames: int = 30, n_points: int = 100, noise: float = 0.5, seed: int = 0
) -> tuple[Matrix, Matrix]:
    """Film a cube of random points on a turntable by an affine camera.

    Parameters
    ----------
    n_frames, n_points : int
        The table turns by 3 degrees from frame to frame and is seen from above.
    noise : float
        Standard deviation of the tracking error, in pixels.
    seed : int

    Returns
    -------
    measurements : ndarray of shape (2 n_frames, n_points)
        x and y of one frame after the other, in pixels.
    structure : ndarray of shape (n_points, 3)
        The points, on the faces of a cube of 200 pixels.
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


def load_tracks(path: str | PathLike[str]) -> Matrix:
    """Return the image coordinates of tracked points, for structure from motion.

    Parameters
    ----------
    path : path-like
        A file as `load_matrix` reads it. One with several arrays, such as those of
        Caltech Turntable and Hopkins 155, must call this one ``measurement_matrix``.

    Returns
    -------
    measurements : ndarray of shape (2 F, N)
        x and y of one frame after the other, one column per point; NaN where a point
        is lost.
    """
    key = "measurement_matrix" if "::" not in str(path) else None
    several = Path(str(path)).suffix in (".mat", ".npz")
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
        A .npy, .npz, .csv, .txt or .mat file; ``data.npz::name`` also gives the key.
    key : str, optional
        Name of the array, in a file with several.

    Returns
    -------
    samples : ndarray of shape (n_samples, dimension)
        Memory-mapped and read-only where the file is .npy and holds float64.
    """
    return np.asarray(open_matrix(path, key), dtype=np.float64)


def open_matrix(path: str | PathLike[str], key: str | None = None) -> Array:
    """Return a matrix as `load_matrix` does, but with the numbers as they are stored.

    A .npy file is memory-mapped: rows are read when they are used.
    """
    matrix = load_array(path, key)
    if matrix.ndim != 2:
        raise ShardError(
            f"{path} holds an array of shape {matrix.shape}; "
            "samples are a matrix with one row per sample"
        )
    return matrix


def load_array(path: str | PathLike[str], key: str | None = None) -> Array:
    """Return an array of numbers of any shape and number type from a file."""
    name, _, inner = str(path).partition("::")
    file = Path(name)
    if file.suffix not in READERS:
        raise ShardError(f"{file} is not a data file; use one of {', '.join(READERS)}")
    try:
        array = READERS[file.suffix](file, key or inner)
    except ShardError:
        raise
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ShardError(
            f"cannot read {file}: {error.strerror}; check the path"
        ) from None
    except Exception as error:  # parsers fail in many ways on a broken file
        reason = str(error).partition("\n")[0].partition(";")[0].rstrip(".")
        raise ShardError(
            f"{file} is not a valid {file.suffix} file of numbers: {reason}"
        ) from None
    if array.dtype.kind not in "fiub":
        raise ShardError(f"{path} holds values of type {array.dtype}; save numbers")
    if array.size == 0:
        raise ShardError(f"{path} is empty, of shape {array.shape}; save some samples")
    return array


def _read_npy(file: Path, key: str) -> Array:
    _refuse_key(file, key)
    return np.lib.format.open_memmap(file, mode="r")  # never unpickles


def _read_npz(file: Path, key: str) -> Array:
    import zipfile  # slow to import, and rarely needed

    with file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is not an archive of arrays")
    with np.load(file, allow_pickle=False) as arrays:
        return arrays[_choose(file, key, dict.fromkeys(arrays.files, ""))]


def _read_csv(file: Path, key: str) -> Array:
    _refuse_key(file, key)
    return _read_text(file, ",")


def _read_txt(file: Path, key: str) -> Array:
    _refuse_key(file, key)
    return _read_text(file, None)


def _read_mat(file: Path, key: str) -> Array:
    from scipy import io

    try:
        contents = io.whosmat(file)
    except NotImplementedError:
        raise ShardError(
            f"{file} is a MATLAB 7.3 (HDF5) file; save it with -v7, or as .npy"
        ) from None
    numeric = {
        name: " of shape {} x {}".format(*shape)
        for name, shape, kind in contents
        if len(shape) == 2 and kind.startswith(("double", "single", "int", "uint"))
    }
    name = _choose(file, key, numeric)
    return io.loadmat(file, variable_names=[name])[name]


def _read_text(file: Path, delimiter: str | None) -> Array:
    """Read rows of numbers; a first line without any number is a header."""
    with file.open(encoding="utf-8-sig") as lines:
        head = lines.readline().split(delimiter)
        skip = 0 if any(map(_is_number, head)) else 1
        lines.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of no data: an error follows
            return np.loadtxt(lines, delimiter=delimiter, skiprows=skip, ndmin=2)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _choose(file: Path, key: str, found: dict[str, str]) -> str:
    """Return the name of the array to read: the key, or the only one found."""
    names = ", ".join(name + note for name, note in found.items()) or "no matrix"
    if key and key not in found:
        raise ShardError(f"{file} has no matrix {key!r}; it holds {names}")
    if not key and len(found) != 1:
        raise ShardError(f"{file} holds {names}; choose one as {file.name}::name")
    return key or next(iter(found))


def _refuse_key(file: Path, key: str) -> None:
    if key:
        raise ShardError(f"{file} holds one array without a name; leave out ::{key}")


READERS: dict[str, Callable[[Path, str], Array]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".txt": _read_txt,
    ".mat": _read_mat,
}
