"""When a node is satisfied, and how all nodes agree to stop with no centre.

Each message carries three words: ``quiet``, for how many iterations the sender's ever
wider surroundings have been satisfied; ``stop_at``, the iteration after which all will
stop; and ``requests``. After diameter + 1 quiet iterations a node knows that every node
was satisfied at one common iteration, and its ``stop_at`` lies far enough ahead to
reach everybody: all nodes stop after the same iteration.

What else one node may request of all, to save or to stop by time or by signal, waits for
the end of a round. Rounds are as long as a word takes to all nodes, so a request of one
round is known to all when the next one ends, and there all fulfil it. It leaves the
verdict alone: a run that was stopped and resumed converges when it would have anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.checks import check_number
from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import StopState
from dadmm.core.layout import Vector

REASONS = ("max_iter", "converged", "max_seconds", "signal", "output")  # to end a run
# What a node may request of all; a code travels as a number, and the largest wins.
REQUESTS = ("", "save", "max_seconds", "signal", "output")
RULES = ("optimality", "residuals", "objective")
AGREEMENTS = ("neighbours", "global")
PATIENCE = 4  # iterations in a row before a verdict counts
CRITERIA = ("objective", "disagreement", "residual")
TRAIL = 64  # samples of a run's progress, however long it is; a power of two


class Part(NamedTuple):
    """The same of one part of theta, which may be in units of its own."""

    disagreement: float  # root mean square distance from the neighbours
    residual: float  # |grad f_i + 2 sum_j lambda_ij|
    theta: float
    mean: float
    multipliers: float
    size: int  # entries


class Progress(NamedTuple):
    """The lengths by which a node judges its own iteration."""

    objective: float
    objective_previous: float  # inf at t = 1, which satisfies nobody
    primal: float  # |r_i| of the paper
    dual: float  # |s_i| of the paper
    theta: float  # |theta_i|
    mean: float  # |theta-bar_i|
    multipliers: float  # |2 sum_j lambda_ij|
    parts: Sequence[tuple[float, ...]] = ()  # each as in `Part`


class Verdict(NamedTuple):
    """What a rule judged in one iteration: each criterion as a multiple of its limit.

    Below 1 a criterion is met. It is NaN where the rule does not judge it, and infinite
    where the limit is zero or the length is not known.
    """

    objective: float  # its change since the iteration before
    disagreement: float = math.nan  # of the worst part of theta
    residual: float = math.nan
    disagreement_part: int = -1  # that part; -1 is all of theta
    residual_part: int = -1

    @property
    def worst(self) -> int:
        """Which of `CRITERIA` is furthest from being met."""
        worst = 1 if self.disagreement > self.objective else 0
        return 2 if self.residual > self[worst] else worst

    @property
    def met(self) -> bool:
        """Whether no criterion is at or above its limit."""
        return not (
            self.objective >= 1.0 or self.disagreement >= 1.0 or self.residual >= 1.0
        )


Unmet = tuple[int, Verdict]  # an iteration in which not all criteria were met


class Standing:
    """How the criteria have stood until now, for a node or for the whole network.

    Parameters
    ----------
    patience : int
        For how many iterations in a row all criteria must be met.
    delay : int
        How many iterations later a run stops.
    """

    def __init__(self, patience: int, delay: int) -> None:
        self.patience, self.delay = patience, delay
        self.held = 0  # iterations in a row in which all were met
        self.unmet: Unmet = 0, Verdict(math.inf)  # the last time when one was not
        self.trail = np.full(TRAIL, math.nan)  # the worst multiple, see `enter`
        self._due = 1  # the iteration of the next sample
        self._hurdles: list[Unmet] = []  # what came before the criteria were met

    def enter(self, t: int, verdict: Verdict) -> None:
        """Take in iteration ``t``, from 1.

        The trail has the first iteration of every `stride`. When it is full, it keeps
        every other one.
        """
        if not verdict.met:
            self.held, self.unmet = 0, (t, verdict)
        else:
            self.held += 1
            if self.held == self.patience:
                while len(self._hurdles) > 1 and self._counts(self._hurdles[1], t):
                    del self._hurdles[0]  # no stop from now on goes back to it
                self._hurdles.append(self.unmet)
        if t == self._due:
            step = stride(t)
            k = (t - 1) // step
            if step > 1 and 2 * k == TRAIL:
                self.trail[:k] = self.trail[::2].copy()
                self.trail[k:] = math.nan
            self.trail[k], self._due = verdict[verdict.worst], t + step

    def _counts(self, hurdle: Unmet, t: int) -> bool:
        return hurdle[0] + self.patience + self.delay <= t

    def hurdle(self, t: int) -> Unmet:
        """Return what was last unmet before all that let a run stop after ``t``.

        This is what was last unmet at all if a callback ended the run.
        """
        counted = [each for each in self._hurdles if self._counts(each, t)]
        return counted[-1] if counted else self.unmet

    def state(self) -> Vector:
        """Return all of it as numbers."""
        seen = [(at, *verdict) for at, verdict in (self.unmet, *self._hurdles)]
        return np.array([self.held, self._due, *self.trail, *sum(seen, ())])

    def restore(self, state: Vector) -> None:
        """Go on from a state."""
        self.held, self._due = map(int, state[:2])
        self.trail = state[2 : 2 + TRAIL].copy()
        seen = state[2 + TRAIL :].reshape(-1, 1 + len(Verdict._fields)).tolist()
        self.unmet, *self._hurdles = map(_unmet, seen)


def _unmet(numbers: Sequence[float]) -> Unmet:
    t, objective, disagreement, residual, *parts = numbers
    verdict = Verdict(objective, disagreement, residual, *map(int, parts))
    return int(t), verdict


def stride(t: int) -> int:
    """Return how many iterations lie between samples of a trail up to ``t``."""
    return max(1, 1 << (t - 1).bit_length() >> (TRAIL.bit_length() - 1))


@dataclass(frozen=True)
class Rule:
    """A node's verdict on one iteration.

    Parameters
    ----------
    name : {"optimality", "residuals", "objective"}
        "objective" is the test of the paper's section 5, the relative change of f
        alone, which stands for its equation (14). The others also ask that the node
        agrees with its neighbours and stands at a minimum of its Lagrangian:
        "optimality" in every part of theta, by measures that bound the distance from
        the optimum (see `dadmm.admm.certificate`); "residuals" by the paper's primal and
        dual residual.
    tolerance : float
        Relative to |theta| and to the multipliers; 0 never stops a run.
    absolute_tolerance : float
        Of "optimality": per entry of theta and of the gradient, in their own units;
        it decides where the optimum or the multipliers are zero.
    """

    name: str = "optimality"
    tolerance: float = 1e-3
    absolute_tolerance: float = 1e-6

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise ConfigError(
                f"unknown stopping {self.name!r}; choose one of {', '.join(RULES)}"
            )
        for name in ("tolerance", "absolute_tolerance"):
            value = getattr(self, name)
            check_number(name, value, lambda x: 0 <= x < math.inf, "at least 0")

    def change(self, objective: float, previous: float) -> float:
        """Return how far an objective has moved, as a multiple of its limit."""
        limit = self.tolerance * max(abs(objective), 1.0)
        return _over(abs(objective - previous), limit)

    def judge(self, now: Progress) -> Verdict:
        """Return how an iteration of a node compares with the limits of the rule."""
        change = self.change(now.objective, now.objective_previous)
        if self.name == "objective":
            return Verdict(change)
        relative = self.tolerance
        if self.name == "residuals":
            return Verdict(
                change,
                _over(now.primal, relative * max(now.theta, now.mean)),
                _over(now.dual, relative * max(now.multipliers, 1.0)),
            )
        most = steepest = 0.0
        apart = slope = -1
        for k, (distance, residual, theta, mean, pull, size) in enumerate(now.parts):
            least = self.absolute_tolerance * math.sqrt(size)
            limit = least + relative * (theta if theta > mean else mean)
            ratio = distance / limit if limit > 0.0 else math.inf
            if not ratio <= most:  # NaN, too
                most, apart = ratio if ratio == ratio else math.inf, k
            limit = least + relative * pull
            ratio = residual / limit if limit > 0.0 else math.inf
            if not ratio <= steepest:
                steepest, slope = ratio if ratio == ratio else math.inf, k
        return Verdict(change, most, steepest, apart, slope)

    def holds(self, now: Progress) -> bool:
        """Return whether a node finds nothing left to do in this iteration."""
        return self.judge(now).met


def _over(length: float, limit: float) -> float:
    """Return a length as a multiple of its limit; infinite if either says nothing.

    It is below 1 exactly if the length is below the limit.
    """
    ratio = length / limit if limit > 0.0 else math.inf
    return ratio if ratio == ratio else math.inf


def update(
    mine: StopState, theirs: Any, t: int, satisfied: bool, diameter: int
) -> StopState:
    """Return what a node knows after hearing its neighbours in iteration ``t``.

    Parameters
    ----------
    mine : StopState
    theirs : record with ``quiet``, ``stop_at`` and ``requests``, each (degree,)
    t : int
    satisfied : bool
        Whether the stopping rule holds for this node in this iteration.
    diameter : int
        Of the graph, or any upper bound.
    """
    streak = mine.streak + 1 if satisfied else 0
    quiet = 0.0
    if streak >= PATIENCE:
        quiet = 1.0 + min(mine.quiet_count, theirs.quiet_count.min(initial=math.inf))
    stop_at = min(mine.stop_at, float(theirs.stop_at.min(initial=math.inf)))
    if quiet > diameter:
        stop_at = min(stop_at, float(t + diameter))
    requests = mine.requests
    for theirs_too in set(theirs.requests.tolist()) - {requests}:
        requests = _both(requests, theirs_too)
    return StopState(streak, quiet, stop_at, requests)


def add_request(mine: StopState, t: int, request: str, reach: int) -> StopState:
    """Return the accord of a node that has a request after iteration ``t``.

    Parameters
    ----------
    mine : StopState
    t : int
    request : str
        One of `REQUESTS`.
    reach : int
        How many iterations a word takes to all nodes.
    """
    code = REQUESTS.index(request) << _place(t // max(reach, 1))
    return mine._replace(requests=_both(mine.requests, code))


def due_request(mine: StopState, t: int, reach: int) -> tuple[str, StopState]:
    """Return which request all nodes fulfil after iteration ``t``, and what is left."""
    rounds, rest = divmod(t, max(reach, 1))
    if rest or not mine.requests:
        return "", mine
    place = _place(rounds)  # of the last round but one: all know by now
    code = mine.requests >> place & 15
    return REQUESTS[code], mine._replace(requests=mine.requests & ~(15 << place))


def _place(rounds: int) -> int:
    return 4 * (rounds % 2)


def _both(a: int, b: int) -> int:
    """Return the larger code of each round."""
    return max(a & 15, b & 15) | max(a & 240, b & 240)


class GlobalStopping:
    """The verdict over the whole network, for curves comparable with the paper's.

    Every node shares one number per iteration with all others. The numbers are read one
    iteration later, so that nobody waits for them, and are counted apart.
    """

    def __init__(self, rule: Rule, cycle: int = 1) -> None:
        self.rule = rule
        # the cycle: iterations until all edges had a turn
        self.standing = Standing(PATIENCE * cycle, 0)
        self._heard, self._previous = 0, math.inf

    def vote(self, objective: float, satisfied: bool) -> float:
        """Return the number that a node shares."""
        return objective if self.rule.name == "objective" else float(satisfied)

    def state(self) -> tuple[Vector, int, float]:
        """Return all that the next verdict depends on."""
        return self.standing.state(), self._heard, self._previous

    def restore(self, state: tuple[Vector, int, float]) -> None:
        """Go on from a state."""
        standing, self._heard, self._previous = state
        self.standing.restore(standing)

    def update(self, votes: Vector) -> bool:
        """Return whether all should stop now, given the votes of (n_nodes,) nodes."""
        self._heard += 1
        if self.rule.name == "objective":
            total = float(np.add.reduce(votes))
            verdict = Verdict(self.rule.change(total, self._previous))
            self.standing.enter(self._heard, verdict)
            self._previous = total
        else:
            self.standing.held = self.standing.held + 1 if votes.all() else 0
        return self.standing.held >= self.standing.patience
