"""What all commands share: their parser, and how they report an error."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from dadmm.core.errors import ConfigError

BAD_INPUT = 2  # exit code


class Parser(argparse.ArgumentParser):
    """A parser that raises `ConfigError` instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def report_error(error: object) -> int:
    """Print an error in one line, and return the exit code for bad input."""
    print(f"dadmm: error: {error}", file=sys.stderr, flush=True)
    return BAD_INPUT
