"""Read a run from its folder, and check what is in it.

A run that has no summary.json yet may be at work: its part files grow.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dadmm.core import documents, files, schema
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, DadmmError, OutputError, TopologyError
from dadmm.core.layout import Array, Matrix
from dadmm.core.schema import (
    COUNT,
    FLAG,
    NULL,
    NUMBER,
    OBJECT,
    TEXT,
    any_of,
    list_of,
    object_of,
)
from dadmm.graphs.topology import Topology
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import RunFolder
from dadmm.runs.graph import build_graph
from dadmm.runs.row_files import (
    EDGE_KEYS,
    EDGES,
    NODE_KEYS,
    history_header,
    iteration,
    merged,
)
from dadmm.runs.summary import SCORES

# allowed numbers of a column
ANY, NOT_NEGATIVE, POSITIVE = "a number", "from 0 to 1e18", "finite and positive"
ALLOWED: dict[str, Callable[[Matrix], NDArray[np.bool_]]] = {
    ANY: lambda x: np.ones(x.shape, dtype=bool),
    NOT_NEGATIVE: lambda x: (x >= 0) & (x <= 1e18),
    POSITIVE: lambda x: np.isfinite(x) & (x > 0),
}
GOING = {True: "still going", False: "interrupted", None: "not finished"}
GIVE = "give the folder that dadmm run names in its last lines"
REAL = schema.number("finite", math.isfinite)
AMOUNT = schema.number("not negative", lambda x: not x < 0)
REAL_OR_NULL, AMOUNT_OR_NULL = any_of(REAL, NULL), any_of(AMOUNT, NULL)
RANGE = list_of(REAL, "a list of two numbers").also("of two", lambda x: len(x) == 2)
TEXTS = list_of(TEXT, "a list of texts")
COUNTS, GAPS = list_of(COUNT, "a list of integers"), "a list of three integers each"
WITH_NUMBERS = object_of(REAL_OR_NULL, "an object of numbers")
WITH_AMOUNTS = object_of(AMOUNT_OR_NULL, "an object of numbers of at least 0")
WITH_COUNTS = object_of(COUNT, "an object of integers")
WITH_TEXTS = object_of(TEXT, "an object of texts")
PHASES = dict.fromkeys(("solve", "exchange", "update", "observe"), AMOUNT)
NULLABLE = ("certificate", "subspace")
ENTRIES: dict[str, Any] = {  # the kind of each entry of summary.json
    "n_nodes": COUNT.also("positive", lambda x: x > 0),
    **dict.fromkeys(("converged", "is_broadcast"), FLAG),
    **dict.fromkeys(("objective", "alpha"), REAL_OR_NULL),
    "lost_nodes": COUNTS,
    "node_hosts": TEXTS,
    "positive_class": any_of(TEXT, NUMBER, FLAG),
    **dict.fromkeys(("coordinates", "status", "why", "reason"), TEXT),
    **dict.fromkeys(("waited_for", "advice", "mpi_library"), TEXT),
    **dict.fromkeys(("iterations", "messages", "bytes", "collectives"), COUNT),
    **dict.fromkeys(("collective_bytes", "silent_messages", "lost_payloads"), COUNT),
    **dict.fromkeys(("tree_bytes", "resumed_after", "edges_between_hosts"), COUNT),
    "record_every": COUNT,
    **dict.fromkeys(("bytes_between_hosts", "outside_calls", "outside_bytes"), COUNT),
    **dict.fromkeys(("seeds", "hosts", "rows_by_node"), WITH_COUNTS),
    "rows_by_class": object_of(AMOUNT, "an object of numbers of at least 0"),
    "versions": WITH_TEXTS,
    "baseline": object_of(any_of(TEXT, NUMBER, FLAG), "an object of categories"),
    "coefficients": WITH_NUMBERS,
    "metrics": object_of(any_of(NUMBER, NULL), "an object of numbers"),
    "scores": {"auc_error": AMOUNT_OR_NULL}
    | dict.fromkeys(SCORES, any_of(NUMBER, NULL)),
    "standard_errors": WITH_AMOUNTS,
    "gaps": {
        "on_missing": TEXT,
        "nodes": list_of(COUNTS.also(GAPS, lambda x: len(x) == 3), GAPS),
    },
    "stopping": {
        **dict.fromkeys(("rule", "criterion"), TEXT),
        "met": FLAG,
        "part": any_of(TEXT, NULL),
        "node": any_of(COUNT, NULL),
        **dict.fromkeys(("last_unmet", "in_a_row", "delay"), COUNT),
        "factor": any_of(NUMBER, NULL),
    },
    "penalties": {
        **dict.fromkeys(("edges", "guessed", "changed", "raised", "used_up"), COUNT),
        **dict.fromkeys(("eta0", "eta", "spent"), RANGE),
    },
    "certificate": {
        **dict.fromkeys(("gap", "radius", "within", "lower_by"), AMOUNT_OR_NULL),
        "coefficients": WITH_AMOUNTS,
        "open_directions": COUNT,
        "assumed": TEXTS,
    },
    "start": {
        "init": TEXT,
        **dict.fromkeys(("angle_to_result_degrees", "gap", "strictness"), NUMBER),
        "rounds": COUNT,
    },
    "subspace": {"within_degrees": AMOUNT_OR_NULL, "why_not": TEXT},
    "consensus": {"error": AMOUNT, "by": TEXT, "where": TEXT},
    "seconds": PHASES
    | dict.fromkeys(("total", "set_up", "curvature"), AMOUNT)
    | {"of_all_sessions": PHASES},
}
Columns = dict[str, Matrix]  # of a file of rows, each (iterations, rows)
Lines = dict[int, list[str]]  # of a file of rows, by iteration


def read_summary(file: Path) -> Table:
    """Return the contents of a summary.json, after a check of its entries."""
    found = documents.parse(file, json.loads, "JSON")
    OBJECT.check(f"{file} is not the summary of a run: it", found)
    none = {name for name in NULLABLE if found.get(name) is None}
    kinds = {name: kind for name, kind in ENTRIES.items() if name not in none}
    schema.check_known(found, kinds, f"{file} is damaged: ")
    summary: Table = found
    return summary


def read_config(folder: Path) -> RunConfig:
    """Return the settings of the run in a folder."""
    file = folder / "config.toml"
    table = RunConfig.from_toml(file)
    try:
        return RunConfig(**table)
    except DadmmError as error:
        raise ConfigError(f"{file}: {error}") from None


@dataclass(frozen=True)
class StoredRun:
    """The folder of a finished run; each file is read when it is needed."""

    folder: Path
    summary: Table
    is_going: bool = False  # it has no summary.json
    as_of: str = ""  # when it was read, if it is going

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the run in a folder."""
        home = Path(folder)
        if not _exists(home / "summary.json"):
            if _exists(home / "config.toml"):
                raise ConfigError(
                    f"the run in {home} has not finished: it has no summary.json; wait "
                    f"for it, or repeat it with --config {home / 'config.toml'}"
                )
            if not _exists(home):
                raise ConfigError(f"cannot find a folder {home}; {GIVE}")
            raise ConfigError(
                f"{home} is not the folder of a run: it has no summary.json and no "
                f"config.toml; {GIVE}"
            )
        return cls(home, read_summary(home / "summary.json"))

    def entry(self, name: str) -> Any:
        """Return an entry of the summary; raise if it is missing."""
        if name not in self.summary:
            raise ConfigError(
                f"{self.folder / 'summary.json'} has no {name!r}; it is damaged, or "
                "another version made it"
            )
        return self.summary[name]

    @cached_property
    def config(self) -> RunConfig:
        """The settings of the run."""
        found, count = read_config(self.folder), self.entry("n_nodes")
        if found.nodes != count and not self.summary.get("lost_nodes"):
            raise ConfigError(
                f"{self.folder / 'config.toml'} is of a run of {found.nodes} nodes, "
                f"but summary.json in the same folder is of {count}"
            )
        return found

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The arrays in result.npz."""
        return documents.read_arrays(self.folder / "result.npz")

    def array(self, name: str, shape: tuple[int | None, ...]) -> Array:
        """Return an array of finite numbers; None stands for any length above 0."""
        file = self.folder / "result.npz"
        if name not in self.arrays:
            raise ConfigError(f"{file} has no array {name!r}")
        found, wanted = self.arrays[name], str(shape).replace("None", "n")
        fits = len(shape) == found.ndim and all(
            n == length or (length is None and n > 0)
            for n, length in zip(found.shape, shape, strict=True)
        )
        if found.dtype.kind not in "biuf" or not fits or not np.isfinite(found).all():
            raise ConfigError(
                f"{file} is damaged: {name!r} must hold finite numbers of shape "
                f"{wanted}, got {found.dtype} of shape {found.shape}"
            )
        return found

    @cached_property
    def topology(self) -> Topology:
        """The graph; if nodes were lost, what is left of it, renumbered."""
        file, count = self.folder / "result.npz", self.entry("n_nodes")
        if count == 1:
            return Topology.complete(1)
        edges = self.array("edges", (None, 2))
        if self.summary.get("lost_nodes"):
            _, numbers = np.unique(edges, return_inverse=True)
            edges = numbers.reshape(edges.shape)
        try:
            if count > len(edges):  # also avoids very long lists
                raise TopologyError(f"{count} nodes need more edges than {len(edges)}")
            names, places = (
                self.arrays.get(f"node_{what}") for what in ("names", "positions")
            )
            words = () if names is None else tuple(map(str, names.tolist()))
            graph = Topology.from_edges(count, edges, words, places)
            if not np.array_equal(graph.edges, edges):
                raise TopologyError("both directions must be there once, in order")
        except TopologyError as error:
            raise ConfigError(
                f"the edges in {file} do not fit a run of {count} nodes: {error}"
            ) from None
        return graph

    @cached_property
    def history(self) -> Columns:
        """The columns of history.csv, each (iterations, n_nodes)."""
        file = self.folder / "history.csv"
        found = read_rows(file, NODE_KEYS, self.topology.n_nodes)
        last = int(found["iteration"][-1, 0])
        if self.summary.get("iterations", last) != last:
            raise ConfigError(
                f"{file} ends at iteration {last}, but summary.json beside it reports "
                f"{self.summary['iterations']}; it was cut short or belongs to another "
                "run"
            )
        return found

    @property
    def iterations(self) -> NDArray[np.int64]:
        """The iteration of each row of a column."""
        return self.history["iteration"][:, 0].astype(np.int64)

    @cached_property
    def edge_history(self) -> Columns:
        """The columns of edges.csv, each (iterations, E)."""
        file, edges = self.folder / "edges.csv", self.topology.edges
        if not len(edges):
            raise ConfigError(f"the run in {self.folder} has one node and no edges")
        if not self.by_edge:
            raise ConfigError(
                f"the run in {self.folder} has no edges.csv; run it again with "
                "--record-edges"
            )
        found = read_rows(file, EDGE_KEYS, len(edges))
        if not np.array_equal(found["iteration"][:, 0], self.iterations):
            raise ConfigError(
                f"{file} has other iterations than history.csv beside it; one of them "
                "was cut short or belongs to another run"
            )
        return found

    @property
    def by_edge(self) -> bool:
        """Whether the edges of the run were recorded."""
        there = _exists(self.folder / "edges.csv") and len(self.topology.edges) > 0
        return there and self.has_rows

    def column(self, name: str, allowed: str = ANY) -> Matrix:
        """Return a column of history.csv, (iterations, n_nodes)."""
        return _column(self.history, name, self.folder / "history.csv", allowed)

    def edge_column(self, name: str, allowed: str = ANY) -> Matrix:
        """Return a column of edges.csv, (iterations, E)."""
        return _column(self.edge_history, name, self.folder / "edges.csv", allowed)

    @property
    def eta(self) -> Matrix:
        """Penalty of each directed edge for the next iteration, (iterations, E)."""
        return self.edge_column("eta", POSITIVE)

    @cached_property
    def n_iterations(self) -> int:
        """Iterations that have rows; 0 if none were recorded."""
        return len(self.iterations) if self.has_rows else 0

    @cached_property
    def has_rows(self) -> bool:
        """Whether the run has rows of its nodes."""
        name = self.folder / "history.csv"
        try:
            with open(files.open_plain(name), "rb") as file:
                return len(file.readlines(2000)) > 1
        except OSError as error:
            raise documents.unreadable(name, error) from None

    @property
    def over_mpi(self) -> bool:
        """Whether each node was a process."""
        return "one process" not in self.summary.get("mpi_library", "")

    @cached_property
    def pairs(self) -> np.ndarray:
        """The rows of the edges (i, j) with i < j, by which an edge is drawn once."""
        edges = self.topology.edges
        return np.flatnonzero(edges[:, 0] < edges[:, 1])

    @property
    def spans(self) -> NDArray[np.int64]:
        """How many iterations each row stands for; more than one in a long run."""
        return np.diff(self.iterations, prepend=0)

    @cached_property
    def has_payload(self) -> np.ndarray:
        """Whether a directed edge carried a payload, (iterations, E).

        A message without payload has the length of its header, with the penalty if the
        ends of an edge use the mean of both.
        """
        config, one_end = self.config, self.config.scheme_class.is_symmetric
        header = 16 if config.coupling == "symmetric" and not one_end else 8
        return self.edge_column("bytes") > header * self.spans[:, None]

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

    @cached_property
    def topology(self) -> Topology:
        """The graph, from the settings or else from the rows of its edges."""
        try:
            return build_graph(self.config, self.config.nodes)[0]
        except DadmmError as error:
            with suppress(DadmmError):
                rows = [
                    line.split(",")[1:3]
                    for line in next(iter(self._lines["edges"].values()), ())
                ]
                edges = sorted((int(i), int(j)) for i, j in rows)
                return Topology.from_edges(self.summary["n_nodes"], edges)
            raise ConfigError(
                f"the run in {self.folder} has not finished, and its graph cannot be "
                f"built again ({error}); start this command where the run was started, "
                "or wait for the end of the run"
            ) from None

    @cached_property
    def _lines(self) -> dict[str, Lines]:
        kinds = ("history", "edges")
        return {kind: lines_so_far(self.folder, kind) for kind in kinds}

    @cached_property
    def _complete(self) -> list[int]:
        """The iterations of which all rows are there."""
        found = complete_iterations(self._lines["history"], len(self.topology))
        if self.config.record_edges and (n_edges := len(self.topology.edges)):
            by_edge = complete_iterations(self._lines["edges"], n_edges)
            found = sorted({*found} & {*by_edge})
        return found

    @property
    def n_iterations(self) -> int:
        return len(self._complete)

    @property
    def has_rows(self) -> bool:
        return self.n_iterations > 0

    @property
    def by_edge(self) -> bool:
        wanted = bool(self.config.record_edges)
        return wanted and self.has_rows and len(self.pairs) > 0

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Nothing: results are written at the end."""
        return {}

    @cached_property
    def history(self) -> dict[str, Matrix]:
        header = (*history_header({}), *self._observed())
        return self._parse("history", header, NODE_KEYS)

    @cached_property
    def edge_history(self) -> dict[str, Matrix]:
        return self._parse("edges", EDGES, EDGE_KEYS)

    def _parse(
        self, kind: str, header: Sequence[str], keys: tuple[str, ...]
    ) -> dict[str, Matrix]:
        found, file = self._lines[kind], self.folder / f"{kind}.csv"
        lines = [line for t in self._complete for line in found[t]]
        n_rows = len(found[self._complete[0]]) if self._complete else 1
        return parse_rows(lines, header, keys, n_rows, file)

    def _observed(self) -> Sequence[str]:
        """Return the names of the angles that are recorded; see `cli.targets`."""
        first = next(iter(self._lines["history"].values()), [""])[0]
        extra = first.count(",") + 1 - len(history_header({}))
        drawn = self.config.data is None and not self.config.traits.tracks
        one = "angle_to_truth" if drawn else "angle_to_centralised"
        both = ["angle_to_truth", "angle_to_centralised"]
        return {0: [], 1: [one], 2: both}.get(extra, [])


def read_run(folder: Path) -> StoredRun:
    """Return the run in a folder, whether it has finished or not."""
    with_settings = files.kind(folder / "config.toml") == "file"
    if with_settings and files.kind(folder / "summary.json") == "none":
        return _going(folder)
    return StoredRun.read(folder)


def run_folders(given: Iterable[str | Path]) -> list[Path]:
    """Return folders of runs, each once; a folder of several stands for its runs."""
    found: dict[Path, None] = {}
    for folder in map(Path, given):
        inner: list[Path] = []
        if not any(_exists(folder / name) for name in ("config.toml", "summary.json")):
            with suppress(OSError):
                inner = sorted(file.parent for file in folder.glob("*/config.toml"))
        found |= dict.fromkeys(inner or [folder])
    return list(found)


def _going(folder: Path) -> GoingRun:
    """Return a run that has not finished."""
    config = read_config(folder)
    if config.nodes is None:
        file = folder / "config.toml"
        raise ConfigError(f"{file} has no nodes, so it is not the file of a run")
    over_mpi = files.kind(folder / "ranks.csv") == "file"
    summary: Table = {
        "status": GOING[RunFolder.is_live(folder)],
        "n_nodes": config.nodes,
        "mpi_library": "" if over_mpi else "none (one process)",
    }
    as_of = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    run = GoingRun(folder, summary, is_going=True, as_of=as_of)
    summary["iterations"] = max(run._complete, default=0)
    return run


def _column(rows: Columns, name: str, file: Path, allowed: str) -> Matrix:
    """Return a column, after a check of its numbers."""
    if name not in rows:
        raise ConfigError(
            f"{file} has no column {name!r}; it has {', '.join(rows):.300}; if another "
            "version made it, run it again"
        )
    wrong = ~ALLOWED[allowed](rows[name])
    if wrong.any():
        raise ConfigError(
            f"{file} is damaged: {name} must be {allowed}, got {rows[name][wrong][0]:g}"
        )
    return rows[name]


def _exists(file: Path) -> bool:
    try:
        return file.exists() or file.is_symlink()
    except (OSError, ValueError):  # a name that no file can have, a forbidden folder
        return False


def read_rows(file: Path, keys: tuple[str, ...], n_rows: int) -> Columns:
    """Return the columns of a merged file, and of parts that could not be merged."""
    header, parts = [], _parts(file.parent, file.stem)
    try:
        if not parts or files.kind(file) != "none":
            documents.check_regular(file)
            with open(file, encoding="utf-8") as lines:
                header = lines.readline().strip().split(",")
                if not parts:
                    return parse_rows(lines, header, keys, n_rows, file)
        rows = [line.decode("ascii") for line in merged(parts, file)]
    except DadmmError:
        raise
    except (OSError, ValueError) as error:
        raise documents.unreadable(file, error) from None
    if not header:
        header = list(EDGES if keys == EDGE_KEYS else history_header(()))
        more = rows[0].count(",") + 1 - len(header) if rows else 0
        header += [f"observed{k}" for k in range(more)]
    return parse_rows(rows, header, keys, n_rows, file)


def _parts(folder: Path, kind: str) -> list[Path]:
    """Return the part files in a folder; none if it has no manifest or no parts."""
    try:
        return RunFolder.open(folder).parts(kind)
    except (OSError, OutputError):
        return []


def parse_rows(
    lines: Iterable[str],
    header: Sequence[str],
    keys: tuple[str, ...],
    n_rows: int,
    file: Path,
) -> Columns:
    """Return the columns, the iteration among them; errors name the file.

    All iterations must have the keys of the first. Iterations may be left out.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of no rows: an error follows
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
    except ValueError as error:
        raise documents.unreadable(file, error) from None
    width = len(keys)
    if tuple(header[:width]) != keys or len(header) == width:
        raise ConfigError(
            f"{file} is damaged: its columns must be {', '.join(keys)} and others, got "
            f"{', '.join(header):.100}"
        )
    if not len(table):
        raise ConfigError(
            f"{file} has no rows; run it again with --record, which more than 1,000 "
            "nodes need"
        )
    whole = not len(table) % n_rows and table.shape[1] == len(header)
    if whole:
        cube = table.reshape(-1, n_rows, len(header))
        t, numbers = cube[:, :1, 0], cube[:, :, 1:width]
        rising = (np.diff(t, axis=0, prepend=0.0) >= 1).all() and (t % 1 == 0).all()
        whole = rising and (cube[:, :, 0] == t).all() and (numbers == numbers[:1]).all()
    if not whole:
        raise ConfigError(
            f"{file} has {len(table)} rows, not {n_rows} for each iteration; it was "
            "cut short or belongs to another run"
        )
    return {name: cube[:, :, k] for k, name in enumerate(header) if not 0 < k < width}


def lines_so_far(folder: Path, kind: str) -> Lines:
    """Return the complete lines of a run that has no summary.json yet."""
    parts = _parts(folder, kind)  # none if there are no rows yet, or no more
    try:
        rows = groupby(merged(parts, folder / f"{kind}.csv"), iteration)
        return {t: [line.decode("ascii") for line in lines] for t, lines in rows}
    except (OSError, ValueError):
        raise ConfigError(
            f"cannot read the rows in {folder}: its files are damaged, or they changed "
            "while they were read, so the run may have just ended; try again"
        ) from None


def complete_iterations(lines: Lines, n_rows: int) -> list[int]:
    """Return the iterations of which all rows are there."""
    return [t for t in sorted(lines) if len(lines[t]) == n_rows]
