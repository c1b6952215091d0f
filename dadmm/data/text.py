"""Tables in text files: .csv, which pyarrow reads if it is installed, and .txt."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ShardError
from dadmm.data.frame import Array, Frame, as_texts, check_names, is_numeral, positions

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")  # cells without an entry
MOST_COLUMNS = 100_000
BLOCK = 2**24  # bytes of a .csv file that are parsed at once; a row must fit


class Format(NamedTuple):
    """How a text file is written."""

    separator: str | None = None  # between cells; by default as in the first line
    decimal: str = "."
    encoding: str = "utf-8"

    @property
    def codec(self) -> str:
        """The encoding, without the mark that some programs write first."""
        plain = self.encoding.lower().replace("_", "-") in ("utf-8", "utf8")
        return "utf-8-sig" if plain else self.encoding

    def is_number(self, word: str) -> bool:
        """Return whether a cell is a number."""
        return is_numeral(word.replace(self.decimal, ".") if self.decimal else word)


class Head(NamedTuple):
    """What the first lines of a text file tell."""

    separator: str | None = None  # None for white space
    names: tuple[str, ...] | None = None
    width: int = 0  # columns
    above: int = 0  # lines before the first row


def read_text(file: Path, how: Format, spaces: bool) -> Frame:
    """Return the table in a text file; cells are separated by a mark or by spaces.

    A column is text if any of its cells is not a number.
    """
    try:
        head = _head(file, how, spaces)
        if not head.width:
            return Frame({})
        columns = None if spaces else _read_arrow(file, how, head)
        columns = _read_numpy(file, how, head) if columns is None else columns
    except UnicodeError:
        raise ShardError(
            f"it is not {how.encoding.upper()} text; save it as UTF-8, or name its "
            "encoding with --encoding"
        ) from None
    names = head.names or positions(head.width)
    return Frame(dict(zip(names, columns, strict=True)), head.names is not None)


def _read_arrow(file: Path, how: Format, head: Head) -> list[Array] | None:
    """Return the columns of a .csv file; None without pyarrow."""
    try:
        import pyarrow
        from pyarrow import csv as arrow
    except ImportError:
        return None
    wrong: list[Any] = []

    def judge(row: Any) -> str:
        if not row.text.strip() or row.text.startswith("#"):
            return "skip"
        wrong.append(row)
        return "error"

    places = [str(k) for k in range(head.width)]
    try:
        table = arrow.read_csv(
            file,
            arrow.ReadOptions(
                use_threads=False, block_size=BLOCK, column_names=places,
                skip_rows=head.above, encoding=how.encoding,
            ),
            arrow.ParseOptions(
                delimiter=head.separator, newlines_in_values=True,
                invalid_row_handler=judge,
            ),
            arrow.ConvertOptions(column_types=dict.fromkeys(places, pyarrow.string())),
        )  # fmt: skip
    except pyarrow.ArrowInvalid as error:
        if wrong:
            start = wrong[0].text.partition("\n")[0].rstrip("\r")
            with file.open(encoding=how.codec) as lines:
                found = (k for k, x in enumerate(lines, 1) if x.rstrip("\n") == start)
                raise _uneven(next(found), wrong[0].actual_columns, head) from None
        if "UTF8" in str(error):
            raise UnicodeError from None
        raise
    return [_parse_arrow(column, how.decimal) for column in table.columns]


def _parse_arrow(column: Any, decimal: str) -> Array:
    """Return the cells of a column as numbers, or as text if one is not a number."""
    import pyarrow
    from pyarrow import compute

    cells = compute.utf8_trim_whitespace(column)
    gaps = compute.is_in(cells, value_set=pyarrow.array(MISSING))
    cells = compute.if_else(gaps, pyarrow.scalar(None, pyarrow.string()), cells)
    numbers = cells
    if decimal != "." and not compute.any(compute.match_substring(cells, ".")).as_py():
        numbers = compute.replace_substring(cells, decimal, ".")
    try:
        return np.asarray(numbers.cast("float64").to_numpy(), dtype=np.float64)
    except pyarrow.ArrowInvalid:
        return as_texts(cells.to_pylist())


def _read_numpy(file: Path, how: Format, head: Head) -> list[Array]:
    """Return the columns of a text file."""
    with file.open(encoding=how.codec, newline="") as lines:
        for _ in range(head.above):
            next(lines)
        if head.separator is None:
            cells = np.loadtxt(lines, str, quotechar='"', ndmin=2)
        else:
            cells = np.array(list(_rows(lines, head)), str)
    if not cells.size:
        return [np.empty(0)] * head.width
    if cells.shape[1] != head.width:
        raise ShardError(
            f"there are {cells.shape[1]} cells in its rows, but {head.width} in the "
            "first line"
        )
    return [_parse_numpy(np.strings.strip(column), how.decimal) for column in cells.T]


def _rows(lines: Iterable[str], head: Head) -> Iterator[list[str]]:
    """Yield the cells of each row; lines that are empty or comments have none."""
    for number, cells in _records(lines, head.separator):
        if len(cells) == head.width:
            yield cells
        elif any(cells) and not cells[0].startswith("#"):
            raise _uneven(head.above + number, len(cells), head)


def _uneven(line: int, n_cells: int, head: Head) -> ShardError:
    return ShardError(
        f"line {line} has {n_cells} cells, but there are {head.width} in the first line"
    )


def _parse_numpy(cells: Array, decimal: str) -> Array:
    """Return the same as `_parse_arrow`."""
    known = np.where(np.isin(cells, MISSING), "", cells)
    numbers = np.where(known == "", "nan", known)
    if decimal != "." and not np.strings.count(numbers, ".").any():
        numbers = np.strings.replace(numbers, decimal, ".")
    if all(map(is_numeral, numbers.tolist())):
        return numbers.astype(np.float64)
    return as_texts(known.tolist())


def _head(file: Path, how: Format, spaces: bool) -> Head:
    """Return the separator and the names of a text file.

    A first line without numbers is a header. Lines before it that begin with # are
    comments. Without a header, the last comment is the header if it has as many names
    as there are columns.
    """
    with file.open(encoding=how.codec, newline="") as lines:
        above, comment, line = 0, "", ""
        for line in lines:
            if line.startswith("#"):
                comment = line
            elif line.strip():
                break
            above += 1
        else:
            return Head()
        mark = None if spaces else how.separator or _separator(line)
        wide = line.count(mark) + 1 if mark else len(line.split())
        if wide > MOST_COLUMNS:
            raise ShardError(
                f"its first line has {wide:,} cells, and at most {MOST_COLUMNS:,} "
                "columns are allowed; save it as .npy, or swap rows and columns"
            )
        taken, first = next(_records(chain([line], lines), mark))
    names = first
    if any(map(how.is_number, first)):
        _, names = next(_records([comment.lstrip("# ")], mark), (0, []))
        taken = 0
    has_names = len(names) == len(first) and not any(map(how.is_number, names))
    if mark == how.decimal and not (has_names and how.separator is None):
        raise ShardError(
            f"the separator and the decimal mark are both {mark!r}; choose others with "
            "--separator and --decimal"
        )
    check_names(names if has_names else ())
    return Head(mark, tuple(names) if has_names else None, len(first), above + taken)


def _separator(line: str) -> str:
    """Return the separator of a line, ignoring quoted text."""
    bare = re.sub(r'"[^"]*("|$)', "", line)
    return next((mark for mark in "\t;" if mark in bare), ",")


def _records(
    lines: Iterable[str], separator: str | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of lines read so far, and the cells of each row."""
    if separator is None:
        for number, line in enumerate(lines, 1):
            yield number, [word.strip('"') for word in line.split()]
        return
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    for cells in reader:
        yield reader.line_num, [cell.strip() for cell in cells]
