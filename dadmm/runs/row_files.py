"""Files of rows: each process appends to a part, and the parts are merged.

A line of a part has the iteration, the key of the row (a node, or the two nodes of an
edge), the columns, and a checksum. A merged file has one checksum, in the manifest.
"""

from __future__ import annotations

import heapq
import math
import os
import resource
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, compress, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dadmm.admm.loop import Run
from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.errors import OutputError
from dadmm.core.layout import Array
from dadmm.solver.checkpoint import NodeFailure
from dadmm.solver.rows import EDGE_COLUMNS, NODE_COLUMNS, EdgeRows, NodeRows, Observe

if TYPE_CHECKING:
    from dadmm.runs.folder import RunFolder

PARTS = "parts"  # the folder of the part files
MOST_BYTES = 50_000_000  # of history.csv, and of edges.csv; then rows are thinned
NODE_BYTES, EDGE_BYTES = 280, 80  # of a row, about
ADDED = ("messages", "bytes", *(name for name in NODE_COLUMNS if "_seconds" in name))
KEYS = {"history": ("iteration", "node"), "edges": ("iteration", "i", "j")}
HISTORY = (*KEYS["history"], *NODE_COLUMNS)  # columns of history.csv, and others
EDGES = (*KEYS["edges"], *EDGE_COLUMNS)  # columns of edges.csv


def iteration(line: bytes) -> int:
    return int(line.partition(b",")[0])


def complete_lines(path: Path, root: Path | None = None) -> Iterator[bytes]:
    """Return the lines of a file; the last one may have been cut short."""
    with open(files.open_plain(path, root), "rb") as file:
        yield from takewhile(lambda line: line.endswith(b"\n"), file)


def row_of(t: int, key: Iterable[int], values: Iterable[float]) -> bytes:
    """Return a row without its end."""
    return ",".join(map(repr, (t, *key, *values))).encode()


def sealed(row: bytes) -> bytes:
    """Return the line of a part for a row without its end: with a checksum."""
    return b"%b,%08x\n" % (row, zlib.crc32(row))


def part_rows(part: Path, until: float = math.inf) -> Iterator[bytes]:
    """Return the rows of a part up to an iteration; raise if one is damaged."""
    for line in complete_lines(part, part.parents[1]):
        with suppress(ValueError):  # it is damaged
            if iteration(line) > until:
                return
        row = line.rpartition(b",")[0]
        if line != sealed(row):
            raise OutputError(
                f"{part} has a damaged row: {line[:40]!r}; restore the file, or start "
                "a new run"
            )
        yield row + b"\n"


def merged(
    parts: Sequence[Path], before: Path, until: float = math.inf
) -> Iterator[bytes]:
    """Return the rows up to an iteration, by iteration and then by node.

    Those of ``before``, a merged file that may not exist, come first, as far as their
    iterations are before the parts.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # soft is often 1024
    if soft < (wanted := len(parts) + 64):
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    by_node = lambda line: [*map(int, line.split(b",", 2)[:2])]  # noqa: E731
    rows = heapq.merge(*(part_rows(part, until) for part in parts), key=by_node)
    first = [*islice(rows, 1)]
    end = iteration(first[0]) if first else until + 1
    if files.exists(before):
        earlier = islice(complete_lines(before), 1, None)  # without the header
        yield from takewhile(lambda line: iteration(line) < end, earlier)
    yield from chain(first, rows)


class Stride(NamedTuple):
    """Which iterations have rows: multiples of a step that grows with the run.

    All processes know it without a message. A row also has the bytes and seconds of
    the iterations before it that have none.
    """

    every: int = 1  # the first step
    n_nodes: int = 0  # rows of an iteration in history.csv
    n_edges: int = 0  # and in edges.csv

    def step(self, t: int) -> int:
        """Return the step after ``t`` iterations."""
        size = max(NODE_BYTES * self.n_nodes, EDGE_BYTES * self.n_edges, 1)
        most = max(2, MOST_BYTES // size)  # steps with rows; then the step is doubled
        step = self.every
        while t > step * most:
            step *= 2
        return step


def thinned(
    rows: Iterable[bytes], header: Sequence[str], step: int, kept: Collection[int]
) -> Iterator[bytes]:
    """Yield the rows of multiples of a step, and of the iterations ``kept``.

    What is added up in rows that are left out goes to the next row of their key.
    """
    added = _added(header)
    sums: dict[tuple[bytes, ...], list[float]] = {}
    for row in rows:
        if step == 1:
            yield row
            continue
        words = row.rstrip(b"\n").split(b",")
        t, key = int(words[0]), tuple(words[1 : _width(header)])
        for k, total in zip(added, sums.pop(key, ())):  # noqa: B905 (often empty)
            words[k] = b"%r" % (float(words[k]) + total)
        if t % step and t not in kept:
            sums[key] = [float(words[k]) for k in added]
        else:
            yield b",".join(words) + b"\n"


def _added(header: Sequence[str]) -> list[int]:
    """Return the places of columns that are added up, counted from the last column."""
    return [k - len(header) for k, name in enumerate(header) if name in ADDED]


def _width(header: Sequence[str]) -> int:
    """Return how many columns have the iteration and the key of a row."""
    return 3 if header[1] == "i" else 2


def write_rows(
    path: Path,
    header: Sequence[str],
    rows: Iterable[bytes],
    nodes: Collection[int] | None = None,
    step: int = 1,
    kept: Collection[int] = (),
) -> str:
    """Write a merged file, `thinned`, of all or some nodes; return its checksum."""
    code, names, width = 0, {b"%d" % i for i in nodes or ()}, _width(header)
    rows = thinned(rows, header, step, kept)
    if nodes is not None:
        rows = (row for row in rows if names.issuperset(row.split(b",", 3)[1:width]))
    with files.replacing(path) as draft:
        for line in chain([(",".join(header) + "\n").encode()], rows):
            code = zlib.crc32(line, code)
            draft.write(line)
    return f"{code:08x}"


class PartFile:
    """A sink, see `rows.Sink`, that appends lines to a new file of one process.

    The last iteration, when the file is closed, has rows whatever the stride, and so
    have the last two at which it was synced.
    """

    def __init__(
        self,
        path: Path,
        keys: Sequence[tuple[int, ...]],  # of an iteration's rows: (node,) or (i, j)
        header: Sequence[str],
        stride: Stride,
    ) -> None:
        self._path, self._keys, self._header = path, keys, header
        self._stride, self._step = stride, stride.every
        self._waiting: tuple[int, Array] | None = None  # a row that is not written yet
        self._synced: deque[int] = deque(maxlen=2)
        self._file = open(files.open_plain(path, path.parents[1], files.NEW), "r+b")  # noqa: SIM115

    def append(self, first: int, block: Array) -> None:
        for t, rows in enumerate(block, start=first):
            if self._stride.step(t) > self._step:
                self._thin(t)
            if self._waiting is not None:
                rows, added = rows.copy(), _added(self._header)
                rows[:, added] += self._waiting[1][:, added]
            self._waiting = (t, rows.copy()) if t % self._step else None
            if self._waiting is None:
                self._write(t, rows)
        self._file.flush()

    def _write(self, t: int, rows: Array) -> None:
        for key, row in zip(self._keys, rows.tolist(), strict=True):
            self._file.write(sealed(row_of(t, key, row)))

    def _thin(self, t: int) -> None:
        """Double the step, and leave out rows that were written with the old one."""
        self._step = self._stride.step(t)
        self._file.flush()
        root = self._path.parents[1]
        with files.replacing(self._path, root) as draft:
            rows = part_rows(self._path)
            kept = thinned(rows, self._header, self._step, self._synced)
            draft.writelines(sealed(row.rstrip(b"\n")) for row in kept)
        self._file.close()
        handle = files.open_plain(self._path, root, os.O_RDWR)
        self._file = open(handle, "r+b")  # noqa: SIM115
        self._file.seek(0, os.SEEK_END)

    def _write_last(self) -> None:
        """Write the row of the last iteration if it has none."""
        if self._waiting is not None:
            self._write(*self._waiting)
            self._waiting = None
        self._file.flush()

    def rewind(self, t: int, kept: Iterable[bool]) -> None:
        """Drop iterations after ``t``; leave out rows not ``kept`` from now on.

        Their earlier rows stay, for a resume from an earlier checkpoint.
        """
        self._waiting = None
        self._keys = list(compress(self._keys, kept))
        self._file.seek(0)
        size = 0
        while (line := self._file.readline()).endswith(b"\n"):
            if iteration(line) > t:
                break
            size += len(line)
        self._file.seek(size)
        self._file.truncate()

    def sync(self, t: int) -> None:
        """Bring all lines up to iteration ``t`` to disk."""
        self._write_last()
        self._synced.append(t)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, also if the last rows cannot be written."""
        try:
            self._write_last()
        finally:
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
        start: int,  # the iteration after which a resumed run continues
        stride: Stride,
    ) -> None:
        self.failure: OutputError | None = None  # the first; no rows are written then
        self.home = folder.path  # of the results; after a failure, of a component
        self.headers = {"history": (*HISTORY, *observe)}  # of the kinds of rows
        self._stride, self.last = stride, start
        self._folder, self.rank, self._nodes = folder, rank, nodes
        self._files: list[PartFile] = []
        self._rows: list[NodeRows | EdgeRows] = []
        place, end = folder.path / PARTS, f"-{rank:05d}.csv"
        with writing(folder.path):
            if keys or place.is_dir():
                header = self.headers["history"]
                part = PartFile(place / f"history{end}", keys, header, stride)
                self._files.append(part)
                self._rows += [NodeRows(part, start, observe)] if keys else []
            if edges is not None:
                self.headers["edges"] = EDGES
                part = PartFile(place / f"edges{end}", edges, EDGES, stride)
                self._files.append(part)
                self._rows.append(EdgeRows(part, start))

    @property
    def step(self) -> int:
        """The distance between two iterations that have rows."""
        return self._stride.step(self.last)

    def __call__(self, t: int, run: Run) -> str | None:
        """Record an iteration; request a stop, "output", if that is impossible."""
        self.last = t
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
                self._try(self._folder.add_component, self.home, source)

    def sync(self) -> None:
        """Bring all rows to disk; raise ``failure`` if there is one."""
        if self.failure is None:
            for rows in self._rows:
                self._try(rows.flush)
            for file in self._files:
                self._try(file.sync, self.last)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Write all rows and close the files; raise ``failure`` if there is one."""
        try:
            self.sync()
        finally:
            for file in self._files:
                with suppress(OSError, ValueError):  # it is full, or closed
                    file.close()

    def _try(self, action: Callable[..., object], *args: object) -> None:
        try:
            with writing(self._folder.path):
                action(*args)
        except OutputError as failure:
            self.failure = self.failure or failure
