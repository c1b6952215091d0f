"""Read a run from its folder, and check what is in it.

A run that has no summary.json yet may be at work: its part files grow.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dadmm.core import documents, files, schema
from dadmm.core.errors import ConfigError, DadmmError, OutputError, TopologyError
from dadmm.core.layout import Array, Matrix
from dadmm.core.schema import COUNT, FLAG, NULL, NUMBER, OBJECT, TEXT, any_of, list_of
from dadmm.graphs.topology import Topology
from dadmm.runs.config import RunConfig, typed
from dadmm.runs.folder import RunFolder
from dadmm.runs.row_files import EDGES, HISTORY, KEYS, iteration, merged
from dadmm.runs.summary import ANGLES, SCORES, Summary

# the numbers that a column may have, in words and as a test
Rule = tuple[str, Callable[[Matrix], NDArray[np.bool_]]]
ANY: Rule = ("a number", lambda x: np.ones(x.shape, dtype=bool))
NOT_NEGATIVE: Rule = ("from 0 to 1e18", lambda x: (x >= 0) & (x <= 1e18))
POSITIVE: Rule = ("finite and positive", lambda x: np.isfinite(x) & (x > 0))
GOING = {True: "still going", False: "interrupted", None: "not finished"}
CUT_SHORT = "it was cut short or belongs to another run"

AMOUNT = schema.number("not negative", lambda x: not x < 0)
WORD = any_of(TEXT, NUMBER, FLAG)
COUNTS = list_of(COUNT, "a list of integers")


def _objects(*kinds: schema.Kind) -> schema.Kind:
    return schema.object_of(any_of(*kinds), "an object of other values")


# the kind of each entry of summary.json; an inner entry follows a dot
ENTRIES = (
    (COUNT.also("positive", lambda x: x > 0), "n_nodes"),
    (FLAG, "converged is_broadcast stopping.met"),
    (TEXT, "coordinates status why reason waited_for advice mpi_library start.init "
     "consensus.by consensus.where subspace.why_not gaps.on_missing stopping.rule "
     "stopping.criterion"),
    (COUNT, "iterations messages bytes collectives collective_bytes silent_messages "
     "lost_payloads tree_bytes resumed_after record_every edges_between_hosts ranks "
     "bytes_between_hosts outside_calls outside_bytes start.rounds penalties.edges "
     "penalties.guessed penalties.changed penalties.raised penalties.used_up "
     "certificate.open_directions stopping.last_unmet stopping.in_a_row "
     "stopping.delay"),
    (AMOUNT, "consensus.error seconds.solve seconds.exchange seconds.update "
     "seconds.observe seconds.total seconds.set_up seconds.curvature"),
    (NUMBER, "start.angle_to_result_degrees start.gap start.strictness"),
    (WORD, "positive_class"),
    (any_of(schema.REAL, NULL), "objective alpha"),
    (any_of(AMOUNT, NULL), "scores.auc_error subspace.within_degrees certificate.gap "
     "certificate.radius certificate.within certificate.lower_by"),
    (any_of(NUMBER, NULL), " ".join(["stopping.factor", *map("scores.{}".format,
                                                             SCORES)])),
    (any_of(TEXT, NULL), "stopping.part"),
    (any_of(COUNT, NULL), "stopping.node"),
    (_objects(COUNT), "seeds hosts rows_by_node"),
    (_objects(AMOUNT), "rows_by_class seconds.of_all_sessions"),
    (_objects(AMOUNT, NULL), "standard_errors certificate.coefficients"),
    (_objects(schema.REAL, NULL), "coefficients"),
    (_objects(NUMBER, NULL), "metrics"),
    (_objects(TEXT), "versions"),
    (_objects(WORD), "baseline"),
    (COUNTS, "lost_nodes"),
    (list_of(TEXT, "a list of texts"), "node_hosts certificate.assumed"),
    (list_of(schema.REAL, "two numbers").also("two numbers", lambda x: len(x) == 2),
     "penalties.eta0 penalties.eta penalties.spent"),
    (list_of(COUNTS.also("of three", lambda x: len(x) == 3),
             "a list of three integers each"), "gaps.nodes"),
)  # fmt: skip
NULLABLE = ("certificate", "subspace")
Columns = dict[str, Matrix]  # of a file of rows, each (iterations, rows)


def read_summary(file: Path) -> Summary:
    """Return the contents of a summary.json, after a check of its entries."""
    found = documents.parse(file, json.loads, "JSON")
    OBJECT.check(f"{file} is not the summary of a run: it", found)
    for kind, names in ENTRIES:
        for name in names.split():
            top, _, inner = name.partition(".")
            place = found.get(top, {}) if inner else found
            if place is None and top in NULLABLE:
                continue
            OBJECT.check(f"{file} is damaged: {top}", place)
            if (inner or top) in place:
                kind.check(f"{file} is damaged: {name}", place[inner or top])
    return Summary(found)


def read_config(folder: Path) -> RunConfig:
    file = folder / "config.toml"
    table = typed(documents.read_toml(file), file)
    try:
        return RunConfig(**table)
    except DadmmError as error:
        raise ConfigError(f"{file}: {error}") from None


@dataclass(frozen=True)
class StoredRun:
    """The folder of a finished run; each file is read when it is needed."""

    is_going: ClassVar = False  # whether it has no summary.json
    folder: Path
    summary: Summary

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the run in a folder."""
        home = Path(folder)
        if files.exists(home / "summary.json"):
            return cls(home, read_summary(home / "summary.json"))
        if files.exists(home / "config.toml"):
            raise ConfigError(
                f"the run in {home} has not finished: it has no summary.json; wait "
                f"for it, or repeat it with --config {home / 'config.toml'}"
            )
        raise ConfigError(
            f"{home} is not the folder of a run: it has no summary.json and no "
            "config.toml; give the folder that dadmm run names in its last lines"
        )

    def _error(self, name: str, why: str) -> ConfigError:
        """Return an error that names a file of the run."""
        return ConfigError(f"{self.folder / name} {why}")

    def entry(self, name: str) -> Any:
        """Return an entry of the summary; raise if it is missing."""
        if name not in self.summary:
            why = f"has no {name!r}; it is damaged, or another version made it"
            raise self._error("summary.json", why)
        return self.summary[name]

    @cached_property
    def config(self) -> RunConfig:
        found, count = read_config(self.folder), self.entry("n_nodes")
        if found.nodes != count and not self.summary.get("lost_nodes"):
            why = f"is of a run of {found.nodes} nodes, but summary.json in the same "
            why += f"folder is of {count}"
            raise self._error("config.toml", why)
        return found

    @cached_property
    def arrays(self) -> dict[str, Array]:
        file = self.folder / "result.npz"
        with documents.reading(file), np.load(file, allow_pickle=False) as found:
            return dict(found)

    def array(self, name: str, shape: tuple[int | None, ...]) -> Array:
        """Return an array of finite numbers; None stands for any length above 0."""
        found = self.arrays.get(name, np.empty(0, dtype=object))
        fits = found.dtype.kind in "biuf" and len(shape) == found.ndim
        for n, length in zip(found.shape, shape, strict=False):
            fits = fits and (n > 0 if length is None else n == length)
        if not fits or not np.isfinite(found).all():
            wanted = str(shape).replace("None", "n")
            why = f"is damaged: {name!r} must hold finite numbers of shape {wanted}"
            raise self._error("result.npz", why)
        return found

    @cached_property
    def topology(self) -> Topology:
        """The graph; if nodes were lost, what is left of it, renumbered."""
        count = self.entry("n_nodes")
        if count == 1:
            return Topology.complete(1)
        edges = self.array("edges", (None, 2))
        try:
            if count > len(edges):  # also avoids very long lists
                raise TopologyError(f"{count} nodes need more edges than {len(edges)}")
            if self.summary.get("lost_nodes"):
                _, numbers = np.unique(edges, return_inverse=True)
                edges = numbers.reshape(edges.shape)
            names, places = map(self.arrays.get, ("node_names", "node_positions"))
            words = () if names is None else tuple(map(str, names.tolist()))
            graph = Topology.from_edges(count, edges, words, places)
            if not np.array_equal(graph.edges, edges):
                raise TopologyError("both directions must be there once, in order")
        except TopologyError as error:
            raise ConfigError(
                f"the edges in {self.folder / 'result.npz'} do not fit a run of "
                f"{count} nodes: {error}"
            ) from None
        return graph

    def _table(self, kind: str) -> tuple[list[str], Matrix]:
        """Return columns and rows of a file, and of parts that are not merged."""
        file, header, parts = self.folder / f"{kind}.csv", list[str](), list[Path]()
        try:
            with suppress(OSError, OutputError):  # it has no manifest, or no parts
                parts = RunFolder.open(self.folder).parts(kind)
            if files.exists(file) or not (parts or self.is_going):
                with open(files.open_plain(file), encoding="utf-8") as whole:
                    header = whole.readline().strip().split(",")
            rows = [*merged([], file)]  # a run may have died while it removed its parts
            end = self.summary.get("iterations", math.inf)
            if parts and (not rows or iteration(rows[-1]) < end):
                rows = [*merged(parts, file)]
            lines, table = [row.decode("ascii") for row in rows], np.empty((0, 1))
            if lines:
                table = np.loadtxt(lines, delimiter=",", ndmin=2)
        except DadmmError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"cannot read {file}: {reason}") from None
        if not header:
            header = list(EDGES if kind == "edges" else HISTORY)
            drawn = self.config.data is None and not self.config.traits.tracks
            both = table.shape[1] > len(header) + 1 or drawn
            angles = [*ANGLES] if both else [*ANGLES][1:]
            header += angles[: max(table.shape[1] - len(header), 0)]
        return header, table

    def _columns(self, kind: str, n_rows: int) -> Columns:
        """Return the columns of a file, each (iterations, n_rows).

        All iterations must have the keys of the first. Iterations may be left out.
        """
        (header, table), keys, file = self._table(kind), KEYS[kind], f"{kind}.csv"
        width = len(keys)
        if tuple(header[:width]) != keys or len(header) == width:
            why = f"is damaged: its columns must be {', '.join(keys)} and others, got "
            why += f"{', '.join(header):.100}"
            raise self._error(file, why)
        if not len(table):
            why = "has no rows; run it again with --record, which more than 1,000 "
            why += "nodes need"
            raise self._error(file, why)
        fits = not len(table) % n_rows and table.shape[1] == len(header)
        if fits:
            cube = table.reshape(-1, n_rows, len(header))
            t, numbers = cube[:, :1, 0], cube[:, :, 1:width]
            rising = (np.diff(t, axis=0, prepend=0.0) >= 1).all() and not (t % 1).any()
            alike = (cube[:, :, 0] == t).all() and (numbers == numbers[:1]).all()
        if not (fits and rising and alike):
            why = f"has {len(table)} rows, not {n_rows} for each iteration; {CUT_SHORT}"
            raise self._error(file, why)
        return {k: cube[:, :, at] for at, k in enumerate(header) if not 0 < at < width}

    @cached_property
    def history(self) -> Columns:
        """The columns of history.csv, each (iterations, n_nodes)."""
        found = self._columns("history", len(self.topology))
        last = int(found["iteration"][-1, 0])
        if (end := self.summary.get("iterations", last)) != last:
            why = f"ends at iteration {last}, but summary.json beside it reports {end}"
            raise self._error("history.csv", f"{why}; {CUT_SHORT}")
        return found

    @property
    def iterations(self) -> NDArray[np.int64]:
        """The iteration of each row of a column."""
        return self.history["iteration"][:, 0].astype(np.int64)

    @cached_property
    def edge_history(self) -> Columns:
        """The columns of edges.csv, each (iterations, E)."""
        n_edges, run = len(self.topology.edges), f"the run in {self.folder}"
        if not n_edges:
            raise ConfigError(f"{run} has one node and no edges")
        iterations = self.iterations  # raises if history.csv has no rows
        if not self.by_edge:
            why = "has no edges.csv; run it again with --record-edges"
            raise ConfigError(f"{run} {why}")
        found = self._columns("edges", n_edges)
        if not np.array_equal(found["iteration"][:, 0], iterations):
            why = f"has other iterations than history.csv beside it; {CUT_SHORT}"
            raise self._error("edges.csv", why)
        return found

    @property
    def by_edge(self) -> bool:
        """Whether the edges of the run were recorded."""
        there = files.exists(self.folder / "edges.csv")
        return there and len(self.topology.edges) > 0 and self.has_rows

    def edge_column(self, name: str, allowed: Rule = ANY) -> Matrix:
        """Return a column of edges.csv, (iterations, E)."""
        return self.column(name, allowed, "edges.csv")

    def column(
        self, name: str, allowed: Rule = ANY, file: str = "history.csv"
    ) -> Matrix:
        """Return a column of history.csv, (iterations, n_nodes), or of another file."""
        rows = self.history if file == "history.csv" else self.edge_history
        if name not in rows:
            why = f"has no column {name!r}; it has {', '.join(rows):.300}; if another "
            why += "version made it, run it again"
            raise self._error(file, why)
        words, holds = allowed
        wrong = rows[name][~holds(rows[name])]
        if len(wrong):
            why = f"is damaged: {name} must be {words}, got {wrong[0]:g}"
            raise self._error(file, why)
        return rows[name]

    @property
    def eta(self) -> Matrix:
        """Penalty of each directed edge for the next iteration, (iterations, E)."""
        return self.edge_column("eta", POSITIVE)

    @property
    def n_iterations(self) -> int:
        """Iterations that have rows; 0 if none were recorded."""
        return len(self.iterations) if self.has_rows else 0

    @cached_property
    def has_rows(self) -> bool:
        """Whether the run has rows of its nodes."""
        name = self.folder / "history.csv"
        with documents.reading(name), open(files.open_plain(name), "rb") as file:
            return len(file.readlines(2000)) > 1

    @cached_property
    def pairs(self) -> np.ndarray:
        """The rows of the edges (i, j) with i < j, by which an edge is drawn once."""
        edges = self.topology.edges
        return np.flatnonzero(edges[:, 0] < edges[:, 1])

    @cached_property
    def spans(self) -> NDArray[np.int64]:
        """How many iterations each row stands for; more than one in a long run."""
        return np.diff(self.iterations, prepend=0)

    def by_iteration(self, rows: Matrix) -> Matrix:
        """Return a row for each iteration, an equal share of the row it belongs to."""
        return np.repeat(rows / self.spans[:, None], self.spans, axis=0)

    @cached_property
    def has_payload(self) -> np.ndarray:
        """Whether a directed edge carried a payload, (iterations, E).

        A message without payload has the length of its header, with the penalty if the
        ends of an edge use the mean of both. Rounded payloads have headers of 2 bytes,
        or 10, see `dadmm.comm.wire`.
        """
        config, one_end = self.config, self.config.scheme_class.is_symmetric
        sent: Matrix = self.edge_column("bytes") / self.spans[:, None]
        header = 8 if config.payload == "float64" else 2
        header = 16 if config.coupling == "symmetric" and not one_end else header
        found: np.ndarray = (sent > header) & ~((header == 2) & (sent == 10))
        return found

    @property
    def has_budgets(self) -> bool:
        """Whether the edges have budgets."""
        return "budget0" in self.config.scheme_class.uses

    @property
    def budgets(self) -> dict[str, Matrix]:
        """What was spent of each budget, the budget, and how often it was raised.

        The paper's schemes count on when a budget is spent; here, that is all of it.
        """
        found = {name: self.edge_column(name) for name in ("spent", "budget", "raised")}
        return found | {"spent": np.minimum(found["spent"], found["budget"])}


@dataclass(frozen=True)
class GoingRun(StoredRun):
    """A run without summary.json: what it has written so far."""

    is_going: ClassVar = True
    as_of: str  # when it was read

    @cached_property
    def topology(self) -> Topology:
        """The graph, from the settings."""
        try:
            return self.config.build_graph(self.config.nodes)[0]
        except DadmmError as error:
            raise ConfigError(
                f"the run in {self.folder} has not finished, and its graph cannot be "
                f"built again ({error}); start this command where the run was started, "
                "or wait for the end of the run"
            ) from None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _rows(self) -> dict[str, tuple[list[str], Matrix]]:
        """The columns and rows of each kind, of the iterations that have all rows."""
        counts = {"history": len(self.topology)}
        if self.config.record_edges and len(self.topology.edges):
            counts["edges"] = len(self.topology.edges)
        found = {kind: super(GoingRun, self)._table(kind) for kind in counts}
        complete: list[NDArray[np.float64]] = []
        for kind, (_, table) in found.items():
            t, n = np.unique(table[:, 0], return_counts=True)
            complete.append(t[n == counts[kind]])
        both = np.intersect1d(complete[0], complete[-1])
        return {k: (head, x[np.isin(x[:, 0], both)]) for k, (head, x) in found.items()}

    def _table(self, kind: str) -> tuple[list[str], Matrix]:
        return self._rows[kind]

    @property
    def has_rows(self) -> bool:
        return len(self._rows["history"][1]) > 0

    @property
    def by_edge(self) -> bool:
        return self.has_rows and "edges" in self._rows


def read_run(folder: Path) -> StoredRun:
    """Return the run in a folder, whether it has finished or not."""
    file = folder / "config.toml"
    if files.kind(file) != "file" or files.exists(folder / "summary.json"):
        return StoredRun.read(folder)
    config = read_config(folder)
    if config.nodes is None:
        raise ConfigError(f"{file} has no nodes, so it is not the file of a run")
    summary = Summary(
        status=GOING[RunFolder.is_live(folder)],
        n_nodes=config.nodes,
        mpi_library="" if files.exists(folder / "ranks.csv") else "none (one process)",
    )
    run = GoingRun(folder, summary, time.strftime("%Y-%m-%d %H:%M:%S %Z"))
    summary["iterations"] = int(run.iterations[-1]) if run.has_rows else 0
    return run


def run_folders(given: Iterable[str | Path]) -> list[Path]:
    """Return folders of runs, each once; a folder of several stands for its runs."""
    found: dict[Path, None] = {}
    for folder in map(Path, given):
        inner: list[Path] = []
        own = (folder / name for name in ("config.toml", "summary.json"))
        if not any(map(files.exists, own)):
            with suppress(OSError):
                inner = sorted(file.parent for file in folder.glob("*/config.toml"))
        found |= dict.fromkeys(inner or [folder])
    return list(found)
