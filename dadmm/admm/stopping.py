"""Stopping rules, and how all nodes stop after the same iteration without a centre.

The header of each message has three numbers. If ``quiet_count`` is c, all nodes within
c - 1 edges of the sender were satisfied c - 1 iterations ago. ``stop_at`` is the
iteration after which all nodes stop. ``requests`` is described below. If
``quiet_count`` exceeds the diameter, all nodes were satisfied in the same iteration.
The node then sets ``stop_at`` so far ahead that it reaches all nodes in time.

A node can also request that all nodes save, or stop because of time, a signal or a full
disk. A round has as many iterations as a header needs to reach all nodes. All nodes
know a request at the end of the round after it was made, and carry it out then.
Requests do not change the verdict: a run that is stopped and resumed converges after
the same iteration as one that is not.
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

REASONS = ("max_iter", "converged", "max_seconds", "signal", "output")  # of an end
# Requests by code, as in a header; the largest code takes precedence.
REQUESTS = ("", "save", "max_seconds", "signal", "output")
RULES = ("optimality", "residuals", "objective")
AGREEMENTS = ("neighbours", "global")
PATIENCE = 4  # satisfied iterations in a row that a node needs
CRITERIA = ("objective", "disagreement", "residual")
TRAIL = 64  # samples of the progress of a run of any length; a power of two


class Part(NamedTuple):
    """Norms for one named part of theta, which may have its own units."""

    disagreement: float  # root mean square distance from the neighbours
    residual: float  # |grad f_i + 2 sum_j lambda_ij|
    theta: float
    mean: float
    multipliers: float
    size: int  # entries


class Progress(NamedTuple):
    """The norms and objectives by which a rule judges an iteration of a node."""

    objective: float
    objective_previous: float  # inf at t = 1, so that no rule holds
    primal: float  # |r_i| of the paper
    dual: float  # |s_i| of the paper
    theta: float  # |theta_i|
    mean: float  # |theta-bar_i|
    multipliers: float  # |2 sum_j lambda_ij|
    parts: Sequence[tuple[float, ...]] = ()  # each as in `Part`


class Verdict(NamedTuple):
    """The criteria of a rule in one iteration, each as a multiple of its limit.

    A criterion is met if its multiple is below 1. The multiple is NaN if the rule does
    not use the criterion, and infinite if the limit is zero or the norm is NaN.
    """

    objective: float  # its change since the iteration before
    disagreement: float = math.nan  # largest over the parts of theta
    residual: float = math.nan
    disagreement_part: int = -1  # that part; -1 is all of theta
    residual_part: int = -1

    @property
    def worst(self) -> int:
        """Index in `CRITERIA` of the largest multiple."""
        worst = 1 if self.disagreement > self.objective else 0
        return 2 if self.residual > self[worst] else worst

    @property
    def met(self) -> bool:
        """Whether all criteria are below their limits."""
        return not (
            self.objective >= 1.0 or self.disagreement >= 1.0 or self.residual >= 1.0
        )


Unmet = tuple[int, Verdict]  # an iteration in which not all criteria were met


class Standing:
    """How far a node, or the whole network, was from its limits in the run so far.

    Parameters
    ----------
    patience : int
        For how many iterations in a row all criteria must be met.
    delay : int
        Number of iterations after that until the run stops.
    """

    def __init__(self, patience: int, delay: int) -> None:
        self.patience, self.delay = patience, delay
        self.held = 0  # iterations in a row in which all were met
        self.unmet: Unmet = 0, Verdict(math.inf)  # the last iteration that was unmet
        self.trail = np.full(TRAIL, math.nan)  # the largest multiple, see `enter`
        self._due = 1  # the iteration of the next sample
        self._hurdles: list[Unmet] = []  # unmet, then `patience` met in a row

    def enter(self, t: int, verdict: Verdict) -> None:
        """Add iteration ``t``; the first is 1.

        The trail samples one iteration out of `stride`, starting with the first. When
        it is full, every other sample is dropped.
        """
        if not verdict.met:
            self.held, self.unmet = 0, (t, verdict)
        else:
            self.held += 1
            if self.held == self.patience:
                while len(self._hurdles) > 1 and self._counts(self._hurdles[1], t):
                    del self._hurdles[0]  # a later one will precede the stop
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
        """Return the last unmet iteration before the stop after iteration ``t``.

        If no such iteration is known, return the last unmet iteration.
        """
        counted = [each for each in self._hurdles if self._counts(each, t)]
        return counted[-1] if counted else self.unmet

    def state(self) -> Vector:
        """Return the state as numbers, for a checkpoint."""
        seen = [(at, *verdict) for at, verdict in (self.unmet, *self._hurdles)]
        return np.array([self.held, self._due, *self.trail, *sum(seen, ())])

    def restore(self, state: Vector) -> None:
        """Continue from a state."""
        self.held, self._due = map(int, state[:2])
        self.trail = state[2 : 2 + TRAIL].copy()
        seen = state[2 + TRAIL :].reshape(-1, 1 + len(Verdict._fields)).tolist()
        self.unmet, *self._hurdles = map(_unmet, seen)


def _unmet(numbers: Sequence[float]) -> Unmet:
    t, objective, disagreement, residual, *parts = numbers
    verdict = Verdict(objective, disagreement, residual, *map(int, parts))
    return int(t), verdict


def stride(t: int) -> int:
    """Return the iterations between two samples of a trail up to ``t``."""
    return max(1, 1 << (t - 1).bit_length() >> (TRAIL.bit_length() - 1))


@dataclass(frozen=True)
class Rule:
    """A stopping rule, which judges one iteration of a node.

    Parameters
    ----------
    name : {"optimality", "residuals", "objective"}
        "objective" is the test of the paper's section 5, the relative change of f
        alone, used in place of its equation (14). The others also require that the
        node agrees with its neighbours and is at a minimum of its Lagrangian.
        "optimality" tests this in every part of theta, by norms that bound the
        distance from the optimum (see `dadmm.admm.certificate`). "residuals" uses the
        paper's primal and dual residuals.
    tolerance : float
        Relative to |theta| and to the multipliers; with 0 a rule never holds.
    absolute_tolerance : float
        For "optimality": per entry of theta and of the gradient, in their units. It
        matters if the optimum or the multipliers are zero.
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
        """Return the change of an objective as a multiple of its limit."""
        limit = self.tolerance * max(abs(objective), 1.0)
        return _over(abs(objective - previous), limit)

    def judge(self, now: Progress) -> Verdict:
        """Return the criteria of an iteration as multiples of their limits."""
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
        """Return whether all criteria are met."""
        return self.judge(now).met


def _over(length: float, limit: float) -> float:
    """Return a norm as a multiple of its limit.

    The multiple is infinite if the limit is zero or the norm is NaN. It is below 1 if
    and only if the norm is below the limit.
    """
    ratio = length / limit if limit > 0.0 else math.inf
    return ratio if ratio == ratio else math.inf


def update(
    mine: StopState, theirs: Any, t: int, satisfied: bool, diameter: int
) -> StopState:
    """Return the stopping state of a node after iteration ``t``.

    Parameters
    ----------
    mine : StopState
    theirs : Headers
        Of the neighbours' messages: ``quiet_count``, ``stop_at`` and ``requests``, each
        (degree,).
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
    """Return the stopping state of a node that adds a request after iteration ``t``.

    Parameters
    ----------
    mine : StopState
    t : int
    request : str
        One of `REQUESTS`.
    reach : int
        Iterations that a header needs to reach all nodes.
    """
    code = REQUESTS.index(request) << _place(t // max(reach, 1))
    return mine._replace(requests=_both(mine.requests, code))


def due_request(mine: StopState, t: int, reach: int) -> tuple[str, StopState]:
    """Return the request that is due after iteration ``t``, and the state without it.

    It is the same at all nodes; "" if there is none.
    """
    rounds, rest = divmod(t, max(reach, 1))
    if rest or not mine.requests:
        return "", mine
    place = _place(rounds)  # of the round before: known to all nodes
    code = mine.requests >> place & 15
    return REQUESTS[code], mine._replace(requests=mine.requests & ~(15 << place))


def _place(rounds: int) -> int:
    return 4 * (rounds % 2)


def _both(a: int, b: int) -> int:
    """Return the larger code of each round."""
    return max(a & 15, b & 15) | max(a & 240, b & 240)


class GlobalStopping:
    """Stopping by a collective over all nodes, comparable with the paper's curves.

    Every node posts one number per iteration. The numbers are read one iteration later,
    so that no node waits for them.

    Parameters
    ----------
    rule : Rule
    cycle : int
        Number of iterations in which every edge is used at least once.
    """

    def __init__(self, rule: Rule, cycle: int = 1) -> None:
        self.rule = rule
        self.standing = Standing(PATIENCE * cycle, 0)
        self._iteration, self._previous = 0, math.inf

    def vote(self, objective: float, satisfied: bool) -> float:
        """Return the number that a node posts."""
        return objective if self.rule.name == "objective" else float(satisfied)

    def state(self) -> tuple[Vector, int, float]:
        """Return the state, for a checkpoint."""
        return self.standing.state(), self._iteration, self._previous

    def restore(self, state: tuple[Vector, int, float]) -> None:
        """Continue from a state."""
        standing, self._iteration, self._previous = state
        self.standing.restore(standing)

    def update(self, votes: Vector) -> bool:
        """Return whether all nodes stop now, given their votes (n_nodes,)."""
        self._iteration += 1
        if self.rule.name == "objective":
            total = float(np.add.reduce(votes))
            verdict = Verdict(self.rule.change(total, self._previous))
            self.standing.enter(self._iteration, verdict)
            self._previous = total
        else:
            self.standing.held = self.standing.held + 1 if votes.all() else 0
        return self.standing.held >= self.standing.patience
