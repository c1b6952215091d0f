"""How a run goes on: from checkpoints on disk, or without the nodes of failed ranks.

A checkpoint is one file per node, ``checkpoints/00000120/node-00003.npz``, with a
checksum and the identity of its run. All nodes write theirs after the same iteration.
The last two complete checkpoints are kept.

Two nodes are at most as many iterations apart as a message needs between them, so each
keeps the states of that many iterations in memory. After a failure all return to the
last iteration that every remaining node has finished. Multipliers at the two ends of an
edge are opposite: without the edges of failed nodes they still sum to zero, and the run
converges to the optimum of the remaining nodes' data.
"""

from __future__ import annotations

import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.admm.loop import Callback, Run, iterate
from dadmm.admm.rule import SAVED
from dadmm.admm.state import Arrays, State
from dadmm.comm.exchange import Part
from dadmm.comm.wire import IDLE
from dadmm.comm.world import World, collectively, from_rank_0
from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.errors import CheckpointError, DadmmError, OutputError
from dadmm.core.layout import Layout
from dadmm.core.schema import AT_LEAST_0, FLAG, Checked, entry, integer
from dadmm.graphs import measures
from dadmm.graphs.incidence import Incidence
from dadmm.graphs.schedule import Schedule
from dadmm.graphs.topology import Integers, Topology

FOLDER, KEPT, FORMAT = "checkpoints", 2, 4
NUMBER = re.compile(r"[0-9]{8}|[1-9][0-9]{8,17}")  # the folder of an iteration


@dataclass(eq=False)
class Checkpoints(Checked):
    """When and where a run saves its state, and whether it resumes.

    Parameters
    ----------
    folder : path
        Of the run; all processes must see it. A new run needs one without checkpoints.
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
    >>> short = dadmm.Stopping(max_iter=5)
    >>> with TemporaryDirectory() as folder:
    ...     save = dadmm.Checkpoints(folder)
    ...     first = dadmm.solve(problems, ring, stopping=short, checkpoints=save)
    ...     resume = dadmm.Checkpoints(folder, resume=True)
    ...     second = dadmm.solve(problems, ring, checkpoints=resume)
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
    where = "checkpoints "
    start = 0  # the iteration after which the run continues
    coordinates: Arrays = field(default_factory=dict, init=False)  # of that run
    # by node: of each phase, in earlier sessions
    seconds_before: Mapping[int, np.ndarray] = field(default_factory=dict, init=False)
    failure: OutputError | None = field(default=None, init=False)
    _saved, _requested = math.inf, False

    def check_unused(self) -> None:
        """Raise if a new run would save among the checkpoints of an earlier one."""
        if self.saves and not self.resume and kept(Path(self.folder)):
            raise CheckpointError(
                f"{self.folder} has checkpoints of an earlier run; continue it with "
                "resume=True, or give another folder"
            )

    def open(
        self,
        world: World,
        own: Iterable[int],
        n_nodes: int,
        max_iter: int,
        identity: Mapping[str, str] | None = None,
    ) -> None:
        """Read the checkpoint to continue from, on all ranks, of their own nodes."""
        self.root, self._n_nodes = Path(self.folder), n_nodes
        self._facts = {**(identity or {}), **self.identity}
        self._loaded: dict[int, State] = {}
        self._saved, self.failure = math.inf, None
        if self.resume:
            self.start = from_rank_0(world, lambda: latest(self.root, n_nodes))
            self._loaded = collectively(world, lambda: {i: self._load(i) for i in own})
            self.coordinates = next(iter(self._loaded.values())).coordinates
        if self.start > max_iter:
            raise CheckpointError(
                f"the run in {self.folder} has done {self.start} iterations, and "
                f"max_iter is {max_iter}; raise max_iter to continue"
            )

    def _load(self, i: int) -> State:
        """Return the state of node i; raise if a fact is of another run."""
        path, expected = path_of(self.root, self.start, i), self._about(self.start, i)
        about, arrays = read(path)
        # the command line saves more facts than the library
        for name in ("format", *(expected.keys() & about.keys())):
            theirs, mine = about.get(name), expected[name]
            if theirs != mine:
                raise _unusable(
                    path,
                    f"has another {name} ({name} {theirs}, and here it is {mine}); "
                    "resume with what it was made with, or",
                )
        with restoring(self):
            return State.from_arrays(arrays)

    def _about(self, t: int, i: int) -> dict[str, str | int]:
        place = {"format": FORMAT, "iteration": t, "node": i, "nodes": self._n_nodes}
        return place | self._facts | ({"data": self.data[i]} if i in self.data else {})

    def restore(self, run: Run) -> None:
        """Continue a run from the state that was read, once."""
        with restoring(self):
            found = {i: self._loaded.pop(i) for i in run.names.tolist()}
            self.seconds_before = {i: own.seconds[0].copy() for i, own in found.items()}
            run.restore(State.join(list(found.values())))

    def __call__(self, t: int, run: Run) -> str | None:
        """Save if it is due; request "save" in time, or "output" after a failure."""
        self._saved = min(self._saved, monotonic())  # since the first iteration
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
        state, folder = run.snapshot(), self.folder
        what = f"the checkpoint of iteration {t} in {folder}"
        try:
            with writing(what, f"make room and use --resume {folder}"):
                if self.sync is not None:
                    self.sync()
                for row, i in enumerate(run.names.tolist()):
                    own = state.choose(slice(row, row + 1), run.incidence.edges_of(row))
                    write(path_of(self.root, t, i), self._about(t, i), own.flatten())
                if 0 in run.names:
                    self.prune()
        except OutputError as error:
            self.failure = error
        self._saved, self._requested = monotonic(), False

    def prune(self, last: float = math.inf) -> None:
        """Remove what is older than the last two complete checkpoints, or later."""
        whole = complete(self.root, self._n_nodes)
        first = whole[-KEPT] if len(whole) >= KEPT else 0
        for t in kept(self.root):
            if first <= t <= last:
                continue
            paths = [path_of(self.root, t, i) for i in range(self._n_nodes)]
            with suppress(OSError):  # what cannot be removed stays
                for path in paths:
                    files.remove(path, self.root)
                    files.remove(path.with_name(files.draft_of(path.name)), self.root)
                files.remove_folder(paths[0].parent, self.root)

    def close(self) -> None:
        """Raise the error of a checkpoint that could not be written, if any."""
        if self.failure is not None:
            raise self.failure


def path_of(folder: Path, t: int, node: int) -> Path:
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
    try:
        data = files.read(path, path.parents[2])
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    body, checksum = data[:-4], data[-4:]
    if len(data) < 4 or zlib.crc32(body).to_bytes(4, "little") != checksum:
        raise _unusable(path, "is damaged or cut short;")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            arrays = dict(file)
        about = dict(json.loads(arrays.pop("about").tobytes()))
    except Exception as error:  # numpy, zipfile and zlib raise many types
        raise _not_valid(path, error) from None
    return about, arrays


def _not_valid(path: Path, reason: object) -> CheckpointError:
    why = str(reason).partition("\n")[0].partition(";")[0].rstrip(".")
    return _unusable(path, f"is not one of this run ({why});")


def _unusable(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} {why} remove the folder {path.parent} to resume from "
        "the one before it, or start a new run"
    )


@contextmanager
def restoring(checkpoints: Checkpoints) -> Iterator[None]:
    """Raise a CheckpointError if what was read does not fit the run."""
    try:
        yield
    except DadmmError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
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
        f"{folder} has no complete checkpoint{lacks}; start a new run"
    )


class NodeFailure(NamedTuple):
    """The failure of one or more nodes, as one of the remaining processes sees it."""

    t: int  # the iteration after which the remaining nodes continue
    lost: tuple[int, ...]  # failed nodes
    components: tuple[tuple[int, ...], ...]  # of the remaining graph
    component: tuple[int, ...]  # that of this process
    kept_nodes: NDArray[np.bool_]  # (n,) nodes of this process that are left
    kept: NDArray[np.bool_]  # (E,) edges of these nodes that are left


class LocalRun(NamedTuple):
    """The run of this process at its end."""

    run: Run
    lost: tuple[int, ...]  # original numbers of the failed nodes, as known here
    iterations: int
    reason: str  # why it ended, one of `stopping.REASONS`


def run_with_recovery(
    run: Run, max_iter: int, callbacks: Sequence[Callback], checkpoints: Checkpoints
) -> LocalRun:
    """Return the run that finished; call ``rewind`` of callbacks after a failure.

    Nothing is saved after a failure, because a checkpoint needs all nodes.
    """
    start, state, lost = 0, None, list[int]()
    buffer: dict[int, State] = {}  # the last iterations, one more than the reach

    def keep(t: int, run: Run) -> None:
        buffer[t] = run.snapshot()
        buffer.pop(t - run.stopping.reach - 1, None)

    while True:
        exchange, is_open = run.exchange, False
        survives = bool(exchange.rank_failure)  # else a failure ends the job
        buffer = {} if state is None else {start: state.choose()}
        with suppress(*exchange.rank_failure):
            run.open()
            is_open = True
        if not survives or exchange.all_finished(is_open):
            if state is not None:
                state.traffic[...] = exchange.sent  # with the initial messages
                run.restore(state)
            elif checkpoints.start:
                start = checkpoints.start
                checkpoints.restore(run)
            called: list[Callback] = [*callbacks, checkpoints]
            if survives:
                keep(start, run)
                called.append(keep)
            ended = None
            with suppress(*exchange.rank_failure):
                ended = iterate(run, max_iter, called, start)
            if not survives or exchange.all_finished(ended is not None):
                assert ended is not None
                return LocalRun(run, tuple(sorted(lost)), *ended)
        elif not buffer:
            exchange.raise_failed()
        run, state, failure = _without_failed(run, buffer)
        start = failure.t
        lost += failure.lost
        for callback in callbacks:
            if hasattr(callback, "rewind"):
                callback.rewind(failure)
        checkpoints.saves = False


def _without_failed(
    before: Run, buffer: Mapping[int, State]
) -> tuple[Run, State, NodeFailure]:
    """Return the run without the failed nodes, its state, and the failure."""
    graph = before.topology
    hosts, rank = before.exchange.hosts, before.exchange.rank

    def plan(alive: Sequence[int]) -> Part:
        parts = components(graph, hosts, alive)
        part = next(own for own in parts if rank in hosts[[*own]])
        topology, _ = restrict(graph, before.schedule, part)
        owners = hosts[[*part]]
        own = np.flatnonzero(owners == rank)
        own = own[np.argsort(topology.degrees[own], kind="stable")]
        return Part(part, topology, np.unique(owners, return_inverse=True)[1], own)

    exchange, alive, t = before.exchange.shrink(max(buffer), plan)
    parts, part = components(graph, hosts, alive), plan(alive).nodes
    topology, schedule = restrict(graph, before.schedule, part)

    def named(nodes: Iterable[int]) -> tuple[int, ...]:  # by original numbers
        return tuple(before.names_of_all[[*nodes]].tolist())

    dead = sorted(set(range(graph.n_nodes)).difference(*parts))
    ends = before.by_edge(graph.edges[before.arcs])
    failure = NodeFailure(
        t, named(dead), tuple(map(named, parts)), named(part),
        kept_nodes=np.isin(before.by_node(before.nodes), part),
        kept=np.asarray(np.isin(ends, part).all(axis=1)),
    )  # fmt: skip
    run = Run(before.setup, exchange, topology, schedule, named(part))

    def places(rows: Integers, wanted: Integers) -> Integers:
        """Return where the wanted numbers are in rows, which are all different."""
        order = np.argsort(rows)
        return np.asarray(order[np.searchsorted(rows, wanted, sorter=order)])

    # the rows before of the nodes and edges that are left, in the order of the new rows
    old = np.array(part)
    node = places(before.nodes, old[run.nodes])
    edge = places(before.arcs, graph.rows(old[topology.edges])[run.arcs])
    state = reopened(buffer[t].choose(node, edge), run.incidence, run.layout)
    # these counts include the iterations that are repeated
    exchange.sent[...] = before.exchange.sent[edge]
    return run, state, failure


def components(
    graph: Topology, hosts: Integers, alive: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the connected parts of the nodes of these ranks, by their first nodes.

    A rank continues in one part; its nodes elsewhere are lost.
    """
    left = np.isin(hosts, alive)
    while True:
        inside = graph.edges[left[graph.edges].all(axis=1)]
        roots, still = measures.components(len(graph), inside), left.copy()
        for rank in alive:
            own = left & (hosts == rank)
            found, counts = np.unique(roots[own], return_counts=True)
            still[own] = roots[own] == found[counts.argmax()]
        if (still == left).all():
            break
        left = still
    nodes = np.flatnonzero(left)
    parts = [nodes[roots[nodes] == root] for root in np.unique(roots[nodes])]
    return [tuple(part.tolist()) for part in parts]


def restrict(
    graph: Topology, schedule: Schedule | None, part: Sequence[int]
) -> tuple[Topology, Schedule | None]:
    """Return the graph and schedule of these nodes, renumbered in their order."""
    number, n = np.full(len(graph), -1), len(part)
    number[[*part]] = np.arange(n)

    def inside(edges: Integers) -> Integers:
        ends = number[edges]
        return np.asarray(ends[(ends >= 0).all(axis=1)])

    names = [graph.names[i] for i in part] if graph.names else ()
    places = None if graph.positions is None else graph.positions[[*part]]
    left = Topology.from_edges(n, inside(graph.edges), names, places)
    if schedule is None:
        return left, None
    return left, Schedule(n, [inside(graph.edges[k]) for k in schedule.rows], left)


def reopened(left: State, incidence: Incidence, layout: Layout) -> State:
    """Return the state without edges to failed nodes; the agreement begins again."""
    left.header[...] = IDLE
    left.held[...] = 0
    left.mean[...] = 0.0
    incidence.reduce(np.add, left.received, left.mean)
    left.mean /= incidence.count[:, None]
    alone = incidence.degrees == 0
    left.mean[alone] = layout.shared(left.theta)[alone]
    left.stopping = left.stopping[:, :SAVED].copy()  # without votes
    left.stopping[:, 0] = 0.0  # `CriteriaLog.held`
    return left
