"""The settings of a run: one source of flags, TOML keys, defaults, help and checks."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from dadmm import penalty
from dadmm.admm.node import COUPLINGS, PROBES
from dadmm.admm.stopping import AGREEMENTS, RULES, Rule
from dadmm.cli import flags
from dadmm.core.errors import ConfigError
from dadmm.exchange import WAITS
from dadmm.exchange.codec import PAYLOADS
from dadmm.exchange.sending import Sending, check_loss
from dadmm.graphs.placement import PLACEMENTS
from dadmm.graphs.schedule import TURNS
from dadmm.problems import PPCA, PROBLEMS, builder
from dadmm.problems.sfm import STARTS
from dadmm.solver.solve import FAILURES, INITS

# settings that only some problems have, and the argument that tells which
OF_PROBLEMS = {
    "target": "y",
    "alpha": "alpha",
    "l1_ratio": "l1_ratio",
    "delta": "delta",
}
# settings that may change when a run is resumed: they do not decide its numbers, or,
# as the data, are compared by what is in them
FREE = {
    "max_iter", "max_seconds", "strict", "quiet", "wait", "out", "overwrite", "data",
    "labels", "nodes", "checkpoint", "checkpoint_seconds", "checkpoint_every",
    "on_failure", "placement",
}  # fmt: skip


def setting(default: Any, help: str, choices: Sequence[str] = ()) -> Any:
    """Return a dataclass field that carries its own documentation."""
    return field(default=default, metadata={"help": help, "choices": tuple(choices)})


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
    n_samples: int = setting(500, "synthetic data: samples in all")
    dimension: int = setting(20, "synthetic data: dimension of a sample")
    noise_variance: float = setting(0.2, "synthetic data: variance of the noise")
    missing: float = setting(0.0, "synthetic data: fraction of entries removed")
    data_seed: int = setting(0, "synthetic data: seed")
    n_components: int = setting(
        None, "dimension of the subspace (5 by default; sfm: always 3), or clusters (3)"
    )
    zero_mean: bool = setting(False, "fix the mean at zero (sfm: always)")
    start: str = setting(
        "frame", "sfm: start from each camera's first frame, or at random", STARTS
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

    topology: str = setting(
        "complete",
        "complete, ring, cluster, star, chain, grid, random-geometric, erdos-renyi, "
        "or a file (.edges, .graphml, .npy); several, with commas, take turns",
    )
    schedule: str = setting(
        "all", "talk to all neighbours, or in matchings: one neighbour a turn", TURNS
    )
    topology_seed: int = setting(0, "seed of random graphs")
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
    eta0: float = setting(10.0, "penalty at the start; auto finds its own")
    t_max: int = setting(50, "vp, ap, vp_ap, global_balance: adapt while t < t_max")
    residual_ratio: float = setting(
        10.0, "vp*, global_balance: residuals further apart are unbalanced"
    )
    budget0: float = setting(5.0, "nap, vp_nap: first budget of an edge")
    budget_decay: float = setting(0.5, "nap, vp_nap: each raise is this times the last")
    budget_trigger: float = setting(0.1, "nap, vp_nap: change of f that earns a raise")
    probe: str = setting("midpoint", "where neighbours' parameters are tried", PROBES)
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
        1e-6, "stopping by optimality: the same per entry, where the optimum is zero"
    )
    max_iter: int = setting(1000, "iterations at most")
    max_seconds: float | None = setting(None, "stop, with results, after this long")
    strict: bool = setting(False, "exit with code 3 when not converged")

    payload: str = setting("float64", "how parameters are sent", PAYLOADS)
    bits: int = setting(8, "quantised: bits per entry, 2 to 16")
    censor: float = setting(
        0.0, "send only changes of more than this part of theta (times the decay)"
    )
    censor_decay: float = setting(0.98, "censor: by which it shrinks every iteration")
    every: int = setting(1, "send every so many iterations, solve in all")
    sleep: float = setting(
        0.0, "let edges sleep that move their ends by less than this part of the most"
    )
    loss: float = setting(0.0, "scheme fixed: probability that a payload gets lost")
    loss_seed: int = setting(0, "seed of the losses")

    checkpoint: bool = setting(
        True, "save the state of the run, from which --resume goes on"
    )
    checkpoint_seconds: float = setting(
        60.0, "save about this often, and at the end (0: not by time)"
    )
    checkpoint_every: int = setting(
        0, "save after every so many iterations (0: do not count them)"
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
    record_angle: bool = setting(False, "also record subspace angles every iteration")
    reference: bool = setting(True, "compare with the centralised solution at the end")
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
        self._at_least(1, "n_samples", "n_components", "nodes", "max_iter")
        self._at_least(2, "dimension")
        if self.problem == "sfm" and self.n_components != 3:
            raise ConfigError(
                f"n_components must be 3 for sfm, got {self.n_components!r}"
            )
        self._at_least(0, "checkpoint_seconds", "checkpoint_every")
        self._at_least(0, "data_seed", "topology_seed", "seed", "noise_variance")
        if not 0 <= self.missing < 1:
            raise ConfigError(f"missing must be within [0, 1), got {self.missing!r}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ConfigError(f"max_seconds must be positive, got {self.max_seconds!r}")

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
    def is_plugin(self) -> bool:
        """Whether the problem is none of this package's."""
        return self.problem not in PROBLEMS

    @property
    def settings(self) -> dict[str, Any]:
        """Return the arguments of the problem's constructor that were given as such."""
        try:
            found = json.loads(self.problem_settings or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConfigError(
                "problem_settings must be a JSON object such as '{\"alpha\": 0.1}', "
                f"got {self.problem_settings!r}"
            )
        return found

    def problem_flags(self, n_nodes: int) -> dict[str, Any]:
        """Return the settings that go to a problem's constructor, if it has them.

        The regularisation is that of the whole problem, of which a node has its share.
        """
        names = ["n_components", "l1_ratio", "delta"]
        names += [] if self.is_plugin else ["zero_mean", "start"]
        chosen = {name: getattr(self, name) for name in names}
        chosen["alpha"] = None if self.alpha is None else self.alpha / n_nodes
        return {name: value for name, value in chosen.items() if value is not None}

    def _at_least(self, least: int, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ConfigError(f"{name} must be at least {least}, got {value!r}")

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
        import tomllib  # most runs have none

        try:
            table = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
        return {k: flags.typed(cls, k, v, str(path)) for k, v in table.items()}

    @classmethod
    def from_argv(cls, argv: Sequence[str]) -> Request:
        """Return what a command line asks for."""
        given = flags.parse(cls, argv)
        file, dry = given.pop("config", None), given.pop("dry_run", False)
        resume = given.pop("resume", None)
        if resume is not None and file is not None:
            raise ConfigError("resume has the settings of its run; leave out config")
        if resume is not None:
            file = Path(resume) / "config.toml"
        table = cls.from_toml(file) if file is not None else {}
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
        for name, now in self.deciding().items():
            was = getattr(begun, name)
            if was != now:
                raise ConfigError(
                    f"{name} is {now!r} but was {was!r} when the run in {run} began; a "
                    "resumed run goes on with its own settings, so leave it out"
                )

    def deciding(self) -> dict[str, Any]:
        """Return the settings that decide the numbers of a run."""
        return {k: v for k, v in asdict(self).items() if k not in FREE}

    def to_toml(self) -> str:
        """Return the settings as TOML; reading it back gives the same settings."""
        given = asdict(self).items()
        return "".join(f"{k} = {flags.toml(v)}\n" for k, v in given if v is not None)
