"""The folder of a finished run, read back."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dadmm.cli.config import RunConfig
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology
from dadmm.timing.rows import columns, unreadable


@dataclass(frozen=True)
class Run:
    """The folder of a finished run, read as it is needed.

    Parameters
    ----------
    folder : Path
    config : RunConfig
    summary : dict
    """

    folder: Path
    config: RunConfig
    summary: dict[str, Any]

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """Return the run in a folder."""
        folder = Path(folder)
        if not (folder / "config.toml").is_file():
            raise ConfigError(
                f"{folder} is not the folder of a run: it has no config.toml; give the "
                "folder that dadmm.run names in its last line"
            )
        if not (folder / "summary.json").is_file():
            raise ConfigError(
                f"the run in {folder} has not finished: it has no summary.json; wait "
                f"for it, or repeat it with --config {folder / 'config.toml'}"
            )
        config = RunConfig(**RunConfig.from_toml(folder / "config.toml"))
        try:
            summary = json.loads((folder / "summary.json").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise unreadable(folder / "summary.json", error) from None
        return cls(folder, config, summary)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays in result.npz."""
        try:
            with np.load(self.folder / "result.npz") as file:
                arrays = dict(file)
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise unreadable(self.folder / "result.npz", error) from None
        if "edges" not in arrays:
            raise ConfigError(f"{self.folder / 'result.npz'} has no array 'edges'")
        return arrays

    @cached_property
    def topology(self) -> Topology:
        """The graph; what is left of it, numbered anew, if nodes were lost."""
        edges, count = self.arrays["edges"], self.config.nodes or 1
        if self.summary.get("lost_nodes"):
            _, numbers = np.unique(edges, return_inverse=True)
            edges, count = numbers.reshape(edges.shape), self.summary["n_nodes"]
        return Topology.from_edges(count, edges)

    @cached_property
    def history(self) -> dict[str, Matrix]:
        """The columns of history.csv, each (iterations, n_nodes)."""
        return columns(self.folder / "history.csv", 2, self.topology.n_nodes)

    @cached_property
    def eta(self) -> Matrix:
        """What each end set for the next iteration, (iterations, E)."""
        file = self.folder / "edges.csv"
        if not len(self.topology.edges):
            raise ConfigError(f"the run in {self.folder} has one node and no edges")
        if not file.is_file():
            raise ConfigError(
                f"the run in {self.folder} has no edges.csv; repeat it with "
                f"--config {self.folder / 'config.toml'} --record-edges"
            )
        return _column(columns(file, 3, len(self.topology.edges)), "eta", file)

    @property
    def by_edge(self) -> bool:
        """Whether the penalties of its edges were recorded."""
        return (self.folder / "edges.csv").is_file() and len(self.topology.edges) > 0

    def column(self, name: str) -> Matrix:
        """Return a column of the history, (iterations, n_nodes)."""
        return _column(self.history, name, self.folder / "history.csv")


def _column(rows: dict[str, Matrix], name: str, file: Path) -> Matrix:
    if name not in rows:
        raise ConfigError(f"{file} has no column {name!r}; it has {', '.join(rows)}")
    return rows[name]
