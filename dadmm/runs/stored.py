"""Read a run from its folder, and check what is in it.

A run that has no summary.json yet may be at work: its part files grow.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
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
    "converged": FLAG,
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
    | {"total": AMOUNT, "curvature": AMOUNT, "of_all_sessions": PHASES},
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
            graph = Topology.from_edges(count, edges)
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
        return _exists(self.folder / "edges.csv") and len(self.topology.edges) > 0

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
    """Return the columns of a merged file, or of parts that could not be merged."""
    if files.kind(file) == "none" and (parts := _parts(file.parent, file.stem)):
        rows = [line.decode("ascii") for line in merged(parts, file)]
        header = list(EDGES if keys == EDGE_KEYS else history_header(()))
        more = rows[0].count(",") + 1 - len(header) if rows else 0
        header += [f"observed{k}" for k in range(more)]
        return parse_rows(rows, header, keys, n_rows, file)
    try:
        documents.check_regular(file)
        with open(file, encoding="utf-8") as lines:
            header = lines.readline().strip().split(",")
            return parse_rows(lines, header, keys, n_rows, file)
    except (OSError, UnicodeError) as error:
        raise documents.unreadable(file, error) from None


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
            f"cannot read the rows in {folder}: its files changed while they were "
            "read, so it may have just ended; try again"
        ) from None


def complete_iterations(lines: Lines, n_rows: int) -> list[int]:
    """Return the iterations of which all rows are there."""
    return [t for t in sorted(lines) if len(lines[t]) == n_rows]
