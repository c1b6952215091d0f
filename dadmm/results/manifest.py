"""The manifest: the list of the files that belong to a run.

A run removes and replaces the files that ``manifest.json`` lists, and no others. In a
name, ``*`` is the number of an iteration. A file is written as a draft first,
``.name.draft``, which belongs to the run too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from dadmm.core import files
from dadmm.core.errors import OutputError

NAME = "manifest.json"
DRAFT = files.draft_of(NAME)
START = b'{\n "program": "dadmm"'  # of every manifest
PARTS, CHECKPOINTS = "parts", "checkpoints"
LARGEST = 1 << 26  # bytes of a manifest
# Names that a run, its launcher, dadmm.plot and dadmm.report may write; folders end
# with a slash.
KNOWN = re.compile(
    r"config\.toml|summary\.json|result\.npz|model\.json|history\.csv|edges\.csv"
    r"|ranks\.csv|failure\.txt|imputed-[0-9]{5,9}\.npz|parts/|checkpoints/"
    r"|parts/(history|edges)-[0-9]{5,9}\.csv|checkpoints/\*/node-[0-9]{5,9}\.npz"
    r"|(compare-)?(convergence|eta|network|structure|traffic)\.(png|svg|pdf)"
    r"|(compare-)?report\.html"
)
ITERATION = re.compile(r"[0-9]{8,18}")
DRAFTS = re.compile(r"\.(.+)\.draft")
RESULTS = ("config.toml", "summary.json", "result.npz", "model.json", "history.csv")
ALWAYS = {"failure.txt"}  # a launcher writes it after the end of a run
REPORT = "report.html"  # dadmm.report also writes it while the run goes on
PAGES = (REPORT, f"compare-{REPORT}")


def names_of_run(
    n_nodes: int, ranks: int, edges: bool, over_mpi: bool, saves: bool
) -> set[str]:
    """Return the names of all files that a run may write.

    ``ranks`` processes write rows, also for each edge if ``edges``, and there are
    checkpoints if ``saves``.
    """
    names = {*RESULTS, *ALWAYS, *PAGES}
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


def names_of_part(nodes: Iterable[int], edges: bool) -> set[str]:
    """Return the same for a component of the graph, which writes results only."""
    names = {*RESULTS, *(f"imputed-{i:05d}.npz" for i in nodes)}
    return names | ({"edges.csv"} if edges else set())


class Manifest:
    """The list of a run's files; ``run`` identifies the run, by default a new one."""

    def __init__(
        self, folder: Path, names: Iterable[str] = (), run: str | None = None
    ) -> None:
        self.folder, self.names = folder, set(names)
        self.run = run or os.urandom(16).hex()

    @classmethod
    def read(cls, folder: Path, instead: str = "choose another --out") -> Manifest:
        """Return the manifest in a folder; raise if there is none or it is damaged.

        ``instead`` is the advice at the end of the error.
        """
        try:
            text = files.read(folder / NAME, most=LARGEST + 1)
        except FileNotFoundError:
            raise OutputError(
                f"{folder} has no {NAME}, so it is not the folder of a run, or it is "
                f"that of an older version of dadmm; {instead}"
            ) from None
        except OSError as error:
            raise OutputError(
                f"cannot use {folder}: {error.strerror}; {instead}"
            ) from None
        try:
            found = json.loads(text) if len(text) <= LARGEST else {}
            names, run, program = (found[k] for k in ("files", "run", "program"))
            whole = isinstance(names, list) and isinstance(run, str)
            whole = whole and program == "dadmm"
            strange = [
                n for n in names if not isinstance(n, str) or not KNOWN.fullmatch(n)
            ]
        except (ValueError, LookupError, TypeError, RecursionError):
            whole, strange = False, []
        if not whole or strange:
            reason = f"names {strange[0]!r}" if strange else "cannot be read"
            raise OutputError(
                f"{folder / NAME} {reason}, so it is not the list of a run's files; "
                f"{instead}"
            )
        return cls(folder, names, run)

    def save(self) -> None:
        """Write the manifest."""
        about = {"program": "dadmm", "run": self.run, "files": sorted(self.names)}
        with files.replacing(self.folder / NAME) as file:
            file.write((json.dumps(about, indent=1) + "\n").encode())

    def add(self, names: Collection[str]) -> None:
        """Add names, after `check`."""
        self.check(names)
        there = {f"{path}/" for path in _seen(self.folder) if _is_place(path)}
        self.names |= set(names) - there  # existing folders are not the run's
        self.save()

    def check(self, names: Collection[str]) -> None:
        """Raise if a name exists and is not listed, or is no plain file or folder."""
        for path, kind in _seen(self.folder).items():
            name, place = _key(path), self.folder / path
            if name in names and not (name in self.names or _is_place(path)):
                raise OutputError(
                    f"{place} is not of the run in {self.folder}, which would write "
                    "it; move it away, or choose another folder"
                )
            wanted = "folder" if _is_place(path) else "file"
            if name in (*names, *self.names) and kind != wanted:
                what = "a special file" if kind == "special" else f"a {kind}"
                raise OutputError(
                    f"{place} is {what} where the run has a {wanted}; move it away, or "
                    "choose another folder"
                )

    def clear(self, chosen: Callable[[str], bool] = lambda name: True) -> None:
        """Remove the listed files and folders that are chosen; all by default."""
        seen = _seen(self.folder)
        for path, kind in seen.items():
            name = _key(path)
            if kind == "file" and name in self.names and chosen(name):
                files.remove(self.folder / path, self.folder)
        for path in sorted(seen, reverse=True):  # subfolders first
            name = f"{path.partition('/')[0]}/"
            if _is_place(path) and name in self.names and chosen(name):
                files.remove_folder(self.folder / path, self.folder)

    def settle(self) -> None:
        """Keep only the names that exist: the run has ended."""
        there = {_key(path) for path in _seen(self.folder)}
        self.names &= there | ALWAYS
        self.save()


def was_begun(folder: Path) -> bool:
    """Return whether a run was killed here while it wrote its first manifest."""
    try:
        start = files.read(folder / DRAFT, most=len(START))
    except OSError:
        return False
    return START.startswith(start)


def forget_parts(manifest: Manifest) -> None:
    """Remove the results of the components of a run's graph."""
    for name in sorted(os.listdir(manifest.folder)):
        folder = manifest.folder / name
        if re.fullmatch(r"part-[0-9]{5,9}", name) and files.kind(folder) == "folder":
            with suppress(OutputError):  # not of dadmm
                part = Manifest.read(folder)
                if part.run == manifest.run:
                    part.clear()
                    files.remove(folder / NAME, manifest.folder)
                    files.remove_folder(folder, manifest.folder)


def _is_place(path: str) -> bool:
    """Return whether a path is a folder of a run."""
    top, _, rest = path.partition("/")
    inner = top == CHECKPOINTS and ITERATION.fullmatch(rest) is not None
    return inner or path in (PARTS, CHECKPOINTS)


def _key(path: str) -> str:
    """Return the name of a path in the manifest."""
    if _is_place(path):
        return f"{path.partition('/')[0]}/"
    folder, slash, name = path.rpartition("/")
    if draft := DRAFTS.fullmatch(name):
        name = draft[1]
    if "/" in folder and _is_place(folder):
        folder = f"{CHECKPOINTS}/*"
    return f"{folder}{slash}{name}"


def _seen(folder: Path) -> dict[str, str]:
    """Return the kinds of all entries in the folders of a run, by relative path."""
    found: dict[str, str] = {}

    def look(place: Path, above: str) -> None:
        with os.scandir(place) as entries:
            for entry in entries:
                path = above + entry.name
                found[path] = files.kind_of(entry)
                if _is_place(path) and found[path] == "folder":
                    with suppress(FileNotFoundError):  # another rank has removed it
                        look(place / entry.name, f"{path}/")

    look(folder, "")
    return found
