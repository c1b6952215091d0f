"""The six schemes of the paper, each a few calls of `equations`."""

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
    """The base of all schemes: their settings and default methods.

    Parameters
    ----------
    eta0 : float
        Penalty of the first iteration, and after a reset.
    t_max : int
        `vp`, `ap` and `vp_ap` adapt the penalty of iteration t + 1 while t < t_max.
    residual_ratio : float
        Residuals are out of balance if one is more than this many times the other (mu).
    budget0, budget_decay, budget_trigger : float
        First budget of an edge (T), factor of each further raise (alpha), and the
        change of f_i above which a spent budget is raised (beta).
    relaxation : float, optional
        Over-relaxation of every step, between 0 and 2; by default `RELAXATION`.
    """

    eta0: float = 10.0
    t_max: int = 50
    residual_ratio: float = 10.0
    budget0: float = 5.0
    budget_decay: float = 0.5
    budget_trigger: float = 0.1
    relaxation: float | None = None

    RELAXATION: ClassVar[float] = 1.0
    uses: ClassVar[tuple[str, ...]] = ("eta0",)  # settings, besides relaxation
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
            setting = "relaxation" if name == "alpha" else name
            check_number(setting, getattr(self, name), *rule)

    @property
    def alpha(self) -> float:
        """Over-relaxation of the steps; 1 is none."""
        return self.RELAXATION if self.relaxation is None else self.relaxation

    def init(
        self, degree: int, curvature: float = math.nan, diameter: int = 1
    ) -> PenaltyState:
        """Return the state of a node before it knows its neighbours' proposals."""
        return PenaltyState(
            eta=np.full(degree, float(self.eta0)),
            spent=np.zeros(degree),
            budget=np.full(degree, self.budget0 if "budget0" in self.uses else 0.0),
            growths=np.zeros(degree),
        )

    def start(
        self, state: PenaltyState, eta_neighbours: Vector, anchors: Matrix
    ) -> PenaltyState:
        """Return the state for iteration 1, given the neighbours' proposals of eta."""
        return state

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        """Return the state for the next iteration."""
        raise NotImplementedError

    def keep(self, state: PenaltyState, kept: np.ndarray) -> PenaltyState:
        """Return the state of the edges selected by the mask ``kept`` (degree,)."""
        return PenaltyState(
            eta=state.eta[kept],
            spent=state.spent[kept],
            budget=state.budget[kept],
            growths=state.growths[kept],
            memory=self._keep_memory(state.memory, kept),
        )

    def _keep_memory(self, memory: Any, kept: np.ndarray) -> Any:
        """Return the memory of the edges selected by the mask ``kept``."""
        return None

    def _spend(
        self, state: PenaltyState, obs: Observation
    ) -> tuple[Vector, Vector, Vector, Vector]:
        """Return tau, the new sums of |tau|, the new budgets and their growths."""
        tau = equations.tau(obs.own, obs.f_probe)
        spent = state.spent + np.abs(tau)
        change = abs(obs.own - obs.own_previous) if obs.t > 1 else 0.0
        budget, growths = equations.grow(
            state.budget, state.growths, spent, change,
            self.budget0, self.budget_decay, self.budget_trigger,
        )  # fmt: skip
        return tau, spent, budget, growths


class Fixed(Scheme):
    """Plain ADMM: the penalty never changes."""

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        return state


class VP(Scheme):
    """Varying penalty: balance the residuals of the node until t_max; then reset.

    Section 3.1: equation (4) for each node, with the residuals of equation (5).
    """

    uses = ("eta0", "t_max", "residual_ratio")

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        factor = equations.balance(obs.primal, obs.dual, self.residual_ratio)
        if obs.t < self.t_max:
            return state._replace(eta=equations.clamp(state.eta * factor, self.eta0))
        return state._replace(eta=np.full_like(state.eta, self.eta0))


class AP(Scheme):
    """Adaptive penalty: raise eta where the neighbour fits better, until t_max.

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
    charged |tau_ij| only, not the factors 2 and 1/2. An edge with tau = 0 never spends
    its budget and could double and halve without end, which may diverge. So all edges
    reset after iteration `LAST`.
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
