"""When a node is satisfied, and how all nodes agree to stop with no centre.

Each message carries three words: ``quiet``, for how many iterations the sender's ever
wider surroundings have been satisfied; ``stop_at``, the iteration after which all will
stop; and ``reason``, why. After diameter + 1 quiet iterations a node knows that every
node was satisfied at one common iteration, and its ``stop_at`` lies far enough ahead to
reach everybody: all nodes stop after the same iteration. A stop by time or by signal
enters the same flood.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dadmm.errors import ConfigError
from dadmm.layout import Vector

# Why a run ended; a code travels as a number, and the largest wins a tie.
REASONS = ("max_iter", "converged", "max_seconds", "signal", "output")
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
        distance from the optimum (see `dadmm.certificate`); "residuals" by the paper's
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
    reason: float = 0.0


def agree(mine: Accord, theirs: Any, t: int, satisfied: bool, diameter: int) -> Accord:
    """Return what a node knows after hearing its neighbours in iteration ``t``.

    Parameters
    ----------
    mine : Accord
    theirs : record with ``quiet``, ``stop_at`` and ``reason``, each (degree,)
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
    now = mine._replace(streak=streak, quiet=quiet)
    if quiet > diameter:
        now = request(now, t, "converged", diameter)
    stop_at = float(theirs.stop_at.min(initial=math.inf))
    if stop_at > now.stop_at or stop_at == math.inf:
        return now
    reason = float(theirs.reason[theirs.stop_at == stop_at].max())
    if stop_at == now.stop_at:
        reason = max(reason, now.reason)
    return now._replace(stop_at=stop_at, reason=reason)


def request(mine: Accord, t: int, reason: str, diameter: int) -> Accord:
    """Return the accord of a node that wants all to stop as soon as all can know."""
    wish = (t + diameter, -REASONS.index(reason))
    stop_at, code = min((mine.stop_at, -mine.reason), wish)
    return mine._replace(stop_at=float(stop_at), reason=float(-code))


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
