"""The six schemes of the paper, by calls of `equations`, a baseline, and SNAP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dadmm.core import schema
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import row_lengths
from dadmm.core.schema import POSITIVE
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import equations
from dadmm.penalty.equations import PenaltyState

PROBES, COUPLINGS = ("midpoint", "neighbour"), ("symmetric", "own")
NOISE = 1e-13  # a smaller relative change is rounding
USUAL = 10.0  # the first penalty where no curvature is known; the paper's
BUDGET = ("budget0", "budget_decay", "budget_trigger")
ETA0 = schema.Kind((
    ('positive and finite, or "auto"', lambda x: x == "auto" or POSITIVE.holds(x)),
))  # fmt: skip


@dataclass
class Observation:
    """What the nodes of a process know after an iteration.

    Arrays have a row per node (n, ...) or directed edge (E, ...), and change in the
    next iteration: copy what you keep. At the other end of an edge, ``sent`` and
    ``received`` are exchanged, and the multiplier has the opposite sign.
    """

    t: int  #: iteration, counted from 1
    incidence: Incidence  #: sums over the edges of each node
    objective: Vector  #: (n,) f_i(theta_i)
    previous: Vector  #: (n,) f_i(theta_i) of the previous iteration; inf at t = 1
    probes: Vector  #: (E,) f_i at each edge's probe, if the scheme `probes`
    f_min: Vector  #: (n,) least of ``objective`` and ``probes`` of the node
    f_max: Vector  #: (n,) largest of these
    primal: Vector  #: (n,) ``|r_i|``
    dual: Vector  #: (n,) ``|s_i|``
    theta: Matrix  #: (n, m) the shared parts
    centre: Matrix  #: (n, m) of the proximal term of this iteration
    weight: Vector  #: (n,) of the proximal term of this iteration
    sent: Matrix  #: (E, m) theta, as the neighbour has it
    received: Matrix  #: (E, m) theta of the neighbour
    anchors: Matrix  #: (E, m) z_ij
    drift: Matrix  #: (E, m) rho_ij minus the previous z_ij
    multipliers: Matrix  #: (E, m) lambda_ij
    eta: Vector  #: (E,) used in this iteration
    global_residuals: tuple[float, float] | None = None  #: |r| and |s| of all at t - 1


@dataclass(frozen=True)
class Scheme(schema.Checked):
    """The base of all schemes: their settings and default methods.

    Parameters
    ----------
    eta0 : float or "auto", optional
        Penalty of the first iteration, and after a reset. "auto" computes it from the
        curvature at the ends of an edge and from the graph: the default in chosen
        coordinates ("units" or "metric") and of `snap`; else it is the paper's 10.
    t_max : int
        `vp`, `ap`, `vp_ap` and `global_balance` adapt the penalty of iteration t + 1
        while t < t_max.
    residual_ratio : float
        The residuals are out of balance if one is more than this many times the other
        (the paper's mu).
    budget0, budget_decay, budget_trigger : float
        First budget of an edge (the paper's T), factor of each further raise (alpha),
        and the change of f_i above which a spent budget is raised (beta).
    relaxation : float, optional
        Over-relaxation of every step, between 0 and 2. The default is 1.6 in chosen
        coordinates and for `snap`, else 1.
    probe : {"midpoint", "neighbour"}
        Where a node evaluates its objective to rate a neighbour: halfway, or there.
    coupling : {"symmetric", "own"}
        One penalty per edge, which leads to the optimum, or one per end of an edge, as
        printed in the paper, which in general does not.

    Examples
    --------
    A scheme of your own has a method `update`:

    >>> import dadmm
    >>> class Halved(dadmm.penalty.Scheme):
    ...     def update(self, state, obs):
    ...         return state | {"eta": state["eta"] / 2} if obs.t == 5 else state
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(6), scheme=Halved(eta0=40.0))
    >>> result.status, result.eta[0]
    ('certified', np.float64(20.0))
    """

    eta0: float | str | None = schema.entry(None, ETA0)
    t_max: int = schema.entry(50, schema.integer())
    residual_ratio: float = schema.entry(
        10.0, schema.number("greater than 1", lambda x: x > 1)
    )
    budget0: float = schema.entry(5.0, schema.AT_LEAST_0)
    budget_decay: float = schema.entry(0.5, schema.SHARE)
    budget_trigger: float = schema.entry(0.1, schema.AT_LEAST_0)
    relaxation: float | None = schema.entry(
        None, schema.number("between 0 and 2, both excluded", lambda x: 0 < x < 2)
    )
    probe: str = schema.entry("midpoint", schema.choice(PROBES))
    coupling: str = schema.entry("symmetric", schema.choice(COUPLINGS))

    # defaults of fields that are None, in raw and in chosen coordinates
    RAW: ClassVar[dict[str, Any]] = {"eta0": USUAL, "relaxation": 1.0}
    CHOSEN: ClassVar[dict[str, Any]] = {"eta0": "auto", "relaxation": 1.6}
    uses: ClassVar[tuple[str, ...]] = ("eta0",)  # numbers that it needs, and relaxation
    probes: ClassVar[bool] = False
    is_symmetric: ClassVar[bool] = False
    is_constant: ClassVar[bool] = False  # whether penalties never change
    needs_global_residuals: ClassVar[bool] = False

    @property
    def couples(self) -> bool:
        """Whether both ends of an edge use the mean of their penalties, by messages."""
        return self.coupling == "symmetric" and not self.is_symmetric

    def init(self, incidence: Incidence, proposed: Vector) -> PenaltyState:
        """Return the state before the nodes know their neighbours' proposals."""
        state, n_edges = {"eta": proposed.copy()}, len(incidence.node)
        if "budget0" in self.uses:
            names = ("spent", "budget", "raised", "used_up")
            state |= {name: np.zeros(n_edges) for name in names}
            state["budget"] += self.budget0
        return state

    def start(
        self, state: PenaltyState, eta_neighbours: Vector, anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:  # fmt: skip
        """Return the state before iteration 1, or after a change of coordinates."""
        eta0 = np.fmax(state["eta"], eta_neighbours)
        guessed = np.isnan(eta0)  # neither end knows a curvature
        eta0[guessed] = USUAL
        known = {"eta0": eta0, "guessed": guessed.astype(np.float64)}
        return state | {"eta": eta0.copy()} | known

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        """Return the state for the next iteration."""
        raise NotImplementedError(f"{type(self).__name__} needs a method update")

    def _tau(self, obs: Observation) -> Vector:
        known = obs.objective, obs.probes, obs.f_min, obs.f_max
        return equations.tau(*known, obs.incidence)

    def _balance(self, obs: Observation) -> Vector:
        factor = equations.balance(obs.primal, obs.dual, self.residual_ratio)
        return np.asarray(obs.incidence.spread(factor))

    def _spend(
        self, state: PenaltyState, obs: Observation
    ) -> tuple[Vector, PenaltyState]:
        """Return tau, and the state with its new sums of |tau| and budgets."""
        tau = self._tau(obs)
        spent = state["spent"] + np.abs(tau)
        if obs.t == 1:  # no change of f_i is known
            return tau, state | {"spent": spent}
        change = np.abs(obs.objective - obs.previous)
        budgets = equations.raise_budgets(
            state, spent >= state["budget"],
            obs.incidence.spread(change > self.budget_trigger),
            self.budget0, self.budget_decay,
        )  # fmt: skip
        return tau, state | {"spent": spent} | budgets


class Fixed(Scheme):
    """Plain ADMM: the penalty never changes."""

    is_symmetric = is_constant = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        return state


class VP(Scheme):
    """Varying penalty, (4): balance the node's residuals until t_max; then reset."""

    uses = ("eta0", "t_max", "residual_ratio")

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if obs.t >= self.t_max:
            return state | {"eta": state["eta0"].copy()}
        eta = state["eta"] * self._balance(obs)
        return state | {"eta": equations.clamp(eta, state["eta0"])}


class AP(Scheme):
    """Adaptive penalty, (6): raise eta where the neighbour fits better, until t_max."""

    uses = ("eta0", "t_max")
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        active = obs.t < self.t_max
        return state | {"eta": equations.adapt(state["eta0"], self._tau(obs), active)}


class NAP(Scheme):
    """Network adaptive penalty, (9): adapt each edge until its budget is spent."""

    uses = ("eta0", *BUDGET)
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau, now = self._spend(state, obs)
        active = now["spent"] < state["budget"]
        return now | {"eta": equations.adapt(state["eta0"], tau, active)}


class VPAP(Scheme):
    """VP and AP together, (12), until t_max."""

    uses = ("eta0", "t_max", "residual_ratio")
    probes = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau, factor, active = self._tau(obs), self._balance(obs), obs.t < self.t_max
        eta = equations.combine(state["eta"], tau, factor, state["eta0"], active)
        return state | {"eta": equations.clamp(eta, state["eta0"])}


class VPNAP(Scheme):
    """VP and NAP together, (12), each edge until its budget is spent.

    The budget is charged ``|tau_ij|`` only, so an edge with tau = 0 could double and
    halve without end. Therefore all edges reset after iteration `LAST`.
    """

    uses = ("eta0", "residual_ratio", *BUDGET)
    probes = True
    LAST: ClassVar[int] = 500

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        tau, now = self._spend(state, obs)
        active = now["spent"] < state["budget"] if obs.t < self.LAST else False
        factor = self._balance(obs)
        eta = equations.combine(state["eta"], tau, factor, state["eta0"], active)
        return now | {"eta": equations.clamp(eta, state["eta0"])}


class GlobalBalance(Scheme):
    """Balance the residuals of the whole network until t_max; then keep the penalty.

    The rule of He, Yang and Wang (2000) as Boyd et al. (2011, section 3.4.1) state it,
    with the residuals of the previous iteration, by a collective in every iteration.
    """

    uses = ("eta0", "t_max", "residual_ratio")
    is_symmetric = True
    needs_global_residuals = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if obs.global_residuals is None or obs.t >= self.t_max:
            return state
        factor = equations.balance(*obs.global_residuals, self.residual_ratio)
        return state | {"eta": equations.clamp(state["eta"] * factor, state["eta0"])}


@dataclass(frozen=True)
class SNAP(Scheme):
    """Spectral network adaptive penalty: move each edge to its ratio, by a budget.

    Every `PERIOD` iterations an edge asks for ``1/2 log2(wanted / eta)``, where
    ``wanted`` is its spectral ratio. It gets the share ``left / budget0`` of it, at
    most all, where ``left`` is what is left of the part of its budget that it has
    earned, ``(travelled / |lambda|)^2``, by the length of the way that lambda has gone.
    One bit of the budget pays for doubling or halving the penalty. If the edge
    asks for more than is left of the whole budget and still moves, its budget is raised
    as in (10). So it spends less than ``budget0 / (1 - budget_decay)``, see (11); with
    this bound ADMM converges (He, Yang and Wang, 2000). Both ends of an edge compute
    the same, without a message: they know z_ij and, up to its sign, lambda_ij.

    Parameters
    ----------
    **settings
        Fields of `Scheme`. ``budget0`` is 32 bits by default. An edge still moves if
        its last move exceeds ``budget_trigger``, by default 0.01, times its largest.
    """

    budget0: float = 32.0
    budget_trigger: float = 0.01

    uses = ("eta0", *BUDGET)
    is_symmetric = True
    RAW = Scheme.CHOSEN
    PERIOD: ClassVar[int] = 3  # iterations between two updates
    BOUND: ClassVar[float] = 10.0  # largest ratio of wanted to eta that counts
    POWER: ClassVar[float] = 0.5  # half the way, in logarithms

    def start(
        self, state: PenaltyState, eta_neighbours: Vector, anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:  # fmt: skip
        state = super().start(state, eta_neighbours, anchors, multipliers)
        return state | {
            "largest_move": np.zeros(len(anchors)),
            "travelled": np.zeros(len(anchors)),
            "old_anchors": anchors.copy(),
            "old_multipliers": multipliers.copy(),
        }

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if obs.t % self.PERIOD:
            return state
        eta, anchors = state["eta"], state["old_anchors"]
        multipliers = state["old_multipliers"]
        moved = row_lengths(np.subtract(obs.anchors, anchors, out=anchors))
        turned = row_lengths(np.subtract(obs.multipliers, multipliers, out=multipliers))
        anchors[...], multipliers[...] = obs.anchors, obs.multipliers
        lengths = row_lengths(multipliers)
        wanted = spectral_ratio(turned, moved, lengths, row_lengths(anchors))
        ratio = np.clip(wanted / eta, 1.0 / self.BOUND, self.BOUND)
        asked = self.POWER * np.log2(ratio)
        asked[np.isnan(asked)] = 0.0
        travelled = state["travelled"] + turned
        budget, spent = state["budget"], state["spent"]
        most = self.POWER * math.log2(self.BOUND)  # that an edge can ask for
        share = np.ones_like(eta)
        if self.budget0 < math.inf:
            # earned is 1 at once from lambda = 0; multipliers that are nearly right at
            # the start hardly change, and the ratio would lower penalties too much
            earned = np.ones_like(eta)
            np.divide(travelled, lengths, out=earned, where=travelled < lengths)
            usable = np.maximum(earned**2 * budget - spent, 0.0)
            share = np.minimum(usable / max(self.budget0, most), 1.0)
        step, root = asked * share, np.sqrt(eta)
        move = root * moved + turned / root
        largest = np.maximum(state["largest_move"], move)
        out = (np.abs(asked) >= budget - spent) & (np.abs(asked) > 0.0)
        budgets = equations.raise_budgets(
            state, out, move > self.budget_trigger * largest, self.budget0,
            self.budget_decay,
        )  # fmt: skip
        return state | budgets | {
            "eta": eta * np.exp2(step),
            "spent": spent + np.abs(step),
            "largest_move": largest,
            "travelled": travelled,
        }  # fmt: skip


def spectral_ratio(
    multiplier_change: Vector, anchor_change: Vector, multipliers: Vector,
    anchors: Vector,
) -> Vector:  # fmt: skip
    """Return the spectral ratio of each edge, (E,): the penalty to move towards.

    It is ``|lambda - lambda_old| / |z - z_old|``; McCann and Wohlberg (IEEE Open
    Journal of Signal Processing, 2024) have it for one penalty of the whole problem. If
    both changes are rounding, relative to |lambda| and |z|, it is NaN.
    """
    rounding = multiplier_change <= NOISE * multipliers
    rounding &= anchor_change <= NOISE * anchors
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rounding, np.nan, multiplier_change / anchor_change)
