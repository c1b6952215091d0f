"""Penalty rules that are not in the paper, each equation once.

Both ends of an edge know |theta_i - theta_j|, z_ij and, up to its sign, lambda_ij. A
rule of these gives the same number at both ends, without a message. The sources write
rho for 2 eta and y for 2 lambda.
"""

from __future__ import annotations

import math

import numpy as np

from dadmm.core.layout import Matrix, Vector

NOISE = 1e-13  # a smaller relative change is rounding


def row_norms(rows: Matrix) -> Vector:
    """Return the Euclidean norm of each row (n, size), shape (n,)."""
    norms: Vector = np.sqrt(np.vecdot(rows, rows))
    return norms


def damping(t: int, scale: float) -> float:
    """Return the exponent ``(1 + t / scale)^-2``, with which changes of eta vanish.

    A step multiplies a penalty by at most ``bound^damping(t)``, and the exponents sum
    to less than ``scale``. So all changes together are bounded. Under this condition
    ADMM with varying symmetric penalties converges (He, Yang and Wang, 2000).
    """
    return (1.0 + t / scale) ** -2


def bounded(factor: Vector, bound: float) -> Vector:
    """Return factors within ``[1 / bound, bound]``."""
    return np.minimum(np.maximum(factor, 1.0 / bound), bound)


def initial_penalty(curvature: Vector, degree: Vector, diameter: int) -> Vector:
    """Return the penalty of the first iteration of each node (n,).

    For equal curvature h at all nodes of a regular graph the best fixed penalty is near
    ``h / (2 degree sqrt(1 - s^2))``, where s is the second eigenvalue of the random
    walk (Ghadimi, Teixeira, Shames and Johansson, 2015). On complete graphs, rings and
    chains ``sqrt(1 - s^2)`` is about ``1 / sqrt(1 + (diameter / 3.2)^2)``.
    """
    return 0.5 * curvature / degree * math.sqrt(1.0 + (diameter / 3.2) ** 2)


def spectral_ratio(
    multiplier_change: Vector,
    anchor_change: Vector,
    multipliers: Vector,
    anchors: Vector,
) -> Vector:
    """Return the spectral ratio of each edge, (degree,): the penalty to move towards.

    It is ``|lambda - lambda_old| / |z - z_old|``, per edge. McCann and Wohlberg (IEEE
    Open Journal of Signal Processing, 2024) have the rule for one penalty of the whole
    problem. If only one of the two has changed, the ratio is 0 or infinite, and the
    bound on a step applies. If both changes are rounding, the ratio is NaN.

    Parameters
    ----------
    multiplier_change, anchor_change : ndarray of shape (degree,)
        |lambda_ij - lambda_ij_old| and |z_ij - z_ij_old|.
    multipliers, anchors : ndarray of shape (degree,)
        |lambda_ij| and |z_ij|, to which rounding is relative.
    """
    rounding = multiplier_change <= NOISE * multipliers
    rounding &= anchor_change <= NOISE * anchors
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rounding, np.nan, multiplier_change / anchor_change)
