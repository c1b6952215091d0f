"""Tables in memory: rows with named columns of numbers or text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError

Array = NDArray[Any]
MOST_NAMES = 5  # in the error that there is no column of a name
NO_VALUE = ("NAType", "NaTType")  # types of pandas that stand for a missing entry


class Frame(NamedTuple):
    """Rows with named columns.

    A column is an array of float64, with NaN for a missing entry, or an array of
    objects: texts, with None for a missing entry.

    Attributes
    ----------
    columns : dict of str to ndarray
        By name, in the order of the file.
    named : bool
        Whether the table has names of its own. Otherwise they are ``x0``, ``x1`` and so
        on, by position.
    sparse : scipy.sparse.csr_array or None
        The columns of a sparse table, called ``x0``, ``x1`` and so on. `columns` has
        the others.

    Examples
    --------
    >>> import dadmm
    >>> table = dadmm.Frame.of({"age": [34, 71, 52], "ward": ["A", "B", "B"]})
    >>> table.n_rows, table.names
    (3, ('age', 'ward'))
    >>> table.column("ward")
    array(['A', 'B', 'B'], dtype=object)
    """

    columns: dict[str, Array]
    named: bool = True
    sparse: Any = None

    @classmethod
    def of(cls, table: Any, names: Sequence[str] | None = None) -> Frame:
        """Return a table of another library as a frame.

        Parameters
        ----------
        table : Frame, dict, ndarray, pandas.DataFrame, pyarrow.Table or sparse array
            Columns by name; a matrix, with ``names`` or without; or a structured array.
        names : sequence of str, optional
            Names of the columns of a matrix.
        """
        if isinstance(table, Frame):
            return table
        if hasattr(table, "column_names") and hasattr(table, "column"):  # pyarrow
            columns = [from_arrow(table.column(k)) for k in range(table.num_columns)]
            return cls._checked(table.column_names, columns)
        if hasattr(table, "to_dict") and hasattr(table, "columns"):  # pandas
            columns = [table.iloc[:, k] for k in range(len(table.columns))]
            return cls._checked(list(map(str, table.columns)), columns)
        if isinstance(table, Mapping):
            return cls._checked(list(map(str, table)), list(table.values()))
        if hasattr(table, "tocsr"):
            return cls({}, False, table.tocsr().astype(np.float64))
        matrix = np.asarray(table)
        if matrix.dtype.names is not None:
            kinds = matrix.dtype.names
            return cls._checked(kinds, [matrix[name] for name in kinds])
        if matrix.ndim != 2:
            raise ShardError(
                f"a table of shape {matrix.shape} is not a matrix; give one row per "
                "sample"
            )
        if matrix.dtype.kind == "b":
            matrix = matrix.astype(np.float64)
        if names is not None and len(names) != matrix.shape[1]:
            raise ShardError(
                f"there are {len(names)} names for {matrix.shape[1]} columns; give one "
                "for each"
            )
        found = positions(matrix.shape[1]) if names is None else names
        return cls._checked(found, list(matrix.T))._replace(named=names is not None)

    @classmethod
    def _checked(cls, names: Sequence[str], columns: Sequence[Any]) -> Frame:
        """Return a frame; raise if names are not valid, or lengths differ."""
        check_names(names)
        found = {n: as_column(v) for n, v in zip(names, columns, strict=True)}
        lengths = {name: len(values) for name, values in found.items()}
        first = next(iter(lengths), "")
        for name, length in lengths.items():
            if length != lengths[first]:
                raise ShardError(
                    f"column {name!r} has {length} rows, but {first!r} has "
                    f"{lengths[first]}; give all columns the same number"
                )
        return cls(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        wide = 0 if self.sparse is None else self.sparse.shape[1]
        return (*positions(wide), *self.columns)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        if self.sparse is not None:
            return int(self.sparse.shape[0])
        return len(next(iter(self.columns.values()), ()))

    def column(self, name: str) -> Array:
        """Return a column."""
        if name in self.columns:
            return self.columns[name]
        place = positions(self.sparse.shape[1]).index(name)
        found: Array = self.sparse[:, [place]].toarray().ravel()
        return found

    def take(self, rows: slice | Array) -> Frame:
        """Return some of the rows, by a slice or by numbers."""
        sparse = None if self.sparse is None else self.sparse[rows]
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Frame(columns, self.named, sparse)

    def without(self, name: str) -> Frame:
        """Return the table without a dense column."""
        columns = {k: values for k, values in self.columns.items() if k != name}
        return self._replace(columns=columns)

    def find(self, word: str, purpose: str) -> str:
        """Return the name of a column that is given by its name or number.

        Numbers count from 0; negative ones count from the end.
        """
        names = self.names
        if word in names:
            return word
        try:
            return names[int(word)]
        except (ValueError, IndexError):
            pass
        what = f"0..{len(names) - 1}, without names"
        if self.named:
            what = f"called {_closest(word, names)}"
        if self.named and len(names) == 1:
            what += ", so name the right --separator if it has several"
        raise ShardError(
            f"the table has no column {word!r} for the {purpose}; its columns are "
            f"{what}"
        )


def positions(width: int) -> tuple[str, ...]:
    """Return the names of the columns of a table without names."""
    return tuple(f"x{k}" for k in range(width))


def check_names(names: Iterable[str], what: str = "") -> None:
    """Raise if the name of a column is empty or occurs twice."""
    seen: set[str] = set()
    for k, name in enumerate(names):
        if not name:
            raise ShardError(
                f"{what}column {k} has no name in the header; name it, or remove it if "
                "it only numbers the rows"
            )
        if name in seen:
            raise ShardError(
                f"{what}two columns are called {name!r}; give each its own name"
            )
        seen.add(name)


def check_filled(file: Path, frame: Frame) -> Frame:
    """Return the table of a file; raise if it has no rows or no columns."""
    if not frame.columns or not frame.n_rows:
        shape = (frame.n_rows, len(frame.columns))
        raise ShardError(f"{file} is empty, of shape {shape}; save some samples")
    return frame


def as_column(values: Any) -> Array:
    """Return values as a column of numbers or of texts.

    Truth values are the texts ``False`` and ``True``.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ShardError(f"a column of shape {array.shape} is not a list of entries")
    if array.dtype.kind in "fiu":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind == "O":
        items = [None if _is_missing(item) else item for item in array.tolist()]
        if all(item is None or _is_number(item) for item in items):
            return np.array([np.nan if x is None else float(x) for x in items])
        return as_texts(items, label)
    if array.dtype.kind in "bUM":
        return as_texts(array.astype(str).tolist(), str)
    raise ShardError(f"a column of type {array.dtype} has neither numbers nor text")


def as_texts(items: Iterable[Any], text: Callable[[Any], str]) -> Array:
    """Return a column of texts; None, the empty text and NaT are missing entries."""
    found = [None if item is None or item in ("", "NaT") else item for item in items]
    column = np.empty(len(found), dtype=object)
    column[:] = [None if item is None else text(item) for item in found]
    return column


def from_arrow(column: Any) -> Array:
    """Return a column of pyarrow as a column of numbers or of texts."""
    kind = str(column.type)
    if kind.startswith(("int", "uint", "float", "double", "half", "decimal", "null")):
        return np.asarray(
            column.cast("float64", safe=False).to_numpy(), dtype=np.float64
        )
    texts = as_texts(column.to_pylist(), str)
    empty = all(text is None for text in texts)
    return np.full(len(texts), np.nan) if empty else texts


def label(value: Any) -> str:
    """Return a number or text as the name of a category: 3.0 is ``3``."""
    if isinstance(value, bool | np.bool_) or not _is_number(value):
        return str(value)
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def is_numeral(word: str) -> bool:
    """Return whether a text is a number, without underscores and in ASCII."""
    try:
        float(word)
    except ValueError:
        return False
    return word.isascii() and "_" not in word


def _is_missing(item: Any) -> bool:
    if item is None or type(item).__name__ in NO_VALUE:
        return True
    return isinstance(item, float) and item != item


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float | np.number) and not isinstance(item, bool)


def _closest(word: str, names: Sequence[str]) -> str:
    """Return the names of columns for an error: if many, those most like a word."""
    if len(names) <= MOST_NAMES:
        return ", ".join(map(repr, names))
    import difflib  # only for errors

    close = difflib.get_close_matches(word, names, MOST_NAMES, 0.4)
    close = close or list(names[:MOST_NAMES])
    return f"{', '.join(map(repr, close))} and {len(names) - len(close)} others"
