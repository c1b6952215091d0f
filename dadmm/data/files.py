"""Data files: tables with named columns, and arrays of numbers.

.parquet files need pyarrow, the extra ``tables``, and .csv files are read faster by it.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.classes import require
from dadmm.core.documents import reading
from dadmm.core.errors import ShardError
from dadmm.core.layout import Array, Matrix
from dadmm.data.frame import Frame, Sparse, as_column, is_plain
from dadmm.data.text import Format, read_text

BLOCK = 2**26  # bytes of the numbers of a block, see `open_blocks`
ADVICE = "check the path, and with one file per node the number of nodes"
NAMES = "feature_names"  # the array of a .npz file that names the columns of X
ALL = slice(None)
Place = str | PathLike[str]
Names = tuple[str, ...] | None  # of the columns, if a file has them


class Extent(NamedTuple):
    """The size of a table in a file of which rows can be read without the others."""

    ends: Sequence[int]  # numbers of rows after which a block may end; last: all rows
    width: int  # columns

    @property
    def n_rows(self) -> int:
        return self.ends[-1] if self.ends else 0

    def cut(self, rows: slice) -> list[slice]:
        """Return the blocks of some rows: at most `BLOCK` bytes, if ``ends`` allow."""
        start, stop, _ = rows.indices(self.n_rows)
        most, found = max(1, BLOCK // max(8 * self.width, 1)), list[slice]()
        while start < stop:
            fit = bisect_right(self.ends, start + most)  # ends that are near enough
            end = self.ends[max(fit - 1, bisect_right(self.ends, start))]
            found.append(slice(start, min(end, stop)))
            start = found[-1].stop
        return found or [slice(start, stop)]


class Reader(NamedTuple):
    """How files of a format are read.

    ``read`` takes the name of an array and, if there is an ``extent``, the rows to
    return. It raises what it likes; `_opened` makes one sentence of it.
    """

    read: Callable[[Path, str, Format, slice], Frame | Array | Sparse]
    extent: Callable[[Path], Extent] | None = None
    archive: bool = False  # whether it has several arrays, by name


def read_frame(
    path: Place,
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
        array; by default the only one, or X if other arrays are ``beside`` it. A .npz
        file may hold a sparse array of scipy.
    separator : str, optional, between cells
        By default a tab, a semicolon or a comma, by the first line.
    decimal : {".", ","}
        Decimal mark; with ",", a column of numbers such as 71.5 is read as well.
    encoding : str, of a text file
    rows : slice, optional
        Rows to return. Of a .npy file only these rows are read, and of a .parquet file
        only the row groups that have them.
    beside : sequence of str, further columns in a file of several arrays

    Examples
    --------
    >>> import dadmm
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "site.csv").write_text("age,ward\\n34,A\\n71,B\\n")
    ...     dadmm.read_table(f"{folder}/site.csv").column("age")
    array([34., 71.])
    """
    how = Format(separator, decimal, encoding)
    with _opened(path) as (reader, file, key):
        key = key or ("X" if beside else "")
        found = _read(reader, file, key, how, rows or ALL)
        if isinstance(found, np.ndarray):
            names = _read_names(file) if file.suffix == ".npz" else None
            found = Frame.of(np.array(found, dtype=np.float64), names)
            columns = list(found.columns.values())
            for name in beside:
                values = np.asarray(reader.read(file, name, how, ALL))
                if values.size != found.n_rows or values.dtype.kind not in "fiubU":
                    raise ShardError(
                        f"{name} has shape {values.shape} and type {values.dtype}, but "
                        f"{key} has {found.n_rows} rows; give one number or text per "
                        "row"
                    )
                columns.append(as_column(values.ravel()))
            if beside:
                called = [*found.places, *beside]
                found = Frame.of_columns(called, columns, found.named)
        frame = Frame.of(found)
        return frame if rows is None or reader.extent else frame.take(rows)


def extent(path: Place) -> Extent | None:
    with _opened(path) as (reader, file, _):
        return reader.extent(file) if reader.extent else None


@dataclass
class Blocks:
    """Rows of a file as frames, one after the other, which are read when iterated."""

    path: str
    parts: Sequence[slice]
    how: dict[str, Any]  # further arguments of `read_frame`

    def __iter__(self) -> Iterator[Frame]:
        for part in self.parts:
            first = part.start - self.parts[0].start
            # without a name, so that the next block is read when this one is gone
            yield read_frame(self.path, rows=part, **self.how)._replace(first=first)


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
        return Blocks(path, parts, how)
    return [read_frame(path, rows=parts[0], **how)]


def load_array(path: Place, key: str | None = None) -> Array:
    """Return an array of numbers of any shape and number type from a file.

    A .npy file is memory-mapped: rows are read when they are used.

    Parameters
    ----------
    path : path-like, as of `dadmm.read_table`
    key : str, optional, the name of the array in a file with several

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/data.npz", train=np.eye(3), test=np.ones((1, 3)))
    ...     dadmm.datasets.load_array(f"{folder}/data.npz", "test")
    array([[1., 1., 1.]])
    """
    with _opened(path, key) as (reader, file, name):
        found = _read(reader, file, name, Format())
        if isinstance(found, Frame):
            return np.column_stack([*map(found.numbers, found.places)])
    return found if isinstance(found, np.ndarray) else np.asarray(found.toarray())


def load_tracks(path: Place) -> Matrix:
    """Return the image coordinates of tracked points, for structure from motion.

    Parameters
    ----------
    path : path-like, as of `dadmm.read_table`
        In a file with several arrays, as for Caltech Turntable and Hopkins 155, the
        array is ``measurement_matrix``.

    Returns
    -------
    measurements : ndarray of shape (2 F, N)
        x and y of one frame after the other, a column per point; NaN if it is lost.

    Examples
    --------
    >>> import dadmm, numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> tracks, _ = dadmm.datasets.turntable(n_frames=4, n_points=10)
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/cube.npy", tracks)
    ...     dadmm.datasets.load_tracks(f"{folder}/cube.npy").shape
    (8, 10)
    """
    is_archive = Path(path).suffix in (".npz", ".mat")  # and the path names no array
    found = load_array(path, "measurement_matrix" if is_archive else None)
    matrix = np.array(found, dtype=np.float64)
    is_pairs = matrix.ndim == 2 and len(matrix) % 2 == 0 and matrix.shape[1] >= 4
    if not is_pairs or np.isinf(matrix).any():
        raise ShardError(
            f"{path} has shape {matrix.shape}; tracks need an even number of rows, x "
            "and y of each frame, at least 4 columns, one per point, and finite "
            "coordinates, or NaN where a point is lost"
        )
    return matrix


@contextmanager
def _opened(path: Place, key: str | None = None) -> Iterator[tuple[Reader, Path, str]]:
    """Yield the reader of a file, the file and a key; make one sentence of errors."""
    name, _, inner = str(path).partition("::")
    file, key = Path(name), key or inner
    if (reader := READERS.get(file.suffix)) is None:
        raise ShardError(f"{file} is not a data file; use one of {', '.join(READERS)}")
    if key and not reader.archive:
        raise ShardError(f"{file} holds one array without a name; leave out ::{key}")
    with reading(file, ShardError, ADVICE), file.open("rb"):  # if that is permitted
        yield reader, file, key


def _read(
    reader: Reader, file: Path, key: str, how: Format, rows: slice = ALL
) -> Frame | Array | Sparse:
    """Return what a file holds; raise if it is empty, or an array without numbers."""
    found = reader.read(file, key, how, rows)
    matrix = found.matrix if isinstance(found, Frame) else found
    if matrix.dtype.kind not in "fiub":
        raise ShardError(f"it holds values of type {matrix.dtype}; save numbers")
    if 0 in matrix.shape:
        raise ShardError(f"it is empty, of shape {matrix.shape}; save some samples")
    return found


def _choose_array(key: str, names: Sequence[str]) -> str:
    if key in names or (not key and len(names) == 1):
        return key or names[0]
    what = f"no matrix {key!r}" if key else "no single matrix"
    raise ShardError(
        f"it has {what}, but {', '.join(names) or 'none'}; choose one as FILE::name"
    )


# formats


def _read_npy(file: Path, key: str = "", how: Any = None, rows: slice = ALL) -> Array:
    return np.lib.format.open_memmap(file, mode="r")[rows]  # never unpickles


def _npy_extent(file: Path) -> Extent:
    shape = _read_npy(file).shape
    return Extent(range(1, shape[0] + 1), int(np.prod(shape[1:])))


def _read_npz(file: Path, key: str, how: Format, rows: slice) -> Array | Sparse:
    import zipfile  # slow to import, and rarely needed

    if not zipfile.is_zipfile(file):
        raise ValueError("it is not an archive of arrays")
    with np.load(file, allow_pickle=False) as arrays:
        if not {"format", "shape", "data"} <= {*arrays.files} or key not in ("", "X"):
            names = [name for name in arrays.files if name != NAMES]
            return np.asarray(arrays[_choose_array(key, names)])
    from scipy import sparse

    found = sparse.csr_array(sparse.load_npz(file))
    found.check_format(full_check=True)
    if found.ndim != 2:
        raise ShardError(f"it holds a sparse array of shape {found.shape}")
    return found


def _read_names(file: Path) -> Names:
    with np.load(file, allow_pickle=False) as arrays:
        if NAMES not in arrays.files:
            return None
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


def _read_mat(file: Path, key: str, how: Format, rows: slice) -> Array:
    from scipy import io

    try:
        contents = io.whosmat(file)
    except NotImplementedError:
        raise ShardError(
            "it is a MATLAB 7.3 (HDF5) file; save it with -v7, or as .npy"
        ) from None
    matrices = [(name, kind) for name, shape, kind in contents if len(shape) == 2]
    numeric = [name for name, kind in matrices if kind.startswith(MATLAB_CLASSES)]
    name = _choose_array(key, numeric)
    _check_matlab(file, name)
    return np.asarray(io.loadmat(file, variable_names=[name])[name])


MATLAB_CLASSES = ("double", "single", "int", "uint")  # of matrices of numbers
MATLAB_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)  # types of integers and floats
MATLAB_COMPRESSED = 15  # a type
MATLAB_HEAD = 2**16  # bytes of a matrix in which its numbers must start


def _check_matlab(file: Path, name: str) -> None:
    """Raise if a matrix of a MATLAB 5 file has numbers of an unknown type.

    scipy 1.17 looks this type up without a check, and the process ends.
    """
    with file.open("rb") as stream:
        start = stream.read(128)
        if 0 in start[:4]:  # MATLAB 4
            return
        order = "<" if start[126:] == b"IM" else ">"
        while len(tag := stream.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            after = stream.tell() + size
            head = stream.read(min(size, MATLAB_HEAD))
            if kind == MATLAB_COMPRESSED:
                head = zlib.decompressobj().decompress(head, MATLAB_HEAD)[8:]
            at, parts = 16, list[tuple[int, bytes]]()  # the shape, name and numbers
            while at + 8 <= len(head) and len(parts) < 3:
                kind, size = struct.unpack_from(f"{order}II", head, at)
                short = kind >> 16  # the bytes of a part that is in its tag
                begin = at + (4 if short else 8)
                parts.append((kind & 0xFFFF, head[begin : begin + (short or size)]))
                at += 8 if short else 8 + size + -size % 8
            if parts[1][1].decode("latin-1") == name:
                kind = parts[2][0] if len(parts) > 2 else 0
                if kind not in MATLAB_NUMBERS:
                    raise ValueError(f"{name} has numbers of an unknown type {kind}")
            stream.seek(after)


def _parquet(file: Path) -> tuple[Any, list[int]]:
    """Return a .parquet file, and the number of rows up to each row group."""
    require("pyarrow", "it", "tables", ShardError)
    from pyarrow import parquet

    whole = parquet.ParquetFile(file)
    groups = map(whole.metadata.row_group, range(whole.num_row_groups))
    return whole, [0, *accumulate(group.num_rows for group in groups)]


def _parquet_extent(file: Path) -> Extent:
    whole, ends = _parquet(file)
    columns = whole.schema_arrow
    # the rows of a node are not cut if there is text
    return Extent(ends if all(map(is_plain, columns)) else ends[-1:], len(columns))


def _read_parquet(file: Path, key: str, how: Format, rows: slice) -> Frame:
    """Return rows of a .parquet file, reading only the row groups that have them."""
    whole, ends = _parquet(file)
    start, stop = rows.indices(ends[-1])[:2]
    groups = [k for k, end in enumerate(ends[1:]) if ends[k] < stop and start < end]
    table = whole.read_row_groups(groups, use_threads=False)
    first = ends[groups[0]] if groups else 0
    return Frame.of(table.slice(start - first, stop - start))


READERS: dict[str, Reader] = {
    ".csv": Reader(lambda file, key, how, rows: read_text(file, how, spaces=False)),
    ".parquet": Reader(_read_parquet, _parquet_extent),
    ".npy": Reader(_read_npy, _npy_extent),
    ".npz": Reader(_read_npz, archive=True),
    ".mat": Reader(_read_mat, archive=True),
    ".txt": Reader(lambda file, key, how, rows: read_text(file, how, spaces=True)),
}
