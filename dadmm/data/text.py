"""Tables in text files: .csv files, which pyarrow reads, and .txt files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ShardError
from dadmm.data.frame import (
    Array,
    Frame,
    as_texts,
    check_names,
    from_arrow,
    is_numeral,
    positions,
)

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

    separator: str | None  # None for white space
    names: tuple[str, ...] | None
    width: int  # columns
    above: int  # lines before the first row


def read_csv(file: Path, how: Format) -> Frame:
    """Return the table in a .csv file, whose cells are numbers or text.

    A column is text if any of its cells is not a number.
    """
    import pyarrow
    from pyarrow import csv as arrow

    head = _head(file, how, spaces=False)
    if not head.width:
        return Frame({})
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
                use_threads=False,
                block_size=BLOCK,
                column_names=places,
                skip_rows=head.above,
                encoding=how.encoding,
            ),
            arrow.ParseOptions(
                delimiter=head.separator,
                newlines_in_values=True,
                invalid_row_handler=judge,
            ),
            arrow.ConvertOptions(column_types=dict.fromkeys(places, pyarrow.string())),
        )
    except (pyarrow.ArrowInvalid, UnicodeError) as error:
        if wrong:
            raise ShardError(
                f"line {_line(file, how, wrong[0].text)} has {wrong[0].actual_columns} "
                f"cells, but there are {head.width} in the first line"
            ) from None
        if "UTF8" in str(error) or isinstance(error, UnicodeError):
            raise _not_text(how) from None
        raise
    columns = [_parse(column, how.decimal) for column in table.columns]
    return _named(head, columns)


def _line(file: Path, how: Format, row: str) -> int:
    """Return the number of the line in which a row begins, from 1."""
    start = row.partition("\n")[0].rstrip("\r")
    with file.open(encoding=how.codec) as lines:
        return next(k for k, line in enumerate(lines, 1) if line.rstrip("\n") == start)


def _parse(column: Any, decimal: str) -> Array:
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
        return from_arrow(numbers.cast("float64"))
    except pyarrow.ArrowInvalid:
        return from_arrow(cells)


def read_txt(file: Path, how: Format) -> Frame:
    """Return the table in a text file whose cells are separated by white space."""
    head = _head(file, how, spaces=True)
    try:
        with file.open(encoding=how.codec) as lines:
            cells = np.loadtxt(lines, str, quotechar='"', ndmin=2, skiprows=head.above)
    except UnicodeError:
        raise _not_text(how) from None
    if not cells.size:
        cells = np.empty((0, head.width), str)
    if cells.shape[1] != head.width:
        raise ShardError(
            f"there are {cells.shape[1]} cells in its rows, but {head.width} in the "
            "first line"
        )
    columns: list[Array] = []
    for column in cells.T:
        known = np.where(np.isin(column, MISSING), "", column)
        try:
            columns.append(np.where(known == "", "nan", known).astype(np.float64))
        except ValueError:
            columns.append(as_texts(known.tolist()))
    return _named(head, columns)


def _named(head: Head, columns: list[Array]) -> Frame:
    names = head.names or positions(head.width)
    return Frame(dict(zip(names, columns, strict=True)), head.names is not None)


def _head(file: Path, how: Format, *, spaces: bool) -> Head:
    """Return the separator and the names of a text file.

    A first line without numbers is a header. Lines before it that begin with # are
    comments. Without a header, the last comment is the header if it has as many names
    as there are columns.
    """
    try:
        with file.open(encoding=how.codec, newline="") as lines:
            above, comment, line = 0, "", ""
            for line in lines:
                if line.startswith("#"):
                    comment = line
                elif line.strip():
                    break
                above += 1
            else:
                return Head(None, None, 0, above)
            separator = None if spaces else how.separator or _separator(line)
            wide = line.count(separator) + 1 if separator else len(line.split())
            if wide > MOST_COLUMNS:
                raise ShardError(
                    f"its first line has {wide:,} cells, and at most {MOST_COLUMNS:,} "
                    "columns are allowed; save it as .npy, or swap rows and columns"
                )
            taken, first = next(_records(chain([line], lines), separator))
    except UnicodeError:
        raise _not_text(how) from None
    if separator == how.decimal:
        raise ShardError(
            f"the separator and the decimal mark are both {separator!r}; choose others "
            "with --separator and --decimal"
        )
    names = first
    if any(map(how.is_number, first)):
        _, names = next(_records([comment.lstrip("# ")], separator), (0, []))
        taken = 0
    is_header = len(names) == len(first) and not any(map(how.is_number, names))
    check_names(names if is_header else ())
    named = tuple(names) if is_header else None
    return Head(separator, named, len(first), above + taken)


def _not_text(how: Format) -> ShardError:
    return ShardError(
        f"it is not {how.encoding.upper()} text; save it as UTF-8, or name its "
        "encoding with --encoding"
    )


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
