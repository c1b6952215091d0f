"""Files of rows: each process appends to a part, and the parts are merged.

A part has its rows in order of iteration. A line has the iteration, the key of the row
(a node, or the two nodes of an edge), and the columns.
"""

from __future__ import annotations

import csv
import heapq
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from dadmm.admm.loop import Run
from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.errors import OutputError
from dadmm.core.layout import Array
from dadmm.solver.recovery import NodeFailure
from dadmm.solver.rows import (
    EDGE_COLUMNS,
    NODE_COLUMNS,
    EdgeRows,
    Mask,
    NodeRows,
    Observe,
)  # fmt: skip

if TYPE_CHECKING:
    from dadmm.runs.folder import RunFolder

PARTS = "parts"  # the folder of the part files
NODE_KEYS, EDGE_KEYS = ("iteration", "node"), ("iteration", "i", "j")
EDGES = (*EDGE_KEYS, *EDGE_COLUMNS)  # columns of edges.csv


def history_header(observe: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of ``history.csv``."""
    return (*NODE_KEYS, *NODE_COLUMNS, *observe)


def iteration(line: bytes) -> int:
    """Return the iteration of a row."""
    return int(line.partition(b",")[0])


def complete_lines(path: Path, root: Path | None = None) -> Iterator[bytes]:
    """Return the lines of a file; the last one may have been cut short."""
    with open(files.open_plain(path, root), "rb") as file:
        yield from takewhile(lambda line: line.endswith(b"\n"), file)


def merged(parts: Sequence[Path], before: Path) -> Iterator[bytes]:
    """Return the rows of all parts, by iteration and then in the order of the parts.

    The rows of ``before``, a merged file that may not exist, come first, as far as
    their iterations are before those of the parts. The parts are in a subfolder of the
    run's folder.
    """
    _allow_files(len(parts) + 64)
    opened = [complete_lines(part, part.parents[1]) for part in parts]
    rows = heapq.merge(*opened, key=iteration)
    first = next(rows, None)
    end = math.inf if first is None else iteration(first)
    if files.kind(before) != "none":
        earlier = complete_lines(before)
        next(earlier, b"")  # the header
        yield from takewhile(lambda line: iteration(line) < end, earlier)
    if first is not None:
        yield first
        yield from rows


def write_rows(
    target: BinaryIO,
    header: Sequence[str],
    rows: Iterable[bytes],
    nodes: Collection[int] | None = None,
) -> None:
    """Write a merged file: all rows, or those of ``nodes`` and the edges between."""
    target.write((",".join(header) + "\n").encode())
    if nodes is not None:
        names, ends = {b"%d" % i for i in nodes}, 3 if header[1] == "i" else 2
        own = lambda line: names.issuperset(line.split(b",", ends)[1:ends])  # noqa: E731
        rows = filter(own, rows)
    target.writelines(rows)


def _allow_files(n: int) -> None:
    """Raise the limit on open files, often 1024, to ``n`` if the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        wanted = n if hard == resource.RLIM_INFINITY else min(n, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


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

    def append(self, first: int, block: Array) -> None:
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
        while (line := self._file.readline().encode()).endswith(b"\n"):
            if iteration(line) > t:
                break
            size += len(line)
        self._file.seek(size)
        self._file.truncate()

    def sync(self) -> None:
        """Bring all lines to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class RowFiles:
    """A callback that writes the rows of this process to its part files."""

    def __init__(
        self,
        folder: RunFolder,  # without records it may be on another machine
        rank: int,
        nodes: Collection[int],  # those of this process
        keys: Sequence[tuple[int, ...]],  # (node,) of hosted nodes to record, if any
        edges: Sequence[tuple[int, ...]] | None,  # their directed edges, or None
        observe: Observe,  # further columns of the history
        start: int = 0,  # the iteration after which a resumed run continues
    ) -> None:
        self.failure: OutputError | None = None  # the first; no rows are written then
        self.by_edge = edges is not None
        self.home = folder.path  # of the results; after a failure that of a component
        self.header = history_header(observe)
        self._folder, self._rank = folder, rank
        self._nodes = nodes
        self._files: list[PartFile] = []
        self._rows: list[NodeRows | EdgeRows] = []
        with writing(folder.path):
            if keys or (folder.path / PARTS).is_dir():
                part = self._open("history", keys)
            if keys:
                self._rows.append(NodeRows(part, observe, start))
            if edges is not None:
                self._rows.append(EdgeRows(self._open("edges", edges), start))

    def _open(self, kind: str, keys: Sequence[tuple[int, ...]]) -> PartFile:
        name = f"{kind}-{self._rank:05d}.csv"
        self._files.append(PartFile(self._folder.path / PARTS / name, keys))
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
        nodes = failure.component
        if nodes != failure.components[0]:
            source, self.home = self.home, self._folder.path / f"part-{nodes[0]:05d}"
            if nodes[0] in self._nodes:
                self._try(self._folder.add_component, self.home, source, nodes)

    def sync(self) -> None:
        """Bring all rows to disk; raise ``failure`` if there is one."""
        self._finish(PartFile.sync)

    def close(self) -> None:
        """Write all rows and close the files; raise ``failure`` if there is one."""
        try:
            self._finish(PartFile.close)
        finally:
            for file in self._files:  # rows that cannot be written are given up
                with suppress(OSError):
                    file.close()

    def _finish(self, action: Callable[[PartFile], None]) -> None:
        if self.failure is None:
            for rows in self._rows:
                self._try(rows.flush)
            for file in self._files:
                self._try(action, file)
        if self.failure is not None:
            raise self.failure

    def _try(self, action: Callable[..., object], *args: object) -> None:
        try:
            with writing(self._folder.path):
                action(*args)
        except OutputError as failure:
            self.failure = self.failure or failure
