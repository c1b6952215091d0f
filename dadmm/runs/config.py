"""A checked configuration of a run, read from flags and TOML files."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from typing import NamedTuple

from dadmm import penalty
from dadmm.comm.sending import check_drop
from dadmm.core import files
from dadmm.core.arguments import Parser
from dadmm.core.classes import check_name
from dadmm.core.documents import Table, read_toml
from dadmm.core.errors import ConfigError, closest
from dadmm.core.schema import as_fields, check_fields, from_text
from dadmm.core.version import __version__
from dadmm.data.files import READERS, Reader
from dadmm.data.shard import NODE
from dadmm.graphs import topology
from dadmm.graphs.schedule import Schedule
from dadmm.problems import PPCA, PROBLEMS, builder
from dadmm.problems.base import Traits
from dadmm.runs.settings import IN_MEMORY, OF_SOLVE, PROBLEM, Settings, names
from dadmm.solver.solve import MOST_RECORDED, grouped

FREE = names("resume")  # settings that may change when a run is resumed
DEFAULTS_BY = ("problem", "data", "missing_fraction", "scheme")  # others depend on them
MAY_CHANGE = FREE | {"out", "overwrite", "nodes"}  # these are checked apart
USUAL_ROWS, ROWS_PER_NODE = 500, 25  # of synthetic data; the paper's
MOST_SHOWN = 50  # nodes up to which a demonstration records edges
COMMON = "most used"  # the first topic of --help
OF_TABLES = ("weight", "on_missing")  # that the short help has, too
FLAGS = {item.name: f"--{item.name.replace('_', '-')}" for item in fields(Settings)}
PRESETS = {  # settings that have a name
    file.stem: file for file in sorted(Path(__file__).parent.glob("presets/*.toml"))
}


def takes(problem: str, argument: str) -> bool:
    """Return whether a problem may have this argument; one of yours may have any."""
    kind: type | None = PROBLEMS.get(problem)
    return kind is None or argument in builder.arguments(kind)


class CommandLine(NamedTuple):
    """The content of a command line."""

    config: RunConfig
    dry_run: bool
    resume: Path | None  # folder of the run to resume


@dataclass(repr=False)
class RunConfig(Settings):
    """The settings of a run, checked, with the defaults that depend on the problem."""

    def __post_init__(self) -> None:
        """Check the settings, and set what follows from them: facts and defaults."""
        check_fields(self)
        if self.problem not in PROBLEMS:
            builder.check_name(self.problem)
        check_name("scheme", self.scheme, penalty.SCHEMES)
        kind: type = PROBLEMS.get(self.problem, object)
        self.is_plugin: bool = kind is object  # whether it is not of this package
        self.has_subspace: bool = issubclass(kind, PPCA)  # and a centralised solution
        self.may_have_subspace: bool = self.is_plugin or self.has_subspace
        self.traits: Traits = getattr(kind, "traits", Traits())
        tracks = self.traits.tracks  # without a file they are computed, not drawn
        self.has_table: bool = self.data not in (None, IN_MEMORY) and not tracks
        self.draws_rows: bool = self.data is None and not tracks
        file = (self.data or "").partition("::")[0]
        self.one_each: bool = NODE.search(file) is not None  # a file per node
        self.reader: Reader | None = READERS.get(Path(file).suffix)
        has_blocks = self.reader is not None and self.reader.extent is not None
        # whether each rank reads the rows of its own nodes
        self.is_local: bool = (
            self.has_table and self.labels is None and (self.one_each or has_blocks)
        )
        # the base of a scheme of yours, which is not imported
        self.scheme_class = penalty.SCHEMES.get(self.scheme, penalty.Scheme)
        self._check_suited()
        self.settle()
        checked = self
        if self.scheme not in penalty.SCHEMES:  # it is imported when the run starts
            checked = copy(self)
            checked.scheme = "snap"
        check_drop(checked.options["sending"], self.scheme)

    def applied(self, without: Collection[str] = ()) -> Table:
        """Return the settings that this run uses and are not None, ``without`` some."""
        return {
            item.name: value
            for item in fields(self)
            if item.name not in without
            and (value := getattr(self, item.name)) is not None
            and item.metadata["applies"](self)
            and (self.data != IN_MEMORY or item.name in OF_SOLVE | names("solver"))
        }

    @cached_property
    def arguments(self) -> dict[str, Parameter]:
        """The arguments of the problem's class, which is imported if it is yours."""
        found = builder.arguments(builder.find(self.problem))
        if self.target is not None and "y" not in found:
            raise ConfigError(
                f"target cannot be used with {self.problem}, whose constructor has no "
                "argument y"
            )
        return found

    def _check_suited(self) -> None:
        """Raise for settings that this run does not have."""
        for item in fields(self):
            facts, value, suited = item.metadata, getattr(self, item.name), ""
            argument = facts["argument"]
            is_given = value and value != item.default
            if is_given and facts["only"] and not facts["applies"](self):
                suited = facts["only"]
            elif value is not None and argument and not takes(self.problem, argument):
                suited = ", ".join(name for name in PROBLEMS if takes(name, argument))
            if suited:
                raise ConfigError(
                    f"{item.name} cannot be used with {self.problem} and these data; "
                    f"it is for {suited}"
                )
        tracks, M = self.traits.tracks, self.traits.components
        sums, merged = self.coordinates in ("metric", "units"), self.init == "merged"
        for is_wrong, what in (
            (self.on_missing == "keep" and not self.may_have_subspace,
             f"on_missing keep cannot be used with {self.problem}, which needs all "
             "entries; choose error, drop or mean"),
            (self.labels and (tracks or self.one_each),
             "labels cannot be used with one file per node, nor with sfm; leave out "
             "--labels"),
            (tracks and self.n_components not in (None, M),
             f"n_components must be {M} for {self.problem}, got {self.n_components}"),
            (sums and not self.summaries,
             f"coordinates must be raw with --no-summaries, got {self.coordinates}"),
            (merged and (self.coordinates == "raw" or not self.summaries),
             "init merged cannot be used with --coordinates raw or --no-summaries; "
             "leave out one of them"),
        ):  # fmt: skip
            if is_wrong:
                raise ConfigError(what)

    def settle(self, n_nodes: int | None = None) -> None:
        """Set the defaults that depend on other settings, and on the number of nodes.

        The latter stay None until the number is known.
        """
        synthetic = self.data is None
        usual: Table = {
            "topology": "cluster" if self.draws_rows else "complete",
            "bound_angle": not synthetic,
            "compare_centralised": synthetic and self.may_have_subspace,
            # a node's file may exist only on the host of its rank
            "placement": "blocks" if self.one_each else "hosts",
        }
        if not self.summaries:
            self.coordinates = "raw"
        if self.draws_rows and self.has_subspace and not self.missing_fraction:
            usual["init"] = "independent"  # as in the paper's synthetic experiment
        if not synthetic and not self.traits.tracks:
            usual["on_missing"] = "keep" if self.may_have_subspace else "error"
        for name in set(penalty.schemes.BUDGET).intersection(self.scheme_class.uses):
            usual[name] = getattr(self.scheme_class, name)
        if not self.is_plugin and self.data != IN_MEMORY:
            # the class of a plug-in is not imported yet
            if "n_components" in self.arguments:
                usual["n_components"] = self.traits.components
            for item in fields(self):
                found = self.arguments.get(item.metadata["argument"])
                if found is not None and found.default is not found.empty:
                    usual[item.name] = found.default
        if n_nodes is not None:
            usual |= {
                "n_samples": max(USUAL_ROWS, ROWS_PER_NODE * n_nodes),
                "record": n_nodes <= MOST_RECORDED,
                "record_edges": synthetic and n_nodes <= MOST_SHOWN,
            }
        vars(self).update(
            usual | {k: v for k, v in vars(self).items() if v is not None}
        )

    def build_graph(
        self, n_nodes: int | None
    ) -> tuple[topology.Topology, Schedule | None]:
        """Return the graph, and the schedule of its edges unless all are used."""
        graphs, seed = self.topology.split(","), self.topology_seed
        if n_nodes is None and not topology.GRAPHS.keys().isdisjoint(graphs):
            n_nodes = self.traits.nodes
        if len(graphs) == 1:
            graph = topology.build(graphs[0], n_nodes, seed)
            if self.schedule == "static":
                return graph, None
            return graph, Schedule.named(graph, self.schedule, seed)
        if self.schedule != "static":
            raise ConfigError(
                f"schedule {self.schedule} cannot be used with several graphs, "
                f"{self.topology}, which take turns; leave out --schedule"
            )
        schedule = Schedule.build(graphs, n_nodes, seed)
        return schedule.union, schedule

    def problem_arguments(self, n_nodes: int) -> Table:
        """Return the settings that are arguments of the problem's constructor.

        Each node has an equal share of the regularisation ``alpha``. A class of yours
        must accept all that are given, others get those that they have.
        """
        plain = ("n_components", "l1_ratio", "delta", "fit_intercept")
        chosen = {name: getattr(self, name) for name in plain}
        chosen["alpha"] = None if self.alpha is None else self.alpha / n_nodes
        if not self.is_plugin:
            chosen |= {"zero_mean": self.zero_mean, "start": self.sfm_start}
            chosen = {k: v for k, v in chosen.items() if k in self.arguments}
        given: Table = json.loads(self.problem_settings or "{}")
        return {k: v for k, v in chosen.items() if v is not None} | given

    @cached_property
    def options(self) -> Table:
        """The arguments of `dadmm.solve` that are settings."""
        chosen = (item.name for item in fields(self) if item.metadata["solver"])
        return grouped({name: getattr(self, name) for name in chosen})

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> CommandLine:
        """Return the checked content of a command line."""
        parser = make_parser()
        if {"-h", "--help"} & {*argv}:
            _shorten(parser, argv)
        parsed, unknown = parser.parse_known_args(argv)
        if unknown:
            first = unknown[0].partition("=")[0]
            known = [name for own in parser._actions for name in own.option_strings]
            otherwise = "--help lists what is allowed"
            if not first.startswith("-"):
                otherwise += "; quote a value that has * or spaces"
            hint = closest(first, known, otherwise)
            raise ConfigError(f"unknown argument {unknown[0]!r}; {hint}")
        given = vars(parsed)
        for item in fields(cls):
            if isinstance(text := given.get(item.name), str):
                given[item.name] = from_text(FLAGS[item.name], text, str(item.type))
        dry, trust = given.pop("dry_run", False), given.pop("trust", False)
        resume, file = given.pop("resume", None), given.pop("config", None)
        if resume is not None:
            return cls._resumed(Path(resume), file, given, dry, trust)
        table: Table = {}
        if file is not None:
            path = Path(file)  # or a preset, unless the current folder has this file
            if path.name == file and not os.path.exists(path):
                if file not in PRESETS:
                    raise ConfigError(
                        f"--config {file!r} is neither a file in this folder nor a "
                        "preset; give the path of a TOML file, or one of "
                        f"{', '.join(PRESETS)}"
                    )
                path = PRESETS[file]
            table = typed(read_toml(path), path)
            check_harmless(table, given, path, trust)
        return CommandLine(cls(**(table | given)), dry, None)

    @classmethod
    def _resumed(
        cls, run: Path, file: str | None, given: Table, dry: bool, trust: bool
    ) -> CommandLine:
        """Return a command line that resumes a run, with the settings in its folder."""
        if file is not None or given.get("overwrite"):
            barred = "--overwrite" if file is None else "--config"
            raise ConfigError(
                f"{barred} cannot be used with --resume, which keeps the settings and "
                f"files of its run; leave out {barred}"
            )
        path = run / "config.toml"
        table = typed(read_toml(path), path) if files.kind(path) == "file" else {}
        if not table:
            raise ConfigError(
                f"{run} is not the folder of a run: {path} is not a regular file, or "
                "is empty; give the folder that dadmm run names in its last lines"
            )
        check_harmless(table, given, path, trust)
        found = cls(**(table | given))
        if found.out is not None and Path(found.out) != run:
            raise ConfigError(
                f"a run is resumed in its own folder, {run}; leave out --out"
            )
        advice = "a resumed run keeps its settings, so leave it out"
        found.check_same(cls(**table), run, advice)
        return CommandLine(found, dry, run)

    def check_same(self, begun: RunConfig, run: Path, advice: str) -> None:
        """Raise if a setting that decides the numbers differs from a run that began."""
        new, old = (
            {"nodes": own.nodes} | own.applied(MAY_CHANGE) for own in (self, begun)
        )
        for name in dict.fromkeys((*new, *old)):
            now, was = new.get(name), old.get(name)
            if was != now:
                raise ConfigError(
                    f"{name} is {now!r} but was {was!r} when the run in {run} began; "
                    f"{advice}"
                )

    def chosen(self) -> Table:
        """Return the settings that apply and are not the defaults of this run."""
        given = {name: getattr(self, name) for name in DEFAULTS_BY}
        usual = RunConfig(**given)
        usual.settle(self.nodes or 1)
        return {
            name: value
            for name, value in self.applied().items()
            if value != getattr(RunConfig if name in given else usual, name)
        }


def check_harmless(table: Table, given: Table, file: str | Path, trust: bool) -> None:
    """Raise if a file has settings that only a command line may have, unless trusted.

    They may be repeated among those ``given`` on the command line.
    """
    for name in ("problem", "scheme"):
        place = table.get(name, "")
        if ":" in place and not trust and name not in given:
            raise ConfigError(
                f"{file} names the {name} {place!r}, and a file may not name code to "
                f"run; if you trust it, repeat --{name} {place}, or add --trust"
            )
    if table.get("overwrite") and not trust and "overwrite" not in given:
        raise ConfigError(
            f"{file} asks for overwrite, and a file may not ask to remove results; "
            "give --overwrite on the command line, or add --trust"
        )


def typed(table: Table, file: str | Path) -> Table:
    """Return the settings of the table of a TOML file, of the right types."""
    if type(own := table.get("problem_settings")) is dict:  # JSON in a flag
        table = table | {"problem_settings": json.dumps(own, default=str)}
    return as_fields(
        Settings, table, str(file), "TOML keys are the flags, with underscores"
    )


def words_of(name: str, value: object) -> list[str]:
    """Return a setting as words of a command line."""
    if isinstance(value, bool):
        return [FLAGS[name] if value else FLAGS[name].replace("--", "--no-", 1)]
    return [FLAGS[name], str(value)]


def in_flags(error: object) -> str:
    """Return an error of a command; a setting at its start is written as its flag."""
    said = r"must|cannot|is|needs|merged|matchings|keep|=|'"  # after the name
    first = re.match(rf"(\w+)(?= ({said}))", str(error))
    if first is None or first[1] not in FLAGS:
        return str(error)
    return FLAGS[first[1]] + str(error)[first.end() :]


def make_parser() -> Parser:
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
        facts, text = item.metadata, item.metadata["help"].replace("%", "%%")
        if item.default not in (None, False, True) or item.name.endswith("seed"):
            text += f" (default: {item.default})"
        how: Table = {"action": argparse.BooleanOptionalAction}
        if not str(item.type).startswith("bool"):
            words = ",".join(facts["choices"])
            how = {"metavar": f"{{{words}}}" if words else item.name.upper()}
        topic = COMMON if facts["common"] else facts["group"]
        if topic not in groups:
            groups[topic] = parser.add_argument_group(topic)
        groups[topic].add_argument(FLAGS[item.name], help=text, **how)
    free, known = [FLAGS[name] for name in FLAGS if name in FREE], ", ".join(PRESETS)
    groups[COMMON].add_argument(
        "--config", metavar="FILE", help=f"settings as TOML, or a preset: {known}"
    )
    add = parser.add_argument_group("other").add_argument
    add("--resume", metavar="RUN", help="resume the run in this folder, with its "
        f"settings; these may change: {', '.join(free)}; the next resume keeps them",
    )  # fmt: skip
    add("--dry-run", action="store_true", help="print the settings as TOML and the "
        "data that would leave a node; then exit")  # fmt: skip
    add("--trust", action="store_true", help="trust the settings file (of --config, or "
        "of the run to resume): it may name a problem or a scheme as "
        "package.module:Class, whose code is then run, and set overwrite")  # fmt: skip
    add("--version", action="version", version=f"dadmm {__version__}")
    add("-h", "--help", action="help", help="print the settings that matter for the "
        "given --problem and --data; then exit")  # fmt: skip
    add("--help-all", action="help", help="print all settings; then exit")
    return parser


def _shorten(parser: Parser, argv: Sequence[str]) -> None:
    """Leave out of the help what does not fit the problem and data of a command."""
    words = dict(zip(argv, [*argv[1:], ""], strict=True))
    words |= dict(word.split("=", 1) for word in argv if "=" in word)
    run = RunConfig(problem=words.get("--problem", "ppca"), data=words.get("--data"))
    shown = {"config", "help", "help_all"}
    for item in fields(Settings):
        facts = item.metadata
        usual = facts["common"] or facts["group"] == PROBLEM or item.name in OF_TABLES
        fits = not facts["argument"] or takes(run.problem, facts["argument"])
        if item.name == "problem_settings":
            fits = run.is_plugin
        if usual and fits and facts["applies"](run):
            shown.add(item.name)
    for action in parser._actions:
        if action.dest not in shown:
            action.help = argparse.SUPPRESS
    parser.epilog = f"--help-all has all {len(fields(Settings))} settings."
