"""Command lines: the launchers' own options, and what they must know of a job's."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path
from typing import TypeVar

from launch.base.environment import UsageError

Default = TypeVar("Default", str, None)


def take(
    arguments: list[str], names: tuple[str, ...], default: Default
) -> tuple[str | Default, list[str]]:
    """Return the value of an option of the launcher, and the arguments without it."""
    value: str | Default = default
    others = []
    words = iter(arguments)
    for word in words:
        name, equals, text = word.partition("=")
        if name in names:
            value = text if equals else next(words, "")
        else:
            others.append(word)
    return value, others


def positive(name: str, text: str) -> int:
    """Return a positive number."""
    if not (text.isdecimal() and int(text) > 0):
        raise UsageError(f"{name} must be a positive number, got {text!r}")
    return int(text)


def setting(arguments: list[str], name: str) -> str:
    """Return a setting of ``dadmm.run`` as its arguments have it, or a file they name.

    That is nothing if nobody has set it. What is wrong with a file the job will tell.
    """
    value, _ = take(arguments, ("--" + name.replace("_", "-"),), "")
    file, _ = take(arguments, ("--config",), "")
    run, _ = take(arguments, ("--resume",), "")
    if value or not (file or run):
        return value
    with contextlib.suppress(OSError, ValueError):
        found = tomllib.loads(
            (Path(run, "config.toml") if run else Path(file)).read_text()
        )
        return str(found.get(name, ""))
    return ""


def run_folder(arguments: list[str]) -> Path | None:
    """Return the folder of a run, if its arguments name it."""
    run, _ = take(arguments, ("--resume",), "")
    name = run or setting(arguments, "out")
    return Path(name) if name else None
