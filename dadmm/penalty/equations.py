"""The penalty equations of Song, Yoon and Pavlovic, each once.

Equations have the numbers of arXiv 1506.08928, as everywhere in dadmm.
docs/paper.md has them all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Vector
from dadmm.graphs.incidence import Incidence

Mask = NDArray[np.bool_]
PenaltyState = dict[str, np.ndarray]
"""Arrays of a penalty scheme with one row per edge. ``"eta"`` (E,) is the penalty that
this end proposes for the next iteration."""


def kappa(f: Vector, f_min: Vector, span: Vector) -> Vector:
    """Rescale objectives to [1, 2]: the right part of equation (7).

    ``span`` is the largest objective of the node minus the least.
    """
    return (f - f_min) / span + 1.0


def tau(
    own: Vector, probes: Vector, f_min: Vector, f_max: Vector, incidence: Incidence
) -> Vector:
    """Return how much better each neighbour's parameters fit a node's data, (E,).

    The left part of equation (7): ``kappa_i(theta_i) / kappa_i(theta_j) - 1``, within
    [-1/2, 1]; positive where the neighbour is better. ``own`` (n,) is f_i(theta_i),
    ``probes`` (E,) is f_i at rho_ij or theta_j, and ``f_min`` and ``f_max`` are the
    least and largest of these by node, equation (8). If all objectives of a node are
    equal, (7) is 0/0; tau is then zero. A span within rounding counts as zero.
    """
    spread, span = incidence.spread, f_max - f_min
    clear = span > 1e-12 * np.maximum(-f_min, f_max)
    flat = np.count_nonzero(clear) < len(clear)
    if flat:
        span = np.where(clear, span, 1.0)
    ratio = spread(kappa(own, f_min, span)) / kappa(probes, spread(f_min), spread(span))
    ratio -= 1.0
    return np.where(spread(clear), ratio, 0.0) if flat else ratio


def balance(primal: Vector | float, dual: Vector | float, ratio: float) -> Vector:
    """Return the factor by which residual balancing changes a penalty.

    Equation (4): 2 if the primal residual is more than ``ratio`` times the dual
    residual, 1/2 in the opposite case, else 1.
    """
    factor = np.where(dual > ratio * primal, 0.5, 1.0)
    return np.where(primal > ratio * dual, 2.0, factor)


def adapt(eta0: Vector, tau: Vector, active: bool | Mask) -> Vector:
    """Return eta_ij of AP and NAP: ``eta0 (1 + tau_ij)`` while active, else eta0.

    Equations (6) and (9). An edge is active while ``t < t_max`` in AP, and while
    ``spent_ij < budget_ij`` in NAP.
    """
    return eta0 * (1.0 + tau * active)


def combine(
    eta: Vector, tau: Vector, factor: Vector, eta0: Vector, active: bool | Mask
) -> Vector:
    """Return eta_ij of VP + AP and VP + NAP.

    Equation (12): ``eta_ij (1 + tau_ij) factor`` if the residuals are out of balance
    (``factor`` is 2 or 1/2), unchanged otherwise (``factor`` is 1), and eta0 once the
    edge is no longer active.
    """
    unbalanced = factor != 1.0
    moved = eta
    if np.count_nonzero(unbalanced):
        moved = np.where(unbalanced, eta * (1.0 + tau) * factor, eta)
    return np.where(active, moved, eta0)


def raise_budgets(
    state: PenaltyState, is_out: Mask, moves: Mask, budget0: float, decay: float
) -> PenaltyState:
    """Return the budgets T_ij, how often each was raised, and which are used up.

    Equation (10): the k-th raise adds ``alpha^k T``, so a budget stays below
    ``T / (1 - alpha)``, which is equation (11). ``budget0`` is T, and ``decay`` alpha.
    A budget is raised if the edge asks for more than is left of it (``is_out``) and
    still ``moves``; in the paper: ``|f_i(theta_i^t) - f_i(theta_i^(t-1))|`` exceeds
    beta. An edge that is out of budget and does not move has used it up.
    """
    found = {"used_up": (is_out & ~moves).astype(np.float64)}
    more = is_out & moves
    if not np.count_nonzero(more):
        return found
    raised = state["raised"] + more
    budget = state["budget"] + np.where(more, decay**raised * budget0, 0.0)
    return found | {"budget": budget, "raised": raised}


def clamp(eta: Vector, eta0: Vector) -> Vector:
    """Limit penalties to a factor of a million from eta0, so that none overflows."""
    return np.clip(eta, eta0 / 1e6, eta0 * 1e6)
