"""Tables in text files: .csv, which pyarrow reads if it is installed, and .txt."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ShardError
from dadmm.core.layout import Array
from dadmm.data.frame import Frame, as_texts, is_numeral, positions

MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null")  # cells without an entry
MOST_COLUMNS = 100_000
BLOCK = 2**24  # bytes of a .csv file that are parsed at once; a row must fit


class Format(NamedTuple):
    separator: str | None = None  # between cells; by default as in the first line
    decimal: str = "."
    encoding: str = "utf-8"

    @property
    def codec(self) -> str:
        """The encoding, without the mark that some programs write first."""
        is_utf8 = codecs.lookup(self.encoding).name == "utf-8"
        return "utf-8-sig" if is_utf8 else self.encoding


class Head(NamedTuple):
    separator: str | None  # None for white space
    names: tuple[str, ...] | None
    width: int  # columns
    above: int  # lines before the first row


def read_text(file: Path, how: Format, spaces: bool) -> Frame:
    """Return the table in a text file; a column with a word is text."""
    try:
        head = _head(file, how, spaces)
        if head is None:
            return Frame.of_columns([], [])
        columns = None if spaces else _read_arrow(file, how, head)
        if columns is None:
            with file.open(encoding=how.codec, newline="") as lines:
                cells = [*_rows(islice(lines, head.above, None), head)]
            table = np.array(cells, str).reshape(-1, head.width)
            columns = (_parse(column, how.decimal) for column in table.T)
    except UnicodeError:
        raise ShardError(
            f"it is not {how.encoding.upper()} text; save it as UTF-8, or name its "
            "encoding with --encoding"
        ) from None
    names = head.names or positions(head.width)
    return Frame.of_columns(names, columns, head.names is not None)


def _head(file: Path, how: Format, spaces: bool) -> Head | None:
    """Return the separator and the names of a text file; None if it has no row.

    A first line without numbers is a header. Lines before it that begin with # are
    comments. Without a header, the last comment is the header if it has as many names
    as there are columns.
    """

    def has_number(words: Iterable[str]) -> bool:
        return any(is_numeral(word.replace(how.decimal, ".")) for word in words)

    with file.open(encoding=how.codec, newline="") as lines:
        above, comment = 0, ""
        for line in lines:
            if line.startswith("#"):
                comment = line
            elif line.strip():
                break
            above += 1
        else:
            return None
        bare = re.sub(r'"[^"]*("|$)', "", line)
        usual = next((mark for mark in "\t;" if mark in bare), ",")
        mark = None if spaces else how.separator or usual
        wide = line.count(mark) + 1 if mark else len(line.split())
        if wide > MOST_COLUMNS:
            raise ShardError(
                f"its first line has {wide:,} cells, and at most {MOST_COLUMNS:,} "
                "columns are allowed; save it as .npy, or swap rows and columns"
            )
        taken, first = next(_records(chain([line], lines), mark))
    names = first
    if has_number(first):
        taken, (_, names) = 0, next(_records([comment.lstrip("# ")], mark), (0, []))
    has_names = len(names) == len(first) and not has_number(names)
    if mark == how.decimal and not (has_names and how.separator is None):
        raise ShardError(
            f"the separator and the decimal mark are both {mark!r}; choose others with "
            "--separator and --decimal"
        )
    return Head(mark, tuple(names) if has_names else None, len(first), above + taken)


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


def _rows(lines: Iterable[str], head: Head) -> Iterator[list[str]]:
    """Yield the cells of each row; lines that are empty or comments have none."""
    for number, cells in _records(lines, head.separator):
        if len(cells) == head.width:
            yield cells
        elif any(cells) and not cells[0].startswith("#"):
            raise ShardError(
                f"line {head.above + number} has {len(cells)} cells, but there are "
                f"{head.width} in the first line"
            )


def _parse(cells: Array, decimal: str) -> Array:
    known = np.where(np.isin(cells, MISSING), "", cells)
    numbers = np.where(known == "", "nan", known)
    if decimal != "." and not np.strings.count(numbers, ".").any():
        numbers = np.strings.replace(numbers, decimal, ".")
    if all(map(is_numeral, numbers.tolist())):
        return numbers.astype(np.float64)
    return as_texts(known.tolist())


def _read_arrow(file: Path, how: Format, head: Head) -> Iterator[Array] | None:
    """Return the columns of a .csv file; None without pyarrow, or if it cannot."""
    try:
        import pyarrow
        from pyarrow import compute
        from pyarrow import csv as arrow
    except ImportError:
        return None

    def judge(row: Any) -> str:
        is_empty = not row.text.strip() or row.text.startswith("#")
        return "skip" if is_empty else "error"

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
    except pyarrow.ArrowInvalid:
        return None  # the other reader names the line
    gap, has_comma = pyarrow.scalar(None, pyarrow.string()), how.decimal != "."

    def parse(column: Any) -> Array:  # as `_parse`
        cells = compute.utf8_trim_whitespace(column)
        is_gap = compute.is_in(cells, value_set=pyarrow.array(MISSING))
        numbers = cells = compute.if_else(is_gap, gap, cells)
        points = compute.match_substring(cells, ".") if has_comma else None
        if has_comma and not compute.any(points).as_py():
            numbers = compute.replace_substring(cells, how.decimal, ".")
        try:
            return np.asarray(numbers.cast("float64").to_numpy(), dtype=np.float64)
        except pyarrow.ArrowInvalid:
            return as_texts(cells.to_pylist())

    return map(parse, table.columns)
