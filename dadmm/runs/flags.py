"""Settings as flags and TOML keys, from the metadata of their fields."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from dadmm.core.arguments import Parser
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError
from dadmm.core.schema import from_text, from_toml
from dadmm.core.version import __version__
from dadmm.runs.settings import PROBLEM, Settings, takes

COMMON = "most used"
OF_TABLES = ("weight", "on_missing")  # that the short help has, too
PRESETS = {  # settings that have a name
    file.stem: file for file in sorted(Path(__file__).parent.glob("presets/*.toml"))
}


def find_settings(name: str) -> Path:
    """Return the TOML file that ``--config`` means.

    A name without a folder is a preset, unless the current folder has this file.
    """
    given = Path(name)
    if given.name != name or os.path.exists(given):
        return given
    if name not in PRESETS:
        raise ConfigError(
            f"--config {name!r} is neither a file in this folder nor a preset; give "
            f"the path of a TOML file, or one of {', '.join(PRESETS)}"
        )
    return PRESETS[name]


def parse(argv: Sequence[str]) -> Table:
    """Return the values of a command line by name, ``config`` and others included."""
    parser = _parser()
    if {"-h", "--help"} & {*argv}:
        _shorten(parser, argv)
    given, unknown = parser.parse_known_args(argv)
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [name for action in parser._actions for name in action.option_strings]
        otherwise = "--help lists what is allowed"
        if not flag.startswith("-"):
            otherwise += "; quote a value that has * or spaces"
        hint = _closest(flag, known, otherwise)
        raise ConfigError(f"unknown argument {unknown[0]!r}; {hint}")
    return vars(given)


def in_flags(error: object) -> str:
    """Return an error of a command; a setting at its start is written as its flag."""
    said = r"must|cannot|is|needs|merged|matchings|keep|=|'"  # after the name
    first = re.match(rf"(\w+)(?= ({said}))", str(error))
    flags = {item.name: _flag(item) for item in fields(Settings)}
    if first is None or first[1] not in flags:
        return str(error)
    return flags[first[1]] + str(error)[first.end() :]


def typed(name: str, value: Any, source: str) -> Any:
    """Return a TOML value as its setting's type."""
    types = {item.name: str(item.type) for item in fields(Settings)}
    if name not in types:
        hint = _closest(name, types, "TOML keys are the flags, with underscores")
        raise ConfigError(f"{source}: unknown setting {name!r}; {hint}")
    if name == "problem_settings" and type(value) is dict:  # a table, JSON in a flag
        return json.dumps(value, default=str)
    return from_toml(f"{source}: {name}", value, types[name])


def _parser() -> Parser:
    """Return the parser, with common flags first and the others by topic."""
    parser = Parser(
        "run",
        "Fit one model over a network of nodes. A rank of MPI has one node, or several "
        "with --nodes.",
        usage="%(prog)s [options]",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        add_help=False,
    )
    groups: Table = {}
    for item in sorted(fields(Settings), key=lambda item: not item.metadata["common"]):
        topic = COMMON if item.metadata["common"] else item.metadata["group"]
        if topic not in groups:
            groups[topic] = parser.add_argument_group(topic)
        _add(groups[topic], item)
    found = ", ".join(PRESETS)
    groups[COMMON].add_argument(
        "--config", metavar="FILE", help=f"settings as TOML, or a preset: {found}"
    )
    free = [_flag(item) for item in fields(Settings) if item.metadata["resume"]]
    add = parser.add_argument_group("other").add_argument
    add("--resume", metavar="RUN", help="resume the run in this folder, with its "
        f"settings; these may change: {', '.join(free)}; the next resume keeps them",
    )  # fmt: skip
    add("--dry-run", action="store_true", help="print the settings as TOML and the "
        "data that would leave a node; then exit",
    )  # fmt: skip
    add("--trust", action="store_true", help="trust the settings file (of --config, or "
        "of the run to resume): it may name a problem or a scheme as "
        "package.module:Class, whose code is then run, and set overwrite",
    )  # fmt: skip
    add("--version", action="version", version=f"dadmm {__version__}")
    add("-h", "--help", action="help", help="print the settings that matter for the "
        "given --problem and --data; then exit",
    )  # fmt: skip
    add("--help-all", action="help", help="print all settings; then exit")
    return parser


def _shorten(parser: Parser, argv: Sequence[str]) -> None:
    """Leave out of the help what does not fit the problem and data of a command."""
    words = dict(zip(argv, [*argv[1:], ""], strict=True))
    words |= dict(word.split("=", 1) for word in argv if "=" in word)
    run = Settings(problem=words.get("--problem", "ppca"), data=words.get("--data"))
    shown = {"config", "help", "help_all"}
    for item in fields(Settings):
        facts = item.metadata
        usual = facts["common"] or facts["group"] == PROBLEM or item.name in OF_TABLES
        fits = not facts["argument"] or takes(run.problem, facts["argument"])
        if item.name == "problem_settings":
            fits = run.is_plugin
        elif facts["argument"] in ("y", "sample_weight"):
            fits = fits and run.data is not None
        if usual and fits and facts["applies"](run):
            shown.add(item.name)
    for action in parser._actions:
        if action.dest not in shown:
            action.help = argparse.SUPPRESS
    parser.epilog = f"--help-all has all {len(fields(Settings))} settings."


def _flag(item: Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def _add(group: argparse._ArgumentGroup, item: Field[Any]) -> None:
    """Add the flag of a setting."""
    text, types = item.metadata["help"].replace("%", "%%"), str(item.type)
    if item.default not in (None, False, True) or item.name.endswith("seed"):
        text += f" (default: {item.default})"
    if types.startswith("bool"):
        action = argparse.BooleanOptionalAction
        group.add_argument(_flag(item), action=action, help=text)
        return
    choices = item.metadata["choices"]
    metavar = "{" + ",".join(choices) + "}" if choices else item.name.upper()

    def read(text: str) -> int | float | str:
        try:
            return from_text(text, types)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    group.add_argument(_flag(item), type=read, metavar=metavar, help=text)


def _closest(word: str, known: Iterable[str], otherwise: str) -> str:
    import difflib  # only where something is wrong

    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else otherwise
