"""Bounds and estimates of a run's distance from the optimum.

With symmetric coupling, ``y_ij = 2 lambda_ij`` and ``g_i`` the node's stationarity
(`dadmm.admm.edges.Edges.measure`), ``grad f_i(theta_i) = -sum_j y_ij - g_i``. The y_ij
of an edge's two ends cancel, so the nodes' gradients sum to ``-sum_i g_i``. If all g_i
and the disagreement of the nodes are small, so is the gradient of the whole sum. The
distance from the optimum is then small, too, if the sum is strongly convex.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Vector
from dadmm.graphs.topology import Topology


class Certificate(NamedTuple):
    """Lengths that each node computes by itself, each (n_nodes,)."""

    disagreement: Vector  # root mean square distance from the neighbours, as received
    residual: Vector  # |g_i|
    gaps: Vector  # each node's share of the estimated gap
    lag: Vector  # root mean square distance from the neighbours' copies of it

    @property
    def gap(self) -> float:
        """An estimate of ``sum_i f_i(theta_i)`` minus the optimum, for convex f_i.

        Convexity gives ``sum_i f_i(theta_i) - f* <= sum_i grad f_i . (theta_i - x*)``,
        which is at most ``sum_i |1/2 sum_j y_ij . (theta_i - theta_j)| + |g_i| R`` for
        any R that exceeds every |theta_i - x*|. Here R is |theta_i|, so this is not a
        bound: while the nodes are further from the optimum than from zero, it can be
        too small by orders of magnitude.
        """
        return float(self.gaps.sum())


def connectivity(topology: Topology) -> float:
    """Return the second smallest eigenvalue of the graph's Laplacian.

    The nodes' squared distances from their mean sum to at most those across edges over
    this number (Fiedler, 1973). It is infinite for one node.
    """
    n = topology.n_nodes
    if n == 1:
        return math.inf
    laplacian = np.zeros((n, n))
    laplacian[tuple(topology.edges.T)] = -1.0
    np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
    return float(np.linalg.eigvalsh(laplacian)[1])


def distance_bound(
    certificate: Certificate, topology: Topology, strong: float, smooth: float
) -> float:
    """Return a bound on every node's distance from the optimum.

    Parameters
    ----------
    certificate : Certificate
    topology : Topology
    strong : float
        Strong convexity of the whole sum: its smallest curvature.
    smooth : float
        Largest curvature of any one f_i.

    Notes
    -----
    With P the nodes' distance from their mean m, ``P^2 <= sum_edges |theta_i -
    theta_j|^2 / connectivity``, where theta_j differs from the copy at i by its lag at
    most. Then ``|sum_i grad f_i(m)| <= sum_i |g_i| + smooth sqrt(n) P`` and
    ``|theta_i - x*| <= P + |sum_i grad f_i(m)| / strong``.
    """
    degrees = np.diff(topology.offsets)
    across = math.sqrt(0.5 * float(degrees @ certificate.disagreement**2))
    across += math.sqrt(0.5 * float(degrees @ certificate.lag**2))
    spread = across / math.sqrt(connectivity(topology))
    n = topology.n_nodes
    gradient = float(certificate.residual.sum()) + smooth * math.sqrt(n) * spread
    return spread + gradient / strong
