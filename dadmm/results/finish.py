"""The folder of a run at its end: rows are merged, results written, drafts removed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dadmm.core import files
from dadmm.results import manifest, part_files
from dadmm.results.lock import RunLock
from dadmm.results.manifest import PARTS, Manifest
from dadmm.results.part_files import EDGES, RowFiles
from dadmm.results.writing import write_arrays, write_text, writing


def write_results(
    summary: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    rows: RowFiles,
    left: Sequence[int] | None = None,
    model: str | None = None,
) -> None:
    """Merge the part files, write the results, and remove the part files.

    ``model`` is the text of model.json, if there is one. ``left`` are the nodes, which
    are also ranks, whose rows to take after a failure; all by default. Ranks of another
    component may still write theirs.
    """
    folder = rows.home

    def parts(kind: str) -> list[Path]:
        if left is None:
            return part_files.listed(folder, kind)
        return [rows.folder / f"{kind}-{i:05d}.csv" for i in left]

    def merge(kind: str, header: Sequence[str]) -> None:
        whole = folder / f"{kind}.csv"
        with files.replacing(whole) as draft:
            part_files.merge(parts(kind), header, draft, whole, nodes=left)

    with writing(folder):
        merge("history", rows.header)
        if rows.by_edge:
            merge("edges", EDGES)
        write_arrays(folder / "result.npz", arrays)
        if model is not None:
            write_text(folder / "model.json", model)
        # The summary comes last: a folder that has one is complete.
        write_text(folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        merged = parts("history") + parts("edges")
        _remove(rows.folder.parent, [file.name for file in merged])


def remove_rows(rows: RowFiles, ranks: Sequence[int]) -> None:
    """Remove the part files of failed ranks."""
    kinds = ("history", "edges")
    _remove(rows.folder.parent, [f"{k}-{i:05d}.csv" for k in kinds for i in ranks])


def _remove(folder: Path, names: Sequence[str]) -> None:
    """Remove part files, and their folder if it is empty then."""
    chosen = {f"{PARTS}/", *(f"{PARTS}/{name}" for name in names)}
    Manifest.read(folder).clear(chosen.__contains__)


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run that cannot be resumed any more."""
    with writing(folder):
        prefix = f"{manifest.CHECKPOINTS}/"
        Manifest.read(folder).clear(lambda name: name.startswith(prefix))


def list_remaining(folder: Path) -> None:
    """Reduce the manifest of a finished run to the files that are there."""
    with writing(folder):
        Manifest.read(folder).settle()


def list_figures(
    folder: Path, names: Collection[str], made: Collection[str] = ()
) -> None:
    """Add figures to the manifest of a run; do nothing if the folder has none.

    A file that exists and is not listed is refused, unless it is one of ``made``, which
    the caller has recognised as its own.
    """
    if files.kind(folder / manifest.NAME) != "none":
        with writing(folder):
            lock = RunLock(folder, first=True)
            try:
                found = Manifest.read(folder)
                found.names |= set(made)
                found.add(names)
            finally:
                lock.release()
