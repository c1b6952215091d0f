"""The rows that a run has written, read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix


def unreadable(file: Path, error: Exception) -> ConfigError:
    """Return the error that a file cannot be read, in one sentence."""
    reason = getattr(error, "strerror", None) or error
    return ConfigError(f"cannot read {file}: {reason}")


def columns(file: Path, n_keys: int, n_rows: int) -> dict[str, Matrix]:
    """Return the columns after the keys, each (iterations, n_rows)."""
    try:
        with open(file, encoding="utf-8") as lines:
            header = lines.readline().strip().split(",")
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from None
    if not len(table) or len(table) % n_rows or table.shape[1] != len(header):
        raise ConfigError(
            f"{file} has {len(table)} rows, not {n_rows} for each iteration; it was "
            "cut short or belongs to another run"
        )
    cube = table.reshape(-1, n_rows, len(header))
    return {name: cube[:, :, k] for k, name in enumerate(header) if k >= n_keys}
