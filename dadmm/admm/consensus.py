"""Consensus ADMM algebra of one node: pure functions of vectors.

Rows follow ``topology.neighbours[i]``. The paper keeps one multiplier per node; here
each edge has its own and the paper's lambda_i (gamma_i, beta_i) is their sum, so that
an edge can change or go without spoiling the others.
"""

from __future__ import annotations

import math

import numpy as np

from dadmm.core.layout import Matrix, Vector


def midpoint(
    theta: Vector | Matrix, neighbours: Matrix, out: Matrix | None = None
) -> Matrix:
    """Return the middle of each edge, rho_ij = (theta_i + theta_j) / 2.

    The auxiliary variable of equations (2) and (3).

    Parameters
    ----------
    theta : ndarray of shape (size,) or (degree, size)
    neighbours : ndarray of shape (degree, size)
    out : ndarray of shape (degree, size), optional
    """
    out = np.add(theta, neighbours, out=out)
    return np.multiply(out, 0.5, out=out)


def relax(anchors: Matrix, midpoints: Matrix, alpha: float | Vector) -> None:
    """Move each edge's anchor z_ij to its midpoint, and beyond if over-relaxed.

    ``z_ij <- alpha rho_ij + (1 - alpha) z_ij``, in place; ``alpha = 1`` is the paper,
    where z_ij is rho_ij itself (Eckstein and Bertsekas, 1992; `ascend` then takes
    ``alpha eta``).

    Parameters
    ----------
    anchors, midpoints : ndarray of shape (degree, size)
    alpha : float or ndarray of shape (degree,)
        Between 0 and 2; an edge with 0 stays as it is.
    """
    if isinstance(alpha, np.ndarray):
        alpha = alpha[:, None]
    anchors *= 1.0 - alpha
    anchors += alpha * midpoints


def prox_point(
    anchors: Matrix, multiplier: Vector, eta: Vector
) -> tuple[Vector, float]:
    """Return centre and weight of the local problem's proximal term.

    Parameters
    ----------
    anchors : ndarray of shape (degree, size)
        z_ij: the edges' midpoints, unless steps are over-relaxed.
    multiplier : ndarray of shape (size,)
        Sum of the edge multipliers, the paper's lambda_i.
    eta : ndarray of shape (degree,)

    Returns
    -------
    centre : ndarray of shape (size,)
        ``(sum_j 2 eta_ij z_ij - 2 lambda_i) / weight``.
    weight : float
        ``2 sum_j eta_ij``; zero for a node without neighbours, whose problem is the
        centralised one.

    Notes
    -----
    Completing the square in the paper's M-step: the terms ``- 2 gamma_i +
    sum_j eta_ij (mu_i + mu_j)`` and ``2 sum_j eta_ij`` of equation (15), for all parts
    of theta at once.
    """
    total = float(eta.sum())
    if total == 0.0:
        return np.zeros(anchors.shape[1]), 0.0
    centre = eta @ anchors
    centre -= multiplier
    centre /= total
    return centre, 2.0 * total


def ascend(
    multipliers: Matrix,
    theta: Vector | Matrix,
    neighbours: Matrix,
    eta: Vector,
    out: Matrix | None = None,
) -> Matrix:
    """Return the edge multipliers after a dual step towards agreement.

    Parameters
    ----------
    multipliers : ndarray of shape (degree, size)
    theta : ndarray of shape (size,) or (degree, size)
        Parameters of this node, as the neighbours have them.
    neighbours : ndarray of shape (degree, size)
        Parameters of the neighbours, as heard.
    eta : ndarray of shape (degree,)
        Penalty of each edge; the same number at both ends under symmetric coupling,
        so that the multipliers of the two ends are exactly opposite.
    out : ndarray of shape (degree, size), optional
        May be ``multipliers`` itself.

    Notes
    -----
    Song, Yoon and Pavlovic, section 4.3 below equation (15), one edge at a time:
    ``gamma_ij + 1/2 eta_ij (mu_i - mu_j)``, for all parts at once.
    """
    step = theta - neighbours
    step *= (0.5 * eta)[:, None]
    return np.add(multipliers, step, out=out)


def influence(drift: Matrix, said: Matrix, heard: Matrix, eta: Vector) -> Vector:
    """Return by how much each edge moved its two ends, the same number at both.

    ``eta_ij (|rho_ij - z_ij| + |theta_i - theta_j| / 2)``: how far the edge's pull at
    either end can have turned, in the units of a gradient.

    Parameters
    ----------
    drift, said, heard : ndarray of shape (degree, size)
    eta : ndarray of shape (degree,)
    """
    gap = said - heard
    moved: Vector = np.sqrt(np.vecdot(drift, drift))
    moved = moved + 0.5 * np.sqrt(np.vecdot(gap, gap))
    return eta * moved


def reflect(theta: Vector, anchors: Matrix) -> Matrix:
    """Return what a node sends over links that lose messages, ``2 theta_i - c_ij``.

    Parameters
    ----------
    theta : ndarray of shape (size,)
    anchors : ndarray of shape (degree, size)
        c_ij, each end's own: ``z_ij - lambda_ij / eta_ij`` as long as nothing was lost.

    Notes
    -----
    R-ADMM (Bastianello, Carli, Schenato and Todescato, arXiv 1901.09252): the receiver
    moves ``c_ji <- (1 - alpha/2) c_ji + alpha/2 (2 theta_i - c_ij)`` if the message
    arrives and keeps c_ji if not. An edge's two directions then need not agree on what
    was lost, which the multipliers of `ascend` would: these drift, and stay wrong.
    """
    return 2.0 * theta - anchors


def neighbour_mean(theta: Vector, neighbours: Matrix) -> Vector:
    """Return the neighbours' mean, theta-bar_i; a node alone is its own mean.

    The right part of equation (5).

    Parameters
    ----------
    theta : ndarray of shape (size,)
    neighbours : ndarray of shape (degree, size)
    """
    if not len(neighbours):
        return theta
    mean: Vector = neighbours.sum(axis=0)
    mean /= len(neighbours)
    return mean


def norm(vector: Vector) -> float:
    """Return the Euclidean length of a contiguous vector."""
    return math.sqrt(vector.dot(vector))


def residuals(
    theta: Vector, mean: Vector, mean_previous: Vector, eta: float
) -> tuple[float, float]:
    """Return the lengths of the primal and dual residual, |r_i| and |s_i|.

    The left and middle part of equation (5).

    Parameters
    ----------
    theta, mean, mean_previous : ndarray of shape (size,)
        Parameters of this node, and the neighbours' mean now and one iteration ago.
    eta : float
        The node's penalty eta_i: the mean over its edges of those used in this
        iteration.
    """
    return norm(theta - mean), eta * norm(mean - mean_previous)


def optimality(drift: Matrix, eta: Vector) -> Vector:
    """Return how far a node is from minimising its Lagrangian, (size,).

    Parameters
    ----------
    drift : ndarray of shape (degree, size)
        How far each midpoint has come from the anchor of the proximal step,
        ``rho_ij - z_ij``.
    eta : ndarray of shape (degree,)

    Notes
    -----
    With ``y_ij = 2 lambda_ij`` after an unrelaxed dual step, the proximal step leaves
    ``grad f_i(theta_i) + sum_j y_ij = -sum_j 2 eta_ij (rho_ij - z_ij)``. The y_ij of an
    edge's two ends cancel, so these vectors sum to minus the gradient of the whole sum.
    """
    return 2.0 * (eta @ drift)


def disagreement(theta: Vector, neighbours: Matrix) -> Vector:
    """Return the root mean square difference from the neighbours by entry, (size,).

    Its length is the root mean square distance; zero for a node alone.
    """
    if not len(neighbours):
        return np.zeros_like(theta)
    gaps = neighbours - theta
    apart: Vector = np.sqrt(np.square(gaps).sum(axis=0) / len(neighbours))
    return apart


def couple(eta: Vector, eta_theirs: Vector) -> Vector:
    """Return the one penalty per edge that both ends use: the mean of their proposals.

    Without it the sum of all multipliers drifts by ``1/2 sum_edges (eta_ij - eta_ji)
    (theta_i - theta_j)`` each iteration and the nodes agree on a wrong point.
    """
    return 0.5 * (eta + eta_theirs)
