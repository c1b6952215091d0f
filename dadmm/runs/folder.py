"""The folder of a run: its files, its lock, its beginning and its end.

A run removes and replaces the files that ``manifest.json`` lists, and no others. In a
name, ``*`` is the number of an iteration. A file is written as a draft first,
``.name.draft``, which belongs to the run too.
"""

from __future__ import annotations

import json
import os
import re
import time
import weakref
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, takewhile
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

import numpy as np

from dadmm.comm.launch_link import tell_launcher
from dadmm.core import files
from dadmm.core.documents import write_arrays, write_text, writing
from dadmm.core.errors import OutputError
from dadmm.core.layout import Array
from dadmm.core.schema import OBJECT, TEXT, check_entries, choice, of_type
from dadmm.graphs.topology import Integers
from dadmm.runs.row_files import (
    EDGES,
    PARTS,
    RowFiles,
    Stride,
    history_header,
    iteration,
    merged,
    thinned,
    write_rows,
)
from dadmm.solver.rows import Observe

MANIFEST, CHECKPOINTS = "manifest.json", "checkpoints"
DRAFT = files.draft_of(MANIFEST)
START = b'{\n "program": "dadmm"'  # of every manifest
LARGEST = 1 << 26  # bytes of a manifest
LOCK = ".lock"
LOCKED = re.compile(rb"(process [0-9]+ on [^\s]*)?")  # the content of a lock
# Names that a run, its launcher, dadmm.plot and dadmm.report may write; folders end
# with a slash.
KNOWN = re.compile(
    r"config\.toml|summary\.json|result\.npz|model\.json|history\.csv|edges\.csv"
    r"|ranks\.csv|failure\.txt|imputed-[0-9]{5,9}\.npz|parts/|checkpoints/"
    r"|parts/(history|edges)-[0-9]{5,9}\.csv|checkpoints/\*/node-[0-9]{5,9}\.npz"
    r"|(compare-)?(convergence|cost|eta|network|structure|traffic)\.(png|svg|pdf)"
    r"|(compare-)?report\.html"
)
ENTRIES = {  # of the manifest
    "program": choice(["dadmm"]),
    "run": TEXT,
    "files": of_type("a list", list),
    "checksums": OBJECT,  # of merged rows
}
NAME = TEXT.also("one of a run", lambda name: KNOWN.fullmatch(name) is not None)
ITERATION = re.compile(r"[0-9]{8,18}")
COMPONENT = re.compile(r"part-[0-9]{5,9}")
DRAFTS = re.compile(r"\.(.+)\.draft")
RESULTS = ("config.toml", "summary.json", "result.npz", "model.json", "history.csv")
ALWAYS = {"failure.txt"}  # a launcher writes it after the end of a run
KEEP = "a run is resumed in its own folder, so make it writable"
NO_RESUME = "it cannot be resumed; start a new run in another folder"
REPORT = "report.html"  # dadmm.report also writes it while the run goes on


def names_of_run(
    n_nodes: int, ranks: int, edges: bool, over_mpi: bool, saves: bool
) -> set[str]:
    """Return the names of all files that a run of so many ``ranks`` may write."""
    names = {*RESULTS, *ALWAYS, REPORT, f"compare-{REPORT}"}
    names |= {f"imputed-{i:05d}.npz" for i in range(n_nodes)}
    names |= {f"{PARTS}/", *(f"{PARTS}/history-{r:05d}.csv" for r in range(ranks))}
    if edges:
        names |= {"edges.csv", *(f"{PARTS}/edges-{r:05d}.csv" for r in range(ranks))}
    if over_mpi:
        names.add("ranks.csv")
    if saves:
        names.add(f"{CHECKPOINTS}/")
        names |= {f"{CHECKPOINTS}/*/node-{i:05d}.npz" for i in range(n_nodes)}
    return names


def names_of_nodes(nodes: Sequence[int]) -> str:
    """Return node numbers, which ascend, as text, such as "0-3 5"."""
    breaks = np.flatnonzero(np.diff(nodes) != 1) + 1
    parts = np.split(np.asarray(nodes), breaks)
    return " ".join(
        "-".join(map(str, sorted({int(part[0]), int(part[-1])}))) for part in parts
    )


class RunFolder:
    """The folder of a run: its files, as the manifest lists them, and its identity."""

    def __init__(
        self, path: Path, names: Iterable[str] = (), run: str | None = None
    ) -> None:
        self.path, self.names = path, set(names)
        self.run = run or os.urandom(16).hex()
        self.checksums: dict[str, str] = {}
        self.release: Callable[[], object] = lambda: None  # the lock, if it is held

    @classmethod
    def create(
        cls, out: str | None, name: str, overwrite: bool, names: Collection[str] = ()
    ) -> RunFolder:
        """Make the folder of a new run, which may write ``names``, and lock it.

        ``out`` is the folder of ``--out``; None makes ``runs/<name>-<time>``.
        """
        stem = Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
        with writing("runs" if out is None else out):
            path = _fresh(stem) if out is None else Path(out)
            if path.exists() and not path.is_dir():
                raise OutputError(f"{path} is not a folder; choose another --out")
            if path.is_dir():
                cls._present(path, overwrite).check(names)
            path.mkdir(parents=True, exist_ok=True)
            new = cls(path)
            new.lock(first=True)
            try:
                new._replace(cls._present(path, overwrite), names)
            except BaseException:
                new.release()
                raise
        return new

    def _replace(self, before: RunFolder, names: Collection[str]) -> None:
        """Clear an earlier run, which the lock keeps as it is, and begin this one."""
        before.check(names)
        if before.names:
            RunFolder(self.path, before.names | set(names), before.run).save()
            before.clear_components()
            before.clear()
        self.add(names)
        self._make_parts()

    @classmethod
    def _present(cls, path: Path, overwrite: bool) -> RunFolder:
        """Return an earlier run in a folder; raise if the folder may not be used."""
        there = set(os.listdir(path)) - {LOCK}
        if not there or (there == {DRAFT} and _was_begun(path)):
            return cls(path)
        if not overwrite and not _bare(path, there):
            of_run = ", or --overwrite to replace the files of the run in it"
            also = of_run if MANIFEST in there else ""
            raise OutputError(f"{path} is not empty; choose another --out{also}")
        return cls.open(path, "choose another --out, or remove the folder yourself")

    @classmethod
    def open(cls, path: Path, instead: str = "choose another --out") -> RunFolder:
        """Return the run in a folder; ``instead`` is the advice if there is none."""
        try:
            text = files.read(path / MANIFEST, most=LARGEST + 1)
        except FileNotFoundError:
            raise OutputError(
                f"{path} has no {MANIFEST}, so it is not the folder of a run, or an "
                f"older version of dadmm wrote it; {instead}"
            ) from None
        except OSError as error:
            raise OutputError(
                f"cannot use {path}: {error.strerror}; {instead}"
            ) from None
        try:
            found = json.loads(text if len(text) <= LARGEST else "")
            OBJECT.check("it", found)
            check_entries(found, ENTRIES)
            for name in found["files"]:
                NAME.check("a file", name)
        except (ValueError, RecursionError) as error:
            raise OutputError(
                f"{path / MANIFEST} cannot be used ({error}), so it is not the list of "
                f"a run's files; {instead}"
            ) from None
        run = cls(path, found["files"], found["run"])
        run.checksums = found["checksums"]
        return run

    def newest(self) -> RunFolder:
        """Return the run as its manifest has it now; as it was if there is none."""
        try:
            found = RunFolder.open(self.path)
        except OutputError:
            return self
        return found if found.run == self.run else self

    def save(self) -> None:
        """Write the manifest."""
        about = {
            "program": "dadmm", "run": self.run, "files": sorted(self.names),
            "checksums": self.checksums,
        }  # fmt: skip
        with files.replacing(self.path / MANIFEST) as file:
            file.write((json.dumps(about, indent=1) + "\n").encode())

    def add(self, names: Collection[str]) -> None:
        """Add names, after `check`."""
        self.check(names)
        there = {entry.name for entry in _entries(self.path) if entry.is_place}
        self.names |= set(names) - there  # existing folders are not the run's
        self.save()

    def check(self, names: Collection[str]) -> None:
        """Raise if a name exists and is not listed, or is of another kind."""
        for path, name, kind, is_place in _entries(self.path):
            if name in names and not (name in self.names or is_place):
                raise OutputError(
                    f"{self.path / path} is not of the run in {self.path}, which would "
                    "write it; move it away, or choose another folder"
                )
            wanted = "folder" if is_place else "file"
            if kind != wanted and (name in names or name in self.names):
                raise OutputError(
                    f"{self.path / path} is a {kind} where the run has a {wanted}; "
                    "move it away, or choose another folder"
                )

    def clear(self, chosen: Callable[[str], bool] = lambda name: True) -> None:
        """Remove the listed files and folders that are chosen; all by default."""
        for entry in sorted(_entries(self.path), reverse=True):  # subfolders first
            if entry.name in self.names and chosen(entry.name):
                remove = files.remove_folder if entry.is_place else files.remove
                remove(self.path / entry.path, self.path)

    def clear_components(self) -> None:
        """Remove the results of the components of a run's graph."""
        for name in sorted(os.listdir(self.path)):
            folder = self.path / name
            if COMPONENT.fullmatch(name) and files.kind(folder) == "folder":
                with suppress(OutputError):  # not of dadmm
                    part = RunFolder.open(folder)
                    if part.run == self.run:
                        part.clear()
                        files.remove(folder / MANIFEST, self.path)
                        files.remove_folder(folder, self.path)

    def add_figures(self, names: Collection[str], made: Collection[str] = ()) -> None:
        """Add figures to the manifest, if there is one.

        A file that is not listed is refused, unless the caller has ``made`` it.
        """
        if files.kind(self.path / MANIFEST) != "none":
            with writing(self.path):
                self.lock(first=True)
                try:
                    found = RunFolder.open(self.path)
                    found.names |= set(made)
                    found.add(names)
                finally:
                    self.release()

    def lock(self, first: bool) -> None:
        """Lock the folder until `release`, or until the process exits.

        Rank 0 takes the lock first, alone. Then all ranks share it, since any of them
        may be the last to exit. A file system without locks is not locked. Raise
        OutputError if another run has the lock, or the file is not a lock of dadmm.
        """
        with writing(self.path):
            try:
                handle = files.open_lock(self.path / LOCK, LOCKED)
            except FileExistsError:
                file = self.path / LOCK
                raise OutputError(
                    f"{file} is not a lock of dadmm; move it away"
                ) from None
        self.release = weakref.finalize(self, os.close, handle)
        try:
            if first and files.lock(handle):
                who = f"process {os.getpid()} on {os.uname()[1]}"
                with suppress(OSError):
                    os.truncate(handle, 0)
                    os.write(handle, who.encode())
            files.lock(handle, shared=True)
        except BlockingIOError:
            who = os.read(handle, 200).decode(errors="replace")
            raise OutputError(
                f"another run is at work in {self.path} "
                f"({who or 'it has just begun'}); wait for its end, or end it"
            ) from None

    @staticmethod
    def is_live(path: Path) -> bool | None:
        """Return whether a run is at work in a folder; None if that is not known."""
        try:
            handle = files.open_plain(path / LOCK, flags=os.O_RDWR)
        except OSError:
            return None
        try:
            return False if files.lock(handle) else None
        except BlockingIOError:
            return True
        finally:
            os.close(handle)

    def resume(
        self,
        start: int,
        n_nodes: int,
        n_edges: int | None,
        observe: Observe,
        names: Collection[str] = (),
        every: int = 1,
    ) -> None:
        """Prepare the folder for a run that continues after iteration ``start``.

        Rows up to then are merged into one file. Later ones are removed: the run
        computes them again. ``n_edges`` is None if edges are not recorded.
        """
        stride = Stride.of(every, n_nodes, n_edges or 0)
        with writing(self.path, KEEP):
            self._check_rows()
            self.checksums = {}  # until the files have other rows
            self.add(names)
            self._make_parts()
            header = history_header(observe)
            whole = self._merge_up_to("history", header, start, n_nodes, stride)
            if n_edges is not None:
                whole &= self._merge_up_to("edges", EDGES, start, n_edges, stride)
            if not whole:
                raise OutputError(
                    f"some rows of {self.path} up to iteration {start} are missing; "
                    "restore its files, or start a new run"
                )
            self.save()
            self.clear_components()
            self.clear(_is_rewritten)

    def _check_rows(self) -> None:
        """Raise if merged rows are not as they were written."""
        for name, checksum in self.checksums.items():
            whole = self.path / name
            if files.kind(whole) != "none":
                found = f"{zlib.crc32(files.read(whole)):08x}"
                if found != checksum:
                    raise OutputError(
                        f"the rows in {whole} are damaged, or were changed since the "
                        "run wrote them; restore the file, or start a new run"
                    )

    def _make_parts(self) -> None:
        with suppress(FileExistsError):
            (self.path / PARTS).mkdir()

    def _merge_up_to(
        self, kind: str, header: Sequence[str], start: int, n_rows: int, stride: Stride
    ) -> bool:
        """Merge the rows up to an iteration; return whether none was missing."""
        whole, step = self.path / f"{kind}.csv", stride.step(start)
        until = start + 2 * step  # an iteration from start on has rows before it

        def is_whole(parts: Sequence[Path]) -> bool:
            later = groupby(merged(parts, whole, until), iteration)
            for t, rows in later if n_rows else ():
                if t >= start:
                    return t - start < stride.step(t) and len(list(rows)) == n_rows
            return not n_rows

        try:
            for parts in ([], self.parts(kind)):  # rows may be merged already
                if is_whole(parts):
                    rows = merged(parts, whole, until)
                    early = takewhile(lambda row: iteration(row) <= start, rows)
                    with files.replacing(whole) as draft:
                        kept = thinned(early, header, step, {start})
                        self.checksums[whole.name] = write_rows(draft, header, kept)
                    return True
        except OutputError:
            raise
        except ValueError:  # a line is not a row
            pass
        return False

    def parts(self, kind: str) -> list[Path]:
        """Return the part files that exist, of those in the manifest."""
        prefix = f"{PARTS}/{kind}-"
        paths = [self.path / n for n in sorted(self.names) if n.startswith(prefix)]
        with files.within(self.path / PARTS / "any", self.path) as (handle, _):
            return [path for path in paths if files.kind(path.name, handle) != "none"]

    def write_ranks(
        self, processes: Sequence[tuple[str, int]], hosts: Integers | None
    ) -> None:
        """Write ranks.csv, by which the launch command identifies failed ranks.

        Also tell it the folder's path. ``processes`` has the host and process number of
        each rank, and ``hosts`` the rank of each node; None for a run without MPI,
        which has no file.
        """
        if hosts is not None:
            lines = ["rank,nodes,host,pid"]
            for rank, (host, pid) in enumerate(processes):
                nodes = names_of_nodes(np.flatnonzero(hosts == rank).tolist())
                lines.append(f"{rank},{nodes},{host},{pid}")
            write_text(self.path / "ranks.csv", "\n".join([*lines, ""]))
        tell_launcher(folder=str(self.path.absolute()))

    def add_component(self, path: Path, source: Path, nodes: Iterable[int]) -> None:
        """Make the folder of a component, with a copy of the rows merged so far."""
        try:
            path.mkdir()
        except FileExistsError as error:
            reason = f"there is a {path.name} already"
            raise OSError(error.errno, reason) from None
        listed = RunFolder.open(self.path)
        names = {*RESULTS, *(f"imputed-{i:05d}.npz" for i in nodes)}
        names |= {"edges.csv"} & listed.names
        RunFolder(path, names, listed.run).save()
        for name in ("history.csv", "edges.csv", "config.toml"):
            if files.kind(source / name) == "file":
                with files.replacing(path / name) as file:
                    file.write(files.read(source / name))

    def finish(
        self,
        rows: RowFiles,
        summary: Mapping[str, object],
        arrays: Mapping[str, Array],
        model: str | None = None,
        is_over: bool = False,
        nodes: Collection[int] | None = None,
        ranks: Collection[int] = (),
        lost: Collection[int] = (),
    ) -> None:
        """Write the results, merge the part files, and remove what is not needed.

        The results come first: they are small, and rows may fill the disk. If rows
        cannot be merged, they stay in the part files, where `StoredRun` finds them.

        ``model`` is the text of model.json, if there is one. ``nodes`` are those whose
        rows to take, from the part files of ``ranks``, after the ranks ``lost`` have
        failed; all by default. Ranks of another component may still write theirs. The
        checkpoints of a run that ``is_over`` are removed.
        """
        home, kinds = rows.home, ("history", "edges")
        own = self if home == self.path else RunFolder.open(home)
        headers = dict(zip(kinds, (rows.header, EDGES), strict=True))

        def parts(kind: str) -> list[Path]:
            if nodes is None:
                return self.parts(kind)
            return [self.path / PARTS / f"{kind}-{i:05d}.csv" for i in sorted(ranks)]

        with writing(home):
            write_results(home, summary, arrays, model)
        if rows.failure is not None:
            return  # rows are missing; those in the part files are for a resume
        with writing(home, "the results are written, and the rows stay in its parts/"):
            own._check_rows()
            if own.checksums:
                own.checksums = {}
                own.save()
            sums = {}
            for kind in kinds if rows.by_edge else kinds[:1]:
                whole = home / f"{kind}.csv"
                with files.replacing(whole) as draft:
                    lines = rows.thinned(merged(parts(kind), whole), headers[kind])
                    sums[whole.name] = write_rows(draft, headers[kind], lines, nodes)
            done = {path.name for kind in kinds for path in parts(kind)}
            if home == self.path:
                done |= {f"{kind}-{i:05d}.csv" for kind in kinds for i in lost}
            chosen = {f"{PARTS}/", *(f"{PARTS}/{name}" for name in done)}
            self.clear(
                lambda name: (
                    name in chosen or (is_over and name.startswith(f"{CHECKPOINTS}/"))
                )
            )
            own.names &= {entry.name for entry in _entries(home)} | ALWAYS
            own.checksums = sums
            own.save()


def write_results(
    home: Path,
    summary: Mapping[str, object],
    arrays: Mapping[str, Array],
    model: str | None,
) -> None:
    """Write result.npz, model.json and summary.json; a folder with the last has all."""
    write_arrays(home / "result.npz", arrays)
    if model is not None:
        write_text(home / "model.json", model)
    write_text(home / "summary.json", json.dumps(summary, indent=2) + "\n")


def rescue(
    lost: Path,
    settings: str,
    summary: Mapping[str, object],
    arrays: Mapping[str, Array],
    model: str | None,
) -> Path | None:
    """Write results beside a folder that cannot be written, or to the temporary folder.

    Return the new folder, or None if that is impossible, too.
    """
    for parent in (lost.absolute().parent, Path(gettempdir())):
        with suppress(OSError, OutputError):
            home = _fresh(parent / f"{lost.name}-rescued")
            write_text(home / "config.toml", settings)
            write_results(home, summary, arrays, model)
            return home
    return None


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


def _was_begun(path: Path) -> bool:
    """Return whether a run was killed here while it wrote its first manifest."""
    try:
        start = files.read(path / DRAFT, most=len(START))
    except OSError:
        return False
    return START.startswith(start)


def _bare(path: Path, there: set[str]) -> bool:
    """Return whether a run was killed here before it wrote settings or rows."""
    settings = files.draft_of("config.toml")
    if not there <= {MANIFEST, DRAFT, settings, PARTS}:
        return False
    return files.kind(path / PARTS) == "none" or not os.listdir(path / PARTS)


def _is_rewritten(name: str) -> bool:
    """Return whether a resumed run writes this file again."""
    rows = name.startswith(f"{PARTS}/") and name != f"{PARTS}/"
    return rows or name in ("summary.json", "model.json") or name.startswith("imputed-")


class Entry(NamedTuple):
    """A file or folder in the folder of a run."""

    path: str  # relative to it
    name: str  # in the manifest
    kind: str  # see `files.kind`
    is_place: bool  # whether a run has a folder there


def _entries(folder: Path, place: str = "", name: str = "") -> Iterator[Entry]:
    """Return what is in the folders of a run; ``name`` is the name of a ``place``."""
    with os.scandir(folder / place) as entries:
        for entry in entries:
            path, kind = place + entry.name, files.kind(entry.path)
            inner = place == f"{CHECKPOINTS}/" and ITERATION.fullmatch(entry.name)
            if not inner and path not in (PARTS, CHECKPOINTS):
                draft = DRAFTS.fullmatch(entry.name)
                own = draft[1] if draft else entry.name
                yield Entry(path, name + own, kind, False)
                continue
            yield Entry(path, place if inner else f"{path}/", kind, True)
            if kind == "folder":
                below = f"{CHECKPOINTS}/*/" if inner else f"{path}/"
                with suppress(FileNotFoundError):  # another rank has removed it
                    yield from _entries(folder, f"{path}/", below)
