"""Settings as flags and TOML keys, from the metadata of their fields."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import Field, fields
from typing import Any

from dadmm.runs import presets
from dadmm.core.arguments import Parser, program
from dadmm.core.errors import shown
from dadmm.core.errors import ConfigError
from dadmm.core.schema import from_toml
from dadmm.core.version import __version__

COMMON = "most used"


def parse(kind: Any, argv: Sequence[str]) -> dict[str, Any]:
    """Return the values of a command line by name, ``config`` and others included."""
    parser = _parser(kind)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        raise ConfigError(_unknown(unknown[0], parser))
    return vars(given)


def typed(settings: Any, name: str, value: Any, source: str) -> Any:
    """Return a TOML value as its setting's type."""
    kinds = {item.name: str(item.type) for item in fields(settings)}
    if name not in kinds:
        hint = _closest(name, kinds, "TOML keys are the flags, with underscores")
        raise ConfigError(f"{source}: unknown setting {name!r}; {hint}")
    if name == "problem_settings" and type(value) is dict:  # a table, JSON in a flag
        return json.dumps(value, default=str)
    return from_toml(f"{source}: {name}", value, kinds[name])


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
    groups: dict[str, Any] = {}
    for item in sorted(fields(settings), key=lambda item: not item.metadata["common"]):
        topic = COMMON if item.metadata["common"] else item.metadata["group"]
        if topic not in groups:
            groups[topic] = parser.add_argument_group(topic)
        _add(groups[topic], item)
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


def _add(group: argparse._ArgumentGroup, item: Field[Any]) -> None:
    """Add the flag of a setting."""
    flag = "--" + item.name.replace("_", "-")
    text = item.metadata["help"].replace("%", "%%")
    if item.default not in (None, False, True) or item.name.endswith("seed"):
        text += f" (default: {item.default})"
    types = str(item.type)
    if types.startswith("bool"):
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        return
    choices = item.metadata["choices"]
    metavar = "{" + ",".join(choices) + "}" if choices else item.name.upper()

    def read(text: str) -> Any:
        for word, convert in (("int", int), ("float", float), ("str", str)):
            with suppress(ValueError):
                if word in types:
                    return convert(text)
        what = "an integer" if "int" in types else "a number"
        raise argparse.ArgumentTypeError(f"must be {what}, got {shown(text)}")

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
