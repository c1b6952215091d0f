"""Penalty rules beyond the paper, each equation once.

An edge's two ends know the same |theta_i - theta_j|, z_ij and (but for its sign)
lambda_ij, so a rule made of these gives both the same number with no message. Where a
source writes rho and y, here rho = 2 eta and y = 2 lambda.
"""

from __future__ import annotations

import math

import numpy as np

from dadmm.core.layout import Matrix, Vector

NOISE = 1e-13  # a relative change below this is rounding, which teaches nothing


def row_norms(rows: Matrix) -> Vector:
    """Return the Euclidean length of each row (n, size), shape (n,)."""
    return np.sqrt(np.vecdot(rows, rows))


def damping(t: int, scale: float) -> float:
    """Return the exponent ``(1 + t / scale)^-2`` that lets a penalty come to rest.

    A step multiplies a penalty by at most ``bound^damping(t)``, and the exponents sum
    to less than ``scale``: all changes together are bounded, which is the condition
    under which ADMM with varying symmetric penalties converges (He, Yang and Wang,
    2000).
    """
    return (1.0 + t / scale) ** -2


def bounded(factor: Vector, bound: float) -> Vector:
    """Return factors within ``[1 / bound, bound]``."""
    return np.minimum(np.maximum(factor, 1.0 / bound), bound)


def initial_penalty(curvature: float, degree: int, diameter: int) -> float:
    """Return the penalty with which to start on a graph.

    For equal curvature h at all nodes of a regular graph the best fixed penalty is
    near ``h / (2 degree sqrt(1 - s^2))``, s the second eigenvalue of the random walk
    (Ghadimi, Teixeira, Shames and Johansson, 2015), and ``sqrt(1 - s^2)`` is about
    ``1 / sqrt(1 + (diameter / 3.2)^2)`` on complete graphs, rings and chains.
    """
    return 0.5 * curvature / degree * math.sqrt(1.0 + (diameter / 3.2) ** 2)


def spectral_ratio(
    turn: Vector, way: Vector, multipliers: Vector, anchors: Vector
) -> Vector:
    """Return the penalty that an edge's recent moves suggest; NaN where they are noise.

    ``|lambda - lambda_old| / |z - z_old|``, per edge: McCann and Wohlberg (IEEE Open
    Journal of Signal Processing, 2024), whose rule is for one penalty in all. Where
    only one of both has moved the ratio is 0 or infinity, and the bound on a step
    decides.

    Parameters
    ----------
    turn, way : ndarray of shape (degree,)
        |lambda_ij - lambda_ij_old| and |z_ij - z_ij_old|.
    multipliers, anchors : ndarray of shape (degree,)
        |lambda_ij| and |z_ij|, to which rounding is relative.
    """
    silent = (turn <= NOISE * multipliers) & (way <= NOISE * anchors)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(silent, np.nan, turn / way)
