"""A run as its figures need it: what its folder holds, with its settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dadmm.config import RunConfig
from dadmm.layout import Matrix
from dadmm.runfolder import POSITIVE, RunFolder


@dataclass(frozen=True)
class Run(RunFolder):
    """The folder of a finished run, with its settings.

    Parameters
    ----------
    folder : Path
    summary : dict
    config : RunConfig
    """

    config: RunConfig

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """Return the run in a folder."""
        found = RunFolder.read(folder)
        table = RunConfig.from_toml(found.folder / "config.toml")
        return cls(found.folder, found.summary, RunConfig(**table))

    @property
    def eta(self) -> Matrix:
        """What each end set for the next iteration, (iterations, E)."""
        return self.edge_column("eta", POSITIVE)
