"""Settings as flags and as TOML, for a dataclass whose fields have help and choices."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, NoReturn, get_args, get_type_hints

from dadmm.cli import presets
from dadmm.core.checks import as_float, shown
from dadmm.core.errors import ConfigError
from dadmm.core.version import __version__

RENAMED = {"reference": "compare_centralised"}  # settings, from their old names


def parse(kind: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Return what a command line gives, also what is no setting, as ``config``."""
    parser = _parser(kind)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        raise ConfigError(_unknown(unknown[0], parser))
    return vars(given)


def _kinds(kind: Any) -> dict[str, type]:
    """Return the plain type of each setting, None aside."""
    hints = get_type_hints(kind)
    plain = {name: get_args(hint) or (hint,) for name, hint in hints.items()}
    return {name: kinds[0] for name, kinds in plain.items()}


def typed(settings: Any, name: str, value: Any, source: str) -> Any:
    """Return a TOML value as its setting's type."""
    kinds = _kinds(settings)
    if name in RENAMED:
        raise ConfigError(f"{source}: {name} is now called {RENAMED[name]}")
    if name not in kinds:
        hint = _closest(name, kinds, "TOML keys are the flags, with underscores")
        raise ConfigError(f"{source}: unknown setting {name!r}; {hint}")
    kind = kinds[name]
    if name == "problem_settings" and type(value) is dict:  # a table, JSON in a flag
        return json.dumps(value, default=str)
    if kind is float and type(value) is int:
        return as_float(value)
    if type(value) is not kind:
        raise ConfigError(f"{source}: {name} must be {_a(kind)}, got {shown(value)}")
    return value


def _a(kind: type) -> str:
    return {int: "an integer", float: "a number", bool: "true or false"}.get(
        kind, "a string"
    )


def toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):  # TOML's escapes are JSON's, and one more
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ours: one sentence, said once."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _parser(settings: Any) -> argparse.ArgumentParser:

    parser = Parser(
        prog="python -m dadmm.run",
        description="Decentralised consensus optimisation: one MPI rank per node.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"dadmm {__version__}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"settings as TOML, or a preset: {', '.join(presets.names())}",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the settings as TOML, and what leaves a node with them, and stop",
    )
    parser.add_argument(
        "--resume", metavar="RUN",
        help="go on with the run in this folder; may be given anew: --max-iter, "
        "--max-seconds, --strict, --quiet, --wait, --data, --labels, --checkpoint, "
        "--checkpoint-seconds, --checkpoint-every, --on-failure, --placement; what is "
        "given anew is also kept for the next time",
    )  # fmt: skip
    parser.add_argument(
        "--trust", action="store_true",
        help="let the file of --config, or of the run to resume, name a problem as "
        "package.module:Class, whose code is then run, and ask for overwrite",
    )  # fmt: skip
    kinds = _kinds(settings)
    for item in fields(settings):
        flag = "--" + item.name.replace("_", "-")
        text = item.metadata["help"].replace("%", "%%")
        if item.default not in (None, False, True) or item.name.endswith("seed"):
            text += f" (default: {item.default})"
        if kinds[item.name] is bool:
            action: Any = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, help=text)
        else:
            choices = item.metadata["choices"]
            metavar = "{" + ",".join(choices) + "}" if choices else item.name.upper()
            parser.add_argument(
                flag, type=_reader(kinds[item.name]), metavar=metavar, help=text
            )
    return parser


def _reader(kind: type) -> Any:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"must be {_a(kind)}, got {shown(text)}"
            ) from None

    return read


def _unknown(argument: str, parser: argparse.ArgumentParser) -> str:
    flag = argument.partition("=")[0]
    for old, new in RENAMED.items():
        for prefix in ("--", "--no-"):
            if flag == prefix + old.replace("_", "-"):
                return f"{flag} is now called {prefix}{new.replace('_', '-')}"
    known = [name for action in parser._actions for name in action.option_strings]
    hint = _closest(flag, known, "--help lists what is allowed")
    return f"unknown argument {argument!r}; {hint}"


def _closest(word: str, known: Iterable[str], otherwise: str) -> str:
    import difflib  # only where something is wrong

    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else otherwise
