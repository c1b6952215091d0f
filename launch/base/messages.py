"""Messages to the user, and the errors that end a command with one of them."""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

TAIL = 15  # lines of a failed step's output that are shown


class SetupError(Exception):
    """A step of a command failed; the message says what to do.

    The last lines of `output`, that of the step, are shown.
    """

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.tail = "\n".join(output.splitlines()[-TAIL:])


class UsageError(SetupError):
    """An argument, a variable or a file of the user is invalid."""


def print_message(sentence: str) -> None:
    """Print a sentence to stderr, marked as a message of dadmm."""
    print(f"dadmm: {sentence}", file=sys.stderr, flush=True)


def report_error(error: SetupError) -> int:
    """Print an error and return the exit code: 2 for invalid input, else 1."""
    if error.tail:
        print(error.tail, file=sys.stderr)
    print_message(str(error))
    return 2 if isinstance(error, UsageError) else 1


def exit_on_signal(signum: int, frame: FrameType | None) -> None:
    """Exit, as a signal handler, so that cleanup code runs."""
    sys.exit(128 + signum)


def run_command(command: Callable[..., int], *arguments: Any) -> int:
    """Call a command; report its errors, and exit cleanly on signals."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signum, exit_on_signal)
    try:
        return command(*arguments)
    except SetupError as error:
        return report_error(error)
