"""One run of a scheme: when all nodes reach their goal, and from when on they stay.

Two numbers are measured, because nodes can leave their goal again. `first` is the first
iteration in which every node is within the goal. `for_good` is the iteration from which
on every node stays within it until the end of the run. The run goes on until the nodes
have stayed for as many iterations as it took to enter, and for at least `STAY`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

import dadmm
from benchmarks.shared.cases import instance
from benchmarks.shared.experiment import file_name
from benchmarks.shared.schemes import SCHEMES, build
from dadmm.admm.curvature import curvature
from dadmm.admm.loop import Run
from dadmm.core.errors import ProblemError
from dadmm.exchange import wire
from dadmm.graphs.topology import GRAPHS, Topology
from dadmm.penalty.rules import initial_penalty

PER_DECADE = 4  # penalties that the oracle tries
STAY = 100  # iterations that the nodes must stay within the goal, at least


@dataclass(frozen=True)
class Trial:
    """One run: a scheme with its settings, on a problem and a graph."""

    problem: str  # a name that cases.instance knows
    graph: str
    n_nodes: int
    seed: int  # of the data and of the graph; in D-PPCA of the start
    scheme: str  # of `schemes`, or "oracle": the best fixed penalty
    relaxation: float
    eta0: float = 1.0  # of the oracle, from where it searches; 0 is a guess
    init: str = "shared"
    t_max: int = 50
    budget0: float = 5.0
    cap: int | None = None  # iterations; by default the problem's own

    @property
    def name(self) -> str:
        """A file name that tells the trial, and all its settings by a hash."""
        words = (self.problem, f"{self.graph}{self.n_nodes}", self.scheme)
        return file_name((*words, f"{self.eta0:g}", f"s{self.seed}"), asdict(self))

    @property
    def label(self) -> str:
        """The scheme, with its relaxation where that is not its own."""
        own = 1.6 if self.scheme == "oracle" else SCHEMES[self.scheme].RELAXATION
        return self.scheme + f" {self.relaxation:g}" * (self.relaxation != own)


class Arrival:
    """Note in each iteration whether all nodes are within their goal.

    They must enter it, and stay from then on, in iteration ``cap`` or before.
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.first: int | None = None  # see the top of this file
        self.for_good: int | None = None
        self._since: int | None = None  # the nodes are within the goal since then

    @property
    def longest(self) -> int:
        """The iteration in which both numbers are known at the latest."""
        return horizon(self.cap)

    def known(self, t: int, within: bool) -> bool:
        """Note iteration ``t``; return whether both numbers are known."""
        if not within:
            self._since = None
            return t >= self.cap
        self.first = self.first or t
        self._since = self._since or t
        if t < horizon(self._since):
            return False
        self.for_good = self._since
        return True


def horizon(entered: int) -> int:
    """Return until when the nodes must stay to have arrived for good."""
    return max(2 * entered, entered + STAY)


class Outcome(NamedTuple):
    """How a run ended."""

    first: int | None
    for_good: int | None
    ended: str  # "stayed", "left" (the goal, again), "cap" (never there), "broke down"


class Known(Exception):
    """Raised by a callback to end a run at once."""


def outcome(trial: Trial, data: str = "") -> dict[str, Any]:
    """Run a trial and return its row."""
    if trial.scheme == "oracle":
        trial, found = oracle(trial, data)
        return row(trial, "oracle", found, data)
    return row(trial, trial.scheme, run(trial, data), data)


def run(trial: Trial, data: str = "") -> Outcome:
    """Return when all nodes reached their goal, and how the run ended."""
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    arrival, ended = Arrival(trial.cap or case.cap), ""
    own = {k: getattr(trial, k) for k in ("relaxation", "eta0", "t_max", "budget0")}

    def watch(t: int, run: Run) -> None:
        if arrival.known(t, case.goal(run.theta)):
            raise Known

    try:
        dadmm.solve(
            case.problems, GRAPHS[trial.graph](trial.n_nodes, trial.seed),
            scheme=build(trial.scheme, **own), init=trial.init, seed=trial.seed,
            stopping=dadmm.Stopping(tolerance=0.0, max_iter=arrival.longest),
            record=False, callbacks=[watch],
            metric=None if trial.problem.startswith("dppca") else "none",
        )  # fmt: skip
    except Known:
        pass
    except ProblemError:
        ended = "broke down"
    if not ended:
        ended = "stayed" if arrival.for_good else "left" if arrival.first else "cap"
    return Outcome(arrival.first, arrival.for_good, ended)


def row(trial: Trial, scheme: str, found: Outcome, data: str = "") -> dict[str, Any]:
    """Return the outcome of a trial, with what was sent until the nodes had arrived.

    Messages are those of all directed edges with the first swap, as in
    `dadmm.Result.traffic`, until the nodes are within the goal for good.
    """
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    graph = GRAPHS[trial.graph](trial.n_nodes, trial.seed)
    outcome = asdict(trial) | {"scheme": scheme, "cap": trial.cap or case.cap}
    outcome |= {"label": replace(trial, scheme=scheme).label} | found._asdict()
    if found.for_good is not None:
        size = case.problems[0].layout.shared_size
        rule = SCHEMES["fixed" if scheme == "oracle" else scheme]
        each = found.for_good * wire.length(8 * size, not rule.is_symmetric)
        outcome |= {
            "messages": len(graph.edges) * (found.for_good + 1),
            "bytes": len(graph.edges) * (wire.length(8 * size, True) + each),
            "collectives": found.for_good * rule.needs_global_residuals,
        }
    return outcome | {"dadmm": dadmm.__version__, "numpy": np.__version__}


def trial_of(row: Mapping[str, str]) -> Trial:
    """Return the trial of a stored row."""
    kinds: dict[str, Any] = {"n_nodes": int, "seed": int, "t_max": int, "cap": int}
    kinds |= {"relaxation": float, "eta0": float, "budget0": float}
    names = [field.name for field in fields(Trial)]
    return Trial(**{name: kinds.get(name, str)(row[name]) for name in names})


def oracle(trial: Trial, data: str = "") -> tuple[Trial, Outcome]:
    """Return the best fixed penalty as a trial, and its outcome.

    The search starts from a given eta0, or where `auto` would start.
    """
    graph = GRAPHS[trial.graph](trial.n_nodes, trial.seed)
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    known = trial.eta0 > 0
    start = PER_DECADE * math.log10(trial.eta0) if known else 0
    start = round(start) if known else guess(case.problems, graph, trial)

    def attempt(eta: float, cap: int) -> Outcome:
        return run(replace(trial, scheme="fixed", eta0=eta, cap=cap), data)

    eta0, found = best_penalty(attempt, start, trial.cap or case.cap, wide=not known)
    return replace(trial, eta0=eta0), found


def best_penalty(
    attempt: Callable[[float, int], Outcome], start: int, cap: int, *, wide: bool
) -> tuple[float, Outcome]:
    """Return the fixed penalty that is soonest within the goal for good.

    The penalties are powers of 10^(1/4), from 1e-6 to 1e10; ``start`` is a power. A
    wide search goes two decades up and down, then to better neighbours at shorter and
    shorter distances; another one goes half a decade at first. A run is given up when
    it is outside the goal later than the best run so far.
    """
    tried: dict[int, Outcome] = {}
    best, least = start, cap

    def visit(k: int) -> None:
        nonlocal best, least
        if k in tried or not -24 <= k <= 40:
            return
        tried[k] = attempt(10.0 ** (k / PER_DECADE), least)
        found = tried[k].for_good
        if found and (found < least or not tried[best].for_good):
            best, least = k, found

    for step in (0, 4, -4, 8, -8) if wide else (0,):
        visit(start + step)
    if not tried[best].for_good:  # then every half decade
        for step in (2, -2, 6, -6, 10, -10, 12, -12):
            visit(start + step)
    for reach in (4, 2, 1) if wide else (2, 1):
        while True:
            centre = best
            visit(centre + reach)
            visit(centre - reach)
            if best == centre:
                break
    return 10.0 ** (best / PER_DECADE), tried[best]


def guess(problems: Sequence[Any], graph: Topology, trial: Trial) -> int:
    """Return from which power to search: what `auto` would start with, on average."""
    logs = []
    for i, problem in enumerate(problems):
        key = [trial.seed, 0] if trial.init == "shared" else [trial.seed, 1, i]
        bend = curvature(problem, problem.init(np.random.default_rng(key)))
        eta = 2 * initial_penalty(bend, int(graph.degrees[i]), graph.diameter)
        logs.append(math.log10(eta) if eta > 0 else math.nan)
    middle = float(np.nanmean(logs)) if not np.isnan(logs).all() else 0.0
    return round(PER_DECADE * middle)
