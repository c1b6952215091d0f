"""A checked configuration of a run, read from a command line or a TOML file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from dadmm import penalty
from dadmm.comm.sending import check_drop
from dadmm.core import files
from dadmm.core.classes import check_name
from dadmm.core.documents import Table, read_toml, toml_value
from dadmm.core.errors import ConfigError, shown
from dadmm.core.schema import check_fields
from dadmm.data.shard import has_node
from dadmm.problems import PROBLEMS, builder
from dadmm.runs import flags, settings
from dadmm.runs.settings import Settings, column_names, takes
from dadmm.solver.plan import Abilities, Plan, abilities, make_plan
from dadmm.solver.solve import Record, grouped

FREE = settings.names("resume")  # settings that may change when a run is resumed
DEFAULTS_BY = ("problem", "data", "missing_fraction", "scheme")  # others depend on them
UNCHANGED = {"out", "overwrite", "nodes"}  # a resumed run has its own; checked apart
PER_RANK = settings.names("per_rank")  # settings in which ranks may differ
USUAL_ROWS, ROWS_PER_NODE = 500, 25  # of synthetic data; the paper's
MOST_SHOWN = 50  # nodes up to which a demonstration records edges


class CommandLine(NamedTuple):
    """The content of a command line."""

    config: RunConfig
    dry_run: bool
    resume: Path | None  # folder of the run to resume


@dataclass(repr=False)
class RunConfig(Settings):
    """The settings of a run, checked, with the defaults that depend on the problem."""

    def __post_init__(self) -> None:
        check_fields(self)
        builder.check_name(self.problem)
        check_name("scheme", self.scheme, penalty.SCHEMES)
        self._check_suited()
        self._set_defaults()
        # the class of a scheme of one's own is imported when the run starts
        known = self.scheme if self.scheme in penalty.SCHEMES else "snap"
        check_drop(self._options(known)["sending"], self.scheme)
        _ = self.settings  # raises if they are not JSON

    def _check_suited(self) -> None:
        """Raise for settings that this run does not have."""
        for item in fields(self):
            facts, value, suited = item.metadata, getattr(self, item.name), ""
            argument = facts["argument"]
            if value and facts["only"] and not facts["applies"](self):
                suited = facts["only"]
            elif value is not None and argument and not takes(self.problem, argument):
                suited = ", ".join(name for name in PROBLEMS if takes(name, argument))
            if suited:
                raise ConfigError(
                    f"{item.name} cannot be used with {self.problem} and these data; "
                    f"it is for {suited}"
                )
        keeps = self.is_plugin or self.has_subspace
        if self.on_missing == "keep" and not keeps:
            raise ConfigError(
                f"on_missing keep cannot be used with {self.problem}, which needs all "
                "entries; choose error, drop or mean"
            )
        if self.labels and (self.traits.tracks or has_node(str(self.data))):
            raise ConfigError(
                "labels cannot be used with one file per node, nor with sfm; leave out "
                "--labels"
            )
        M = self.traits.components
        if self.traits.tracks and self.n_components not in (None, M):
            raise ConfigError(
                f"n_components must be {M} for {self.problem}, got "
                f"{self.n_components!r}"
            )
        if not self.summaries:
            if self.coordinates in ("metric", "units"):
                raise ConfigError(
                    f"coordinates must be raw with --no-summaries, got "
                    f"{self.coordinates}"
                )
            self.coordinates = "raw"
        if self.init == "merged" and self.coordinates == "raw":
            raise ConfigError(
                "init merged cannot be used with --coordinates raw or --no-summaries; "
                "leave out one of them"
            )

    def _set_defaults(self) -> None:
        """Set defaults that depend on the problem, the data and the scheme."""
        scheme, synthetic = self.scheme_class, self.data is None
        drawn = synthetic and not self.traits.tracks
        usual: Table = {
            "topology": "cluster" if drawn else "complete",
            "bound_angle": not synthetic,
            # a node's file may exist only on the host of its rank
            "placement": "blocks" if has_node(self.data or "") else "hosts",
        }
        if drawn and self.has_subspace and not self.missing_fraction:
            usual["init"] = "independent"  # as in the paper's synthetic experiment
        if not synthetic and not self.traits.tracks:
            keeps = self.is_plugin or self.has_subspace
            usual["on_missing"] = "keep" if keeps else "error"
        for name in penalty.schemes.BUDGET:
            if name in scheme.uses:
                usual[name] = getattr(scheme, name)
        if not self.is_plugin and self.data != settings.IN_MEMORY:
            # the class of a plug-in is not imported yet
            if takes(self.problem, "n_components"):
                usual["n_components"] = self.traits.components
            defaults = builder.arguments(PROBLEMS[self.problem]).defaults
            for item in fields(self):
                if item.metadata["argument"] in defaults:
                    usual[item.name] = defaults[item.metadata["argument"]]
        self._set(usual)

    def settle(self, n_nodes: int) -> None:
        """Set the defaults that depend on the number of nodes."""
        shows = self.data is None and n_nodes <= MOST_SHOWN
        n_samples = max(USUAL_ROWS, ROWS_PER_NODE * n_nodes)
        self._set({"n_samples": n_samples, "record_edges": shows})

    def _set(self, defaults: Table) -> None:
        """Set the settings that are None."""
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)

    def columns(self, name: str) -> list[str] | None:
        """Return the names of columns in a setting."""
        text = getattr(self, name)
        return None if text is None else column_names(text)

    def records(self, n_nodes: int) -> bool:
        """Return whether history.csv has the rows of so many nodes."""
        return Record(self.record).records_nodes(n_nodes)

    def plan(self, able: Abilities | None = None) -> Plan:
        """Return the plan of a run of problems with these abilities.

        By default no entry is missing, and a user's own class has no metric.
        """
        if able is None:
            kind = PROBLEMS.get(self.problem, object)
            if self.missing_fraction:
                kind = getattr(kind, "with_gaps", kind)
            able = abilities([kind])
        constant = self.options["scheme"].is_constant
        plan = make_plan(able, self.init, self.coordinates, constant)
        return plan._replace(bound_angle=bool(self.bound_angle))

    @property
    def compares(self) -> bool:
        """Whether to compare with the centralised solution, if there is one."""
        wanted = self.compare_centralised
        return self.data is None if wanted is None else wanted

    @cached_property
    def settings(self) -> Table:
        """The arguments of the problem's constructor from ``problem_settings``."""
        try:
            found = json.loads(self.problem_settings or "{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ConfigError(
                "problem_settings must be a JSON object such as '{\"alpha\": 0.1}', "
                f"got {shown(self.problem_settings)}"
            )
        return found

    def problem_flags(self, n_nodes: int) -> Table:
        """Return the settings that are arguments of the problem's constructor.

        Each node has an equal share of the regularisation ``alpha``.
        """
        names = ("n_components", "l1_ratio", "delta", "fit_intercept")
        chosen = {name: getattr(self, name) for name in names}
        if not self.is_plugin:
            chosen |= {"zero_mean": self.zero_mean, "start": self.sfm_start}
        chosen["alpha"] = None if self.alpha is None else self.alpha / n_nodes
        return {name: value for name, value in chosen.items() if value is not None}

    @cached_property
    def options(self) -> Table:
        """The arguments of `dadmm.solve` that are settings."""
        return self._options(self.scheme)

    def _options(self, scheme: str) -> Table:
        given = {name: getattr(self, name) for name in settings.names("solver")}
        return grouped(given | {"scheme": scheme})

    @classmethod
    def from_toml(cls, path: str | Path) -> Table:
        """Return the settings of a TOML file, of the right types."""
        table = read_toml(path)
        return {k: flags.typed(k, v, str(path)) for k, v in table.items()}

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> CommandLine:
        """Return the checked content of a command line."""
        given = flags.parse(argv)
        config, dry = given.pop("config", None), given.pop("dry_run", False)
        resume, trust = given.pop("resume", None), given.pop("trust", False)
        run = None if resume is None else Path(resume)
        file = None if config is None else flags.find_settings(config)
        if run is not None:
            barred = "--config" if file else "--overwrite" * given.get("overwrite", 0)
            if barred:
                raise ConfigError(
                    f"{barred} cannot be used with --resume, which keeps the settings "
                    f"and files of its run; leave out {barred}"
                )
            file = run / "config.toml"
            if files.kind(file) != "file":
                raise ConfigError(
                    f"{run} is not the folder of a run: {file} is not a regular file; "
                    "give the folder that dadmm run names in its last lines"
                )
        table = {} if file is None else cls.from_toml(file)
        if run is not None and not table:
            raise ConfigError(
                f"{file} is empty, so the settings of the run are unknown; restore the "
                "file, or start a new run"
            )
        if not trust:
            check_harmless(table, given, str(file))
        found = cls(**(table | given))
        if run is not None:
            if found.out is not None and Path(found.out) != run:
                raise ConfigError(
                    f"a run is resumed in its own folder, {run}; leave out --out"
                )
            advice = "a resumed run keeps its settings, so leave it out"
            found.check_same(cls(**table), run, advice)
        return CommandLine(found, dry, run)

    def check_same(self, begun: RunConfig, run: Path, advice: str) -> None:
        """Raise if a setting that decides the numbers differs from a run that began."""
        new, old = ({"nodes": own.nodes} | own.deciding() for own in (self, begun))
        for name in dict.fromkeys((*new, *old)):
            now, was = new.get(name), old.get(name)
            if was != now:
                raise ConfigError(
                    f"{name} is {now!r} but was {was!r} when the run in {run} began; "
                    f"{advice}"
                )

    def deciding(self) -> Table:
        """Return the settings that must not change when the run is resumed."""
        return {k: v for k, v in self.applied().items() if k not in FREE | UNCHANGED}

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

    def to_toml(self, **changed: Any) -> str:
        """Return the settings that apply as TOML; some may be ``changed``."""
        told = copy(self)
        vars(told).update(changed)
        return "".join(f"{k} = {toml_value(v)}\n" for k, v in told.applied().items())


def check_harmless(table: Table, given: Table, file: str) -> None:
    """Raise if a file has settings that only a command line may have."""
    for name in ("problem", "scheme"):
        place = table.get(name, "")
        if ":" in place and name not in given:
            raise ConfigError(
                f"{file} names the {name} {place!r}, and a file may not name code to "
                f"run; if you trust it, repeat --{name} {place}, or add --trust"
            )
    if table.get("overwrite") and "overwrite" not in given:
        raise ConfigError(
            f"{file} asks for overwrite, and a file may not ask to remove results; "
            "give --overwrite on the command line, or add --trust"
        )
