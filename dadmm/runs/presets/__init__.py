"""Settings that have a name: one TOML file each, beside this module."""

from __future__ import annotations

import os
from pathlib import Path

from dadmm.core.errors import ConfigError

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def find(name: str) -> Path:
    """Return the TOML file that ``--config`` means.

    A path is itself. So is a bare name if there is such a file in the current folder;
    otherwise it is the name of a preset.
    """
    given = Path(name)
    if given.name != name or os.path.exists(given):
        return given
    if name not in names():
        raise ConfigError(
            f"config {name!r} is neither a file in this folder nor a preset; give the "
            f"path of a TOML file, or one of {', '.join(names())}"
        )
    return FOLDER / f"{name}.toml"
