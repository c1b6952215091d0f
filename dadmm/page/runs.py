"""The runs of a page: finished, or still going."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.core import documents, files
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology
from dadmm.penalty import SCHEMES
from dadmm.runs import stored
from dadmm.runs.folder import RunFolder
from dadmm.runs.graph import build_graph
from dadmm.runs.row_files import EDGE_KEYS, EDGES, NODE_KEYS, history_header
from dadmm.runs.stored import StoredRun, read_config

GOING = {True: "still going", False: "interrupted", None: "not finished"}


@dataclass(frozen=True)
class PageRun(StoredRun):
    """A run on a page."""

    is_going: bool = False  # it has no summary.json
    as_of: str = ""  # when it was read, if it is going

    @cached_property
    def n_iterations(self) -> int:
        """Iterations that have rows; 0 if none were recorded."""
        return len(self.column("objective")) if self.has_rows else 0

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
    def by_edge(self) -> bool:
        """Whether the run has rows of its edges, and of its nodes."""
        return self.has_rows and super().by_edge

    @property
    def over_mpi(self) -> bool:
        """Whether each node was a process."""
        return "one process" not in self.summary.get("mpi_library", "")

    @cached_property
    def pairs(self) -> np.ndarray:
        """The rows of the edges (i, j) with i < j, by which an edge is drawn once."""
        edges = self.topology.edges
        return np.flatnonzero(edges[:, 0] < edges[:, 1])

    @cached_property
    def has_payload(self) -> np.ndarray:
        """Whether a directed edge carried a payload, (iterations, E).

        A message without payload has the length of its header, with the penalty if the
        ends of an edge use the mean of both.
        """
        header = 16 if self.config.options["scheme"].couples else 8
        return self.edge_column("bytes") > header

    @property
    def has_budgets(self) -> bool:
        """Whether the edges have budgets."""
        return "budget0" in SCHEMES[self.config.scheme].uses

    @property
    def budgets(self) -> dict[str, Matrix]:
        """What was spent of each budget, the budget, and how often it was raised.

        The paper's schemes count on when a budget is spent; here, that is all of it.
        """
        found = {name: self.edge_column(name) for name in ("spent", "budget", "raised")}
        return found | {"spent": np.minimum(found["spent"], found["budget"])}


@dataclass(frozen=True)
class GoingRun(PageRun):
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
    def _lines(self) -> dict[str, stored.Lines]:
        kinds = ("history", "edges")
        return {kind: stored.lines_so_far(self.folder, kind) for kind in kinds}

    @cached_property
    def _complete(self) -> list[int]:
        """The iterations of which all rows are there."""
        found = stored.complete_iterations(self._lines["history"], len(self.topology))
        if self.config.record_edges and (n_edges := len(self.topology.edges)):
            by_edge = stored.complete_iterations(self._lines["edges"], n_edges)
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
        return stored.parse_rows(lines, header, keys, n_rows, file)

    def _observed(self) -> Sequence[str]:
        """Return the names of the angles that are recorded; see `cli.targets`."""
        first = next(iter(self._lines["history"].values()), [""])[0]
        extra = first.count(",") + 1 - len(history_header({}))
        drawn = self.config.data is None and not self.config.traits.tracks
        one = "angle_to_truth" if drawn else "angle_to_centralised"
        both = ["angle_to_truth", "angle_to_centralised"]
        return {0: [], 1: [one], 2: both}.get(extra, [])


def read(folder: Path) -> PageRun:
    """Return the run in a folder, whether it has finished or not."""
    with_settings = files.kind(folder / "config.toml") == "file"
    if with_settings and files.kind(folder / "summary.json") == "none":
        return _going(folder)
    return PageRun.read(folder)


def _going(folder: Path) -> GoingRun:
    """Return a run that has not finished."""
    config = read_config(folder)
    if config.nodes is None:
        file = folder / "config.toml"
        raise ConfigError(f"{file} has no nodes, so it is not the file of a run")
    over_mpi = files.kind(folder / "ranks.csv") == "file"
    summary: dict[str, Any] = {
        "status": GOING[RunFolder.is_live(folder)],
        "n_nodes": config.nodes,
        "mpi_library": "" if over_mpi else "none (one process)",
    }
    as_of = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    run = GoingRun(folder, summary, is_going=True, as_of=as_of)
    summary["iterations"] = max(run._complete, default=0)
    return run
