"""What all commands share: their parser, and how they print."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn, TextIO

from dadmm.core.errors import ConfigError, printable

BAD_INPUT = 2  # exit code
LONGEST = 1000  # characters of an error


class Parser(argparse.ArgumentParser):
    """The parser of a command; it raises `ConfigError` where others print the usage."""

    def __init__(self, command: str, about: str, **more: Any) -> None:
        super().__init__(prog=program(command), description=about, **more)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)

    def _get_values(self, action: argparse.Action, strings: list[str]) -> object:
        if action.option_strings and action.nargs is None and strings == ["--"]:
            # argparse of some Python versions returns an empty list
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, strings)

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse of some Python versions ends with a traceback at a closed pipe
        print_out(message, file or sys.stderr)


def program(name: str = "") -> str:
    """Return how to start a command: ``dadmm run`` or ``python -m dadmm run``."""
    is_script = os.path.basename(sys.argv[0]) == "dadmm"
    return f"{'dadmm' if is_script else 'python -m dadmm'} {name}".rstrip()


def print_out(text: str = "", file: TextIO | None = None) -> None:
    """Print text and flush it; print nothing more if the reader closed the pipe."""
    file = file or sys.stdout
    try:
        print(text, end="", file=file, flush=True)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file.fileno())  # the flush at exit succeeds, too
        os.close(nowhere)


def report_error(error: object) -> int:
    """Print an error in one printable line, and return the exit code for bad input."""
    text = printable(str(error))
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"
    print(f"dadmm: error: {text}", file=sys.stderr, flush=True)
    return BAD_INPUT
