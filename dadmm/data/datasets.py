"""Data sets: those of the paper's experiments, and readers of data files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.core import reading
from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data import textfiles
from dadmm.data.synthetic import classification as classification
from dadmm.data.synthetic import clusters as clusters
from dadmm.data.synthetic import regression as regression
from dadmm.data.textfiles import Names

Array = NDArray[Any]
NAMES = "feature_names"  # the array of a .npz file that names the columns of X


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

    Parameters
    ----------
    n_frames, n_points : int
        The table turns by 3 degrees per frame, and the camera looks from above.
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
        A file as in `load_matrix`. In a file with several arrays, such as those of
        Caltech Turntable and Hopkins 155, the array is ``measurement_matrix``.

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
    """Return a matrix as `load_matrix` does, with the stored type of numbers.

    A .npy file is memory-mapped: rows are read when they are used.
    """
    matrix = load_array(path, key)
    _check_matrix(path, matrix)
    return matrix


def _check_matrix(path: str | PathLike[str], array: Array) -> None:
    if array.ndim != 2:
        raise ShardError(
            f"{path} holds an array of shape {array.shape}; "
            "samples are a matrix with one row per sample"
        )


def open_named(
    path: str | PathLike[str], key: str | None = None
) -> tuple[Array, Names]:
    """Return a matrix as `open_matrix` does, and the names of its columns.

    The names are the header of a text file, or the array ``feature_names`` of a .npz
    file. Without names, None.
    """
    matrix, names = _load(path, key)
    _check_matrix(path, matrix)
    if names is not None and len(names) != matrix.shape[1]:
        raise ShardError(
            f"{path} has {len(names)} names in {NAMES} for {matrix.shape[1]} columns; "
            "give one for each"
        )
    return matrix, names


def load_array(path: str | PathLike[str], key: str | None = None) -> Array:
    """Return an array of numbers of any shape and number type from a file."""
    return _load(path, key)[0]


def _load(path: str | PathLike[str], key: str | None) -> tuple[Array, Names]:
    name, _, inner = str(path).partition("::")
    file = Path(name)
    if file.suffix not in READERS:
        raise ShardError(f"{file} is not a data file; use one of {', '.join(READERS)}")
    try:
        reading.check_regular(file)
    except OSError as error:
        raise ShardError(
            f"cannot read {file}: {error.strerror}; check the path"
        ) from None
    try:
        with np.errstate(all="ignore"):  # warnings about impossible shapes
            array, names = READERS[file.suffix](file, key or inner)
    except ShardError:
        raise
    except PermissionError as error:
        raise ShardError(
            f"cannot read {file}: {error.strerror}; check the path"
        ) from None
    except Exception as error:  # parsers raise many types on a broken file
        reason = str(error).partition("\n")[0].partition(";")[0].rstrip(".")
        raise ShardError(
            f"{file} is not a valid {file.suffix} file of numbers: {reason}"
        ) from None
    if array.dtype.kind not in "fiub":
        raise ShardError(f"{path} holds values of type {array.dtype}; save numbers")
    if array.size == 0:
        raise ShardError(f"{path} is empty, of shape {array.shape}; save some samples")
    return array, names


def _read_npy(file: Path, key: str) -> tuple[Array, Names]:
    _check_no_key(file, key)
    return np.lib.format.open_memmap(file, mode="r"), None  # never unpickles


def _read_npz(file: Path, key: str) -> tuple[Array, Names]:
    import zipfile  # slow to import, and rarely needed

    with file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is not an archive of arrays")
    with np.load(file, allow_pickle=False) as arrays:
        matrices = [name for name in arrays.files if name != NAMES]
        found = arrays[_choose_array(file, key, dict.fromkeys(matrices, ""))]
        return found, _names(file, arrays) if NAMES in arrays.files else None


def _names(file: Path, arrays: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of columns in an archive."""
    try:
        found = arrays[NAMES]
    except ValueError:  # an array of objects, which is not unpickled
        found = None
    if found is None or found.dtype.kind != "U" or found.ndim != 1:
        raise ShardError(
            f"{file}: {NAMES} must be an array of text, one name per column; save "
            "np.array(names, dtype=str)"
        )
    names = tuple(found.tolist())
    textfiles.check_names(file, names)
    return names


def _read_csv(file: Path, key: str) -> tuple[Array, Names]:
    _check_no_key(file, key)
    return textfiles.read(file)


def _read_txt(file: Path, key: str) -> tuple[Array, Names]:
    _check_no_key(file, key)
    return textfiles.read(file, spaces=True)


def _read_mat(file: Path, key: str) -> tuple[Array, Names]:
    from scipy import io

    file.open("rb").close()  # scipy does not say that a file is missing
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
    name = _choose_array(file, key, numeric)
    return io.loadmat(file, variable_names=[name])[name], None


def _choose_array(file: Path, key: str, found: dict[str, str]) -> str:
    """Return the name of the array to read: the key, or the only array."""
    names = ", ".join(name + note for name, note in found.items()) or "no matrix"
    if key and key not in found:
        raise ShardError(f"{file} has no matrix {key!r}; it holds {names}")
    if not key and len(found) != 1:
        raise ShardError(f"{file} holds {names}; choose one as {file.name}::name")
    return key or next(iter(found))


def _check_no_key(file: Path, key: str) -> None:
    if key:
        raise ShardError(f"{file} holds one array without a name; leave out ::{key}")


READERS: dict[str, Callable[[Path, str], tuple[Array, Names]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".txt": _read_txt,
    ".mat": _read_mat,
}
