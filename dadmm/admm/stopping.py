"""When a node is satisfied, and how all nodes agree to stop with no centre.

Each message carries three words: ``quiet``, for how many iterations the sender's ever
wider surroundings have been satisfied; ``stop_at``, the iteration after which all will
stop; and ``wishes``. After diameter + 1 quiet iterations a node knows that every node
was satisfied at one common iteration, and its ``stop_at`` lies far enough ahead to
reach everybody: all nodes stop after the same iteration.

What else one node may wish of all, to save or to stop by time or by signal, waits for
the end of a round. Rounds are as long as a word takes to all nodes, so a wish of one
round is known to all when the next one ends, and there all fulfil it. It leaves the
verdict alone: a run that was stopped and resumed converges when it would have anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ConfigError
from dadmm.core.layout import Vector

REASONS = ("max_iter", "converged", "max_seconds", "signal", "output")  # to end a run
# What a node may wish of all; a code travels as a number, and the largest wins.
WISHES = ("", "save", "max_seconds", "signal", "output")
RULES = ("optimality", "residuals", "objective")
AGREEMENTS = ("neighbours", "global")
PATIENCE = 4  # iterations in a row before a verdict counts


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
    parts: Sequence[Part] = ()


@dataclass(frozen=True)
class Rule:
    """A node's verdict on one iteration.

    Parameters
    ----------
    name : {"optimality", "residuals", "objective"}
        "objective" is the paper's test, the relative change of f alone. The others also
        ask that the node agrees with its neighbours and stands at a minimum of its
        Lagrangian: "optimality" in every part of theta, by measures that bound the
        distance from the optimum (see `dadmm.admm.certificate`); "residuals" by the paper's
        primal and dual residual.
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
        if not 0 <= self.tolerance < math.inf:
            raise ConfigError(f"tolerance must be at least 0, got {self.tolerance!r}")
        if not 0 <= self.absolute_tolerance < math.inf:
            raise ConfigError(
                "absolute_tolerance must be at least 0, got "
                f"{self.absolute_tolerance!r}"
            )

    def steady(self, objective: float, previous: float) -> bool:
        """Return whether an objective has stopped moving."""
        change = abs(objective - previous)
        return change < self.tolerance * max(abs(objective), 1.0)

    def holds(self, now: Progress) -> bool:
        """Return whether a node finds nothing left to do in this iteration."""
        if not self.steady(now.objective, now.objective_previous):
            return False
        if self.name == "objective":
            return True
        if self.name == "optimality":
            return all(map(self._optimal, now.parts))
        agreed = now.primal < self.tolerance * max(now.theta, now.mean)
        return agreed and now.dual < self.tolerance * max(now.multipliers, 1.0)

    def _optimal(self, part: Part) -> bool:
        least = self.absolute_tolerance * math.sqrt(part.size)
        allowed = least + self.tolerance * max(part.theta, part.mean)
        agreed = part.disagreement < allowed
        return agreed and part.residual < least + self.tolerance * part.multipliers


class Accord(NamedTuple):
    """What a node knows about the end of the run."""

    streak: int = 0  # its own satisfied iterations in a row
    quiet: float = 0.0
    stop_at: float = math.inf
    wishes: int = 0  # a code of each of two rounds, the even ones in the lower 4 bits


def agree(mine: Accord, theirs: Any, t: int, satisfied: bool, diameter: int) -> Accord:
    """Return what a node knows after hearing its neighbours in iteration ``t``.

    Parameters
    ----------
    mine : Accord
    theirs : record with ``quiet``, ``stop_at`` and ``wishes``, each (degree,)
    t : int
    satisfied : bool
        Whether the stopping rule holds for this node in this iteration.
    diameter : int
        Of the graph, or any upper bound.
    """
    streak = mine.streak + 1 if satisfied else 0
    quiet = 0.0
    if streak >= PATIENCE:
        quiet = 1.0 + min(mine.quiet, theirs.quiet.min(initial=math.inf))
    stop_at = min(mine.stop_at, float(theirs.stop_at.min(initial=math.inf)))
    if quiet > diameter:
        stop_at = min(stop_at, float(t + diameter))
    wishes = mine.wishes
    for theirs_too in set(theirs.wishes.tolist()) - {wishes}:
        wishes = _both(wishes, theirs_too)
    return Accord(streak, quiet, stop_at, wishes)


def ask(mine: Accord, t: int, wish: str, reach: int) -> Accord:
    """Return the accord of a node that has a wish after iteration ``t``.

    Parameters
    ----------
    mine : Accord
    t : int
    wish : str
        One of `WISHES`.
    reach : int
        How many iterations a word takes to all nodes.
    """
    code = WISHES.index(wish) << _place(t // max(reach, 1))
    return mine._replace(wishes=_both(mine.wishes, code))


def granted(mine: Accord, t: int, reach: int) -> tuple[str, Accord]:
    """Return which wish all nodes fulfil after iteration ``t``, and what is left."""
    rounds, rest = divmod(t, max(reach, 1))
    if rest or not mine.wishes:
        return "", mine
    place = _place(rounds)  # of the last round but one: all know by now
    code = mine.wishes >> place & 15
    return WISHES[code], mine._replace(wishes=mine.wishes & ~(15 << place))


def _place(rounds: int) -> int:
    return 4 * (rounds % 2)


def _both(a: int, b: int) -> int:
    """Return the larger code of each round."""
    return max(a & 15, b & 15) | max(a & 240, b & 240)


class Council:
    """The verdict over the whole network, for curves comparable with the paper's.

    Every node shares one number per iteration with all others. The numbers are read one
    iteration later, so that nobody waits for them, and are counted apart.
    """

    def __init__(self, rule: Rule, cycle: int = 1) -> None:
        self.rule, self._cycle = rule, cycle  # iterations until all edges had a turn
        self._streak = 0
        self._previous = math.inf

    def vote(self, objective: float, satisfied: bool) -> float:
        """Return the number that a node shares."""
        return objective if self.rule.name == "objective" else float(satisfied)

    def state(self) -> tuple[int, float]:
        """Return all that the next verdict depends on."""
        return self._streak, self._previous

    def restore(self, state: tuple[int, float]) -> None:
        """Go on from a state."""
        self._streak, self._previous = state

    def hear(self, votes: Vector) -> bool:
        """Return whether all should stop now, given the votes of (n_nodes,) nodes."""
        if self.rule.name == "objective":
            total = float(np.add.reduce(votes))
            holds = self.rule.steady(total, self._previous)
            self._previous = total
        else:
            holds = bool(votes.all())
        self._streak = self._streak + 1 if holds else 0
        return self._streak >= PATIENCE * self._cycle
