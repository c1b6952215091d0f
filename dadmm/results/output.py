"""The folder of a run: made anew, filled in parts, finished atomically."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.admm.node import Node
from dadmm.core import files
from dadmm.core.errors import OutputError
from dadmm.resilience.recovery import NodeFailure
from dadmm.results import manifest, partfiles
from dadmm.results.lock import LOCK, RunLock
from dadmm.results.manifest import PARTS, Manifest
from dadmm.results.partfiles import PartFile
from dadmm.results.record import EDGE_COLUMNS, NODE_COLUMNS, EdgeRows, NodeRows, Observe

JOB = ".job"  # by which batch jobs keep each other out of the folder
EDGES = ("iteration", "i", "j", *EDGE_COLUMNS)
NO_RESUME = "it cannot be resumed; start anew in another folder"


@contextmanager
def writing(what: Any) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    if "\0" in str(what):
        raise OutputError("a folder's name has a NUL character; choose another --out")
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write to {what}: {error.strerror}; choose another --out"
        ) from None


def create(
    out: str | None, name: str, overwrite: bool, names: Collection[str] = ()
) -> tuple[Path, RunLock]:
    """Make the folder of a run; return its path and the lock on it.

    Parameters
    ----------
    out : str or None
        The folder that was asked for; None makes ``runs/<name>-<time>``.
    name : str
    overwrite : bool
        Whether the files of a run in ``out`` may be removed.
    names : collection of str
        Of the files that the run may write.
    """
    if out is None:
        stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        with writing("runs"):
            path = _fresh(stem)
            lock = RunLock(path, first=True)
            _begin(Manifest(path), names)
            return path, lock
    path = Path(out)
    with writing(path):
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path} is not a folder; choose another --out")
        if path.is_dir():
            _present(path, overwrite).check(names)
        path.mkdir(parents=True, exist_ok=True)
        lock = RunLock(path, first=True)
        found = _present(path, overwrite)  # nobody else changes it from here on
        found.check(names)
        _begin(found, names)
    return path, lock


def _present(path: Path, overwrite: bool) -> Manifest:
    """Return what a folder has of an earlier run, if it may be used."""
    there = set(os.listdir(path)) - {LOCK, JOB}
    if not there or (there == {manifest.DRAFT} and manifest.was_begun(path)):
        return Manifest(path)
    if not overwrite and not _bare(path, there):
        raise OutputError(
            f"{path} is not empty; choose another --out, or --overwrite to replace the "
            "files of the run in it"
        )
    return Manifest.read(path, "choose another --out, or remove the folder yourself")


def _bare(path: Path, there: set[str]) -> bool:
    """Return whether a run was killed here before it wrote settings or rows."""
    settings = files.draft_of("config.toml")
    if not there <= {manifest.NAME, manifest.DRAFT, settings, PARTS}:
        return False
    return files.kind(path / PARTS) == "none" or not os.listdir(path / PARTS)


def _begin(found: Manifest, names: Collection[str]) -> None:
    """Remove the files of an earlier run, and list those of the run that begins."""
    new = Manifest(found.folder)
    if found.names:
        Manifest(found.folder, found.names | set(names), found.run).save()
        manifest.forget_parts(found)
        found.clear()
    new.add(names)
    with suppress(FileExistsError):
        (found.folder / PARTS).mkdir()


def history_header(observe: Observe) -> tuple[str, ...]:
    """Return the columns of ``history.csv``."""
    return ("iteration", "node", *NODE_COLUMNS, *observe)


def reopen(
    folder: Path,
    start: int,
    n_nodes: int,
    n_edges: int | None,
    observe: Observe,
    names: Collection[str] = (),
) -> None:
    """Make a run's folder ready to go on after iteration ``start``.

    Rows up to it become one file. Later ones are dropped: they will come again.

    Parameters
    ----------
    folder : Path
    start : int
    n_nodes : int
    n_edges : int or None
        Directed edges, if there is a row for each.
    observe : dict of str to callable
        Further columns of the history.
    names : collection of str
        Of the files that the run may write.
    """
    with writing(folder):
        own = Manifest.read(folder, NO_RESUME)
        own.add(names)
        with suppress(FileExistsError):
            (folder / PARTS).mkdir()
        whole = _settle(folder, "history", history_header(observe), start, n_nodes)
        if n_edges is not None:
            whole &= _settle(folder, "edges", EDGES, start, n_edges)
        if not whole:
            raise OutputError(
                f"the rows of {folder} up to iteration {start} are not all there; put "
                "back its files, or start anew"
            )
        manifest.forget_parts(own)
        own.clear(_comes_again)


def _comes_again(name: str) -> bool:
    """Return whether a run that goes on writes a file as if it had begun."""
    rows = name.startswith(f"{PARTS}/") and name != f"{PARTS}/"
    return rows or name == "summary.json" or name.startswith("imputed-")


def _settle(
    folder: Path, kind: str, header: Sequence[str], start: int, n_rows: int
) -> bool:
    """Merge what there is up to an iteration; return whether all rows were there."""
    whole, parts = folder / f"{kind}.csv", []
    try:
        if partfiles.count(whole, start) != n_rows:
            found = {part: _measure(part, start) for part in _parts(folder, kind)}
            parts = [part for part, (kept, _) in found.items() if kept]
            if {kept for kept, _ in found.values() if kept} != {start}:
                return False
            if sum(rows for _, rows in found.values()) != n_rows:
                return False
        with files.replacing(whole) as draft:
            partfiles.merge(parts, header, draft, whole, start)
    except ValueError:  # lines that are no rows
        return False
    return True


def _measure(part: Path, last: int) -> tuple[int, int]:
    with partfiles.reading(part, part.parents[1]) as file:
        return partfiles.measure(file, last)[:2]


def _parts(folder: Path, kind: str) -> list[Path]:
    """Return the files of rows that are there, of those that the run lists."""
    mark = f"{PARTS}/{kind}-"
    listed = sorted(n for n in Manifest.read(folder).names if n.startswith(mark))
    paths = [folder / name for name in listed]
    with files.within(folder / PARTS / "any", folder) as (handle, _):
        return [path for path in paths if files.kind(path.name, handle) != "none"]


def _fresh(stem: Path) -> Path:
    """Make and return the first of stem, stem-2, stem-3, ... that is not there yet."""
    for k in range(1, 10_000):
        path = stem if k == 1 else stem.with_name(f"{stem.name}-{k}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise OutputError(f"{stem} and ten thousand like it exist; clean up runs/")


class Parts:
    """A callback that writes this process's rows as they come.

    Parameters
    ----------
    folder : Path
        Of the run; all ranks must see it.
    rank : int
    keys : sequence of tuple
        The hosted nodes, ``(node,)``.
    edges : sequence of tuple or None
        Their directed edges ``(i, j)``, if these are to be recorded.
    observe : dict of str to callable
        Further columns of the history.
    start : int
        The iteration from which a resumed run goes on.
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
        self.home = folder  # where results go
        with writing(folder):
            rows = self._open(f"history-{rank:05d}.csv", keys)
            self._rows.append(NodeRows(len(keys), rows, observe, start))
            self.header = history_header(observe)
            if edges is not None:
                rows = self._open(f"edges-{rank:05d}.csv", edges)
                self._rows.append(EdgeRows(len(edges), rows, start))

    def _open(self, name: str, keys: Sequence[tuple[int, ...]]) -> PartFile:
        self._files.append(PartFile(self.folder / name, keys))
        return self._files[-1]

    def __call__(self, t: int, nodes: Sequence[Node]) -> str | None:
        """Record an iteration; a full disk ends the run in good order."""
        if self.failure is None:
            self._try(self._record, t, nodes)
        return None if self.failure is None else "output"

    def rewind(self, failure: NodeFailure) -> None:
        """Go on from the iteration to which the survivors of a loss go back.

        A part of the graph that it has cut off has a folder of its own from then on.
        """
        for rows in self._rows:
            self._try(rows.rewind, failure)
        if failure.part != failure.parts[0]:
            source = self.home
            self.home = self.folder.parent / f"part-{failure.part[0]:05d}"
            if self._rank == failure.part[0]:
                self._try(self._move_out, source, failure.part)

    def _move_out(self, source: Path, nodes: Sequence[int]) -> None:
        """Make the folder of this part, with what was merged before."""
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
        """Bring all rows so far to disk; raise what went wrong."""
        if self.failure is None:
            self._try(self._sync)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Write what is left; raise what went wrong."""
        if self.failure is None:
            self._try(self._close)
        if self.failure is not None:
            raise self.failure

    def _sync(self) -> None:
        for rows in self._rows:
            rows.table.flush()
        for file in self._files:
            file.sync()

    def _close(self) -> None:
        for rows in self._rows:
            rows.table.flush()
        for file in self._files:
            file.close()

    def _record(self, t: int, nodes: Sequence[Node]) -> None:
        for rows in self._rows:
            rows(t, nodes)

    def _try(self, action: Callable[..., None], *args: Any) -> None:
        try:
            with writing(self.folder.parent):
                action(*args)
        except OutputError as failure:
            self.failure = failure


def write_text(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    with writing(path.parent), files.replacing(path) as file:
        file.write(text.encode())


def write_arrays(
    path: Path, arrays: dict[str, np.ndarray], private: bool = False
) -> None:
    """Write a .npz file that appears whole or not at all.

    A private file can be read by its owner alone, from the start (mode 0600).
    """
    mode = 0o600 if private else 0o666  # less what the umask takes away
    with writing(path.parent), files.replacing(path, mode=mode) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def write_ranks_file(folder: Path, places: Sequence[str]) -> None:
    """Leave word of the processes of a run, for whoever outlives them.

    That is ``ranks.csv``, from "rank host pid" of each node, if there are any, and the
    folder's path in the file that ``DADMM_RUN_FILE`` names.
    """
    if places:
        rows = []
        for node, place in enumerate(places):
            rank, host, pid = place.split(" ")
            rows.append((int(rank), f"{rank},{node},{host},{pid}\n"))
        lines = [line for _, line in sorted(rows)]
        write_text(folder / "ranks.csv", "".join(["rank,node,host,pid\n", *lines]))
    if file := os.environ.get("DADMM_RUN_FILE"):
        # without it the launcher knows less, and the run goes on
        with suppress(OSError), open(files.create(Path(file)), "w") as word:
            word.write(str(folder.absolute()))


def finish(
    summary: dict[str, Any],
    arrays: dict[str, np.ndarray],
    parts: Parts,
    left: Sequence[int] | None = None,
) -> None:
    """Merge the parts and write the results; each file appears whole or not at all.

    Parameters
    ----------
    summary : dict
    arrays : dict of str to ndarray
    parts : Parts
        Those of this process, which know of the others.
    left : sequence of int, optional
        Whose rows to take: the nodes, and ranks, that are left after a failure. Those that
        a loss has cut off may still be at work.
    """
    folder = parts.home

    def rows(kind: str) -> list[Path]:
        if left is None:
            return _parts(folder, kind)
        return [parts.folder / f"{kind}-{i:05d}.csv" for i in left]

    def write(kind: str, header: Sequence[str]) -> None:
        whole = folder / f"{kind}.csv"
        with files.replacing(whole) as draft:
            partfiles.merge(rows(kind), header, draft, whole, nodes=left)

    with writing(folder):
        write("history", parts.header)
        if parts.by_edge:
            write("edges", EDGES)
        write_arrays(folder / "result.npz", arrays)
        # The summary comes last: a folder that has one is complete.
        write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        done = rows("history") + rows("edges")
        _remove(parts.folder.parent, [file.name for file in done])


def remove_rows(parts: Parts, ranks: Sequence[int]) -> None:
    """Remove the rows of ranks that died."""
    kinds = ("history", "edges")
    _remove(parts.folder.parent, [f"{k}-{i:05d}.csv" for k in kinds for i in ranks])


def _remove(folder: Path, rows: Sequence[str]) -> None:
    """Remove files of rows, and their folder unless something else is in it."""
    chosen = {f"{PARTS}/", *(f"{PARTS}/{name}" for name in rows)}
    Manifest.read(folder).clear(chosen.__contains__)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run that needs them no more."""
    with writing(folder):
        mark = f"{manifest.CHECKPOINTS}/"
        Manifest.read(folder).clear(lambda name: name.startswith(mark))


def settle(folder: Path) -> None:
    """List what a run has left in its folder."""
    with writing(folder):
        Manifest.read(folder).settle()


def list_figures(folder: Path, names: Collection[str]) -> None:
    """List figures of a run in its folder; another folder has no list."""
    if files.kind(folder / manifest.NAME) != "none":
        with writing(folder):
            lock = RunLock(folder, first=True)
            try:
                Manifest.read(folder).add(names)
            finally:
                lock.release()
