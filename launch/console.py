"""The command line: options, messages, and errors that end a command with one."""

import re
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

PRINTS = {"-h", "--help", "--help-all", "--version"}  # flags that print and end
TAIL = 15  # lines of a failed step's output that are shown

Default = TypeVar("Default", str, None)


class SetupError(Exception):
    """A step failed; the message says what to do, after the end of its `output`."""

    def __init__(self, sentence: str, output: str = "") -> None:
        super().__init__(sentence)
        self.tail = "\n".join(output.splitlines()[-TAIL:])


class UsageError(SetupError):
    """An argument, a variable or a file of the user is invalid."""


def print_message(sentence: str) -> None:
    """Print a sentence to stderr, marked as a message of dadmm."""
    text = re.sub(r"[\0-\x1f\x7f-\x9f]", " ", sentence)  # no control characters
    print(f"dadmm: {text}", file=sys.stderr, flush=True)


def run_command(command: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Call a command; return its exit code, or print its error and return 1 or 2.

    2 is for input that is invalid, here or in the eyes of dadmm. A signal raises
    SystemExit, so that cleanup code runs.
    """
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as under nohup
            signal.signal(signum, lambda number, _: sys.exit(128 + number))
    try:
        return command(arguments)
    except SetupError as error:
        if error.tail:
            print(error.tail, file=sys.stderr)
        print_message(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except ModuleNotFoundError as error:
        print_message(
            f"{sys.executable} has no {error.name}, which dadmm needs; install it "
            "there, or use the environment that ./launch/setup makes"
        )
        return 1
    except OSError as error:
        print_message(f"{error.filename or 'a file'}: {error.strerror or error}")
        return 1
    except ValueError as error:
        errors = sys.modules.get("dadmm.core.errors")
        if errors is None or not isinstance(error, errors.DadmmError):
            raise
        print_message(str(error))
        return 2


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


def whole_number(name: str, text: str, least: int = 0) -> int:
    """Return an integer from `least` on, given as text, or raise `UsageError`."""
    if re.fullmatch(r"[0-9]{1,9}", text) and int(text) >= least:
        return int(text)
    raise UsageError(f"{name} must be a number of at least {least}, got {text!r}")


def same_problem(arguments: list[str]) -> list[str]:
    """Return the flags with which a resumed run may use the same problem class."""
    problem, _ = take_option(arguments, ("--problem",), "")
    if ":" in problem:
        return ["--problem", problem]
    return ["--trust"] if "--trust" in arguments else []
