"""Part files: each process writes the rows of its nodes, and the parts are merged.

A part has its rows in order of iteration. A line has the iteration, the key of the row
(a node, or the two nodes of an edge), and the columns.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from numpy.typing import NDArray

from dadmm.core import files
from dadmm.results.manifest import PARTS, Manifest
from dadmm.results.rows import Mask


class PartFile:
    """A sink, see `rows.Sink`, that appends lines to the part of one process.

    Parameters
    ----------
    path : Path
        A new file.
    keys : sequence of tuple of int
        The key of each row of an iteration: ``(node,)`` or ``(i, j)``.
    """

    def __init__(self, path: Path, keys: Sequence[tuple[int, ...]]) -> None:
        self._keys = keys
        handle = files.create(path, path.parents[1])
        self._file = open(handle, "w+", encoding="ascii", newline="")  # noqa: SIM115
        self._writer = csv.writer(self._file, lineterminator="\n")

    def append(self, first: int, block: NDArray[Any]) -> None:
        for t, rows in enumerate(block.tolist(), start=first):
            lines = zip(self._keys, rows, strict=True)
            self._writer.writerows((t, *key, *row) for key, row in lines)
        self._file.flush()

    def rewind(self, t: int, kept: Mask | None) -> None:
        """Drop iterations after ``t``; leave out rows not ``kept`` from now on.

        Their earlier rows stay, for a resume from an earlier checkpoint.
        """
        if kept is not None:
            self._keys = list(compress(self._keys, kept))
        self._file.seek(0)
        size = measure(self._file, t)[2]
        self._file.seek(size)
        self._file.truncate()

    def sync(self) -> None:
        """Bring all lines to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def measure(file: TextIO, last: int) -> tuple[int, int, int]:
    """Measure a part up to iteration ``last``.

    Returns
    -------
    kept : int
        The last iteration found, 0 if none.
    rows : int
        Number of rows of that iteration.
    size : int
        Bytes of the part up to the end of that iteration.
    """
    kept = rows = size = 0
    while line := file.readline():
        t = _iteration(line) if line.endswith("\n") else last + 1
        if t > last:
            break
        kept, rows, size = t, rows + 1 if t == kept else 1, size + len(line)
    return kept, rows, size


def listed(folder: Path, kind: str) -> list[Path]:
    """Return the part files of a run that exist, of those in its manifest."""
    prefix = f"{PARTS}/{kind}-"
    names = sorted(n for n in Manifest.read(folder).names if n.startswith(prefix))
    paths = [folder / name for name in names]
    with files.within(folder / PARTS / "any", folder) as (handle, _):
        return [path for path in paths if files.kind(path.name, handle) != "none"]


def reading(path: Path, root: Path | None = None) -> TextIO:
    """Open a file of rows for reading."""
    return open(files.open_plain(path, root), encoding="ascii", newline="")


def count(path: Path, t: int) -> int:
    """Return the number of rows of an iteration in a merged file; 0 if it is absent."""
    if files.kind(path) == "none":
        return 0
    with reading(path) as file:
        next(file, "")  # the header
        return sum(_iteration(line) == t for line in file)


def merge(
    parts: Sequence[Path],
    header: Sequence[str],
    target: BinaryIO,
    before: Path | None = None,
    last: int | None = None,
    nodes: Collection[int] | None = None,
) -> None:
    """Merge the parts of all processes into one CSV file, iteration by iteration.

    Parameters
    ----------
    parts : sequence of Path
        In a subfolder of the run's folder. All have the same last iteration.
    header : sequence of str
    target : file
        Open for writing.
    before : Path, optional
        A merged file; its rows of iterations before those of the parts come first.
    last : int, optional
        The last iteration to take.
    nodes : collection of int, optional
        Take their rows, and those of edges between them; all by default.
    """
    wanted = _filter(header, nodes)
    _allow_files(len(parts) + 64)
    out = io.TextIOWrapper(target, "ascii", newline="")
    opened: list[TextIO] = []
    try:
        opened += [reading(part, part.parents[1]) for part in parts]
        out.write(",".join(header) + "\n")
        lines = [file.readline() for file in opened]
        t = min((_iteration(line) for line in lines if line), default=None)
        if before is not None and files.kind(before) != "none":
            end = t if last is None or t is not None else last + 1
            _copy(before, end, wanted, out)
        while any(lines) and not (last is not None and t is not None and t > last):
            for k, file in enumerate(opened):
                while lines[k].startswith(f"{t},"):
                    if wanted(lines[k]):
                        out.write(lines[k])
                    lines[k] = file.readline()
            t = (t or 0) + 1
    finally:
        for file in opened:
            file.close()
        out.detach()  # leaves the target open


def _copy(
    source: Path, end: int | None, wanted: Callable[[str], bool], out: TextIO
) -> None:
    """Copy the rows of a merged file before iteration ``end``, or all."""
    with reading(source) as file:
        next(file, "")  # the header
        for line in file:
            if end is not None and _iteration(line) >= end:
                return
            if wanted(line):
                out.write(line)


def _filter(
    header: Sequence[str], nodes: Collection[int] | None
) -> Callable[[str], bool]:
    """Return a function that returns whether to take a line."""
    if nodes is None:
        return lambda line: True
    names = {str(i) for i in nodes}
    ends = 3 if header[1:3] == ("i", "j") else 2
    return lambda line: names.issuperset(line.split(",", ends)[1:ends])


def _iteration(line: str) -> int:
    return int(line.partition(",")[0])


def _allow_files(n: int) -> None:
    """Raise the limit on open files, often 1024, to ``n`` if the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
