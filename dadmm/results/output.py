"""The folder of a run: made anew, filled in parts, finished atomically."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.admm.node import Node
from dadmm.core.errors import OutputError
from dadmm.resilience import checkpoint
from dadmm.resilience.recovery import Loss
from dadmm.results import partfiles
from dadmm.results.lock import LOCK, Claim
from dadmm.results.partfiles import PartFile
from dadmm.results.record import EDGE_COLUMNS, NODE_COLUMNS, EdgeRows, NodeRows, Observe

PARTS = "parts"
JOB = ".job"  # by which batch jobs keep each other out of the folder
EDGES = ("iteration", "i", "j", *EDGE_COLUMNS)


@contextmanager
def writing(what: Any) -> Iterator[None]:
    """Turn the operating system's refusals into one sentence."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot write to {what}: {error.strerror}; choose another --out"
        ) from None


def create(out: str | None, name: str, overwrite: bool) -> tuple[Path, Claim]:
    """Make the folder of a run; return its path and the claim on it.

    Parameters
    ----------
    out : str or None
        The folder that was asked for; None makes ``runs/<name>-<time>``.
    name : str
    overwrite : bool
        Whether an ``out`` that holds results may be used again.
    """
    if out is None:
        stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        with writing("runs"):
            path = _fresh(stem)
            return path, Claim(path, first=True)
    path = Path(out)
    with writing(path):
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path} is not a folder; choose another --out")
        if path.is_dir() and not overwrite and set(os.listdir(path)) - {LOCK, JOB}:
            raise OutputError(
                f"{path} is not empty; choose another --out, or --overwrite to replace "
                "its results"
            )
        path.mkdir(parents=True, exist_ok=True)
        claim = Claim(path, first=True)
        _forget_results(path)
        checkpoint.remove(path)
        (path / PARTS).mkdir(exist_ok=True)
        _empty(path / PARTS)
    return path, claim


def history_header(observe: Observe) -> tuple[str, ...]:
    """Return the columns of ``history.csv``."""
    return ("iteration", "node", *NODE_COLUMNS, *observe)


def reopen(
    folder: Path,
    start: int,
    n_nodes: int,
    n_edges: int | None,
    observe: Observe,
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
    """
    with writing(folder):
        (folder / PARTS).mkdir(exist_ok=True)
        whole = _settle(folder, "history", history_header(observe), start, n_nodes)
        if n_edges is not None:
            whole &= _settle(folder, "edges", EDGES, start, n_edges)
        if not whole:
            raise OutputError(
                f"the rows of {folder} up to iteration {start} are not all there; put "
                "back its files, or start anew"
            )
        _empty(folder / PARTS)
        _forget_results(folder)


def _settle(
    folder: Path, kind: str, header: Sequence[str], start: int, n_rows: int
) -> bool:
    """Merge what there is up to an iteration; return whether all rows were there."""
    whole, parts = folder / f"{kind}.csv", []
    if partfiles.count(whole, start) != n_rows:
        found = {p: partfiles.cut(p, start) for p in _parts(folder, kind)}
        parts = [part for part, (kept, _) in found.items() if kept]
        if {kept for kept, _ in found.values() if kept} != {start}:
            return False
        if sum(rows for _, rows in found.values()) != n_rows:
            return False
    with _atomic(whole) as draft:
        last = None if parts else start
        partfiles.merge(parts, header, draft, whole, last)
    return True


def _parts(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / PARTS).glob(f"{kind}-*.csv"))


def _forget_results(folder: Path) -> None:
    """Remove what would seem to be results of the run that begins or goes on here."""
    for stale in (folder / "summary.json", *folder.glob("imputed-*.npz")):
        stale.unlink(missing_ok=True)
    for part in folder.glob("part-[0-9]*"):  # of a graph that had fallen apart
        if (part / "config.toml").exists():
            shutil.rmtree(part)


def _fresh(stem: Path) -> Path:
    """Make and return the first of stem, stem-2, stem-3, ... that is not there yet."""
    for k in range(1, 10_000):
        path = stem if k == 1 else stem.with_name(f"{stem.name}-{k}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        (path / PARTS).mkdir()
        return path
    raise OutputError(f"{stem} and ten thousand like it exist; clean up runs/")


class Parts:
    """A watcher that writes this process's rows as they come.

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

    def rewind(self, loss: Loss) -> None:
        """Go on from the iteration to which the survivors of a loss go back.

        A part of the graph that it has cut off has a folder of its own from then on.
        """
        for rows in self._rows:
            self._try(rows.rewind, loss)
        if loss.part != loss.parts[0]:
            source = self.home
            self.home = self.folder.parent / f"part-{loss.part[0]:05d}"
            if self._rank == loss.part[0]:
                self._try(self._move_out, source)

    def _move_out(self, source: Path) -> None:
        """Take along what was merged before, and is of this part, too."""
        self.home.mkdir(exist_ok=True)
        for name in ("history.csv", "edges.csv", "config.toml"):
            if (source / name).exists():
                shutil.copyfile(source / name, self.home / name)

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
    with writing(path.parent), _atomic(path) as draft:
        draft.write_text(text, "utf-8")


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a .npz file that appears whole or not at all."""
    with writing(path.parent), _atomic(path) as draft, open(draft, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def introduce(folder: Path, places: Sequence[str]) -> None:
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
        with suppress(OSError):  # the launcher then knows less, and the run goes on
            Path(file).write_text(str(folder.absolute()))


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
        Whose rows to take: the nodes, and ranks, that are left after a loss. Those that
        a loss has cut off may still be at work.
    """
    folder = parts.home

    def rows(kind: str) -> list[Path]:
        if left is None:
            return _parts(folder, kind)
        return [parts.folder / f"{kind}-{i:05d}.csv" for i in left]

    def write(kind: str, header: Sequence[str]) -> None:
        whole = folder / f"{kind}.csv"
        with _atomic(whole) as draft:
            partfiles.merge(rows(kind), header, draft, whole, nodes=left)

    with writing(folder):
        write("history", parts.header)
        if parts.by_edge:
            write("edges", EDGES)
        else:
            (folder / "edges.csv").unlink(missing_ok=True)
        write_arrays(folder / "result.npz", arrays)
        # The summary comes last: a folder that has one is complete.
        with _atomic(folder / "summary.json") as draft:
            draft.write_text(json.dumps(summary, indent=2) + "\n")
        _remove(parts.folder, rows("history") + rows("edges"))


def remove_rows(parts: Parts, ranks: Sequence[int]) -> None:
    """Remove the rows of ranks that died."""
    kinds = ("history", "edges")
    files = [parts.folder / f"{kind}-{i:05d}.csv" for kind in kinds for i in ranks]
    _remove(parts.folder, files)


def _remove(folder: Path, files: Sequence[Path]) -> None:
    """Remove files, and their folder unless others are still at work in it."""
    for file in files:
        file.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink(missing_ok=True)


@contextmanager
def _atomic(path: Path) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.draft")
    try:
        yield draft
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
