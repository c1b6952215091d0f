"""Tables in memory: rows with named columns of numbers or text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, time, timedelta
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ShardError, listed, shown
from dadmm.core.layout import Array

Sparse = Any  # a csr_array of scipy, and
Arrow = Any  # a ChunkedArray of pyarrow: both are slow to import
NO_VALUE = ("NAType", "NaTType")  # types of pandas that stand for a missing entry
NUMBERS = ("int", "uint", "float", "double", "half", "decimal", "null")  # of pyarrow
ODD = (bytes, list, tuple, dict, np.ndarray, date, time, timedelta)


class Frame(NamedTuple):
    """Rows with named columns.

    A column is an array of float64, with NaN for a missing entry, or an array of
    objects: texts, with None for a missing entry. Columns of lists, bytes, dates and
    times may be there, but not used.

    Examples
    --------
    >>> import dadmm
    >>> table = dadmm.Frame.of({"age": [34, 71, 52], "ward": ["A", "B", "B"]})
    >>> table.n_rows, table.names
    (3, ('age', 'ward'))
    >>> table.column("ward")
    array(['A', 'B', 'B'], dtype=object)
    """

    places: dict[str, int]  #: number of each column, by name
    matrix: Any  #: (n, p) numbers, any in columns of text; sparse if the table was
    texts: dict[str, Array]  #: columns that are not numbers, by name
    named: bool = True  #: whether it has names; else they are ``x0``, ``x1``, ...
    first: int = 0  #: number of the first row, if others are before it; for errors

    @classmethod
    def of(cls, table: Any, names: Sequence[str] | None = None) -> Frame:
        """Return a table of another library as a frame.

        Parameters
        ----------
        table : Frame, dict, ndarray, pandas.DataFrame, pyarrow.Table or sparse array
            Columns by name; a matrix, with ``names`` or without; or a structured array.
        names : sequence of str, optional, of the columns of a matrix
        """
        if isinstance(table, Frame):
            return table
        if hasattr(table, "column_names"):  # pyarrow
            return cls.of_columns(table.column_names, map(from_arrow, table.columns))
        if hasattr(table, "items"):  # a dict, or of pandas
            columns = (as_column(values) for _, values in table.items())
            return cls.of_columns([*map(str, table.keys())], columns)
        matrix = table.tocsr() if hasattr(table, "tocsr") else np.asarray(table)
        if (fields := matrix.dtype.names) is not None:
            return cls.of_columns(fields, (as_column(matrix[name]) for name in fields))
        if matrix.ndim != 2:
            raise ShardError(
                f"a table of shape {matrix.shape} must have two dimensions"
            )
        width, named = matrix.shape[1], names is not None
        called = positions(width) if names is None else check_names(names)
        if len(called) != width:
            raise ShardError(
                f"there are {len(called)} names for {width} columns; give one for each"
            )
        if matrix.dtype.kind not in "fiub":
            return cls.of_columns(called, map(as_column, matrix.T), named)
        places = {name: k for k, name in enumerate(called)}
        return cls(places, matrix.astype(np.float64, copy=False), {}, named)

    @classmethod
    def of_columns(
        cls, names: Sequence[str], columns: Iterable[Array], named: bool = True
    ) -> Frame:
        """Return the table of columns of `as_column`; their names must differ."""
        places = {name: k for k, name in enumerate(check_names(names))}
        table, texts = np.empty((len(places), 0)), dict[str, Array]()
        for k, (name, values) in enumerate(zip(names, columns, strict=True)):
            if k == 0:  # one column after the other, and no memory for those of text
                table = np.empty((len(places), len(values)))
            if len(values) != table.shape[1]:
                raise ShardError(
                    f"columns {names[0]!r} and {name!r} differ in their number of rows"
                )
            if values.dtype == np.float64:
                table[k] = values
            else:
                texts[name] = values
        return cls(places, table.T, texts, named)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self.places)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.matrix.shape[0])

    @property
    def sparse(self) -> Sparse | None:
        """The matrix if it is sparse, else None."""
        return self.matrix if hasattr(self.matrix, "tocsr") else None

    @property
    def columns(self) -> dict[str, Array]:
        """The columns by name, in the order of the file."""
        dense = self.matrix if self.sparse is None else self.matrix.toarray()
        return dict(zip(self.places, dense.T, strict=True)) | self.texts

    def column(self, name: str) -> Array:
        """Return a column."""
        values = self.texts.get(name)
        if values is None:
            if self.sparse is not None:
                return np.asarray(self.sparse[:, [self.places[name]]].toarray()[:, 0])
            return np.asarray(self.matrix[:, self.places[name]])
        if values.dtype.names is not None:
            raise ShardError(
                f"column {name!r} has neither numbers nor text, but values of type "
                f"{values.dtype.names[0]}; convert it, such as a date to a number of "
                "days, or leave it out with --leave-out"
            )
        return values

    def numbers(self, name: str) -> Array:
        """Return a column of numbers; raise if it has text."""
        values = self.column(name)
        words = codes_of(values)[0] if values.dtype == object else []
        if not words:  # texts, if any, are in other rows of the table
            return values.astype(np.float64, copy=False)
        word = next((word for word in words if not is_numeral(word)), words[0])
        raise ShardError(
            f"column {name!r} has text, such as {shown(word)} in row "
            f"{values.tolist().index(word)}, but numbers are needed; correct it, name "
            "its decimal mark with --decimal, or choose another column or --problem"
        )

    def gaps(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows have no entry in one of these columns."""
        found = np.zeros(self.n_rows, dtype=bool)
        if self.sparse is not None:
            part = self.sparse[:, [self.places[name] for name in names]].tocoo()
            found[part.row[np.isnan(part.data)]] = True
            return found
        for values in map(self.column, names):  # None in a column of text
            found |= values == None if values.dtype == object else np.isnan(values)  # noqa: E711
        return found

    def check_gaps(self, names: Sequence[str]) -> None:
        """Raise if an entry of these columns is missing."""
        for name in names if self.gaps(names).any() else ():
            for row in np.flatnonzero(self.gaps([name])):
                raise ShardError(
                    f"column {name!r} has no entry in row {self.first + row}; fill it, "
                    "or say with --on-missing what is done to missing entries"
                )

    def take(self, rows: slice | Array) -> Frame:
        """Return some of the rows, by a slice or by numbers."""
        texts = {name: values[rows] for name, values in self.texts.items()}
        return Frame(self.places, self.matrix[rows], texts, self.named)

    def find(self, word: str, purpose: str) -> str:
        """Return the name of a column, given its name, or its number from 0 or -1."""
        names = self.names
        if word in names:
            return word
        try:
            return names[int(word)]
        except (ValueError, IndexError):
            raise ShardError(
                f"the table has no column {word!r} for the {purpose}; it has "
                f"{listed(map(repr, names))}; name one, or the right --separator"
            ) from None


def positions(width: int) -> tuple[str, ...]:
    return tuple(f"x{k}" for k in range(width))


def check_names(names: Sequence[str]) -> Sequence[str]:
    """Return the names of columns; raise if one is empty or there twice."""
    if len({*names, ""}) <= len(names):
        k = next(k for k, name in enumerate(names) if name in ("", *names[:k]))
        raise ShardError(
            f"column {k} has the name {names[k]!r}; give each column a name of its "
            "own, or remove a column that only numbers the rows"
        )
    return names


def as_column(values: object) -> Array:
    """Return a column of numbers or texts; truth values become False and True."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ShardError(f"a column of shape {array.shape} is not a list of entries")
    if array.dtype.kind in "fiu":
        return array.astype(np.float64, copy=False)
    if array.dtype.kind in "bU":
        return as_texts(array.astype(str).tolist())
    if array.dtype.kind != "O":
        return _odd(len(array), str(array.dtype))
    items = array.tolist()
    for k, item in enumerate(items):
        is_nan = isinstance(item, float) and item != item
        if is_nan or type(item).__name__ in NO_VALUE:
            items[k] = None
        elif isinstance(item, ODD):
            return _odd(len(array), type(item).__name__)
    if all(item is None or _is_number(item) for item in items):
        return np.array(items, dtype=np.float64)  # None becomes NaN
    return as_texts(None if item is None else label(item) for item in items)


def as_texts(items: Iterable[object]) -> Array:
    """Return a column of texts, or of numbers (NaN) if all entries are missing."""
    texts = [None if item in (None, "", "NaT") else str(item) for item in items]
    return np.array(texts, dtype=object if any(texts) else np.float64)


def is_plain(column: Arrow) -> bool:
    return str(column.type).startswith(NUMBERS)


def from_arrow(column: Arrow) -> Array:
    if is_plain(column):
        numbers = column.cast("float64", safe=False).to_numpy()
        return np.asarray(numbers, dtype=np.float64)
    return as_column(np.fromiter(column.to_pylist(), dtype=object))


def _odd(length: int, kind: str) -> Array:
    """Return a column that must not be used, in place of one of another type."""
    return np.empty(length, [(kind, "V1")])


def codes_of(values: Array) -> tuple[list[str], NDArray[np.int64]]:
    """Return the texts of a column, each once, and the place of each row's, or -1."""
    if values.dtype != object:
        numbers, inverse = np.unique(values, return_inverse=True)
        texts = [label(x) for x in numbers[~np.isnan(numbers)].tolist()]
        return texts, np.where(inverse < len(texts), inverse, -1)
    words = values.tolist()
    places = {word: k for k, word in enumerate(dict.fromkeys(filter(None, words)))}
    return list(places), np.array([places.get(word, -1) for word in words], np.int64)


def label(value: object) -> str:
    """Return a number or text as the name of a category: 3.0 is ``3``."""
    if not _is_number(value):
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


def _is_number(item: object) -> TypeGuard[float]:
    return isinstance(item, int | float | np.number) and not isinstance(item, bool)
