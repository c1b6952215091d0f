"""The penalty equations of Song, Yoon and Pavlovic, each once.

The numbers of equations are those of arXiv 1506.08928, as everywhere in dadmm.
CONTRIBUTING.md has a table of them.
"""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Vector


def kappa(f: Vector | float, f_min: float, f_max: float) -> Vector | float:
    """Rescale objectives to [1, 2]; ones if all are equal, so that tau is zero.

    The right part of equation (7), which is 0/0 if all objectives are equal. A span
    within rounding counts as zero.
    """
    span = f_max - f_min
    if span <= 1e-12 * max(abs(f_min), abs(f_max)):
        return np.ones_like(f)
    return (f - f_min) / span + 1.0


def tau(own: float, f_probe: Vector) -> Vector:
    """Return how much better each neighbour's parameters fit this node's data.

    The left part of equation (7), with the largest and the least objective of (8).

    Parameters
    ----------
    own : float
        f_i(theta_i).
    f_probe : ndarray of shape (degree,)
        f_i at the probe of each edge, rho_ij or theta_j.

    Returns
    -------
    tau : ndarray of shape (degree,)
        ``kappa_i(theta_i) / kappa_i(theta_j) - 1``, within [-1/2, 1]; positive where
        the neighbour is better.
    """
    f_min = min(own, float(f_probe.min()))
    f_max = max(own, float(f_probe.max()))
    ratio = kappa(own, f_min, f_max) / kappa(f_probe, f_min, f_max)
    return np.subtract(ratio, 1.0)


def balance(primal: float, dual: float, ratio: float, step: float = 1.0) -> float:
    """Return the factor by which residual balancing changes a penalty.

    Equation (4) with this node's own residuals: ``1 + step`` if the primal residual is
    more than ``ratio`` times the dual residual, its inverse in the opposite case, else
    1. VP and the combined schemes use step 1: the factors are 2 and 1/2.
    """
    if primal > ratio * dual:
        return 1.0 + step
    if dual > ratio * primal:
        return 1.0 / (1.0 + step)
    return 1.0


def adapt(eta0: float, tau: Vector, active: bool | np.ndarray) -> Vector:
    """Return eta_ij of AP and NAP: ``eta0 (1 + tau_ij)`` while active, else eta0.

    Equations (6) and (9). An edge is active while ``t < t_max`` in AP, and while
    ``spent_ij < budget_ij`` in NAP.
    """
    return np.where(active, eta0 * (1.0 + tau), eta0)


def combine(
    eta: Vector, tau: Vector, factor: float, eta0: float, active: bool | np.ndarray
) -> Vector:
    """Return eta_ij of VP + AP and VP + NAP.

    Equation (12): ``eta_ij (1 + tau_ij) factor`` if the residuals are out of balance
    (``factor`` is 2 or 1/2), unchanged otherwise (``factor`` is 1), and eta0 once the
    edge is no longer active.
    """
    moved = eta if factor == 1.0 else eta * (1.0 + tau) * factor
    return np.where(active, moved, eta0)


def grow(
    budget: Vector,
    growths: Vector,
    spent: Vector,
    change: float,
    budget0: float,
    decay: float,
    trigger: float,
) -> tuple[Vector, Vector]:
    """Return the budgets T_ij, and how often each was raised, by equation (10).

    Parameters
    ----------
    budget, growths, spent : ndarray of shape (degree,)
    change : float
        ``|f_i(theta_i^t) - f_i(theta_i^(t-1))|``; zero where there is no t - 1.
    budget0, decay, trigger : float
        The paper's T, alpha and beta. The k-th raise adds ``alpha^k T``, so a budget
        stays below ``T / (1 - alpha)``, which is equation (11).
    """
    if not change > trigger:
        return budget, growths
    raised = spent >= budget
    growths = growths + raised
    return budget + np.where(raised, decay**growths * budget0, 0.0), growths


def clamp(eta: Vector, eta0: Vector | float, span: float = 1e6) -> Vector:
    """Limit penalties to a factor ``span`` of eta0, so that none overflows."""
    return np.minimum(np.maximum(eta, eta0 / span), eta0 * span)
