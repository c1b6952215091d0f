"""Create the folder of a run, or reopen it to resume the run."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from dadmm.core import files
from dadmm.core.errors import OutputError
from dadmm.results import manifest, part_files
from dadmm.results.lock import LOCK, RunLock
from dadmm.results.manifest import PARTS, Manifest
from dadmm.results.part_files import EDGES, history_header
from dadmm.results.rows import Observe
from dadmm.results.writing import write_text, writing

JOB = ".job"  # the lock of batch jobs
KEEP = "a run is resumed in its own folder, so make it writable"
NO_RESUME = "it cannot be resumed; start a new run in another folder"


def create(
    out: str | None, name: str, overwrite: bool, names: Collection[str] = ()
) -> tuple[Path, RunLock]:
    """Make the folder of a run; return its path and the lock on it.

    ``out`` is the folder of ``--out``; None makes ``runs/<name>-<time>``. With
    ``overwrite``, the files of a run in ``out`` are removed. The run may write the
    files ``names``.
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
        found = _present(path, overwrite)  # the lock keeps others from changing it
        found.check(names)
        _begin(found, names)
    return path, lock


def _present(path: Path, overwrite: bool) -> Manifest:
    """Return the manifest of an earlier run; raise if the folder may not be used."""
    there = set(os.listdir(path)) - {LOCK, JOB}
    if not there or (there == {manifest.DRAFT} and manifest.was_begun(path)):
        return Manifest(path)
    if not overwrite and not _bare(path, there):
        of_run = ", or --overwrite to replace the files of the run in it"
        also = of_run if manifest.NAME in there else ""
        raise OutputError(f"{path} is not empty; choose another --out{also}")
    return Manifest.read(path, "choose another --out, or remove the folder yourself")


def _bare(path: Path, there: set[str]) -> bool:
    """Return whether a run was killed here before it wrote settings or rows."""
    settings = files.draft_of("config.toml")
    if not there <= {manifest.NAME, manifest.DRAFT, settings, PARTS}:
        return False
    return files.kind(path / PARTS) == "none" or not os.listdir(path / PARTS)


def _begin(found: Manifest, names: Collection[str]) -> None:
    """Remove the files of an earlier run, and write the manifest of the new one."""
    new = Manifest(found.folder)
    if found.names:
        Manifest(found.folder, found.names | set(names), found.run).save()
        manifest.forget_parts(found)
        found.clear()
    new.add(names)
    with suppress(FileExistsError):
        (found.folder / PARTS).mkdir()


def _fresh(stem: Path) -> Path:
    """Make and return the first of stem, stem-2, stem-3, ... that does not exist."""
    for k in range(1, 10_000):
        path = stem if k == 1 else stem.with_name(f"{stem.name}-{k}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        return path
    raise OutputError(
        f"{stem} exists, and so do {stem}-2 to {stem}-9999; remove some of them, or "
        "choose another --out"
    )


def reopen(
    folder: Path,
    start: int,
    n_nodes: int,
    n_edges: int | None,
    observe: Observe,
    names: Collection[str] = (),
) -> None:
    """Prepare the folder of a run that continues after iteration ``start``.

    Rows up to that iteration are merged into one file. Later rows are removed, because
    the run computes them again. ``n_edges`` counts directed edges; None if they are not
    recorded. The run may write the files ``names``.
    """
    with writing(folder, KEEP):
        own = Manifest.read(folder, NO_RESUME)
        own.add(names)
        with suppress(FileExistsError):
            (folder / PARTS).mkdir()
        whole = _merge_up_to(folder, "history", history_header(observe), start, n_nodes)
        if n_edges is not None:
            whole &= _merge_up_to(folder, "edges", EDGES, start, n_edges)
        if not whole:
            raise OutputError(
                f"some rows of {folder} up to iteration {start} are missing; restore "
                "its files, or start a new run"
            )
        manifest.forget_parts(own)
        own.clear(_is_rewritten)


def _is_rewritten(name: str) -> bool:
    """Return whether a resumed run writes this file again."""
    rows = name.startswith(f"{PARTS}/") and name != f"{PARTS}/"
    return rows or name in ("summary.json", "model.json") or name.startswith("imputed-")


def _merge_up_to(
    folder: Path, kind: str, header: Sequence[str], start: int, n_rows: int
) -> bool:
    """Merge the rows up to an iteration; return whether none was missing."""
    whole, parts = folder / f"{kind}.csv", []
    try:
        if part_files.count(whole, start) != n_rows:
            found = []
            for part in part_files.listed(folder, kind):
                with part_files.reading(part, folder) as file:
                    kept, rows, _ = part_files.measure(file, start)
                found.append((kept, rows))
                parts += [part] if kept else []
            if {kept for kept, _ in found if kept} != {start}:
                return False
            if sum(rows for _, rows in found) != n_rows:
                return False
        with files.replacing(whole) as draft:
            part_files.merge(parts, header, draft, whole, start)
    except ValueError:  # lines that are not rows
        return False
    return True


def write_ranks_file(folder: Path, processes: Sequence[tuple[int, str, int]]) -> None:
    """Write ranks.csv so that the launch command can identify failed ranks.

    Also write the folder's path to the file that ``DADMM_RUN_FILE`` names, if it is
    set.

    Parameters
    ----------
    folder : Path
    processes : sequence of (int, str, int)
        Rank, host and process number of each node; empty for a run without MPI, which
        has no file.
    """
    if processes:
        rows = sorted(
            (r, node, host, pid) for node, (r, host, pid) in enumerate(processes)
        )
        lines = [f"{rank},{node},{host},{pid}\n" for rank, node, host, pid in rows]
        write_text(folder / "ranks.csv", "".join(["rank,node,host,pid\n", *lines]))
    if file := os.environ.get("DADMM_RUN_FILE"):
        # the run continues without it
        with suppress(OSError), open(files.create(Path(file)), "w") as pointer:
            pointer.write(str(folder.absolute()))
