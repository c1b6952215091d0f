"""SNAP, the spectral network adaptive penalty: the default scheme, beyond the paper.

An edge moves its penalty towards its spectral ratio, and pays for every change from a
budget, which is raised as in equation (10) of the paper while the edge still moves.
Both ends of an edge know z_ij and, up to its sign, lambda_ij. So they compute the same
penalty and the same budget, without a message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import row_lengths
from dadmm.penalty import equations
from dadmm.penalty.equations import PenaltyState
from dadmm.penalty.schemes import BUDGET, Observation, Scheme

NOISE = 1e-13  # a smaller relative change is rounding


@dataclass(frozen=True)
class SNAP(Scheme):
    """Spectral network adaptive penalty: move each edge to its ratio, by a budget.

    Every `PERIOD` iterations an edge asks for ``1/2 log2(wanted / eta)``, where
    ``wanted`` is its spectral ratio. It gets the share ``left / budget0`` of it, at
    most all, where ``left`` is what is left of the part of its budget that it has
    earned, see `earned`. One bit of the budget pays for doubling or halving the
    penalty. If the edge asks for more than is left of the whole budget and still moves,
    its budget is raised as in (10). So it spends less than ``budget0 / (1 -
    budget_decay)``, see (11); with this bound ADMM converges (He, Yang and Wang, 2000).

    Parameters
    ----------
    **settings
        Fields of `Scheme`. ``budget0`` is 32 bits by default. An edge still moves if
        its last move exceeds ``budget_trigger``, by default 0.01, times its largest.

    Examples
    --------
    >>> import dadmm
    >>> X, y, _ = dadmm.datasets.regression(60, 3)
    >>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
    >>> scheme = dadmm.penalty.SNAP(budget0=16.0)
    >>> result = dadmm.solve(problems, dadmm.Topology.ring(6), scheme=scheme)
    >>> result.status, bool((result.penalties.spent > 0.0).all())
    ('certified', True)
    """

    budget0: float = 32.0
    budget_trigger: float = 0.01

    uses = ("eta0", *BUDGET)
    is_symmetric = True
    RAW_ETA0 = "auto"
    RAW_RELAXATION = 1.6
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
        asked = self.POWER * np.log2(
            np.clip(wanted / eta, 1.0 / self.BOUND, self.BOUND)
        )
        asked[np.isnan(asked)] = 0.0
        travelled = state["travelled"] + turned
        budget, spent = state["budget"], state["spent"]
        most = self.POWER * math.log2(self.BOUND)  # that an edge can ask for
        share = np.ones_like(eta)
        if self.budget0 < math.inf:
            usable = np.maximum(earned(travelled, lengths) * budget - spent, 0.0)
            share = np.minimum(usable / max(self.budget0, most), 1.0)
        step = asked * share
        root = np.sqrt(eta)
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


def earned(travelled: Vector, multipliers: Vector) -> Vector:
    """Return the part of its budget that each edge may use, (E,), at most 1.

    It is ``(p / |lambda|)^2``, where p is the length of the way that lambda has gone,
    ``travelled``: the sum of |lambda - lambda_old| over the updates. From lambda = 0 it
    is 1 at once. If a run starts from multipliers that are nearly right, they hardly
    change, and the ratio would lower penalties by so much that nodes drift apart.
    """
    share = np.ones_like(travelled)
    np.divide(travelled, multipliers, out=share, where=travelled < multipliers)
    return share**2


def spectral_ratio(
    multiplier_change: Vector, anchor_change: Vector, multipliers: Vector,
    anchors: Vector,
) -> Vector:  # fmt: skip
    """Return the spectral ratio of each edge, (E,): the penalty to move towards.

    It is ``|lambda - lambda_old| / |z - z_old|``, per edge. McCann and Wohlberg (IEEE
    Open Journal of Signal Processing, 2024) have the rule for one penalty of the whole
    problem. If only one of the two has changed, the ratio is 0 or infinite. If both
    changes are rounding, relative to the lengths |lambda| and |z|, the ratio is NaN.
    """
    rounding = multiplier_change <= NOISE * multipliers
    rounding &= anchor_change <= NOISE * anchors
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rounding, np.nan, multiplier_change / anchor_change)
