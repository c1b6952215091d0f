"""Data sets: random ones by name, and readers of data files."""

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
from dadmm.data.synthetic import regression as regression
from dadmm.data.synthetic import synthetic as synthetic
from dadmm.data.synthetic import turntable as turntable
from dadmm.data.textfiles import Names

Array = NDArray[Any]
NAMES = "feature_names"  # the array of a .npz file that names the columns of X
ARCHIVES = (".npz", ".mat")  # files of several named arrays


def load_tracks(path: str | PathLike[str]) -> Matrix:
    """Return the image coordinates of tracked points, for structure from motion.

    The file is as in `load_matrix`. In a file with several arrays, such as those of
    Caltech Turntable and Hopkins 155, the array is ``measurement_matrix``.

    Returns
    -------
    measurements : ndarray of shape (2 F, N)
        x and y of one frame after the other, one column per point; NaN where a point
        is lost.
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
        A .npy, .npz, .csv, .txt or .mat file; ``data.npz::name`` also gives the key.
        A .npy file of float64 is memory-mapped and read-only.
    key : str, optional
        Name of the array, in a file with several.
    """
    return np.asarray(open_matrix(path, key), dtype=np.float64)


def open_matrix(path: str | PathLike[str], key: str | None = None) -> Array:
    """Return a matrix as `load_matrix` does, with the stored type of numbers.

    A .npy file is memory-mapped: rows are read when they are used.
    """
    return open_named(path, key)[0]


def open_named(
    path: str | PathLike[str], key: str | None = None
) -> tuple[Array, Names]:
    """Return a matrix as `open_matrix` does, and the names of its columns.

    The names are the header of a text file, or the array ``feature_names`` of a .npz
    file. Without names, None.
    """
    matrix, names = _load(path, key)
    if matrix.ndim != 2:
        raise ShardError(
            f"{path} holds an array of shape {matrix.shape}; "
            "samples are a matrix with one row per sample"
        )
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
    file, key = Path(name), key or inner
    if file.suffix not in READERS:
        raise ShardError(f"{file} is not a data file; use one of {', '.join(READERS)}")
    if key and file.suffix not in ARCHIVES:
        raise ShardError(f"{file} holds one array without a name; leave out ::{key}")
    try:
        reading.check_regular(file)
        file.open("rb").close()  # may raise that it is not permitted
    except OSError as error:
        raise ShardError(
            f"cannot read {file}: {error.strerror}; check the path"
        ) from None
    try:
        with np.errstate(all="ignore"):  # warnings about impossible shapes
            array, names = READERS[file.suffix](file, key)
    except ShardError:
        raise
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


def _read_npy(file: Path, _: str) -> tuple[Array, Names]:
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


def _read_mat(file: Path, key: str) -> tuple[Array, Names]:
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


READERS: dict[str, Callable[[Path, str], tuple[Array, Names]]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": lambda file, _: textfiles.read(file),
    ".txt": lambda file, _: textfiles.read(file, spaces=True),
    ".mat": _read_mat,
}
