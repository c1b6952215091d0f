"""One run of a scheme until all nodes have reached their goal; the oracle's search."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.cases import Goal, instance
from dadmm.admm.curvature import curvature
from dadmm.admm.node import Node
from dadmm.core.errors import ProblemError
from dadmm.exchange import wire
from dadmm.graphs.topology import GRAPHS, Topology
from dadmm.penalty import SCHEMES
from dadmm.penalty.rules import opening

PER_DECADE = 4  # penalties that the oracle tries


@dataclass(frozen=True)
class Trial:
    """One run: a scheme with its settings, on a problem and a graph."""

    problem: str  # a name that cases.instance knows
    graph: str
    n_nodes: int
    seed: int  # of the data and of the graph; in D-PPCA of the start
    scheme: str  # of dadmm, or "oracle": the best fixed penalty
    relaxation: float
    eta0: float = 1.0  # of the oracle, from where it searches; 0 is a guess
    init: str = "shared"
    t_max: int = 50
    budget0: float = 5.0
    cap: int | None = None  # iterations; by default the problem's own

    @property
    def name(self) -> str:
        """A file name that tells the trial, and all its settings by a hash."""
        told = json.dumps([asdict(self), dadmm.__version__])
        digest = hashlib.sha256(told.encode()).hexdigest()[:8]
        words = (self.problem, f"{self.graph}{self.n_nodes}", self.scheme)
        return "-".join([*words, f"{self.eta0:g}", f"s{self.seed}", digest])

    @property
    def label(self) -> str:
        """The scheme, with its relaxation where that is not its own."""
        own = 1.6 if self.scheme == "oracle" else SCHEMES[self.scheme].RELAXATION
        return self.scheme + f" {self.relaxation:g}" * (self.relaxation != own)

    @property
    def case(self) -> tuple[Any, ...]:
        """What schemes are compared on; eta0 belongs to the scheme."""
        return self.problem, self.graph, self.n_nodes, self.seed, self.init


class Reached(Exception):
    """Raised by a watcher to end a run at once."""


class Finish:
    """A watcher that ends a run when the nodes have reached their goal."""

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.t: int | None = None

    def __call__(self, t: int, nodes: Sequence[Node]) -> None:
        if self.goal(np.array([node.theta for node in nodes])):
            self.t = t
            raise Reached


class Work:
    """Run a trial; in a form that can be sent to another process."""

    def __init__(self, data: str = "") -> None:
        self.data = data

    def __call__(self, trial: Trial) -> dict[str, Any]:
        if trial.scheme == "oracle":
            trial, found = oracle(trial, self.data)
            return row(trial, "oracle", *found, self.data)
        return row(trial, trial.scheme, *run(trial, self.data), self.data)


def run(trial: Trial, data: str = "") -> tuple[int | None, str]:
    """Return the iteration in which all nodes reached their goal, and how it ended."""
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    finish = Finish(case.goal)
    try:
        dadmm.solve(
            case.problems,
            GRAPHS[trial.graph](trial.n_nodes, trial.seed),
            scheme=trial.scheme,
            relaxation=trial.relaxation,
            eta0=trial.eta0,
            t_max=trial.t_max,
            budget0=trial.budget0,
            init=trial.init,
            seed=trial.seed,
            max_iter=trial.cap or case.cap,
            tolerance=0.0,
            record=False,
            watchers=[finish],
        )
    except Reached:
        return finish.t, "reached"
    except ProblemError:
        return None, "broke down"
    return None, "cap"


def row(
    trial: Trial, scheme: str, iterations: int | None, ended: str, data: str = ""
) -> dict[str, Any]:
    """Return the outcome of a trial, with what was sent until then.

    Messages are those of all directed edges with the first swap, as in
    `dadmm.Result.traffic`.
    """
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    graph = GRAPHS[trial.graph](trial.n_nodes, trial.seed)
    outcome = asdict(trial) | {"scheme": scheme, "cap": trial.cap or case.cap}
    outcome |= {"label": replace(trial, scheme=scheme).label}
    outcome |= {"iterations": iterations, "ended": ended}
    if iterations is not None:
        size = case.problems[0].layout.shared_size
        rule = SCHEMES["fixed" if scheme == "oracle" else scheme]
        each = iterations * wire.length(size, with_eta=not rule.agrees)
        outcome |= {
            "messages": len(graph.edges) * (iterations + 1),
            "bytes": len(graph.edges) * (wire.width(size) + each),
            "collectives": iterations * rule.reduces,
        }
    return outcome | {"dadmm": dadmm.__version__, "numpy": np.__version__}


def oracle(trial: Trial, data: str = "") -> tuple[Trial, tuple[int | None, str]]:
    """Search the fixed penalty that reaches the goal first; return its run.

    The penalties are powers of 10^(1/4). From a guess the search goes two decades up
    and down, then to better neighbours at shorter and shorter distances; from a given
    eta0 it goes half a decade at first. Each run is given up when it is later than the
    best so far.
    """
    graph = GRAPHS[trial.graph](trial.n_nodes, trial.seed)
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    known = trial.eta0 > 0
    first = round(PER_DECADE * math.log10(trial.eta0)) if known else 0
    first = first if known else guess(case.problems, graph, trial)
    tried: dict[int, int | None] = {}
    best, least = first, trial.cap or case.cap

    def attempt(k: int) -> None:
        nonlocal best, least
        if k in tried or not -24 <= k <= 40:
            return
        eta = 10.0 ** (k / PER_DECADE)
        plain = replace(trial, scheme="fixed", eta0=eta, cap=least)
        found = tried[k] = run(plain, data)[0]
        if found is not None and (found < least or tried.get(best) is None):
            best, least = k, found

    for step in (0,) if known else (0, 4, -4, 8, -8):
        attempt(first + step)
    if tried[best] is None:  # then every half decade
        for step in (2, -2, 6, -6, 10, -10, 12, -12):
            attempt(first + step)
    for reach in (2, 1) if known else (4, 2, 1):
        while True:
            centre = best
            attempt(centre + reach)
            attempt(centre - reach)
            if best == centre:
                break
    chosen = replace(trial, eta0=10.0 ** (best / PER_DECADE))
    if tried[best] is None:
        return chosen, (None, "cap")
    return chosen, (tried[best], "reached")


def guess(problems: Sequence[Any], graph: Topology, trial: Trial) -> int:
    """Return from which power to search: what `auto` would start with, on average."""
    logs = []
    for i, problem in enumerate(problems):
        key = [trial.seed, 0] if trial.init == "shared" else [trial.seed, 1, i]
        bend = curvature(problem, problem.init(np.random.default_rng(key)))
        eta = 2 * opening(bend, int(graph.degrees[i]), graph.diameter)
        logs.append(math.log10(eta) if eta > 0 else math.nan)
    middle = float(np.nanmean(logs)) if not np.isnan(logs).all() else 0.0
    return round(PER_DECADE * middle)
