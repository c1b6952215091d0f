"""The rows of this process, written to disk during the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dadmm.admm.loop import Run
from dadmm.core import files
from dadmm.core.errors import OutputError
from dadmm.resilience.recovery import NodeFailure
from dadmm.results import manifest
from dadmm.results.manifest import PARTS, Manifest
from dadmm.results.part_files import PartFile
from dadmm.results.rows import EDGE_COLUMNS, NODE_COLUMNS, EdgeRows, NodeRows, Observe
from dadmm.results.writing import writing

EDGES = ("iteration", "i", "j", *EDGE_COLUMNS)  # columns of edges.csv


def history_header(observe: Observe) -> tuple[str, ...]:
    """Return the columns of ``history.csv``."""
    return ("iteration", "node", *NODE_COLUMNS, *observe)


class RowFiles:
    """A callback that writes the rows of this process to its part files.

    Parameters
    ----------
    folder : Path
        Of the run; all ranks must see it.
    rank : int
    keys : sequence of tuple
        The hosted nodes, ``(node,)``.
    edges : sequence of tuple or None
        Their directed edges ``(i, j)``; None to record no edges.
    observe : dict of str to callable
        Further columns of the history.
    start : int
        The iteration after which a resumed run continues.

    Attributes
    ----------
    folder : Path
        Of the part files.
    home : Path
        Of the results: the folder of the run, or that of a component of the graph.
    failure : OutputError or None
        The first error; nothing is written after it.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        keys: Sequence[tuple[int, ...]],
        edges: Sequence[tuple[int, ...]] | None,
        observe: Observe,
        start: int = 0,
    ) -> None:
        if not (folder / PARTS).is_dir():
            raise OutputError(
                f"{folder}, made by rank 0, is not there for this rank; --out must lie "
                "on a file system that all ranks share"
            )
        self.failure: OutputError | None = None
        self.by_edge = edges is not None
        self._files: list[PartFile] = []
        self._rows: list[NodeRows | EdgeRows] = []
        self._rank = rank
        self.folder = folder / PARTS
        self.home = folder
        with writing(folder):
            part = self._open(f"history-{rank:05d}.csv", keys)
            self._rows.append(NodeRows(part, observe, start))
            self.header = history_header(observe)
            if edges is not None:
                part = self._open(f"edges-{rank:05d}.csv", edges)
                self._rows.append(EdgeRows(part, start))

    def _open(self, name: str, keys: Sequence[tuple[int, ...]]) -> PartFile:
        self._files.append(PartFile(self.folder / name, keys))
        return self._files[-1]

    def __call__(self, t: int, run: Run) -> str | None:
        """Record an iteration; request a stop, "output", if that is impossible."""
        if self.failure is None:
            self._try(self._record, t, run)
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
                self._try(self._make_part_folder, source, failure.component)

    def _make_part_folder(self, source: Path, nodes: Sequence[int]) -> None:
        """Make the folder of a component, with a copy of the rows merged so far."""
        run = Manifest.read(self.folder.parent).run
        try:
            self.home.mkdir()
        except FileExistsError as error:
            reason = f"there is a {self.home.name} already"
            raise OSError(error.errno, reason) from None
        names = manifest.names_of_part(nodes, self.by_edge)
        Manifest(self.home, names, run).save()
        for name in ("history.csv", "edges.csv", "config.toml"):
            if files.kind(source / name) == "file":
                with files.replacing(self.home / name) as file:
                    file.write(files.read(source / name))

    def sync(self) -> None:
        """Bring all rows to disk; raise ``failure`` if there is one."""
        self._finish(lambda file: file.sync())

    def close(self) -> None:
        """Write all rows and close the files; raise ``failure`` if there is one."""
        self._finish(lambda file: file.close())

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

    def _record(self, t: int, run: Run) -> None:
        for rows in self._rows:
            rows(t, run)

    def _try(self, action: Callable[..., None], *args: Any) -> None:
        try:
            with writing(self.folder.parent):
                action(*args)
        except OutputError as failure:
            self.failure = failure
