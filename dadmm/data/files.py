"""Data files: tables with named columns, and arrays of numbers.

`READERS` has an entry for each format. pyarrow reads .csv and .parquet files; it is the
extra ``tables``. numpy and scipy read the others.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dadmm.core import documents
from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix
from dadmm.data import matlab
from dadmm.data.frame import Array, Frame, check_names, is_plain
from dadmm.data.text import Format, read_csv, read_txt

BLOCK = 2**26  # bytes of the numbers of a block, see `open_blocks`
NAMES = "feature_names"  # the array of a .npz file that names the columns of X
ALL = slice(None)
T = TypeVar("T")
Names = tuple[str, ...] | None  # of the columns, if a file has them


class Extent(NamedTuple):
    """The size of a table in a file of which rows can be read without the others."""

    ends: Sequence[int]  # numbers of rows after which a block may end; last: all rows
    width: int  # columns
    plain: bool = True  # whether all columns are numbers

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.ends[-1] if self.ends else 0

    def cut(self, rows: slice) -> list[slice]:
        """Return the blocks of some rows: at most `BLOCK` bytes, if ``ends`` allow."""
        start, stop, _ = rows.indices(self.n_rows)
        most, found = max(1, BLOCK // max(8 * self.width, 1)), list[slice]()
        while start < stop and self.plain:
            fit = bisect_right(self.ends, start + most)  # ends that are near enough
            end = self.ends[max(fit - 1, bisect_right(self.ends, start))]
            found.append(slice(start, min(end, stop)))
            start = found[-1].stop
        return found or [slice(start, stop)]


class Reader(NamedTuple):
    """How files of a format are read: ``table`` or ``array``, or both.

    Functions raise what they like; `_open` makes one sentence of it, which starts with
    the name of the file.
    """

    table: Callable[[Path, Format, slice], Frame] | None = None
    """Takes the rows to return, of a format that has an ``extent``."""
    array: Callable[[Path, str], tuple[Array, Names]] | None = None
    """Takes the name of an array, which may be sparse; also returns its columns'."""
    extent: Callable[[Path], Extent] | None = None
    """Returns the size, if rows can be read without the others."""
    archive: bool = False  # whether it has several arrays, by name
    needs_pyarrow: bool = False


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
    how, wanted = Format(separator, decimal, encoding), rows or ALL

    def read(reader: Reader, file: Path, key: str) -> Frame:
        if reader.table is not None:
            frame = reader.table(file, how, wanted)
            if not frame.columns or not frame.n_rows:
                raise _empty((frame.n_rows, len(frame.columns)))
        else:
            some = wanted if reader.extent else ALL
            frame = _read_arrays(reader, file, key, some, beside)
        return frame if rows is None or reader.extent else frame.take(rows)

    return _open(path, None, read)


def extent(path: str | PathLike[str]) -> Extent | None:
    """Return the size of a table of which rows can be read without the others."""
    return _open(
        path, None, lambda how, file, _: how.extent(file) if how.extent else None
    )


class Blocks:
    """Rows of a file as frames, one after the other, which are read when iterated."""

    def __init__(self, path: str, parts: Sequence[slice], **how: Any) -> None:
        self._path, self._parts, self._how = path, parts, how

    def __iter__(self) -> Iterator[Frame]:
        for part in self._parts:
            first = part.start - self._parts[0].start
            # without a name, so that the next block is read when this one is gone
            yield read_frame(self._path, rows=part, **self._how)._replace(first=first)


def open_blocks(
    path: str, rows: slice = ALL, whole: bool = True, **how: Any
) -> Sequence[Frame] | Blocks:
    """Return the frames of some rows: one in memory, or several that are read later.

    There are several if not ``whole``, the rows need more than `BLOCK` bytes, and the
    file allows it. ``how`` has further arguments of `read_frame`.
    """
    size = None if whole else extent(path)
    parts = [rows] if size is None else size.cut(rows)
    if len(parts) > 1:
        return Blocks(path, parts, **how)
    return [read_frame(path, rows=None if parts == [ALL] else parts[0], **how)]


def reader_of(path: str | PathLike[str]) -> Reader:
    """Return the reader of a file, by its name; one without abilities if unknown."""
    return READERS.get(Path(str(path).partition("::")[0]).suffix, Reader())


def load_array(path: str | PathLike[str], key: str | None = None) -> Array:
    """Return an array of numbers of any shape and number type from a file.

    Parameters
    ----------
    path : path-like
        A .npy, .npz, .csv, .parquet, .txt or .mat file; ``data.npz::name`` also gives
        the key.
    key : str, optional
        Name of the array, in a file with several.

    Returns
    -------
    array : ndarray
        That of a .npy file is memory-mapped: rows are read when they are used.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import dadmm, numpy as np
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "data.npz")
    ...     np.savez(file, train=np.eye(3), test=np.ones((2, 3)))
    ...     samples = dadmm.datasets.load_array(file, "test")
    >>> samples
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    found = _open(path, key, lambda *found: _numbers(*found)[0])
    return found if isinstance(found, np.ndarray) else np.asarray(found.toarray())


def load_tracks(path: str | PathLike[str]) -> Matrix:
    """Return the image coordinates of tracked points, for structure from motion.

    Parameters
    ----------
    path : path-like
        As in `load_array`. In a file with several arrays, as for Caltech
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
    named = reader_of(path).archive and "::" not in str(path)
    found = load_array(path, "measurement_matrix" if named else None)
    matrix = np.array(found, dtype=np.float64)
    if matrix.ndim != 2 or len(matrix) % 2 or matrix.shape[1] < 4:
        raise ShardError(
            f"{path} has shape {matrix.shape}; tracks need an even number of rows, x "
            "and y of each frame, and at least 4 columns, one per point"
        )
    for row, point in np.argwhere(np.isinf(matrix)):
        raise ShardError(
            f"{path}: row {row}, point {point} is {matrix[row, point]}; coordinates "
            "must be finite, or NaN where a point is lost"
        )
    return matrix


def _open(
    path: str | PathLike[str],
    key: str | None,
    read: Callable[[Reader, Path, str], T],
) -> T:
    """Return ``read(reader, file, key)``; raise one sentence if it fails."""
    name, _, inner = str(path).partition("::")
    file, key = Path(name), key or inner
    reader = READERS.get(file.suffix)
    if reader is None:
        raise ShardError(f"{file} is not a data file; use one of {', '.join(READERS)}")
    if key and not reader.archive:
        raise ShardError(f"{file} holds one array without a name; leave out ::{key}")
    try:
        documents.check_regular(file)
        file.open("rb").close()  # may raise that it is not permitted
    except OSError as error:
        hint = "write {node} for *, as in 'part-{node}.csv'"
        hint = hint if "*" in file.name else "check the path"
        raise ShardError(f"cannot read {file}: {error.strerror}; {hint}") from None
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an error follows, or nothing is wrong
            return read(reader, file, key)
    except ShardError as error:
        raise ShardError(f"{file}: {error}") from None
    except ImportError:
        if not reader.needs_pyarrow:
            raise
        raise ShardError(
            f"{file} needs pyarrow; install it with pip install 'dadmm[tables]', or "
            "save the table as .npy or .npz"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # parsers raise many types on a broken file
        reason = str(error).partition("\n")[0].partition(";")[0].rstrip(".")
        raise ShardError(
            f"{file} is not a valid {file.suffix} file: {reason}"
        ) from None


def _numbers(reader: Reader, file: Path, key: str) -> tuple[Any, Names]:
    """Return an array of numbers, and the names of its columns if it has them."""
    if reader.array is not None:
        array, names = reader.array(file, key)
    else:
        assert reader.table is not None
        frame = reader.table(file, Format(), ALL)
        columns = [frame.numbers(name) for name in frame.columns]
        array = np.column_stack(columns) if columns else np.empty((0, 0))
        names = None
    if array.dtype.kind not in "fiub":
        raise ShardError(f"it holds values of type {array.dtype}; save numbers")
    if 0 in array.shape:
        raise _empty(array.shape)
    return array, names


def _empty(shape: tuple[int, ...]) -> ShardError:
    return ShardError(f"it is empty, of shape {shape}; save some samples")


def _read_arrays(
    reader: Reader, file: Path, key: str, rows: slice, beside: Sequence[str]
) -> Frame:
    """Return a matrix, and the arrays that are further columns, as a table."""
    key = key or ("X" if beside else "")
    X, names = _numbers(reader, file, key)
    if not isinstance(X, np.ndarray):
        return Frame.of(X)
    frame = Frame.of(np.array(X[rows], dtype=np.float64, order="F"), names)
    for name in beside:
        assert reader.array is not None
        values, _ = reader.array(file, name)
        if values.dtype.kind != "U":
            values, _ = _numbers(reader, file, name)
        if values.size != len(X):
            raise ShardError(
                f"{name} has shape {values.shape}, but {key} has {len(X)} rows; give "
                "one entry per row"
            )
        if name in frame.columns:
            raise ShardError(
                f"a column of {key} is called {name!r}, as is an array; rename the "
                "column"
            )
        frame.columns[name] = Frame.of({name: values.ravel()}).column(name)
    return frame


def _choose_array(key: str, found: Mapping[str, str]) -> str:
    """Return the name of the array to read: the key, or the only array."""
    names = ", ".join(name + note for name, note in found.items()) or "no matrix"
    if key and key not in found:
        raise ShardError(f"it has no matrix {key!r}; it holds {names}")
    if not key and len(found) != 1:
        raise ShardError(f"it holds {names}; choose one as FILE::name")
    return key or next(iter(found))


# formats


def _read_npy(file: Path, _: str) -> tuple[Array, Names]:
    return np.lib.format.open_memmap(file, mode="r"), None  # never unpickles


def _read_npz(file: Path, key: str) -> tuple[Array, Names]:
    import zipfile  # slow to import, and rarely needed

    if not zipfile.is_zipfile(file):
        raise ValueError("it is not an archive of arrays")
    with np.load(file, allow_pickle=False) as arrays:
        if {"format", "shape", "data"} <= {*arrays.files} and key in ("", "X"):
            return _read_sparse(file), None
        matrices = dict.fromkeys((n for n in arrays.files if n != NAMES), "")
        found = arrays[_choose_array(key, matrices)]
        return found, _names(arrays) if NAMES in arrays.files else None


def _read_sparse(file: Path) -> Any:
    """Return the sparse array that scipy has saved in a .npz file."""
    from scipy import sparse

    found = sparse.csr_array(sparse.load_npz(file))
    found.check_format(full_check=True)
    if found.ndim != 2:
        raise ShardError(f"it holds a sparse array of shape {found.shape}")
    return found


def _names(arrays: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of columns in an archive."""
    try:
        found = arrays[NAMES]
    except ValueError:  # an array of objects, which is not unpickled
        found = np.empty(0)
    if found.dtype.kind != "U" or found.ndim != 1:
        raise ShardError(
            f"{NAMES} must be an array of text, one name per column; save "
            "np.array(names, dtype=str)"
        )
    return tuple(found.tolist())


def _read_mat(file: Path, key: str) -> tuple[Array, Names]:
    from scipy import io

    try:
        contents: Iterable[Any] = io.whosmat(file)
    except NotImplementedError:
        raise ShardError(
            "it is a MATLAB 7.3 (HDF5) file; save it with -v7, or as .npy"
        ) from None
    numeric = {
        name: " of shape {} x {}".format(*shape)
        for name, shape, kind in contents
        if len(shape) == 2 and kind.startswith(("double", "single", "int", "uint"))
    }
    name = _choose_array(key, numeric)
    matlab.check_numbers(file, name)
    return io.loadmat(file, variable_names=[name])[name], None


def _npy_extent(file: Path) -> Extent:
    shape = _read_npy(file, "")[0].shape
    return Extent(range(1, shape[0] + 1), int(np.prod(shape[1:])))


def _parquet(file: Path) -> tuple[Any, list[int]]:
    """Return a .parquet file, and the number of rows up to each row group."""
    from pyarrow import parquet

    whole = parquet.ParquetFile(file)
    groups = map(whole.metadata.row_group, range(whole.num_row_groups))
    return whole, [0, *accumulate(group.num_rows for group in groups)]


def _parquet_extent(file: Path) -> Extent:
    whole, ends = _parquet(file)
    return Extent(ends, len(whole.schema_arrow), all(map(is_plain, whole.schema_arrow)))


def _read_parquet(file: Path, _: Format, rows: slice) -> Frame:
    """Return rows of a .parquet file, reading only the row groups that have them."""
    whole, ends = _parquet(file)
    check_names(whole.schema_arrow.names)
    start, stop = rows.indices(ends[-1])[:2]
    groups = [k for k, end in enumerate(ends[1:]) if ends[k] < stop and start < end]
    table = whole.read_row_groups(groups, use_threads=False)
    first = ends[groups[0]] if groups else 0
    return Frame.of(table.slice(start - first, stop - start))


READERS: dict[str, Reader] = {
    ".csv": Reader(lambda file, how, _: read_csv(file, how), needs_pyarrow=True),
    ".parquet": Reader(_read_parquet, extent=_parquet_extent, needs_pyarrow=True),
    ".npy": Reader(array=_read_npy, extent=_npy_extent),
    ".npz": Reader(array=_read_npz, archive=True),
    ".mat": Reader(array=_read_mat, archive=True),
    ".txt": Reader(lambda file, how, _: read_txt(file, how)),
}
