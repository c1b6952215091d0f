"""Settings as flags and TOML keys, from the metadata of their fields."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import Field, fields
from functools import cache
from typing import Any, get_args, get_type_hints

from dadmm.cli import presets
from dadmm.core.arguments import Parser, program
from dadmm.core.checks import as_float, shown
from dadmm.core.errors import ConfigError
from dadmm.core.version import __version__

COMMON = "most used"


def parse(kind: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Return the values of a command line by name, ``config`` and others included."""
    parser = _parser(kind)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        raise ConfigError(_unknown(unknown[0], parser))
    return vars(given)


@cache
def _kinds(kind: Any) -> dict[str, type]:
    """Return the type of each setting, without None."""
    hints = get_type_hints(kind)
    plain = {name: get_args(hint) or (hint,) for name, hint in hints.items()}
    return {name: kinds[0] for name, kinds in plain.items()}


def typed(settings: Any, name: str, value: Any, source: str) -> Any:
    """Return a TOML value as its setting's type."""
    kinds = _kinds(settings)
    if name not in kinds:
        hint = _closest(name, kinds, "TOML keys are the flags, with underscores")
        raise ConfigError(f"{source}: unknown setting {name!r}; {hint}")
    kind, words = kinds[name], _words(settings, name)
    if value in words and type(value) is str:
        return value
    if name == "problem_settings" and type(value) is dict:  # a table, JSON in a flag
        return json.dumps(value, default=str)
    if kind is float and type(value) is int:
        return as_float(value)
    if type(value) is not kind:
        raise ConfigError(
            f"{source}: {name} must be {_a(kind, words)}, got {shown(value)}"
        )
    return value


def _words(settings: Any, name: str) -> tuple[str, ...]:
    """Return the words that a setting allows in place of a number."""
    (item,) = (item for item in fields(settings) if item.name == name)
    return tuple(item.metadata["words"])


def _a(kind: type, words: Iterable[str] = ()) -> str:
    kinds = {int: "an integer", float: "a number", bool: "true or false"}
    return " or ".join([kinds.get(kind, "a string"), *words])


def _parser(settings: Any) -> Parser:
    """Return the parser, with common flags first and the others by topic."""
    parser = Parser(
        prog=program("run"),
        usage="%(prog)s [options]",
        description="Decentralised consensus optimisation: one MPI rank per node.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
    )
    kinds, groups = _kinds(settings), {}
    for item in sorted(fields(settings), key=lambda item: not item.metadata["common"]):
        topic = COMMON if item.metadata["common"] else item.metadata["group"]
        if topic not in groups:
            groups[topic] = parser.add_argument_group(topic)
        _add(groups[topic], item, kinds[item.name])
    found = ", ".join(presets.names())
    groups[COMMON].add_argument(
        "--config", metavar="FILE", help=f"settings as TOML, or a preset: {found}"
    )
    free = [item.name for item in fields(settings) if item.metadata["resume"]]
    flags = ", ".join("--" + name.replace("_", "-") for name in free)
    add = parser.add_argument_group("other").add_argument
    add("--resume", metavar="RUN", help="resume the run in this folder; these settings "
        f"may change: {flags}; their new values are also kept for the next resume",
    )  # fmt: skip
    add("--dry-run", action="store_true", help="print the settings as TOML and the "
        "data that would leave a node; then exit",
    )  # fmt: skip
    add("--trust", action="store_true", help="allow the file of --config, or the "
        "config.toml of the run to resume, to name a problem as package.module:Class, "
        "whose code is then run, and to set overwrite",
    )  # fmt: skip
    add("--version", action="version", version=f"dadmm {__version__}")
    add("-h", "--help", action="help", help="print this text and exit")
    return parser


def _add(group: argparse._ArgumentGroup, item: Field[Any], kind: type) -> None:
    """Add the flag of a setting."""
    flag = "--" + item.name.replace("_", "-")
    text = item.metadata["help"].replace("%", "%%")
    if item.default not in (None, False, True) or item.name.endswith("seed"):
        text += f" (default: {item.default})"
    if kind is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        return
    choices = item.metadata["choices"]
    metavar = "{" + ",".join(choices) + "}" if choices else item.name.upper()

    words = item.metadata["words"]

    def read(text: str) -> Any:
        try:
            return text if text in words else kind(text)
        except ValueError:
            wrong = f"must be {_a(kind, words)}, got {shown(text)}"
            raise argparse.ArgumentTypeError(wrong) from None

    group.add_argument(flag, type=read, metavar=metavar, help=text)


def _unknown(argument: str, parser: argparse.ArgumentParser) -> str:
    flag = argument.partition("=")[0]
    known = [name for action in parser._actions for name in action.option_strings]
    otherwise = "--help lists what is allowed"
    if not flag.startswith("-"):
        otherwise += "; quote a value that has * or spaces"
    hint = _closest(flag, known, otherwise)
    return f"unknown argument {argument!r}; {hint}"


def _closest(word: str, known: Iterable[str], otherwise: str) -> str:
    import difflib  # only where something is wrong

    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else otherwise
