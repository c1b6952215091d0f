"""The folder of a run with its settings, for figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Matrix
from dadmm.runs.config import RunConfig
from dadmm.runs.stored import POSITIVE, StoredRun


@dataclass(frozen=True)
class Run(StoredRun):
    """The folder of a finished run, with its settings."""

    config: RunConfig

    @classmethod
    def read(cls, folder: str | Path) -> Self:
        """Return the run in a folder."""
        found = StoredRun.read(folder)
        file, config = found.folder / "config.toml", read_config(found.folder)
        count = found.entry("n_nodes")
        if config.nodes != count and not found.summary.get("lost_nodes"):
            raise ConfigError(
                f"{file} is of a run of {config.nodes} nodes, but summary.json in the "
                f"same folder is of {count}"
            )
        return cls(found.folder, found.summary, config)

    @property
    def eta(self) -> Matrix:
        """Penalty of each directed edge for the next iteration, (iterations, E)."""
        return self.edge_column("eta", POSITIVE)


def read_config(folder: Path) -> RunConfig:
    """Return the settings of the run in a folder."""
    file = folder / "config.toml"
    table = RunConfig.from_toml(file)
    try:
        return RunConfig(**table)
    except DadmmError as error:
        raise ConfigError(f"{file}: {error}") from None
