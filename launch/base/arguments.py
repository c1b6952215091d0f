"""Command lines: options of the launch commands, and settings of the run they start."""

import contextlib
from pathlib import Path
from typing import TypeVar

from launch.base.messages import UsageError
from launch.base.textfiles import read_toml

DEFAULT_RANKS = 20

Default = TypeVar("Default", str, None)


def take_option(
    arguments: list[str], names: tuple[str, ...], default: Default
) -> tuple[str | Default, list[str]]:
    """Return the value of an option, and the arguments without it."""
    value: str | Default = default
    others = []
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, text = argument.partition("=")
        if name in names:
            value = text if equals else next(remaining, "")
        else:
            others.append(argument)
    return value, others


def take_flag(arguments: list[str], name: str) -> tuple[bool, list[str]]:
    """Return whether a flag is given, and the arguments without it."""
    return name in arguments, [word for word in arguments if word != name]


def positive_number(name: str, text: str) -> int:
    """Return a positive integer, or raise `UsageError`."""
    if not (text.isdecimal() and int(text) > 0):
        raise UsageError(f"{name} must be a positive number, got {text!r}")
    return int(text)


def run_setting(arguments: list[str], name: str) -> str:
    """Return a setting of ``dadmm.run`` from its arguments or the file they name.

    Return "" if it is not set. A file that cannot be read is no error here; the run
    reports it.
    """
    value, _ = take_option(arguments, ("--" + name.replace("_", "-"),), "")
    file, _ = take_option(arguments, ("--config",), "")
    run, _ = take_option(arguments, ("--resume",), "")
    if value or not (file or run):
        return value
    path = Path(run, "config.toml") if run else Path(file)
    with contextlib.suppress(FileNotFoundError, UsageError):
        return str(read_toml(path).get(name, ""))
    return ""


def problem_flags(problem: str) -> list[str]:
    """Return the flags of a problem class, which must not come from a file."""
    return ["--problem", problem] if ":" in problem else []


def trust_flags(arguments: list[str]) -> list[str]:
    """Return the flags that a resumed run needs to use the same problem class."""
    problem, _ = take_option(arguments, ("--problem",), "")
    return problem_flags(problem) or [flag for flag in arguments if flag == "--trust"]


def run_folder(arguments: list[str]) -> Path | None:
    """Return the folder of a run, or None if the arguments do not name it."""
    run, _ = take_option(arguments, ("--resume",), "")
    name = run or run_setting(arguments, "out")
    return Path(name) if name else None
