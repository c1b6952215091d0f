"""All schemes that the benchmarks compare: those of dadmm, and two more.

The two are slower than `snap` or need more settings, so dadmm does not offer them by
name. They are plug-ins: pass an instance to `dadmm.solve`.

    dadmm.solve(problems, graph, scheme=build("edge_balance", eta0=1.0))
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dadmm import penalty
from dadmm.core.layout import Matrix, Vector
from dadmm.penalty import equations
from dadmm.penalty.equations import PenaltyState
from dadmm.penalty.schemes import Observation, Scheme
from dadmm.penalty.snap import NOISE, bounded, row_norms


def relative_balance(
    gap: Vector, size: Vector, drift: Vector, multipliers: Vector, eta: Vector
) -> Vector:
    """Return the relative primal residual over the relative dual residual, per edge.

    It is ``(|theta_i - theta_j| / (sqrt(2) max(|theta_i|, |theta_j|))) / (eta |z -
    z_old| / |lambda|)``. Wohlberg (arXiv 1704.06209) has the rule for one penalty of
    the whole problem. If a multiplier or a distance is zero, the ratio is 1. Arguments
    are (degree,): |theta_i - theta_j|, the larger of |theta_i| and |theta_j|,
    |z_ij - z_ij_old|, |lambda_ij| and eta_ij.
    """
    above = gap * multipliers
    below = math.sqrt(2.0) * size * eta * drift
    idle = (gap <= NOISE * size) | (above == 0.0) | (below == 0.0)
    return np.where(idle, 1.0, above / np.where(idle, 1.0, below))


def barzilai_borwein(way: Vector, turn: Vector, least: float = 0.2) -> float:
    """Return a curvature from a move (size,) and the gradient's change (size,).

    It is the hybrid of the two Barzilai-Borwein quotients of Xu, Taylor, Li,
    Figueiredo, Yuan and Goldstein (ACADMM, ICML 2017). It is NaN if the correlation of
    the two vectors is below ``least``.
    """
    product = float(way @ turn)
    squares = float(way @ way), float(turn @ turn)
    if not product > least * math.sqrt(squares[0] * squares[1]):
        return math.nan
    steepest, gentle = squares[1] / product, product / squares[0]
    return gentle if 2.0 * gentle > steepest else steepest - 0.5 * gentle


class EdgeBalance(Scheme):
    """Balance the relative residuals of each edge."""

    is_symmetric = True
    BOUND: ClassVar[float] = 2.0
    SCALE: ClassVar[float] = 150.0

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        size = row_norms(obs.received)
        ratio = relative_balance(
            row_norms(obs.received - obs.sent),
            np.maximum(size, row_norms(obs.sent)),
            self.alpha * row_norms(obs.drift),
            row_norms(obs.multipliers),
            state["eta"],
        )
        factor = bounded(np.sqrt(ratio), self.BOUND)
        damping = (1.0 + obs.t / self.SCALE) ** -2
        eta = state["eta"] * factor**damping
        return state | {"eta": equations.clamp(eta, state["eta0"])}


class NodeSpectral(Scheme):
    """Spectral penalty of each node, by Barzilai-Borwein curvatures, as in ACADMM.

    One curvature is that of the node's gradient against theta, the other that of its
    multipliers against the centre. Their geometric mean is the proximal weight of the
    node, divided evenly among its edges. Xu et al. (ICML 2017) have a central server;
    here each end proposes a penalty and the edge takes the mean, as in the paper's
    schemes.
    """

    PERIOD: ClassVar[int] = 2
    SAFEGUARD: ClassVar[float] = 1e5  # steps of a factor within 1 + SAFEGUARD / t^2

    def update(self, state: PenaltyState, obs: Observation) -> PenaltyState:
        if (obs.t - 1) % self.PERIOD:
            return state
        incidence, n, m = obs.incidence, *obs.theta.shape
        anchor, pull, total = np.zeros((n, m)), np.zeros((n, m)), np.zeros(n)
        incidence.weighted_sum(obs.eta, obs.anchors, anchor)()
        incidence.reduce(np.add, obs.eta, total)
        incidence.reduce(np.add, obs.multipliers, pull)
        gradient = obs.weight[:, None] * (obs.centre - obs.theta)
        # (n, 4, m); each edge keeps the rows of its node
        now = np.stack([obs.theta, gradient, anchor / total[:, None], 2.0 * pull], 1)
        memory = {"memory": np.repeat(now, incidence.degrees, axis=0)}
        if "memory" not in state:
            return state | memory
        before = state["memory"][incidence.offsets[:-1]]
        incidence.reduce(np.add, state["eta"], total)
        most = 1.0 + self.SAFEGUARD / obs.t**2
        factor = np.array(
            [
                min(max(wanted_weight(move, weight) / weight, 1.0 / most), most)
                for move, weight in zip(
                    now - before, (2.0 * total).tolist(), strict=True
                )
            ]
        )
        eta = equations.clamp(state["eta"] * incidence.spread(factor), state["eta0"])
        return state | memory | {"eta": eta}


def wanted_weight(move: Matrix, weight: float) -> float:
    """Return the proximal weight of a node from the moves (4, m) of its vectors."""
    known = [barzilai_borwein(*move[:2]), barzilai_borwein(*move[2:])]
    known = [found for found in known if not math.isnan(found)]
    return math.prod(known) ** (1.0 / len(known)) if known else weight


OTHERS: dict[str, type[Scheme]] = {
    "edge_balance": EdgeBalance,
    "node_spectral": NodeSpectral,
}
_BEYOND = ("global_balance", "snap")  # come last in the tables
SCHEMES: dict[str, type[Scheme]] = {
    **{name: kind for name, kind in penalty.SCHEMES.items() if name not in _BEYOND},
    **OTHERS,
    **{name: penalty.SCHEMES[name] for name in _BEYOND},
}


def build(name: str, **settings: Any) -> Scheme:
    """Return the scheme of that name, of dadmm or of the two more."""
    return SCHEMES[name](**settings)
