"""Read the rows of a run that has no summary.json yet.

The run may be at work: its part files grow, and their last lines may be incomplete.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dadmm.core import files, reading
from dadmm.core.errors import ConfigError, OutputError
from dadmm.core.layout import Matrix
from dadmm.results import part_files
from dadmm.results.part_files import EDGES
from dadmm.results.rows import NODE_COLUMNS
from dadmm.results.runfolder import ENDS, NODES, parse_rows

NO_END = 10**18  # larger than any iteration
VANISHED = (
    "its files changed while they were read, so it may have just ended; try again"
)


class Part(NamedTuple):
    """A part file up to the last iteration of which it has all rows."""

    path: Path
    last: int  # iteration, or 0
    n_rows: int  # of an iteration


def node_rows(
    folder: Path, n_nodes: int, last: int, observed: Sequence[str]
) -> dict[str, Matrix]:
    """Return the columns of the nodes up to an iteration, each (iterations, n_nodes).

    ``observed`` are the names of columns after those of every run.
    """
    header = ("iteration", "node", *NODE_COLUMNS, *observed)
    return _rows(folder, "history", header, NODES, n_nodes, last)


def edge_rows(folder: Path, n_edges: int, last: int) -> dict[str, Matrix]:
    """Return the columns of the directed edges up to an iteration."""
    return _rows(folder, "edges", EDGES, ENDS, n_edges, last)


def edges_of(folder: Path) -> list[tuple[int, int]]:
    """Return the directed edges that have rows, sorted."""
    found: set[tuple[int, int]] = set()
    for path in [folder / "edges.csv", *_listed(folder, "edges")]:
        if files.kind(path) == "none":
            continue
        with part_files.reading(path, folder) as file:
            first = None
            for line in file:
                t, i, j, *_ = (*line.split(",", 3), "", "")
                if t.isdecimal():
                    first = first or t
                    if t != first:
                        break
                    found.add((int(i), int(j)))
    return sorted(found)


def last_iteration(folder: Path, kinds: Sequence[str], n_rows: Sequence[int]) -> int:
    """Return the last iteration of which all rows of these kinds are there, or 0."""
    ends = []
    for kind, count in zip(kinds, n_rows, strict=True):
        parts = measure(folder, kind)
        written = [part for part in parts if part.last]
        whole = sum(part.n_rows for part in written) == count
        before = _last_merged(folder / f"{kind}.csv")
        ends.append(min(part.last for part in written) if whole else before)
    return min(ends, default=0)


def measure(folder: Path, kind: str) -> list[Part]:
    """Return the part files of a kind."""
    found = []
    for path in _listed(folder, kind):
        with part_files.reading(path, folder) as file:
            last, n_last, _ = part_files.measure(file, NO_END)
            file.seek(0)
            n_rows, begin = 0, file.readline()
            line = begin
            while line.endswith("\n") and _iteration(line) == _iteration(begin):
                n_rows, line = n_rows + 1, file.readline()
        found.append(Part(path, last if n_last == n_rows else last - 1, n_rows))
    return found


def n_columns(folder: Path) -> int:
    """Return the number of columns of the rows of nodes, keys included; 0 if none."""
    for path in [*_listed(folder, "history"), folder / "history.csv"]:
        if files.kind(path) == "file":
            with part_files.reading(path, folder) as file:
                line = file.readline()
            if line.endswith("\n"):
                return line.count(",") + 1
    return 0


def _iteration(line: str) -> str:
    return line.partition(",")[0]


def _listed(folder: Path, kind: str) -> list[Path]:
    try:
        return part_files.listed(folder, kind)
    except (OSError, OutputError):  # no rows yet, or no more
        return []


def _last_merged(file: Path) -> int:
    """Return the last iteration of rows that a resumed run has merged, or 0."""
    if files.kind(file) == "none":
        return 0
    with part_files.reading(file) as lines:
        next(lines, "")
        return part_files.measure(lines, NO_END)[0]


def _rows(
    folder: Path,
    kind: str,
    header: Sequence[str],
    keys: tuple[str, ...],
    n_rows: int,
    last: int,
) -> dict[str, Matrix]:
    """Merge the parts in memory, up to an iteration, and return the columns."""
    file, text = folder / f"{kind}.csv", io.BytesIO()
    try:
        parts = [part.path for part in measure(folder, kind) if part.last]
        part_files.merge(parts, tuple(header), text, file, last)
    except OSError as error:
        raise reading.unreadable(folder, error) from None
    except ValueError:
        raise ConfigError(f"cannot read the rows in {folder}: {VANISHED}") from None
    lines = io.StringIO(text.getvalue().decode("ascii"))
    return parse_rows(lines, file, keys, n_rows)
