"""The settings of a run: one source of flags, TOML keys, defaults, help and checks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from dadmm import penalty
from dadmm.admm.node import COUPLINGS, PROBES
from dadmm.admm.stopping import AGREEMENTS, RULES, Rule
from dadmm.cli import flags, presets
from dadmm.core import files, reading
from dadmm.core.checks import MOST, MOST_SEED, check_integer, check_number, shown
from dadmm.core.errors import ConfigError
from dadmm.exchange import WAITS
from dadmm.exchange.codec import PAYLOADS
from dadmm.exchange.sending import Sending, check_loss
from dadmm.graphs.placement import PLACEMENTS
from dadmm.graphs.schedule import TURNS
from dadmm.graphs.topology import RANDOM
from dadmm.problems import PPCA, PROBLEMS, builder
from dadmm.problems.sfm import STARTS
from dadmm.solver.solve import FAILURES, INITS

# settings that only some problems have, and the argument that tells which
OF_PROBLEMS = {
    "target": "y",
    "alpha": "alpha",
    "l1_ratio": "l1_ratio",
    "delta": "delta",
    "fit_intercept": "fit_intercept",
}
# settings that may change when a run is resumed: they do not decide its numbers, or,
# as the data, are compared by what is in them
FREE = {
    "max_iter", "max_seconds", "strict", "quiet", "wait", "data", "labels",
    "checkpoint", "checkpoint_seconds", "checkpoint_every", "on_failure", "placement",
}  # fmt: skip
# settings that do not decide the numbers either, and that a resumed run has already
FIXED = {"out", "overwrite", "nodes"}


def setting(
    default: Any,
    help: str,
    choices: Sequence[str] = (),
    applies: Callable[[RunConfig], bool] = lambda config: True,
) -> Any:
    """Return a dataclass field that carries its own documentation.

    ``applies`` says whether a run with these settings looks at this one.
    """
    about = {"help": help, "choices": tuple(choices), "applies": applies}
    return field(default=default, metadata=about)


def _synthetic(config: RunConfig) -> bool:
    return config.data is None


def _drawn(config: RunConfig) -> bool:
    """Return whether the data are drawn at random; the turntable of sfm is not."""
    return config.data is None and config.problem != "sfm"


def _of_scheme(name: str) -> Callable[[RunConfig], bool]:
    return lambda config: name in penalty.SCHEMES[config.scheme].uses


def _of_problem(name: str) -> Callable[[RunConfig], bool]:
    """Return whether a problem of this package has an argument of this name."""
    kinds = {key for key, v in PROBLEMS.items() if builder.arguments(v).takes(name)}
    return lambda config: config.problem in kinds


def _of_subspaces(config: RunConfig) -> bool:
    return issubclass(PROBLEMS.get(config.problem, object), PPCA)


class Request(NamedTuple):
    """What a command line asks for."""

    config: RunConfig
    dry_run: bool
    resume: Path | None  # the folder of the run to go on with


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run. The defaults are the paper's synthetic problem."""

    problem: str = setting(
        "ppca",
        "the local problem, also one of your own as package.module:Class",
        tuple(PROBLEMS),
    )
    problem_settings: str | None = setting(
        None, "arguments of the problem's constructor, as JSON: '{\"name\": value}'"
    )
    data: str | None = setting(
        None,
        "samples: .npy, .npz, .csv, .mat, or one file per rank as part-{rank}.npy; "
        "without it, the paper's synthetic data, or others that suit the problem",
    )
    target: str | None = setting(
        None,
        "column of the data that holds y, by number or name (the last by default), or "
        "its array in a .npz or .mat file (y by default, beside X)",
    )
    labels: str | None = setting(
        None, "which node holds each sample: a file of integers, or a column's number"
    )
    n_samples: int = setting(500, "synthetic data: samples in all", applies=_drawn)
    dimension: int = setting(
        20, "synthetic data: dimension of a sample", applies=_drawn
    )
    noise_variance: float = setting(
        0.2, "synthetic data: variance of the noise", applies=_drawn
    )
    missing: float = setting(
        0.0,
        "synthetic data: fraction of entries removed",
        applies=lambda config: _synthetic(config) and _of_subspaces(config),
    )
    data_seed: int = setting(0, "synthetic data: seed", applies=_synthetic)
    n_components: int = setting(
        None,
        "dimension of the subspace (5 by default; sfm: always 3), or clusters (3)",
        applies=lambda config: config.is_plugin or _of_problem("n_components")(config),
    )
    zero_mean: bool = setting(
        False, "fix the mean at zero (sfm: always)", applies=_of_problem("zero_mean")
    )
    start: str = setting(
        "frame",
        "sfm: start from each camera's first frame, or at random",
        STARTS,
        applies=_of_problem("start"),
    )
    alpha: float | None = setting(
        None, "regularisation of the whole problem, of which each node takes its share"
    )
    l1_ratio: float | None = setting(
        None, "elastic_net: share of the absolute values in the penalty"
    )
    delta: float | None = setting(
        None, "huber: errors above it count linearly, in the unit of y"
    )
    fit_intercept: bool | None = setting(
        None, "linear problems: fit an intercept, without penalty (by default they do)"
    )

    topology: str = setting(
        "complete",
        "complete, ring, cluster, star, chain, grid, random-geometric, erdos-renyi, "
        "or a file (.edges, .graphml, .npy); several, with commas, take turns",
    )
    schedule: str = setting(
        "all", "talk to all neighbours, or in matchings: one neighbour a turn", TURNS
    )
    topology_seed: int = setting(
        0,
        "seed of random graphs",
        applies=lambda config: not RANDOM.isdisjoint(config.topology.split(",")),
    )
    nodes: int | None = setting(
        None, "nodes of the graph without mpiexec (20 by default; else the ranks)"
    )
    placement: str = setting(
        None,
        "which rank is which node: hosts, so that few edges cross from host to host, "
        "or ranks, by number (hosts by default; ranks if each rank has its own file)",
        PLACEMENTS,
    )

    scheme: str = setting("auto", "how penalties adapt", tuple(penalty.SCHEMES))
    relaxation: float | None = setting(
        None, "over-relax every step: between 0 and 2 (1.6 for auto, else 1)"
    )
    eta0: float = setting(
        10.0,
        "penalty at the start; auto finds its own",
        # auto falls back on it if no node finds any curvature
        applies=lambda config: _of_scheme("eta0")(config) or config.eta0 != 10.0,
    )
    t_max: int = setting(
        50,
        "vp, ap, vp_ap, global_balance: adapt while t < t_max",
        applies=_of_scheme("t_max"),
    )
    residual_ratio: float = setting(
        10.0,
        "vp*, global_balance: residuals further apart are unbalanced",
        applies=_of_scheme("residual_ratio"),
    )
    budget0: float = setting(
        5.0, "nap, vp_nap: first budget of an edge", applies=_of_scheme("budget0")
    )
    budget_decay: float = setting(
        0.5,
        "nap, vp_nap: each raise is this times the last",
        applies=_of_scheme("budget_decay"),
    )
    budget_trigger: float = setting(
        0.1,
        "nap, vp_nap: change of f that earns a raise",
        applies=_of_scheme("budget_trigger"),
    )
    probe: str = setting(
        "midpoint",
        "where neighbours' parameters are tried",
        PROBES,
        applies=lambda config: penalty.SCHEMES[config.scheme].probes,
    )
    coupling: str = setting(
        "symmetric", "one penalty per edge, or each end its own (as printed)", COUPLINGS
    )

    init: str = setting("shared", "all nodes start alike, or each by itself", INITS)
    seed: int = setting(0, "seed of the starting parameters")

    stopping: str = setting("optimality", "what must be small to stop", RULES)
    agreement: str = setting(
        "neighbours",
        "how nodes agree to stop: by messages, or by a collective",
        AGREEMENTS,
    )
    tolerance: float = setting(1e-3, "of the stopping rule; 0 never stops")
    absolute_tolerance: float = setting(
        1e-6,
        "stopping by optimality: the same per entry, where the optimum is zero",
        applies=lambda config: config.stopping == "optimality",
    )
    max_iter: int = setting(1000, "iterations at most")
    max_seconds: float | None = setting(
        None,
        "ask all nodes to stop, with results, after this long; they do at most two "
        "diameters of iterations later",
    )
    strict: bool = setting(False, "exit with code 3 when not converged")

    payload: str = setting("float64", "how parameters are sent", PAYLOADS)
    bits: int = setting(
        8,
        "quantised: bits per entry, 2 to 16",
        applies=lambda config: config.payload == "quantised",
    )
    censor: float = setting(
        0.0, "send only changes of more than this part of theta (times the decay)"
    )
    censor_decay: float = setting(
        0.98,
        "censor: by which it shrinks every iteration",
        applies=lambda config: config.censor > 0,
    )
    every: int = setting(1, "send every so many iterations, solve in all")
    sleep: float = setting(
        0.0, "let edges sleep that move their ends by less than this part of the most"
    )
    loss: float = setting(0.0, "scheme fixed: probability that a payload gets lost")
    loss_seed: int = setting(
        0, "seed of the losses", applies=lambda config: config.loss > 0
    )

    checkpoint: bool = setting(
        True, "save the state of the run, from which --resume goes on"
    )
    checkpoint_seconds: float = setting(
        60.0,
        "save about this often, and when the run ends without having converged "
        "(0: not by time)",
        applies=lambda config: config.checkpoint,
    )
    checkpoint_every: int = setting(
        0,
        "save after every so many iterations (0: do not count them)",
        applies=lambda config: config.checkpoint,
    )

    on_failure: str = setting(
        "abort",
        "when a rank dies, end all, or go on with the others (Open MPI with ULFM)",
        FAILURES,
    )

    wait: str = setting("auto", "how ranks wait for messages", WAITS)
    out: str | None = setting(
        None, "folder of the results (by default a new one in runs/)"
    )
    overwrite: bool = setting(False, "replace the results in --out")
    record_edges: bool = setting(False, "also write edges.csv, a row per edge")
    record_angle: bool = setting(
        False, "also record subspace angles every iteration", applies=_of_subspaces
    )
    compare_centralised: bool | None = setting(
        None,
        "ppca, sfm: compare with the centralised solution, for which rank 0 gathers "
        "a summary of each node's rows (by default for synthetic data only)",
        applies=_of_subspaces,
    )
    quiet: bool = setting(False, "print nothing but errors")

    def __post_init__(self) -> None:
        self._suit_the_problem()
        for item in fields(self):
            choices = item.metadata["choices"]
            value = getattr(self, item.name)
            if choices and value not in choices and item.name != "problem":
                raise ConfigError(
                    f"unknown {item.name} {value!r}; choose one of {', '.join(choices)}"
                )
        penalty.build(self.scheme, **self._of(penalty.schemes.Scheme))
        Rule(self.stopping, self.tolerance, self.absolute_tolerance)
        check_loss(Sending(**self._of(Sending)), self.scheme)
        for name in ("n_samples", "n_components", "nodes", "max_iter"):
            self._integer(name, 1)
        self._integer("dimension", 2)
        if self.problem == "sfm" and self.n_components != 3:
            raise ConfigError(
                f"n_components must be 3 for sfm, got {self.n_components!r}"
            )
        self._integer("checkpoint_every", 0)
        for name in ("data_seed", "topology_seed", "seed"):
            self._integer(name, 0, MOST_SEED)
        for name in ("checkpoint_seconds", "noise_variance"):
            value = getattr(self, name)
            check_number(name, value, lambda x: 0 <= x < math.inf, "at least 0")
        rate = self.missing
        check_number("missing", rate, lambda x: 0 <= x < 1, "within [0, 1)")
        if self.max_seconds is not None:
            check_number("max_seconds", self.max_seconds, lambda x: x > 0, "positive")

    def _suit_the_problem(self) -> None:
        """Fill in what the problem's class has as its defaults; refuse the rest."""
        builder.check_name(self.problem)
        _ = self.settings  # or an error
        if self.placement is None:  # a rank's own file may be on its host alone
            own_files = "{rank}" in (self.data or "")
            object.__setattr__(self, "placement", "ranks" if own_files else "hosts")
        kind = PROBLEMS.get(self.problem, object)
        if self.record_angle and not issubclass(kind, PPCA):
            raise ConfigError(
                f"record_angle does not go with {self.problem}, which has no subspace"
            )
        if self.compare_centralised and not issubclass(kind, PPCA):
            raise ConfigError(
                f"compare_centralised does not go with {self.problem}; it is for ppca "
                "and sfm"
            )
        if self.missing and (self.data is not None or not issubclass(kind, PPCA)):
            raise ConfigError(
                "missing is for the synthetic data of ppca and sfm; in data of your "
                "own, NaN stands for a missing entry"
            )
        if self.is_plugin:  # which is not imported yet
            return
        if self.n_components is None:
            usual = 3 if self.problem in ("sfm", "mixture") else 5
            object.__setattr__(self, "n_components", usual)
        takes = builder.arguments(kind)
        for name, argument in OF_PROBLEMS.items():
            value = getattr(self, name)
            if value is None and argument in takes.usual:
                object.__setattr__(self, name, takes.usual[argument])
            if value is not None and not takes.takes(argument):
                kinds = PROBLEMS.items()
                suited = [k for k, v in kinds if builder.arguments(v).takes(argument)]
                raise ConfigError(
                    f"{name} does not go with {self.problem}; it is for "
                    f"{', '.join(suited)}"
                )

    @property
    def has_subspace(self) -> bool:
        """Whether the problem has a centralised solution to compare with."""
        return issubclass(PROBLEMS.get(self.problem, object), PPCA)

    @property
    def compares(self) -> bool:
        """Whether to compare with the centralised solution, where there is one."""
        if self.compare_centralised is None:
            return self.data is None
        return self.compare_centralised

    @property
    def is_plugin(self) -> bool:
        """Whether the problem is none of this package's."""
        return self.problem not in PROBLEMS

    @property
    def settings(self) -> dict[str, Any]:
        """Return the arguments of the problem's constructor that were given as such."""
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
        """Return the settings that go to a problem's constructor, if it has them.

        The regularisation is that of the whole problem, of which a node has its share.
        """
        names = ["n_components", "l1_ratio", "delta", "fit_intercept"]
        names += [] if self.is_plugin else ["zero_mean", "start"]
        chosen = {name: getattr(self, name) for name in names}
        chosen["alpha"] = None if self.alpha is None else self.alpha / n_nodes
        return {name: value for name, value in chosen.items() if value is not None}

    def _integer(self, name: str, least: int, most: int = MOST) -> None:
        if getattr(self, name) is not None:
            check_integer(name, getattr(self, name), least, most)

    def _of(self, kind: Any) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(kind)}

    def solver_settings(self) -> dict[str, Any]:
        """Return the keyword arguments of `dadmm.solve` that are settings."""
        names = (
            "scheme", "probe", "coupling", "init", "seed", "stopping", "agreement",
            "tolerance", "absolute_tolerance", "max_iter", "max_seconds", "wait",
            "on_failure",
        )  # fmt: skip
        chosen = {name: getattr(self, name) for name in names}
        chosen["sending"] = Sending(**self._of(Sending))
        return chosen | self._of(penalty.schemes.Scheme)

    @classmethod
    def from_toml(cls, path: str | Path) -> dict[str, Any]:
        """Return the checked settings of a TOML file."""
        table = reading.read_toml(path)
        return {k: flags.typed(cls, k, v, str(path)) for k, v in table.items()}

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> Request:
        """Return what a command line asks for."""
        given = flags.parse(cls, argv)
        file, dry = given.pop("config", None), given.pop("dry_run", False)
        resume, trust = given.pop("resume", None), given.pop("trust", False)
        if resume is not None and file is not None:
            raise ConfigError("resume has the settings of its run; leave out config")
        if resume is not None:
            file = Path(resume) / "config.toml"
            if files.kind(file) not in ("file", "none"):
                raise ConfigError(f"{file} is not a plain file; put back that of a run")
        elif file is not None:
            file = presets.find(file)
        table = cls.from_toml(file) if file is not None else {}
        if not trust:
            _check_harmless(table, given, str(file))
        config = cls(**(table | given))
        if resume is not None:
            config._check_resumed(cls(**table), Path(resume))
        return Request(config, dry, None if resume is None else Path(resume))

    def _check_resumed(self, begun: RunConfig, run: Path) -> None:
        """Raise if a run would go on with what it did not begin with."""
        if self.out is not None and Path(self.out) != run:
            raise ConfigError(
                f"a run is resumed in its own folder, {run}; leave out --out"
            )
        if self.overwrite:
            raise ConfigError(
                "overwrite does not go with resume, which keeps what the run has; "
                "leave out --overwrite"
            )
        compared = {"nodes": self.nodes} if begun.nodes is not None else {}
        for name, now in (compared | self.deciding()).items():
            was = getattr(begun, name)
            if was != now:
                raise ConfigError(
                    f"{name} is {now!r} but was {was!r} when the run in {run} began; a "
                    "resumed run goes on with its own settings, so leave it out"
                )

    def applied(self) -> dict[str, Any]:
        """Return the settings that this run looks at; those that are None left out."""
        return {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
            and item.metadata["applies"](self)
        }

    def deciding(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of a run."""
        return {k: v for k, v in self.applied().items() if k not in FREE | FIXED}

    def to_toml(self) -> str:
        """Return the settings that apply as TOML; reading it back repeats the run."""
        given = self.applied().items()
        return "".join(f"{k} = {flags.toml(v)}\n" for k, v in given)


def _check_harmless(
    table: Mapping[str, Any], given: Mapping[str, Any], file: str
) -> None:
    """Raise if a file asks for what only a command line may ask for."""
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
