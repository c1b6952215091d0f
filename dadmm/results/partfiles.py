"""Rows in files: each process writes its part, and parts become one file in the end.

A part has its rows in order of iteration. A line is an iteration, what identifies the
row (a node, or the two of an edge), and the columns.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np


class PartFile:
    """A sink, see `record.Sink`, that appends lines to the part of one process.

    Parameters
    ----------
    path : Path
    keys : sequence of tuple of int
        What identifies each row of an iteration: ``(node,)`` or ``(i, j)``.
    """

    def __init__(self, path: Path, keys: Sequence[tuple[int, ...]]) -> None:
        self._path, self._keys = path, keys
        self._open("w")

    def _open(self, mode: str) -> None:
        self._file = open(self._path, mode, newline="")  # noqa: SIM115
        self._writer = csv.writer(self._file, lineterminator="\n")

    def append(self, first: int, block: np.ndarray) -> None:
        for t, rows in enumerate(block.tolist(), start=first):
            lines = zip(self._keys, rows, strict=True)
            self._writer.writerows((t, *key, *row) for key, row in lines)
        self._file.flush()

    def rewind(self, t: int, kept: np.ndarray) -> None:
        """Drop what came after iteration ``t``, and from now on rows not ``kept``.

        Those before stay: a checkpoint of before may need them.
        """
        self._keys = [key for key, stays in zip(self._keys, kept, strict=True) if stays]
        self._file.close()
        cut(self._path, t)
        self._open("a")

    def sync(self) -> None:
        """Bring all lines to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def cut(path: Path, last: int) -> tuple[int, int]:
    """Cut a part after an iteration.

    Returns
    -------
    kept : int
        The last iteration that it has, 0 if none.
    rows : int
        How many rows it has of that one.
    """
    kept = rows = size = 0
    with open(path, "r+", encoding="ascii", newline="") as file:
        for line in file:
            t = _iteration(line) if line.endswith("\n") else last + 1
            if t > last:
                break
            kept, rows, size = t, rows + 1 if t == kept else 1, size + len(line)
        file.truncate(size)
    return kept, rows


def count(path: Path, t: int) -> int:
    """Return how many rows a merged file has of an iteration; none if it is absent."""
    if not path.exists():
        return 0
    with open(path) as file:
        next(file, "")  # the header
        return sum(_iteration(line) == t for line in file)


def merge(
    parts: Sequence[Path],
    header: Sequence[str],
    target: Path,
    before: Path | None = None,
    last: int | None = None,
    nodes: Collection[int] | None = None,
) -> None:
    """Merge the parts of all processes into one CSV file, iteration by iteration.

    Parameters
    ----------
    parts : sequence of Path
        All end with the same iteration.
    header : sequence of str
    target : Path
    before : Path, optional
        A merged file; its rows of iterations before those of the parts come first.
    last : int, optional
        The last iteration to take from it.
    nodes : collection of int, optional
        Whose rows to take, and of the edges between whom; all by default.
    """
    ours = _filter(header, nodes)
    _allow_files(len(parts) + 64)
    files: list[Any] = [open(part) for part in parts]  # noqa: SIM115
    try:
        with open(target, "w") as out:
            out.write(",".join(header) + "\n")
            lines = [file.readline() for file in files]
            t = min((_iteration(line) for line in lines if line), default=None)
            if before is not None and before.exists():
                _copy(before, t if last is None else last + 1, ours, out)
            while any(lines):
                for k, file in enumerate(files):
                    while lines[k].startswith(f"{t},"):
                        if ours(lines[k]):
                            out.write(lines[k])
                        lines[k] = file.readline()
                t = (t or 0) + 1
    finally:
        for file in files:
            file.close()


def _copy(source: Path, end: int | None, ours: Callable[[str], bool], out: Any) -> None:
    """Copy the rows of a merged file before iteration ``end``, or all."""
    with open(source) as file:
        next(file, "")  # the header
        for line in file:
            if end is not None and _iteration(line) >= end:
                return
            if ours(line):
                out.write(line)


def _filter(
    header: Sequence[str], nodes: Collection[int] | None
) -> Callable[[str], bool]:
    """Return a function that tells whether a line is one to take."""
    if nodes is None:
        return lambda line: True
    names = {str(i) for i in nodes}
    ends = 3 if header[1:3] == ("i", "j") else 2
    return lambda line: names.issuperset(line.split(",", ends)[1:ends])


def _iteration(line: str) -> int:
    return int(line.partition(",")[0])


def _allow_files(n: int) -> None:
    """Raise the limit on open files, which is often 1024, as far as is needed."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
