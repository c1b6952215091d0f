"""One run of a scheme: when all nodes reach their goal, and from when on they stay.

Two numbers are measured, because nodes can leave their goal again. `first` is the first
iteration in which every node is within the goal. `for_good` is the iteration from which
on every node stays within it until the end of the run. The run goes on until the nodes
have stayed for as many iterations as it took to enter, and for at least `STAY`.

`whole` lets a run of D-PPCA end by its own rule, and counts until there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

import dadmm
from benchmarks.shared.cases import ANGLE, instance
from benchmarks.shared.experiment import file_name
from dadmm import penalty
from dadmm.admm.loop import Run
from dadmm.core.errors import ProblemError
from dadmm.graphs.topology import GRAPHS
from dadmm.problems import metrics

PER_DECADE = 4  # penalties that the oracle tries
STAY = 100  # iterations that the nodes must stay within the goal, at least
MOST = 600  # iterations of a whole run
TRUE_ANGLE, TRUE_LENGTH = 0.5, 2e-2  # degrees, and W W' relative: a true end


@dataclass(frozen=True)
class Trial:
    """One run: a scheme with its settings, on a problem and a graph."""

    problem: str  # a name that cases.instance knows
    graph: str
    n_nodes: int
    seed: int  # of the data and of the graph; in D-PPCA of the start
    scheme: str  # of `dadmm.penalty`, or "oracle": the best fixed penalty
    relaxation: float
    eta0: float | str = "auto"  # of the oracle, from where it searches; 0 is a guess
    init: str = "shared"
    coordinates: str = "raw"
    cap: int | None = None  # iterations; by default the problem's own

    @property
    def name(self) -> str:
        """A file name that tells the trial, and all its settings by a hash."""
        words = (self.problem, f"{self.graph}{self.n_nodes}", self.scheme)
        return file_name((*words, f"{self.eta0}", f"s{self.seed}"), asdict(self))

    @property
    def label(self) -> str:
        """The scheme, with its relaxation and first penalty where not its own."""
        if self.scheme == "oracle":
            return self.scheme + " 1" * (self.relaxation == 1.0)
        kind = penalty.SCHEMES[self.scheme]
        told = f" {self.relaxation:g}" * (self.relaxation != kind.RAW_RELAXATION)
        if kind.RAW_ETA0 == "auto":
            return self.scheme + told + " eta0" * (self.eta0 != "auto")
        return self.scheme + told + " auto" * (self.eta0 == "auto")


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


def outcome(trial: Trial) -> dict[str, Any]:
    """Run a trial and return its row."""
    if trial.scheme == "oracle":
        trial, found = oracle(trial)
        return row(trial, "oracle", found)
    return row(trial, trial.scheme, run(trial))


def run(trial: Trial) -> Outcome:
    """Return when all nodes reached their goal, and how the run ended."""
    case = instance(trial.problem, trial.n_nodes, trial.seed)
    arrival, ended = Arrival(trial.cap or case.cap), ""

    def watch(t: int, run: Run) -> None:
        if arrival.known(t, case.goal(run.theta)):
            raise Known

    try:
        _solve(trial, case, dadmm.Stopping(tolerance=0.0, max_iter=arrival.longest),
               watch)  # fmt: skip
    except Known:
        pass
    except ProblemError:
        ended = "broke down"
    if not ended:
        ended = "stayed" if arrival.for_good else "left" if arrival.first else "cap"
    return Outcome(arrival.first, arrival.for_good, ended)


def _solve(trial: Trial, case: Any, stopping: dadmm.Stopping, watch: Any) -> Any:
    scheme = penalty.build(trial.scheme, relaxation=trial.relaxation, eta0=trial.eta0)
    return dadmm.solve(
        case.problems, GRAPHS[trial.graph](trial.n_nodes, trial.seed), scheme=scheme,
        init=trial.init, seed=trial.seed, coordinates=trial.coordinates,
        stopping=stopping, record=False, callbacks=[watch],
    )  # fmt: skip


def whole(trial: Trial) -> dict[str, Any]:
    """Let a run of D-PPCA end by its own rule; return its row.

    Here the goal is that every node is within 1 degree of the centralised subspace, and
    `for_good` counts until the end of the run.
    """
    case = instance(trial.problem, trial.n_nodes, trial.seed)
    best, inside = case.goal.W, []

    def watch(t: int, run: Run) -> None:
        W = case.goal.layout.views(run.theta).W
        inside.append(bool(metrics.subspace_angle(W, best).max() <= ANGLE))

    result = _solve(trial, case, dadmm.Stopping(max_iter=MOST), watch)
    outside = [t for t, within in enumerate(inside, 1) if not within]
    since = outside[-1] + 1 if outside else 1
    W, want = result.layout.views(result.theta).W, best @ best.T
    angle = float(metrics.subspace_angle(W, best).max())
    off = np.linalg.norm(W @ W.mT - want, axis=(1, 2)).max() / np.linalg.norm(want)
    near = angle <= TRUE_ANGLE and off <= TRUE_LENGTH
    return asdict(trial) | {
        "first": inside.index(True) + 1 if any(inside) else None,
        "for_good": since if since <= len(inside) else None,
        "iterations": result.iterations, "status": result.status, "angle": angle,
        "length_error": float(off), "true": int(near),
        "dadmm": dadmm.__version__, "numpy": np.__version__,
    }  # fmt: skip


def row(trial: Trial, scheme: str, found: Outcome) -> dict[str, Any]:
    """Return the outcome of a trial."""
    case = instance(trial.problem, trial.n_nodes, trial.seed)
    outcome = asdict(trial) | {"scheme": scheme, "cap": trial.cap or case.cap}
    outcome |= {"label": replace(trial, scheme=scheme).label} | found._asdict()
    return outcome | {"dadmm": dadmm.__version__, "numpy": np.__version__}


def trial_of(row: Mapping[str, str]) -> Trial:
    """Return the trial of a stored row."""
    kinds: dict[str, Any] = {"n_nodes": int, "seed": int, "relaxation": float}
    kinds |= {"eta0": number_of, "cap": lambda text: int(text) if text else None}
    names = [field.name for field in fields(Trial)]
    return Trial(**{name: kinds.get(name, str)(row[name]) for name in names})


def number_of(eta0: str) -> float | str:
    """Return a first penalty of a stored row."""
    return eta0 if eta0 == "auto" else float(eta0)


def oracle(trial: Trial) -> tuple[Trial, Outcome]:
    """Return the best fixed penalty as a trial, and its outcome.

    The search starts from a given eta0, or from the mean of the first penalties.
    """
    case = instance(trial.problem, trial.n_nodes, trial.seed)
    known = trial.eta0 != 0
    start = round(PER_DECADE * math.log10(trial.eta0 if known else guess(trial)))

    def attempt(eta: float, cap: int) -> Outcome:
        return run(replace(trial, scheme="fixed", eta0=eta, cap=cap))

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


def guess(trial: Trial) -> float:
    """Return from where to search: the mean of the first penalties of all edges."""
    case, found = instance(trial.problem, trial.n_nodes, trial.seed), []

    def watch(t: int, run: Run) -> None:
        found.append(float(np.exp(np.log(run.state.eta).mean())))
        raise Known

    one = replace(trial, scheme="fixed", eta0="auto")
    with suppress(Known):
        _solve(one, case, dadmm.Stopping(tolerance=0.0, max_iter=1), watch)
    return found[0]
