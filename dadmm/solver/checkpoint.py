"""Checkpoints: the state of a run on disk, from which it can be resumed.

A checkpoint is one file per node, ``checkpoints/00000120/node-00003.npz``, with a
checksum and the identity of its run. All nodes write theirs after the same iteration.
The last two complete checkpoints are kept.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from time import monotonic

import numpy as np

from dadmm.admm.loop import Run
from dadmm.admm.state import Arrays, State
from dadmm.comm.world import World, collectively, from_rank_0
from dadmm.core import files
from dadmm.core.errors import CheckpointError, DadmmError, OutputError
from dadmm.core.schema import AT_LEAST_0, FLAG, check_fields, entry, integer

FOLDER, KEPT, FORMAT = "checkpoints", 2, 4
NUMBER = re.compile(r"[0-9]{8}|[1-9][0-9]{8,17}")  # the folder of an iteration
REMEDY = "remove the folder {} to resume from the one before it"


@dataclass(eq=False)
class Checkpoints:
    """When and where a run saves its state, and whether it resumes.

    Parameters
    ----------
    folder : path
        Of the run; all processes must see it.
    every, seconds : int, float
        Save after so many iterations, and about every so many seconds; 0 for never.
    saves, resume : bool
        Whether to save at all, and to continue from the newest complete checkpoint.
    identity, data : dict of str to str, dict of int to str
        Facts, and a hash of each hosted node's data, that must be the same to resume.
    sync : callable, optional
        Called before a checkpoint is written, to bring the run's rows to disk.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> ring = dadmm.Topology.ring(6)
    >>> with TemporaryDirectory() as folder:
    ...     first = dadmm.solve(
    ...         problems, ring, stopping=dadmm.Stopping(max_iter=5),
    ...         checkpoints=dadmm.Checkpoints(folder),
    ...     )
    ...     second = dadmm.solve(
    ...         problems, ring, checkpoints=dadmm.Checkpoints(folder, resume=True)
    ...     )
    >>> first.status, first.iterations, second.status
    ('not converged', 5, 'certified')
    """

    folder: str | Path
    _: KW_ONLY
    every: int = entry(0, integer())
    seconds: float = entry(60.0, AT_LEAST_0)
    saves: bool = entry(True, FLAG)
    resume: bool = entry(False, FLAG)
    identity: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[int, str] = field(default_factory=dict)
    sync: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "checkpoints ")
        self.root = Path(self.folder)
        self.start = 0  # the iteration after which the run continues
        self.seconds_before: dict[int, np.ndarray] = {}  # by node: of each phase
        self.failure: OutputError | None = None
        self._loaded: dict[int, Arrays] = {}
        self._n_nodes = 0
        self._saved, self._requested = monotonic(), False

    def open(
        self,
        world: World,
        hosted: Iterable[int],
        n_nodes: int,
        max_iter: int,
        identity: Mapping[str, str] | None = None,
    ) -> None:
        """Read the checkpoint to continue from, on all ranks."""
        self.identity = {**(identity or {}), **self.identity}
        self._n_nodes = n_nodes
        if self.resume and not self._loaded:
            self.start = from_rank_0(world, lambda: latest(self.root, n_nodes))
            self._loaded = collectively(
                world, lambda: {i: self._load(i) for i in hosted}
            )
        if self.start > max_iter:
            raise CheckpointError(
                f"the run in {self.folder} has done {self.start} iterations, and "
                f"max_iter is {max_iter}; raise max_iter to continue"
            )

    def _load(self, i: int) -> Arrays:
        """Return the arrays of node i; raise if a fact is of another run."""
        path, expected = path_of(self.root, self.start, i), self._about(self.start, i)
        about, arrays = read(path)
        # the command line saves more facts than the library
        for name in ("format", *(expected.keys() & about.keys())):
            theirs, mine = about.get(name), expected[name]
            if theirs != mine:
                raise CheckpointError(
                    f"the checkpoint {path} has another {name} ({name} {theirs}, and "
                    f"here it is {mine}); resume with what it was made with, "
                    f"{REMEDY.format(path.parent)}, or start a new run"
                )
        return arrays

    def _about(self, t: int, i: int) -> dict[str, str | int]:
        """Return the facts in the file of node i."""
        place = {"format": FORMAT, "iteration": t, "node": i, "nodes": self._n_nodes}
        data = {"data": self.data[i]} if i in self.data else {}
        return {**place, **self.identity, **data}

    @property
    def coordinates(self) -> Arrays | None:
        """The coordinates of the run that is resumed, if it has any."""
        any_node = next(iter(self._loaded.values()), None)
        return any_node and (State.from_arrays(any_node).coordinates or None)

    def state(self, nodes: np.ndarray) -> State | None:
        """Return the state of these nodes that was read, once; None for a new run."""
        self._saved = monotonic()
        if not self._loaded:
            return None
        found = {i: State.from_arrays(self._loaded.pop(i)) for i in nodes.tolist()}
        self.seconds_before = {i: own.seconds[0].copy() for i, own in found.items()}
        return State.join(list(found.values()))

    def tidy(self) -> None:
        """Remove incomplete checkpoints after the start, or this run completes them."""
        for t in kept(self.root) if self.resume and self.saves else ():
            if t > self.start:
                drop(self.root, t, self._n_nodes)

    def __call__(self, t: int, run: Run) -> str | None:
        """Save if it is due; request "save" in time, or "output" after a failure."""
        due = run.due or (self.every > 0 and t % self.every == 0)
        if due and run.due != "converged" and self.saves and self.failure is None:
            self._save(t, run)
        if self.failure is not None:
            return "output"
        # node 0 alone: requests of several nodes in different rounds would save twice
        if self.saves and self.seconds and not self._requested and 0 in run.names:
            self._requested = monotonic() - self._saved > self.seconds
            return "save" if self._requested else None
        return None

    def _save(self, t: int, run: Run) -> None:
        state = run.snapshot()
        try:
            if self.sync is not None:
                self.sync()
            for row, i in enumerate(run.names.tolist()):
                own = state.choose(slice(row, row + 1), run.incidence.edges_of(row))
                write(path_of(self.root, t, i), self._about(t, i), own.flatten())
            if 0 in run.names:
                prune(self.root, self._n_nodes)
        except OutputError as error:
            self.failure = error
        except OSError as error:
            self.failure = OutputError(
                f"cannot write the checkpoint of iteration {t} to {self.folder}: "
                f"{error.strerror}; make room and use --resume {self.folder}"
            )
        self._saved, self._requested = monotonic(), False

    def close(self) -> None:
        """Raise the error of a checkpoint that could not be written, if any."""
        if self.failure is not None:
            raise self.failure


def path_of(folder: Path, t: int, node: int) -> Path:
    """Return the file of a node, in the folder of its iteration."""
    return folder / FOLDER / f"{t:08d}" / f"node-{node:05d}.npz"


def write(path: Path, about: Mapping[str, str | int], arrays: Arrays) -> None:
    """Write a node's file, with a checksum at its end."""
    buffer = io.BytesIO()
    facts = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    np.savez(buffer, about=facts, **arrays)  # type: ignore[arg-type]
    data = buffer.getvalue()
    root = path.parents[2]  # the folder of the run
    root.mkdir(parents=True, exist_ok=True)
    with files.replacing(path, root) as file:
        file.write(data + zlib.crc32(data).to_bytes(4, "little"))


def read(path: Path) -> tuple[dict[str, str | int], Arrays]:
    """Return the facts and the arrays in a node's file."""
    try:
        data = files.read(path, path.parents[2])
    except OSError as error:
        raise CheckpointError(
            f"cannot read the checkpoint {path}: {error.strerror}"
        ) from None
    body, checksum = data[:-4], data[-4:]
    if len(data) < 4 or zlib.crc32(body).to_bytes(4, "little") != checksum:
        raise CheckpointError(
            f"the checkpoint {path} is damaged or cut short; "
            f"{REMEDY.format(path.parent)}"
        )
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = dict(file)
        about = dict(json.loads(arrays.pop("about").tobytes()))
    except Exception as error:  # numpy, zipfile and zlib raise many types
        raise _not_valid(path, error) from None
    return about, arrays


def _not_valid(path: Path, reason: object) -> CheckpointError:
    why = str(reason).partition("\n")[0].partition(";")[0].rstrip(".")
    return CheckpointError(
        f"the checkpoint in {path.parent} is not one of this run ({why}); "
        f"{REMEDY.format(path.parent)}, or start a new run"
    )


@contextmanager
def restoring(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Raise a CheckpointError if what was read does not fit the run."""
    try:
        yield
    except DadmmError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if checkpoints is None or not checkpoints.start:
            raise
        place = path_of(checkpoints.root, checkpoints.start, 0)
        raise _not_valid(place, error) from None


def kept(folder: Path) -> list[int]:
    """Return the iterations of the checkpoints in a run's folder, oldest first."""
    names = (path.name for path in (folder / FOLDER).glob("[0-9]*"))
    return sorted(int(name) for name in names if NUMBER.fullmatch(name))


def missing(folder: Path, t: int, n_nodes: int) -> list[int]:
    """Return the nodes without a file of this iteration."""
    paths = [path_of(folder, t, i) for i in range(n_nodes)]
    return [i for i, path in enumerate(paths) if files.kind(path) != "file"]


def complete(folder: Path, n_nodes: int) -> list[int]:
    """Return the iterations of complete checkpoints, oldest first."""
    return [t for t in kept(folder) if not missing(folder, t, n_nodes)]


def latest(folder: Path, n_nodes: int) -> int:
    """Return the iteration of the newest complete checkpoint."""
    if whole := complete(folder, n_nodes):
        return whole[-1]
    lacks = ""
    if some := kept(folder):
        node = missing(folder, some[-1], n_nodes)[0]
        lacks = f" (iteration {some[-1]} lacks the file of node {node} of {n_nodes})"
    raise CheckpointError(
        f"there is no complete checkpoint in {folder}{lacks}; start a new run"
    )


def prune(folder: Path, n_nodes: int) -> None:
    """Remove what is older than the last two complete checkpoints."""
    whole = complete(folder, n_nodes)
    for t in kept(folder):
        if len(whole) >= KEPT and t < whole[-KEPT]:
            drop(folder, t, n_nodes)


def drop(folder: Path, t: int, n_nodes: int) -> None:
    """Remove the files of a checkpoint that can be removed, and its empty folder."""
    paths = [path_of(folder, t, i) for i in range(n_nodes)]
    with suppress(OSError):
        for path in paths:
            files.remove(path, folder)
            files.remove(path.with_name(files.draft_of(path.name)), folder)
        files.remove_folder(paths[0].parent, folder)
