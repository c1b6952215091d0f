"""A checked configuration of a run, read from a command line or a TOML file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from dadmm import penalty
from dadmm.runs import flags, presets, settings
from dadmm.runs.settings import Settings
from dadmm.core import documents, files
from dadmm.core.errors import shown
from dadmm.core.errors import ConfigError
from dadmm.core.schema import check_fields
from dadmm.core.documents import toml_value
from dadmm.comm.sending import check_drop
from dadmm.problems import PROBLEMS, builder
from dadmm.solver.options import Record, grouped
from dadmm.solver.plan import Plan, abilities, all_abilities, make_plan

FREE = settings.names("resume")  # settings that may change when a run is resumed
TABLE = ("features", "weight", "categories", "standardise", "separator")
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


class RunConfig(Settings):
    """The settings of a run, checked, with the defaults that depend on the problem."""

    def __post_init__(self) -> None:
        self._set_defaults()
        check_fields(self)
        check_drop(self.options()["sending"], self.scheme)
        M = self.traits.components
        if self.traits.tracks and self.n_components != M:
            raise ConfigError(
                f"n_components must be {M} for {self.problem}, got "
                f"{self.n_components!r}"
            )

    def _set_defaults(self) -> None:
        """Set defaults that depend on the problem; raise for settings it lacks."""
        builder.check_name(self.problem)
        if not self.summaries:
            if self.coordinates in ("metric", "units"):
                raise ConfigError(
                    f"the coordinates {self.coordinates} need the summaries of all "
                    f"nodes; leave out --coordinates {self.coordinates}, or "
                    "--no-summaries"
                )
            self.coordinates = "raw"
        if self.init == "merged" and self.coordinates == "raw":
            raise ConfigError(
                "init merged is not possible with --coordinates raw or --no-summaries; "
                "leave out one of them"
            )
        self._set_demonstration()
        scheme = penalty.SCHEMES.get(self.scheme)
        for name in penalty.schemes.BUDGET:
            if scheme is not None and name in scheme.uses:
                given = getattr(self, name)
                value = getattr(scheme, name) if given is None else given
                setattr(self, name, value)
        _ = self.settings  # raises if they are not JSON
        if self.placement is None:  # a rank's file may exist only on its host
            own_files = "{rank}" in (self.data or "")
            self.placement = "ranks" if own_files else "hosts"
        for name in ("record_angle", "compare_centralised"):
            if getattr(self, name) and not self.has_subspace:
                raise ConfigError(
                    f"{name} does not go with {self.problem}; it is for ppca and sfm"
                )
        if self.missing_fraction and not (self.data is None and self.has_subspace):
            raise ConfigError(
                "missing_fraction is for the synthetic data of ppca and sfm; in data "
                "of your own, NaN stands for a missing entry"
            )
        self._check_table()
        if self.is_plugin:  # its class is not imported yet
            return
        if self.n_components is None:
            self.n_components = self.traits.components
        takes = builder.arguments(PROBLEMS[self.problem])
        for item in fields(self):
            name, argument = item.name, item.metadata["argument"]
            if argument is None:
                continue
            value = getattr(self, name)
            if value is None and argument in takes.defaults:
                setattr(self, name, takes.defaults[argument])
            if value is not None and not takes.takes(argument):
                kinds = PROBLEMS.items()
                suited = [k for k, v in kinds if builder.arguments(v).takes(argument)]
                raise ConfigError(
                    f"{name} does not go with {self.problem}; it is for "
                    f"{', '.join(suited)}"
                )

    def _set_demonstration(self) -> None:
        """Set the defaults of a run without data: the paper's synthetic experiment."""
        synthetic = self.data is None and not self.traits.tracks
        if self.topology is None:
            self.topology = "cluster" if synthetic else "complete"
        if self.bound_angle is None:
            self.bound_angle = self.data is not None
        if self.init is None and synthetic and self.has_subspace:
            self.init = None if self.missing_fraction else "independent"

    def settle(self, n_nodes: int) -> None:
        """Set the defaults that depend on the number of nodes."""
        if self.n_samples is None:
            self.n_samples = max(USUAL_ROWS, ROWS_PER_NODE * n_nodes)
        if self.record_edges is None:
            self.record_edges = self.data is None and n_nodes <= MOST_SHOWN

    def _check_table(self) -> None:
        """Check the settings of tables, and set their defaults."""
        if self.data is None or self.traits.tracks:
            for name in (*TABLE, "on_missing"):
                if getattr(self, name) not in (None, False):
                    raise ConfigError(
                        f"{name} is for tables; leave it out, or give a table of your "
                        "own with --data, for another problem than sfm"
                    )
            return
        for name in ("features", "categories"):
            if getattr(self, name) is not None and not self.columns(name):
                raise ConfigError(f"{name} names no column; name one, or leave it out")
        keeps = self.is_plugin or self.has_subspace
        if self.on_missing is None:
            self.on_missing = "keep" if keeps else "error"
        if self.on_missing == "keep" and not keeps:
            raise ConfigError(
                f"on_missing keep does not go with {self.problem}, which needs all "
                "entries; choose error, drop or mean"
            )
        if self.separator is not None and (
            len(self.separator) != 1 or ord(self.separator) > 127
        ):
            raise ConfigError(
                f"separator must be one ASCII character, got {shown(self.separator)}"
            )
        try:
            "".encode(self.encoding)
        except (LookupError, ValueError):
            raise ConfigError(
                f"unknown encoding {shown(self.encoding)}; use a name of Python such "
                "as utf-8, latin-1 or cp1252"
            ) from None

    def columns(self, name: str) -> list[str] | None:
        """Return the names in a setting, between which there are commas."""
        text = getattr(self, name)
        if text is None:
            return None
        import csv  # of few runs

        words = next(csv.reader([text], skipinitialspace=True), [])
        return [word.strip() for word in words if word.strip()]

    def records(self, n_nodes: int) -> bool:
        """Return whether history.csv has the rows of so many nodes."""
        return Record(self.record).records_nodes(n_nodes)

    def plan(self, problems: Iterable[Any] = ()) -> Plan:
        """Return the plan of the run: of these problems, or if no entry is missing.

        Without problems, one of a user's own class is taken for a problem without
        metric.
        """
        kind = PROBLEMS.get(self.problem, object)
        if self.missing_fraction:
            kind = getattr(kind, "with_gaps", kind)
        known = list(problems)
        able = all_abilities(known) if known else abilities(kind)
        constant = penalty.SCHEMES[self.scheme].is_constant
        return make_plan(able, self.init, self.coordinates, constant)

    @property
    def compares(self) -> bool:
        """Whether to compare with the centralised solution, if there is one."""
        wanted = self.compare_centralised
        return self.data is None if wanted is None else wanted

    @property
    def settings(self) -> dict[str, Any]:
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

    def problem_flags(self, n_nodes: int) -> dict[str, Any]:
        """Return the settings that are arguments of the problem's constructor.

        Each node has an equal share of the regularisation ``alpha``.
        """
        names = ("n_components", "l1_ratio", "delta", "fit_intercept")
        chosen = {name: getattr(self, name) for name in names}
        if not self.is_plugin:
            chosen |= {"zero_mean": self.zero_mean, "start": self.sfm_start}
        chosen["alpha"] = None if self.alpha is None else self.alpha / n_nodes
        return {name: value for name, value in chosen.items() if value is not None}

    def options(self) -> dict[str, Any]:
        """Return the arguments of `dadmm.solve` that are settings."""
        chosen = {name: getattr(self, name) for name in settings.names("solver")}
        return grouped(chosen)

    @classmethod
    def from_toml(cls, path: str | Path) -> dict[str, Any]:
        """Return the checked settings of a TOML file."""
        table = documents.read_toml(path)
        return {k: flags.typed(cls, k, v, str(path)) for k, v in table.items()}

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> CommandLine:
        """Return the checked content of a command line."""
        given = flags.parse(cls, argv)
        file, dry = given.pop("config", None), given.pop("dry_run", False)
        resume, trust = given.pop("resume", None), given.pop("trust", False)
        run = None if resume is None else Path(resume)
        if run is not None and file is not None:
            raise ConfigError(
                "--resume uses the settings of its run; leave out --config"
            )
        if run is not None:
            file = run / "config.toml"
            if files.kind(file) not in ("file", "none"):
                raise ConfigError(f"{file} is not a regular file; restore it")
        elif file is not None:
            file = presets.find(file)
        table = cls.from_toml(file) if file is not None else {}
        if run is not None and not table:
            raise ConfigError(
                f"{file} is empty, so the settings of the run are unknown; restore the "
                "file, or start a new run"
            )
        if not trust:
            _check_harmless(table, given, str(file))
        config = cls(**(table | given))
        if run is not None:
            config._check_resumed(cls(**table), run)
        return CommandLine(config, dry, run)

    def _check_resumed(self, begun: RunConfig, run: Path) -> None:
        """Raise if a setting differs from the run that is resumed."""
        if self.out is not None and Path(self.out) != run:
            raise ConfigError(
                f"a run is resumed in its own folder, {run}; leave out --out"
            )
        if self.overwrite:
            raise ConfigError(
                "overwrite does not go with resume, which keeps the files of the run; "
                "leave out --overwrite"
            )
        compared = {"nodes": self.nodes} if begun.nodes is not None else {}
        for name, now in (compared | self.deciding()).items():
            was = getattr(begun, name)
            if was != now:
                raise ConfigError(
                    f"{name} is {now!r} but was {was!r} when the run in {run} began; a "
                    "resumed run keeps its settings, so leave it out"
                )

    def deciding(self) -> dict[str, Any]:
        """Return the settings that must not change when the run is resumed."""
        return {k: v for k, v in self.applied().items() if k not in FREE | UNCHANGED}

    def chosen(self) -> dict[str, Any]:
        """Return the settings that apply and are not the defaults of such a run."""
        given = {name: getattr(self, name) for name in DEFAULTS_BY}
        usual = RunConfig(**given)
        usual.settle(self.nodes or 1)
        return {
            name: value
            for name, value in self.applied().items()
            if value != getattr(RunConfig if name in given else usual, name)
        }

    def to_toml(self) -> str:
        """Return the settings that apply as TOML."""
        given = self.applied().items()
        return "".join(f"{k} = {toml_value(v)}\n" for k, v in given)


def _check_harmless(
    table: Mapping[str, Any], given: Mapping[str, Any], file: str
) -> None:
    """Raise if a file has settings that only a command line may have."""
    problem = table.get("problem", "")
    if ":" in problem and "problem" not in given:
        raise ConfigError(
            f"{file} names the problem {problem!r}, and a file may not name code to "
            f"run; if you trust it, repeat --problem {problem}, or add --trust"
        )
    if table.get("overwrite") and "overwrite" not in given:
        raise ConfigError(
            f"{file} asks for overwrite, and a file may not ask to remove results; "
            "give --overwrite on the command line, or add --trust"
        )
