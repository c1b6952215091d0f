"""Files of rows: each process writes a part, and the parts are merged.

A part has its rows in order of iteration. A line has the iteration, the key of the row
(a node, or the two nodes of an edge), and the columns.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from numpy.typing import NDArray

from dadmm.admm.loop import Run
from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.errors import OutputError
from dadmm.solver.recovery import NodeFailure
from dadmm.solver.rows import (
    EDGE_COLUMNS,
    NODE_COLUMNS,
    EdgeRows,
    Mask,
    NodeRows,
    Observe,
)  # fmt: skip

PARTS = "parts"  # the folder of the part files
EDGES = ("iteration", "i", "j", *EDGE_COLUMNS)  # columns of edges.csv


class PartFile:
    """A sink, see `rows.Sink`, that appends lines to the part of one process.

    The file is new; ``keys`` are those of the rows of an iteration: ``(node,)`` or
    ``(i, j)``.
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
        size = 0
        while (line := self._file.readline()).endswith("\n") and _iteration(line) <= t:
            size += len(line)
        self._file.seek(size)
        self._file.truncate()

    def sync(self) -> None:
        """Bring all lines to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


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
    parts: Sequence[Path],  # in a subfolder of the run's folder
    header: Sequence[str],
    target: BinaryIO,
    before: Path | None = None,
    last: int | None = None,
    nodes: Collection[int] | None = None,
) -> int:
    """Merge the parts of all processes into one CSV file, iteration by iteration.

    All parts have the same last iteration. The rows of ``before``, a merged file, of
    iterations before those of the parts come first. The merge ends after iteration
    ``last``, and takes only rows of ``nodes`` and of edges between them, if given.
    Return the number of rows of that iteration.
    """
    names = None if nodes is None else {str(i) for i in nodes}
    ends = 3 if header[1:3] == ("i", "j") else 2
    n_last, of_last = 0, f"{last},"

    def write(line: str) -> None:
        nonlocal n_last
        if names is None or names.issuperset(line.split(",", ends)[1:ends]):
            out.write(line)
            n_last += line.startswith(of_last)

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
            with reading(before) as file:
                next(file, "")  # the header
                for line in file:
                    if end is not None and _iteration(line) >= end:
                        break
                    write(line)
        while any(lines) and not (last is not None and t is not None and t > last):
            for k, file in enumerate(opened):
                while lines[k].startswith(f"{t},"):
                    write(lines[k])
                    lines[k] = file.readline()
            t = (t or 0) + 1
    finally:
        for file in opened:
            file.close()
        out.detach()  # leaves the target open
    return n_last


def _iteration(line: str) -> int:
    return int(line.partition(",")[0])


def _allow_files(n: int) -> None:
    """Raise the limit on open files, often 1024, to ``n`` if the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def history_header(observe: Observe) -> tuple[str, ...]:
    """Return the columns of ``history.csv``."""
    return ("iteration", "node", *NODE_COLUMNS, *observe)


class RowFiles:
    """A callback that writes the rows of this process to its part files."""

    def __init__(
        self,
        folder: Path,  # of the run; without records it may be on another machine
        rank: int,
        keys: Sequence[tuple[int, ...]],  # (node,) of hosted nodes to record, if any
        edges: Sequence[tuple[int, ...]] | None,  # their directed edges, or None
        observe: Observe,  # further columns of the history
        start: int = 0,  # the iteration after which a resumed run continues
    ) -> None:
        self.failure: OutputError | None = None  # the first; no rows are written then
        self.by_edge = edges is not None
        self._files: list[PartFile] = []
        self._rows: list[NodeRows | EdgeRows] = []
        self._rank = rank
        self.folder = folder / PARTS
        self.home = folder  # of the results; after a failure that of a component
        self.header = history_header(observe)
        with writing(folder):
            if keys or self.folder.is_dir():
                part = self._open(f"history-{rank:05d}.csv", keys)
            if keys:
                self._rows.append(NodeRows(part, observe, start))
            if edges is not None:
                part = self._open(f"edges-{rank:05d}.csv", edges)
                self._rows.append(EdgeRows(part, start))

    def _open(self, name: str, keys: Sequence[tuple[int, ...]]) -> PartFile:
        self._files.append(PartFile(self.folder / name, keys))
        return self._files[-1]

    def __call__(self, t: int, run: Run) -> str | None:
        """Record an iteration; request a stop, "output", if that is impossible."""
        for rows in self._rows:
            if self.failure is None:
                self._try(rows, t, run)
        return None if self.failure is None else "output"

    def rewind(self, failure: NodeFailure) -> None:
        """Drop the iterations that the remaining nodes repeat.

        Each component of the graph but the first writes its results to a folder of its
        own, ``part-<first node>``.
        """
        for rows in self._rows:
            self._try(rows.rewind, failure)
        if failure.component != failure.components[0]:
            source = self.home
            self.home = self.folder.parent / f"part-{failure.component[0]:05d}"
            if self._rank == failure.component[0]:
                self._try(self._add_component, source, failure.component)

    def _add_component(self, source: Path, nodes: Sequence[int]) -> None:
        from dadmm.runs.folder import RunFolder  # needed after a failure only

        RunFolder.open(self.folder.parent).add_component(self.home, source, nodes)

    def sync(self) -> None:
        """Bring all rows to disk; raise ``failure`` if there is one."""
        self._finish(PartFile.sync)

    def close(self) -> None:
        """Write all rows and close the files; raise ``failure`` if there is one."""
        try:
            self._finish(PartFile.close)
        finally:
            for file in self._files:  # rows that cannot be written are given up
                with contextlib.suppress(OSError):
                    file.close()

    def _finish(self, action: Callable[[PartFile], None]) -> None:
        if self.failure is None:
            self._try(self._flush, action)
        if self.failure is not None:
            raise self.failure

    def _flush(self, action: Callable[[PartFile], None]) -> None:
        for rows in self._rows:
            rows.flush()
        for file in self._files:
            action(file)

    def _try(self, action: Callable[..., None], *args: Any) -> None:
        try:
            with writing(self.folder.parent):
                action(*args)
        except OutputError as failure:
            self.failure = failure
