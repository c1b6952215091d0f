"""The six schemes of the paper: each a sentence made of equations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dadmm.core.errors import ConfigError
from dadmm.core.interfaces import PenaltyState, Sighting
from dadmm.core.layout import Matrix, Vector
from dadmm.penalty import equations


@dataclass(frozen=True)
class Scheme:
    """The settings that schemes choose from, and what a scheme is by default.

    Parameters
    ----------
    eta0 : float
        Penalty at the start, and after a reset.
    t_max : int
        `vp`, `ap` and `vp_ap` adapt the penalty of iteration t + 1 while t < t_max.
    residual_ratio : float
        Out of balance means that one residual is this many times the other (mu).
    budget0, budget_decay, budget_trigger : float
        First budget of an edge (T), how raises shrink (alpha), and the change of f_i
        that still earns one (beta).
    relaxation : float, optional
        Over-relaxation of every step, between 0 and 2; by default the scheme's own.
    """

    eta0: float = 10.0
    t_max: int = 50
    residual_ratio: float = 10.0
    budget0: float = 5.0
    budget_decay: float = 0.5
    budget_trigger: float = 0.1
    relaxation: float | None = None

    RELAXATION: ClassVar[float] = 1.0
    probes: ClassVar[bool] = False
    surveys: ClassVar[bool] = False
    agrees: ClassVar[bool] = False
    reduces: ClassVar[bool] = False

    def __post_init__(self) -> None:
        rules = {
            "eta0": (0 < self.eta0 < math.inf, "positive and finite"),
            "t_max": (self.t_max >= 0, "at least 0"),
            "residual_ratio": (self.residual_ratio > 1, "greater than 1"),
            "budget0": (self.budget0 >= 0, "at least 0"),
            "budget_decay": (0 <= self.budget_decay < 1, "within [0, 1)"),
            "budget_trigger": (self.budget_trigger >= 0, "at least 0 (inf is allowed)"),
            "relaxation": (0 < self.alpha < 2, "between 0 and 2, both excluded"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise ConfigError(f"{name} must be {rule}, got {getattr(self, name)!r}")

    @property
    def alpha(self) -> float:
        """By how much steps are over-relaxed; 1 is not at all."""
        return self.RELAXATION if self.relaxation is None else self.relaxation

    def init(
        self, degree: int, curvature: float = math.nan, diameter: int = 1
    ) -> PenaltyState:
        """Return the state that a node proposes to its neighbours."""
        return PenaltyState(
            eta=np.full(degree, float(self.eta0)),
            spent=np.zeros(degree),
            budget=np.full(degree, float(self.budget0)),
            growths=np.zeros(degree),
        )

    def settle(
        self, state: PenaltyState, eta_theirs: Vector, anchors: Matrix
    ) -> PenaltyState:
        """Return the state for iteration 1, given what the neighbours proposed."""
        return state

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        """Return the state for the next iteration."""
        raise NotImplementedError

    def keep(self, state: PenaltyState, kept: np.ndarray) -> PenaltyState:
        """Return the state of the edges that are left, where ``kept`` (degree,)."""
        return PenaltyState(
            eta=state.eta[kept],
            spent=state.spent[kept],
            budget=state.budget[kept],
            growths=state.growths[kept],
            memory=self._recall(state.memory, kept),
        )

    def _recall(self, memory: Any, kept: np.ndarray) -> Any:
        """Return what a scheme's memory is worth with fewer edges."""
        return None

    def _spend(self, state: PenaltyState, seen: Sighting) -> tuple:
        """Return tau, what is spent with it, and the budgets for next time."""
        tau = equations.tau(seen.own, seen.tried)
        spent = state.spent + np.abs(tau)
        change = abs(seen.own - seen.own_previous) if seen.t > 1 else 0.0
        budget, growths = equations.grow(
            state.budget, state.growths, spent, change,
            self.budget0, self.budget_decay, self.budget_trigger,
        )  # fmt: skip
        return tau, spent, budget, growths


class Fixed(Scheme):
    """Plain ADMM: one penalty for ever."""

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        return state


class VP(Scheme):
    """Varying penalty: balance this node's residuals until t_max, then reset."""

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        factor = equations.balance(seen.primal, seen.dual, self.residual_ratio)
        if seen.t < self.t_max:
            return state._replace(eta=equations.clamp(state.eta * factor, self.eta0))
        return state._replace(eta=np.full_like(state.eta, self.eta0))


class AP(Scheme):
    """Adaptive penalty: weigh each edge by how good its far end is, until t_max."""

    probes = True

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        tau = equations.tau(seen.own, seen.tried)
        return state._replace(eta=equations.adapt(self.eta0, tau, seen.t < self.t_max))


class NAP(Scheme):
    """Network adaptive penalty: adapt each edge until its budget is spent."""

    probes = True

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        tau, spent, budget, growths = self._spend(state, seen)
        eta = equations.adapt(self.eta0, tau, spent < state.budget)
        return PenaltyState(eta, spent, budget, growths)


class VPAP(Scheme):
    """VP and AP together, until t_max."""

    probes = True

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        tau = equations.tau(seen.own, seen.tried)
        factor = equations.balance(seen.primal, seen.dual, self.residual_ratio)
        active = seen.t < self.t_max
        eta = equations.combine(state.eta, tau, factor, self.eta0, active)
        return state._replace(eta=equations.clamp(eta, self.eta0))


class VPNAP(Scheme):
    """VP and NAP together, each edge until its budget is spent.

    The budget is charged |tau_ij| only, not the doublings and halvings. An edge whose
    ends agree has no tau to pay and could double and halve for ever, which may diverge;
    so all edges reset after the last iteration that may adapt, whatever is left.
    """

    probes = True
    LAST: ClassVar[int] = 500

    def update(self, state: PenaltyState, seen: Sighting) -> PenaltyState:
        tau, spent, budget, growths = self._spend(state, seen)
        factor = equations.balance(seen.primal, seen.dual, self.residual_ratio)
        active = (spent < state.budget) & (seen.t < self.LAST)
        eta = equations.combine(state.eta, tau, factor, self.eta0, active)
        return PenaltyState(equations.clamp(eta, self.eta0), spent, budget, growths)
