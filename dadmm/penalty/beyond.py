"""Schemes that are not in the paper, made of `rules` and `equations`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dadmm.core.interfaces import Observation, PenaltyState
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import equations, rules
from dadmm.penalty.schemes import Scheme


class SpectralRatio(Scheme):
    """Move each penalty towards the spectral ratio of its edge, every 3 iterations."""

    is_symmetric = True
    PERIOD: ClassVar[int] = 3
    BOUND: ClassVar[float] = 10.0
    SCALE: ClassVar[float] = 200.0

    def start(
        self,
        state: PenaltyState,
        eta_neighbours: Vector,
        anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:
        old = {"old_anchors": anchors.copy(), "old_multipliers": multipliers.copy()}
        return state | old | {"first_eta": state["eta"].copy()}

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if obs.t % self.PERIOD:
            return state
        multipliers, anchors = state["old_multipliers"], state["old_anchors"]
        wanted = rules.spectral_ratio(
            rules.row_norms(np.subtract(obs.multipliers, multipliers, out=multipliers)),
            rules.row_norms(np.subtract(obs.anchors, anchors, out=anchors)),
            rules.row_norms(obs.multipliers),
            rules.row_norms(obs.anchors),
        )
        factor = rules.bounded(wanted / state["eta"], self.BOUND)
        factor[np.isnan(factor)] = 1.0
        eta = state["eta"] * factor ** rules.damping(obs.t, self.SCALE)
        multipliers[...], anchors[...] = obs.multipliers, obs.anchors
        return state | {"eta": equations.clamp(eta, state["first_eta"])}


class Auto(SpectralRatio):
    """The spectral ratio, started from curvature and graph; the default.

    Each node measures the curvature of its objective and proposes a penalty in the
    first message. An edge starts from the geometric mean of both proposals. If one end
    finds no curvature, the edge starts from the other proposal; if both find none, from
    eta0.

    Parameters
    ----------
    **settings
        Fields of `Scheme`; those that have an effect are ``relaxation``, and ``eta0``
        where neither end of an edge finds a curvature.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> scheme = dadmm.penalty.Auto(relaxation=1.8)
    >>> dadmm.solve(problems, dadmm.Topology.ring(6), scheme=scheme).status
    'certified'
    """

    uses = ()  # eta0 only where both ends find no curvature
    needs_curvature = True
    RELAXATION = 1.6

    def init(
        self, incidence: Incidence, curvatures: Vector, diameter: int
    ) -> PenaltyState:
        eta = rules.initial_penalty(curvatures, incidence.count, diameter)
        return {"eta": np.repeat(eta, incidence.degrees)}

    def start(
        self,
        state: PenaltyState,
        eta_neighbours: Vector,
        anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:
        mine, theirs = state["eta"], eta_neighbours
        mine, theirs = (
            np.where(np.isnan(mine), theirs, mine),
            np.where(np.isnan(theirs), mine, theirs),
        )
        eta = np.sqrt(mine) * np.sqrt(theirs)
        eta[np.isnan(eta)] = self.eta0
        state = state | {"eta": eta}
        return super().start(state, eta_neighbours, anchors, multipliers)


class Steady(Auto):
    """Constant penalties, from graph and known curvature; `auto` of such runs.

    An edge has the larger of both proposals.
    """

    LEAST: ClassVar[float] = 5.0  # factor of the graph, see `rules.initial_penalty`
    called = "auto"

    def init(
        self, incidence: Incidence, curvatures: Vector, diameter: int
    ) -> PenaltyState:
        most = np.maximum(
            rules.initial_penalty(curvatures, incidence.count, diameter),
            0.5 * self.LEAST * curvatures / incidence.count,
        )
        return {"eta": np.repeat(most, incidence.degrees)}

    def start(
        self,
        state: PenaltyState,
        eta_neighbours: Vector,
        anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:
        return state | {"eta": np.maximum(state["eta"], eta_neighbours)}

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        return state


class Bounded(Auto):
    """The spectral ratio, started from and bounded by known curvature; `auto` then.

    An edge starts from the larger of both proposals, and its penalty stays within
    ``RANGE`` times that.
    """

    SCALE = 60.0
    RANGE: ClassVar[tuple[float, float]] = (0.1, 10.0)
    called = "auto"

    def start(
        self,
        state: PenaltyState,
        eta_neighbours: Vector,
        anchors: Matrix,
        multipliers: Matrix,
    ) -> PenaltyState:
        larger = np.maximum(state["eta"], eta_neighbours)
        return super().start(state | {"eta": larger}, larger, anchors, multipliers)

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        state = super().update(state, obs)
        least, most = (factor * state["first_eta"] for factor in self.RANGE)
        return state | {"eta": np.minimum(np.maximum(state["eta"], least), most)}


class GlobalBalance(Scheme):
    """Balance the residuals of the whole network until t_max; then keep the penalty.

    The rule of He, Yang and Wang (2000) as Boyd et al. (2011, section 3.4.1) state it.
    It is a centralised baseline: every iteration has a collective over all nodes, and
    its bytes are counted. The residuals are those of the previous iteration.

    Parameters
    ----------
    **settings
        Fields of `Scheme`; those that have an effect are ``eta0``, ``t_max``,
        ``residual_ratio`` and ``relaxation``.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> scheme = dadmm.penalty.GlobalBalance(eta0=20.0)
    >>> dadmm.solve(problems, dadmm.Topology.ring(6), scheme=scheme).status
    'stopped'
    """

    uses = ("eta0", "t_max", "residual_ratio")
    is_symmetric = True
    needs_global_residuals = True

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if obs.global_residuals is None or obs.t >= self.t_max:
            return state
        factor = equations.balance(*obs.global_residuals, self.residual_ratio)
        eta = state["eta"] * factor
        return state | {"eta": equations.clamp(eta, self.eta0)}
