"""The folder of a run: its files, its lock, its beginning and its end.

A run removes and replaces the files that ``manifest.json`` lists, and no others. In a
listed name, ``*`` is the number of an iteration, and ``#`` the number of a node or a
rank, both below the number of nodes. A file's draft, ``.name.draft``, is the run's too.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

import numpy as np

from dadmm.core import files
from dadmm.core.documents import write_arrays, write_text, writing
from dadmm.core.errors import OutputError
from dadmm.core.layout import Array
from dadmm.core.schema import COUNT, OBJECT, TEXT, check_entries, choice, list_of
from dadmm.runs import row_files
from dadmm.runs.row_files import PARTS, RowFiles, iteration, merged, write_rows
from dadmm.solver import checkpoint
from dadmm.solver.rows import Observe

MANIFEST, LOCK, CHECKPOINTS = "manifest.json", ".lock", checkpoint.FOLDER
LARGEST = 1 << 16  # bytes of a manifest
LOCKED = re.compile(rb"(process [0-9]+ on [^\s]*)?")  # the content of a lock
REPORT = "report.html"  # `dadmm report` also writes it while the run goes on
FAILURE = "failure.txt"  # a launcher writes it after the end of a run
RESULTS = ("config.toml", "summary.json", "result.npz", "model.json", "history.csv")
OF_RUN = frozenset((  # what a run and its launcher may write; folders end with a slash
    *RESULTS, "edges.csv", "ranks.csv", FAILURE, REPORT, f"compare-{REPORT}",
    "imputed-#.npz", "parts/", "parts/history-#.csv", "parts/edges-#.csv",
    "checkpoints/", "checkpoints/*/node-#.npz",
))  # fmt: skip
PLACES = (f"{PARTS}/", f"{CHECKPOINTS}/")  # names of folders
FIGURE = re.compile(
    r"(compare-)?(convergence|cost|eta|network|structure|traffic)\.(png|svg|pdf)"
)
NAME = TEXT.also("a name", lambda name: name in OF_RUN or bool(FIGURE.fullmatch(name)))
ENTRIES = {  # of the manifest
    "program": choice(["dadmm"]),
    "run": TEXT,
    "nodes": COUNT,
    "files": list_of(NAME, "a list of names of a run's files"),
    "checksums": OBJECT,  # of merged rows
}
NUMBER = re.compile(r"(?<=-)[0-9]{5,9}(?=\.)")
COMPONENT = re.compile(r"part-[0-9]{5,9}")
REWRITTEN = (f"{PARTS}/", "summary.json", "model.json", "imputed-")  # at a resume
NO_RESUME = "it cannot be resumed; start a new run in another folder"


def names_of_nodes(nodes: Sequence[int]) -> str:
    """Return node numbers, which ascend, as text, such as "0-3 5"."""
    parts = np.split(np.asarray(nodes), np.flatnonzero(np.diff(nodes) != 1) + 1)
    ends = [(part[0], part[-1]) for part in parts]
    return " ".join(f"{i}" if i == j else f"{i}-{j}" for i, j in ends)


class Results(NamedTuple):
    """What a run writes at its end, on rank 0; ``model`` is the text of model.json."""

    summary: Mapping[str, object]
    arrays: Mapping[str, Array]
    model: str | None = None

    def write(self, home: Path) -> None:
        """Write the files; a folder with the last of them, summary.json, has all."""
        write_arrays(home / "result.npz", self.arrays)
        if self.model is not None:
            write_text(home / "model.json", self.model)
        write_text(home / "summary.json", json.dumps(self.summary, indent=2) + "\n")


@dataclass(eq=False)
class RunFolder:
    """The folder of a run of so many nodes: its files and its identity."""

    path: Path
    n_nodes: int = 0
    names: frozenset[str] = OF_RUN  # in the manifest
    run: str = field(default_factory=lambda: os.urandom(16).hex())
    checksums: dict[str, str] = field(default_factory=dict)  # of merged rows
    earlier: RunFolder | None = None  # a run that `clear_earlier` removes
    release: Callable[[], object] = lambda: None  # the lock, if it is held

    @classmethod
    def create(
        cls, out: str | None, name: str, overwrite: bool, n_nodes: int
    ) -> RunFolder:
        """Make the folder of a new run, and lock it.

        If it has an ``earlier`` run, `clear_earlier` must follow. ``out`` is the folder
        of ``--out``; None makes ``runs/<name>-<time>``.
        """
        with writing("runs" if out is None else out):
            stem = Path("runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
            path = _fresh(stem) if out is None else Path(out)
            new = cls(path, n_nodes)
            if path.exists():  # a folder that is refused does not get a lock
                new._find_earlier(overwrite)
            path.mkdir(parents=True, exist_ok=True)
            new.lock(first=True)
            try:
                new.earlier = new._find_earlier(overwrite)
                if new.earlier is None:  # the folder is empty
                    new.save()
                    (path / PARTS).mkdir()
            except BaseException:
                new.release()
                raise
        return new

    def clear_earlier(self) -> None:
        """Remove the earlier run, if there is one, and add the files of this one."""
        if self.earlier is not None:
            with writing(self.path):
                self.earlier.clear_components()
                self.earlier.clear()
                self.save()
                (self.path / PARTS).mkdir(exist_ok=True)

    def _find_earlier(self, overwrite: bool) -> RunFolder | None:
        """Return an earlier run in the folder; raise if the folder may not be used."""
        path = self.path
        if not path.is_dir():
            raise OutputError(f"{path} is not a folder; choose another --out")
        if not (there := {*os.listdir(path)} - {LOCK, files.draft_of(MANIFEST)}):
            return None
        drafts = {MANIFEST, files.draft_of("config.toml"), PARTS}
        is_bare = there <= drafts and not any((path / PARTS).glob("*"))
        if not (overwrite or is_bare):  # a bare run was killed in set-up
            also = ", or --overwrite to replace the run in it" * (MANIFEST in there)
            raise OutputError(f"{path} is not empty; choose another --out{also}")
        found = RunFolder.open(path, "choose another --out, or remove the folder")
        self._check(OF_RUN, found)
        return found

    @classmethod
    def open(cls, path: Path, instead: str = "choose another --out") -> RunFolder:
        """Return the run in a folder; ``instead`` is the advice if there is none."""
        try:
            text = files.read(path / MANIFEST, most=LARGEST + 1)
            content = json.loads(text if len(text) <= LARGEST else "")
            found = check_entries(content, ENTRIES)
        except OSError as error:
            raise OutputError(
                f"{path} is not the folder of a run: cannot read its {MANIFEST} "
                f"({error.strerror}); {instead}"
            ) from None
        except (ValueError, RecursionError) as error:
            raise OutputError(
                f"{path / MANIFEST} is not the list of a run's files ({error}); "
                f"{instead}"
            ) from None
        names, checksums = frozenset(found["files"]), found["checksums"]
        return cls(path, found["nodes"], names, found["run"], checksums)

    def save(self) -> None:
        about = {
            "program": "dadmm", "run": self.run, "nodes": self.n_nodes,
            "files": sorted(self.names), "checksums": self.checksums,
        }  # fmt: skip
        with files.replacing(self.path / MANIFEST) as file:
            file.write((json.dumps(about, indent=1) + "\n").encode())

    def add(self, names: Collection[str]) -> None:
        """Add names to the manifest; folders that are there are not the run's."""
        self._check(names, self)
        self.names |= {*names} - {
            name for _, name, _ in self._entries() if name in PLACES
        }
        self.save()

    def _check(self, names: Collection[str], owner: RunFolder) -> None:
        """Raise if something in the way of this run's names is not of the owner."""
        own = {path for path, name, _ in owner._entries() if name in owner.names}
        for path, name, kind in self._entries():
            fits = (
                kind == "folder" if name in PLACES else kind == "file" and path in own
            )
            if name in names and not fits:
                raise OutputError(
                    f"{self.path / path} is a {kind} that is not of the run in "
                    f"{self.path}, which would write there; move it away, or choose "
                    "another folder"
                )

    def _entries(self, place: str = "") -> Iterator[tuple[str, str, str]]:
        """Yield the path, the name in the manifest and the kind of what is in a place.

        Paths are relative to the folder of the run; `files.kind` has the kinds.
        """
        in_states = place == f"{CHECKPOINTS}/"
        with suppress(FileNotFoundError), os.scandir(self.path / place) as entries:
            for entry in entries:
                path, kind = place + entry.name, files.kind(entry.path)
                is_state = in_states and checkpoint.NUMBER.fullmatch(entry.name)
                if is_state or f"{path}/" in PLACES:
                    yield path, place if in_states else f"{path}/", kind
                    if kind == "folder":
                        yield from self._entries(f"{path}/")
                    continue
                own = re.sub(r"\.(.+)\.draft", r"\1", entry.name)
                if (number := NUMBER.search(own)) and int(number[0]) < self.n_nodes:
                    own = NUMBER.sub("#", own)
                above = re.sub(r"(?<=/)[0-9]+(?=/)", "*", place)
                yield path, above + own, kind

    def clear(self, chosen: Callable[[str], bool] = lambda path: True) -> None:
        """Remove the listed files and folders whose paths are chosen."""
        for path, name, _ in sorted(self._entries(), reverse=True):  # subfolders first
            if name in self.names and chosen(path):
                remove = files.remove_folder if name in PLACES else files.remove
                remove(self.path / path, self.path)

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
        if files.exists(self.path / MANIFEST):
            with writing(self.path):
                self.lock(first=True)
                try:
                    found = RunFolder.open(self.path)
                    found.names |= {*made}
                    found.add(names)
                finally:
                    self.release()

    def lock(self, first: bool) -> None:
        """Lock the folder until `release`, or until the process exits.

        Rank 0 takes the lock first, alone. Then all ranks share it, since any of them
        may be the last to exit. A file system without locks is not locked; NFS grants
        locks between hosts on no other files than those that are open for writing.
        """
        with writing(self.path):
            handle = files.open_plain(self.path / LOCK, flags=os.O_RDWR | os.O_CREAT)
            self.release = weakref.finalize(self, os.close, handle)
            ours = LOCKED.fullmatch(os.pread(handle, 400, 0)) is not None
            if not ours or os.fstat(handle).st_nlink > 1:  # or it is a hard link
                raise OSError(errno.EEXIST, f"{LOCK} is not a lock of dadmm")
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
        """Return whether a run is at work in a folder; None if it is not known."""
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
        self, start: int, n_rows: int, n_edges: int | None, observe: Observe, step: int
    ) -> None:
        """Prepare the folder for a run that continues after iteration ``start``.

        Rows up to then are merged, those of multiples of ``step``. Later ones are
        removed: the run computes them again. Without rows of edges ``n_edges`` is None.
        """
        with writing(self.path, "a run is resumed in its own folder: make it writable"):
            self._check_rows()
            self.checksums = {}  # until the files have other rows
            self.add(OF_RUN)
            (self.path / PARTS).mkdir(exist_ok=True)
            header = (*row_files.HISTORY, *observe)
            self._merge_up_to(start, "history", header, n_rows, step)
            if n_edges is not None:
                self._merge_up_to(start, "edges", row_files.EDGES, n_edges, step)
            self.save()
            self.clear_components()
            self.clear(lambda path: path.startswith(REWRITTEN))

    def _check_rows(self) -> None:
        """Raise if merged rows are not as they were written."""
        for name, checksum in self.checksums.items():
            whole = self.path / name
            found = files.read(whole) if files.exists(whole) else b""
            if checksum != f"{zlib.crc32(found):08x}":
                raise OutputError(
                    f"the rows in {whole} are damaged, or were changed since the run "
                    "wrote them; restore the file, or start a new run"
                )

    def _merge_up_to(
        self, start: int, kind: str, header: Sequence[str], n_rows: int, step: int
    ) -> None:
        """Merge the rows up to an iteration; raise if that one does not have all."""
        whole = self.path / f"{kind}.csv"
        for parts in ([], self.parts(kind)):  # rows may be merged already
            try:
                rows = merged(parts, whole, start)
                found = sum(iteration(row) == start for row in rows)
            except OutputError:
                raise
            except ValueError:  # a line is not a row
                continue
            if found == n_rows:
                rows = merged(parts, whole, start)
                code = write_rows(whole, header, rows, None, step, {start})
                self.checksums[whole.name] = code
                return
        raise OutputError(
            f"some rows of {self.path} up to iteration {start} are missing; restore "
            "its files, or start a new run"
        )

    def parts(self, kind: str, ranks: Collection[int] | None = None) -> list[Path]:
        """Return the part files, of all or some ranks, that the manifest lists."""
        if f"{PARTS}/{kind}-#.csv" not in self.names:
            return []
        place, name = self.path / PARTS, re.compile(rf"{kind}-([0-9]{{5,9}})\.csv")
        ranks = range(self.n_nodes) if ranks is None else ranks
        with files.within(place / "any", self.path) as (handle, _):
            found = [name.fullmatch(own) for own in sorted(os.listdir(handle))]
        return [place / own[0] for own in found if own and int(own[1]) in ranks]

    def add_component(self, path: Path, source: Path) -> None:
        """Make the folder of a component, with a copy of the rows merged so far."""
        path.mkdir()
        RunFolder(path, self.n_nodes, run=self.run).save()
        for name in ("history.csv", "edges.csv", "config.toml"):
            if files.kind(source / name) == "file":
                with files.replacing(path / name) as file:
                    file.write(files.read(source / name))

    def finish(
        self,
        rows: RowFiles,
        results: Results,
        is_over: bool = False,
        nodes: Collection[int] | None = None,
        ranks: Collection[int] = (),
        lost: Collection[int] = (),
    ) -> None:
        """Write the results, merge the part files, and remove what is not needed.

        The results come first: they are small, and rows may fill the disk. If rows
        cannot be merged, they stay in the part files, where `StoredRun` finds them.

        ``nodes`` are those whose rows to take, from the part files of ``ranks``, after
        the ranks ``lost`` have failed; all by default. Ranks of another component may
        still write theirs. The checkpoints of a run that ``is_over`` are removed.
        """
        home = rows.home
        own = self if home == self.path else RunFolder.open(home)
        with writing(home):
            results.write(home)
        if rows.failure is not None:
            return  # rows are missing; those in the part files are for a resume
        with writing(home, "the results are written, and the rows stay in its parts/"):
            own._check_rows()
            own.checksums, sums = {}, {}
            own.save()  # until the files have other rows
            done = {PARTS}
            for kind, header in rows.headers.items():
                whole = home / f"{kind}.csv"
                parts = self.parts(kind, None if nodes is None else ranks)
                gone = self.parts(kind, lost if home == self.path else ())
                sums[whole.name] = write_rows(
                    whole, header, merged(parts, whole), nodes, rows.step, {rows.last}
                )
                done |= {f"{PARTS}/{path.name}" for path in (*parts, *gone)}
            old = CHECKPOINTS if is_over else None
            self.clear(lambda path: path in done or path.partition("/")[0] == old)
            there = {name for _, name, _ in own._entries()} | {FAILURE}
            own.names, own.checksums = own.names & there, sums
            own.save()


def rescue(lost: Path, settings: str, results: Results) -> Path | None:
    """Write results beside a folder that cannot be written, or to the temporary folder.

    Return the new folder, or None if that is impossible, too.
    """
    for parent in (lost.absolute().parent, Path(gettempdir())):
        with suppress(OSError, OutputError):
            home = _fresh(parent / f"{lost.name}-rescued")
            write_text(home / "config.toml", settings)
            results.write(home)
            return home
    return None


def _fresh(stem: Path) -> Path:
    """Make and return the first of stem, stem-2, stem-3, ... that does not exist."""
    for k in range(1, 10_000):
        path = stem if k == 1 else stem.with_name(f"{stem.name}-{k}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            return path
    raise OutputError(
        f"{stem} exists, and so do {stem}-2 to {stem}-9999; remove some of them, or "
        "choose another --out"
    )
