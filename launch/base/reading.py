"""Read small text files of the user, which may be damaged or not files at all."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.base.messages import UsageError

MAX_BYTES = 2**24


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    UsageError
        If it cannot be read, is not a file, is too large or is not UTF-8.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait
            raise UsageError(f"cannot read {path}: it is not a file")
        if status.st_size > MAX_BYTES:
            raise UsageError(f"cannot read {path}: it has more than {MAX_BYTES} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, or an invalid file name
        raise UsageError(f"cannot read {path}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    return _parse(path, json.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file."""
    return _parse(path, tomllib.loads, "TOML")


def _parse(path: Path, parse: Callable[[str], Any], language: str) -> dict[str, Any]:
    text = read_text(path)
    try:
        table = parse(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path} is not valid {language}: {reason}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path} is damaged: it must be a JSON object")
    return table
