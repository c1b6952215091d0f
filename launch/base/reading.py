"""Small text files that may be damaged, or no files at all: one sentence for each."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.base.environment import UsageError

MOST = 2**24  # bytes


def text(path: Path) -> str:
    """Return what is in a file; a `FileNotFoundError` is left to the caller."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
            raise UsageError(f"cannot read {path}: it is not a file")
        if found.st_size > MOST:
            raise UsageError(f"cannot read {path}: it has more than {MOST} bytes")
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not text, or a name that no file can have
        raise UsageError(f"cannot read {path}: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file."""
    return _table(path, json.loads, "JSON")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file."""
    return _table(path, tomllib.loads, "TOML")


def _table(path: Path, parse: Callable[[str], Any], language: str) -> dict[str, Any]:
    words = text(path)
    try:
        found = parse(words)
    except (ValueError, RecursionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{path} is not valid {language}: {reason}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is damaged: it must be a JSON object")
    return found
