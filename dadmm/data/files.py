"""Data files: tables with named columns, and arrays of numbers.

pyarrow reads .csv and .parquet files; it is the extra ``tables``. numpy and scipy read
the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dadmm.core import documents
from dadmm.core.errors import ShardError
from dadmm.data import matlab, text
from dadmm.data.frame import Array, Frame, check_filled, check_names

NAMES = "feature_names"  # the array of a .npz file that names the columns of X
ARCHIVES = (".npz", ".mat")  # files of several named arrays
TABLES = (".csv", ".parquet")  # files that pyarrow reads
SUFFIXES = (".csv", ".parquet", ".npy", ".npz", ".mat", ".txt")
T = TypeVar("T")
Names = text.Names


def read_frame(
    path: str | PathLike[str],
    *,
    separator: str | None = None,
    decimal: str = ".",
    encoding: str = "utf-8",
    rows: slice | None = None,
    beside: Sequence[str] = (),
) -> Frame:
    """Return the table in a file.

    Parameters
    ----------
    path : path-like
        A .csv, .parquet, .npy, .npz, .mat or .txt file. ``data.npz::name`` chooses an
        array; by default the only one, or X if there is anything ``beside`` it. A .npz
        file may be one of scipy's sparse arrays.
    separator : str, optional
        Between the cells of a .csv file. By default a tab, a semicolon or a comma, by
        the first line.
    decimal : str
        Mark before the decimals of a .csv file, a point or a comma.
    encoding : str
        Of a .csv or .txt file.
    rows : slice, optional
        Rows to return. Of .npy and .parquet files no others are read, except in the
        same row groups.
    beside : sequence of str
        In a file of several arrays, those that are further columns.

    Returns
    -------
    table : Frame

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import dadmm
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "site.csv")
    ...     _ = file.write_text("age,ward\\n34,A\\n71,B\\n")
    ...     table = dadmm.read_table(file)
    >>> table.names, table.column("age")
    (('age', 'ward'), array([34., 71.]))
    """
    name, _, key = str(path).partition("::")
    file, how = Path(name), text.Format(separator, decimal, encoding)
    if file.suffix in ARCHIVES:
        frame = _open(file, key, lambda: _read_archive(file, key, beside))
    elif file.suffix == ".npy":
        matrix, _ = open_named(path)
        whole = np.array(matrix[rows or slice(None)], dtype=np.float64, order="F")
        return Frame.of(whole)
    elif file.suffix == ".parquet":
        return _open(file, key, lambda: _read_parquet(file, rows))
    elif file.suffix == ".csv":
        frame = _open(file, key, lambda: text.read_csv(file, how))
    else:
        frame = _open(file, key, lambda: text.read_txt(file, how))
    return frame if rows is None else frame.take(rows)


def count_rows(path: str | PathLike[str]) -> int | None:
    """Return the number of rows if the file need not be read for it, else None."""
    file, _, _ = str(path).partition("::")
    if Path(file).suffix == ".npy":
        return len(open_named(path)[0])
    if Path(file).suffix == ".parquet":
        return _open(
            Path(file), "", lambda: int(_parquet(Path(file)).metadata.num_rows)
        )
    return None


def open_named(
    path: str | PathLike[str], key: str | None = None
) -> tuple[Array, Names]:
    """Return a matrix with the stored type of numbers, and the names of its columns.

    A .npy file is memory-mapped: rows are read when they are used. The names are the
    header of a table, or the array ``feature_names`` of a .npz file. Without names,
    None.
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
    """Return an array of numbers of any shape and number type from a file.

    Parameters
    ----------
    path : path-like
        As in `dadmm.datasets.load_matrix`.
    key : str, optional
        Name of the array, in a file with several.

    Returns
    -------
    array : ndarray

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import dadmm, numpy as np
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "labels.npy")
    ...     np.save(file, np.array([0, 1, 1, 0]))
    ...     labels = np.array(dadmm.datasets.load_array(file))
    >>> labels
    array([0, 1, 1, 0])
    """
    return _load(path, key)[0]


def _load(path: str | PathLike[str], key: str | None) -> tuple[Array, Names]:
    name, _, inner = str(path).partition("::")
    file, key = Path(name), key or inner
    if file.suffix in (".npy", *ARCHIVES):
        readers: dict[str, Callable[[Path, str], tuple[Array, Names]]] = {
            ".npy": _read_npy, ".npz": _read_npz, ".mat": _read_mat,
        }  # fmt: skip
        array, names = _open(file, key, lambda: readers[file.suffix](file, key))
    else:
        frame = read_frame(f"{file}::{key}" if key else file)
        array, names = _numbers(file, frame), frame.names if frame.named else None
    if array.dtype.kind not in "fiub":
        raise ShardError(f"{path} holds values of type {array.dtype}; save numbers")
    if array.size == 0:
        raise ShardError(f"{path} is empty, of shape {array.shape}; save some samples")
    return array, names


def _numbers(file: Path, frame: Frame) -> Array:
    """Return a table of numbers as a matrix."""
    for name, values in frame.columns.items():
        if values.dtype == object:
            row = next(k for k, value in enumerate(values) if value is not None)
            raise ShardError(
                f"{file}: column {name!r} has text, such as {values[row]!r} in row "
                f"{row}; save numbers, and leave missing entries empty"
            )
    wide = len(frame.columns)
    return np.column_stack(list(frame.columns.values())) if wide else np.empty((0, 0))


def _open(file: Path, key: str, read: Callable[[], T]) -> T:
    """Return ``read()``; raise one sentence if the file cannot be read."""
    if file.suffix not in SUFFIXES:
        raise ShardError(f"{file} is not a data file; use one of {', '.join(SUFFIXES)}")
    if key and file.suffix not in ARCHIVES:
        raise ShardError(f"{file} holds one array without a name; leave out ::{key}")
    try:
        documents.check_regular(file)
        file.open("rb").close()  # may raise that it is not permitted
    except OSError as error:
        hint = "write {rank} for *, as in 'part-{rank}.csv'"
        hint = hint if "*" in file.name else "check the path"
        raise ShardError(f"cannot read {file}: {error.strerror}; {hint}") from None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an error follows, or nothing is wrong
            return read()
    except ShardError:
        raise
    except ImportError:
        if file.suffix not in TABLES:
            raise
        raise ShardError(
            f"{file} needs pyarrow; install it with pip install 'dadmm[tables]', or "
            "save the table as .npy or .npz"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # parsers raise many types on a broken file
        reason = str(error).partition("\n")[0].partition(";")[0].rstrip(".")
        kind = "file" if file.suffix in (".txt", *TABLES) else "file of numbers"
        raise ShardError(
            f"{file} is not a valid {file.suffix} {kind}: {reason}"
        ) from None


# arrays


def _read_npy(file: Path, _: str) -> tuple[Array, Names]:
    return np.lib.format.open_memmap(file, mode="r"), None  # never unpickles


def _archive(file: Path) -> Any:
    """Return the open arrays of a .npz file."""
    import zipfile  # slow to import, and rarely needed

    with file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is not an archive of arrays")
    return np.load(file, allow_pickle=False)


def _read_npz(file: Path, key: str) -> tuple[Array, Names]:
    with _archive(file) as arrays:
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
    check_names(names, f"{file}: ")
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
    matlab.check_numbers(file, name)
    return io.loadmat(file, variable_names=[name])[name], None


def _choose_array(file: Path, key: str, found: dict[str, str]) -> str:
    """Return the name of the array to read: the key, or the only array."""
    names = ", ".join(name + note for name, note in found.items()) or "no matrix"
    if key and key not in found:
        raise ShardError(f"{file} has no matrix {key!r}; it holds {names}")
    if not key and len(found) != 1:
        raise ShardError(f"{file} holds {names}; choose one as {file.name}::name")
    return key or next(iter(found))


def _read_archive(file: Path, key: str, beside: Sequence[str]) -> Frame:
    """Return the matrix of an archive, and the arrays that are further columns."""
    sparse = None if file.suffix == ".mat" or key else _read_sparse(file)
    if sparse is not None:
        return Frame({}, False, sparse)
    X, names = open_named(file, key or ("X" if beside else None))
    frame = Frame.of(np.asarray(X, dtype=np.float64), names)
    for name in beside:
        values = _read_beside(file, name)
        if values.size != len(X):
            raise ShardError(
                f"{file}: {name} has shape {values.shape}, but {key or 'X'} has "
                f"{len(X)} rows; give one entry per row"
            )
        if name in frame.columns:
            raise ShardError(
                f"{file}: a column of {key or 'X'} is called {name!r}, as is an array; "
                "rename the column"
            )
        column = Frame.of({name: values.ravel()}).columns
        frame = frame._replace(columns=frame.columns | column)
    return frame


def _read_beside(file: Path, name: str) -> Array:
    """Return an array of an archive: numbers, or texts of a .npz file."""
    if file.suffix == ".npz":
        found, _ = _read_npz(file, name)
        if found.dtype.kind == "U":
            return found
    return load_array(file, name)


def _read_sparse(file: Path) -> Any:
    """Return the sparse array that scipy has saved in a file, or None."""
    with _archive(file) as arrays:
        if not {"format", "shape", "data"} <= set(arrays.files):
            return None
    from scipy import sparse

    found = sparse.csr_array(sparse.load_npz(file))
    found.check_format(full_check=True)
    if found.dtype.kind not in "fiub" or found.ndim != 2:
        raise ShardError(f"{file} holds values of type {found.dtype}; save numbers")
    if 0 in found.shape:
        raise ShardError(f"{file} is empty, of shape {found.shape}; save some samples")
    return found.astype(np.float64)


# tables


def _parquet(file: Path) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(file)


def _read_parquet(file: Path, rows: slice | None) -> Frame:
    """Return rows of a .parquet file, reading only the row groups that have them."""
    whole = _parquet(file)
    check_names(whole.schema_arrow.names, f"{file}: ")
    counts = [whole.metadata.row_group(k).num_rows for k in range(whole.num_row_groups)]
    ends = np.cumsum([0, *counts])
    start, stop, _ = (rows or slice(None)).indices(int(ends[-1]))
    groups = [
        k for k in range(len(counts)) if ends[k] < stop and start < ends[k + 1]
    ]  # fmt: skip
    table = whole.read_row_groups(groups, use_threads=False)
    first = int(ends[groups[0]]) if groups else 0
    return check_filled(file, Frame.of(table.slice(start - first, stop - start)))
