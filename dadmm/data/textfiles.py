"""Tables of numbers in text files, with or without a header of column names."""

from __future__ import annotations

import csv
import re
import warnings
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import nan
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from dadmm.core.errors import ShardError
from dadmm.core.layout import Matrix

Names = tuple[str, ...] | None  # of the columns, if a file has them


class Head(NamedTuple):
    """The format of a file, from its first lines."""

    delimiter: str | None  # None for white space
    names: Names
    width: int  # columns
    above: int  # lines before the first row of numbers


def read(file: Path, *, spaces: bool = False) -> tuple[Matrix, Names]:
    """Return the numbers of a text file, and the names of its columns.

    The delimiter is that of the first line: a tab, a semicolon or a comma. Cells may be
    quoted. A first line without numbers is a header. Lines that begin with # are
    comments. Without a header, the last comment before the first row is the header if
    it has as many names as there are columns. An empty cell is NaN. With ``spaces``,
    white space separates the cells; then no cell is empty.
    """
    try:
        with file.open(encoding="utf-8-sig") as lines:
            head = _head(lines, spaces)
            if head.names is not None:
                check_names(file, head.names)
            matrix = _parse_complete(_rewound(lines, head.above), head)
            if matrix is None:
                matrix = _parse_with_gaps(file, _rewound(lines, head.above), head)
    except UnicodeDecodeError:
        raise ShardError(f"{file} is not UTF-8 text; save it as UTF-8") from None
    return matrix, head.names


def check_names(file: Path, names: Iterable[str]) -> None:
    """Raise if the name of a column is empty or occurs twice."""
    seen: set[str] = set()
    for k, name in enumerate(names):
        if not name:
            raise ShardError(
                f"{file}: column {k} has no name in the header; name it, or remove it "
                "if it only numbers the rows"
            )
        if name in seen:
            raise ShardError(
                f"{file}: two columns are called {name!r}; give each its own name"
            )
        seen.add(name)


def is_number(word: str) -> bool:
    """Return whether a word is a number; the empty word is not."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def _head(lines: TextIO, spaces: bool) -> Head:
    above, comment, line = 0, "", ""
    for line in lines:
        if line.startswith("#"):
            comment = line
        elif line.strip():
            break
        above += 1
    else:
        return Head(None, None, 0, above)
    delimiter = None if spaces else _delimiter(line)
    taken, first = next(_records(chain([line], lines), delimiter))
    if not any(map(is_number, first)):
        return Head(delimiter, tuple(first), len(first), above + taken)
    names = next(_records([comment.lstrip("# ")], delimiter), (0, []))[1]
    named = len(names) == len(first) and not any(map(is_number, names))
    return Head(delimiter, tuple(names) if named else None, len(first), above)


def _delimiter(line: str) -> str:
    """Return the delimiter of a line, ignoring quoted text."""
    bare = re.sub(r'"[^"]*("|$)', "", line)
    return next((mark for mark in "\t;" if mark in bare), ",")


def _records(
    lines: Iterable[str], delimiter: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row, and the number of lines read so far."""
    told = ("\n" if line.startswith("#") else line for line in lines)
    if delimiter is None:
        for number, line in enumerate(told, 1):
            yield number, [word.strip('"') for word in line.split()]
        return
    reader = csv.reader(told, delimiter=delimiter, skipinitialspace=True, strict=True)
    for cells in reader:
        yield reader.line_num, [cell.strip() for cell in cells]


def _rewound(lines: TextIO, above: int) -> Iterator[str]:
    """Return the lines of a file from the first row on."""
    lines.seek(0)
    return islice(lines, above, None)


def _parse_complete(lines: Iterable[str], head: Head) -> Matrix | None:
    """Return a table of numbers, or None if some cell is not a number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about no data: an error follows
            matrix = np.loadtxt(
                lines, delimiter=head.delimiter, quotechar='"', comments=None, ndmin=2
            )
    except ValueError:
        return None
    if matrix.size == 0:
        return np.empty((0, head.width))
    return matrix if matrix.shape[1] == head.width else None


def _parse_with_gaps(file: Path, lines: Iterable[str], head: Head) -> Matrix:
    """Return a table with empty cells as NaN; raise if a cell is not a number."""
    numbers = array("d")
    for line, cells in _records(lines, head.delimiter):
        if not any(cells) and len(cells) < 2:  # a blank line
            continue
        if len(cells) != head.width:
            raise ShardError(
                f"{file}, line {head.above + line}: there are {len(cells)} cells, but "
                f"{head.width} in the first line"
            )
        try:
            numbers.extend([float(cell) if cell else nan for cell in cells])
        except ValueError:
            raise _not_a_number(file, head, head.above + line, cells) from None
    return np.array(numbers).reshape(-1, head.width)


def _not_a_number(file: Path, head: Head, line: int, cells: list[str]) -> ShardError:
    """Return the error for a row with a cell that is not a number."""
    k = next(k for k, cell in enumerate(cells) if cell and not is_number(cell))
    name = "" if head.names is None else f" ({head.names[k]})"
    return ShardError(
        f"{file}, line {line}, column {k}{name}: {cells[k]!r} is not a number; leave a "
        "missing entry empty, and use numbers alone or names alone in the first line"
    )
