"""The six schemes of the paper: each a sentence made of equations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dadmm.core.checks import check_integer, check_number
from dadmm.core.interfaces import Observation, PenaltyState
from dadmm.core.layout import Matrix, Vector
from dadmm.penalty import equations

BUDGET = ("budget0", "budget_decay", "budget_trigger")


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
    uses: ClassVar[tuple[str, ...]] = ("eta0",)  # of the settings but relaxation
    probes: ClassVar[bool] = False
    needs_curvature: ClassVar[bool] = False
    is_symmetric: ClassVar[bool] = False
    needs_global_residuals: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_integer("t_max", self.t_max)
        rules: dict[str, tuple[Callable[[float], bool], str]] = {
            "eta0": (lambda x: 0 < x < math.inf, "positive and finite"),
            "residual_ratio": (lambda x: x > 1, "greater than 1"),
            "budget0": (lambda x: x >= 0, "at least 0"),
            "budget_decay": (lambda x: 0 <= x < 1, "within [0, 1)"),
            "budget_trigger": (lambda x: x >= 0, "at least 0 (inf is allowed)"),
            "alpha": (lambda x: 0 < x < 2, "between 0 and 2, both excluded"),
        }
        for name, rule in rules.items():
            told = "relaxation" if name == "alpha" else name
            check_number(told, getattr(self, name), *rule)

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
            budget=np.full(degree, self.budget0 if "budget0" in self.uses else 0.0),
            growths=np.zeros(degree),
        )

    def start(
        self, state: PenaltyState, eta_neighbours: Vector, anchors: Matrix
    ) -> PenaltyState:
        """Return the state for iteration 1, given what the neighbours proposed."""
        return state

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        """Return the state for the next iteration."""
        raise NotImplementedError

    def keep(self, state: PenaltyState, kept: np.ndarray) -> PenaltyState:
        """Return the state of the edges that are left, where ``kept`` (degree,)."""
        return PenaltyState(
            eta=state.eta[kept],
            spent=state.spent[kept],
            budget=state.budget[kept],
            growths=state.growths[kept],
            memory=self._keep_memory(state.memory, kept),
        )

    def _keep_memory(self, memory: Any, kept: np.ndarray) -> Any:
        """Return what a scheme's memory is worth with fewer edges."""
        return None

    def _spend(self, state: PenaltyState, obs: Observation) -> tuple:
        """Return tau, what is spent with it, and the budgets for next time."""
        tau = equations.tau(obs.own, obs.f_probe)
        spent = state.spent + np.abs(tau)
        change = abs(obs.own - obs.own_previous) if obs.t > 1 else 0.0
        budget, growths = equations.grow(
            state.budget, state.growths, spent, change,
            self.budget0, self.budget_decay, self.budget_trigger,
        )  # fmt: skip
        return tau, spent, budget, growths


class Fixed(Scheme):
    """Plain ADMM: one penalty for ever."""

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        return state


class VP(Scheme):
    """Varying penalty: balance this node's residuals until t_max, then reset.

    Section 3.1: equation (4) for each node, with the residuals of equation (5).
    """

    uses = ("eta0", "t_max", "residual_ratio")

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        factor = equations.balance(obs.primal, obs.dual, self.residual_ratio)
        if obs.t < self.t_max:
            return state._replace(eta=equations.clamp(state.eta * factor, self.eta0))
        return state._replace(eta=np.full_like(state.eta, self.eta0))


class AP(Scheme):
    """Adaptive penalty: weigh each edge by how good its far end is, until t_max.

    Section 3.2: equation (6).
    """

    uses = ("eta0", "t_max")
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau = equations.tau(obs.own, obs.f_probe)
        return state._replace(eta=equations.adapt(self.eta0, tau, obs.t < self.t_max))


class NAP(Scheme):
    """Network adaptive penalty: adapt each edge until its budget is spent.

    Section 3.3: equations (9) and (10).
    """

    uses = ("eta0", *BUDGET)
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau, spent, budget, growths = self._spend(state, obs)
        eta = equations.adapt(self.eta0, tau, spent < state.budget)
        return PenaltyState(eta, spent, budget, growths)


class VPAP(Scheme):
    """VP and AP together, until t_max: equation (12)."""

    uses = ("eta0", "t_max", "residual_ratio")
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau = equations.tau(obs.own, obs.f_probe)
        factor = equations.balance(obs.primal, obs.dual, self.residual_ratio)
        active = obs.t < self.t_max
        eta = equations.combine(state.eta, tau, factor, self.eta0, active)
        return state._replace(eta=equations.clamp(eta, self.eta0))


class VPNAP(Scheme):
    """VP and NAP together, each edge until its budget is spent.

    Section 3.4: equation (12) while the condition of equation (9) holds. The budget is
    charged |tau_ij| only, not the doublings and halvings. An edge whose ends agree has
    no tau to pay and could double and halve for ever, which may diverge; so all edges
    reset after iteration `LAST`, whatever is left of their budgets.
    """

    uses = ("eta0", "residual_ratio", *BUDGET)
    probes = True
    LAST: ClassVar[int] = 500

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau, spent, budget, growths = self._spend(state, obs)
        factor = equations.balance(obs.primal, obs.dual, self.residual_ratio)
        active = (spent < state.budget) & (obs.t < self.LAST)
        eta = equations.combine(state.eta, tau, factor, self.eta0, active)
        return PenaltyState(equations.clamp(eta, self.eta0), spent, budget, growths)
