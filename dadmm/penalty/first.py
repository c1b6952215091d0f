"""The first penalty of an edge, from the curvature at its ends and from the graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dadmm.core.layout import Vector
from dadmm.graphs.measures import common_neighbours, slowness
from dadmm.graphs.topology import Topology

USUAL = 10.0  # where no curvature is known; the paper's


def edge_factors(topology: Topology, arcs: NDArray[np.int64]) -> Vector:
    """Return the first penalty of each of these directed edges, over the curvature.

    For equal curvature h at all nodes of a regular graph, the best constant penalty is
    near ``h / (2 degree sqrt(1 - s^2))``, with the second eigenvalue s of the random
    walk (Ghadimi, Teixeira, Shames and Johansson, 2015). An edge (i, j) gets ``h R_ij /
    (4 sqrt(1 - s^2))``. ``R_ij = 1 / (1 + c_ij / 2)``, with c_ij common neighbours,
    bounds the effective resistance of the edge from above. It is exact on complete
    graphs, on trees and for bridges: a bridge gets the large penalty that it needs.
    """
    resistance = 1.0 / (1.0 + 0.5 * common_neighbours(topology, arcs))
    return np.asarray(0.25 * slowness(topology) * resistance)


def agreed(proposed: Vector, neighbours: Vector) -> tuple[Vector, Vector]:
    """Return the first penalty of each edge, and 1 where it is only a guess.

    It is the larger of both proposals. A proposal is NaN where an end knows no
    curvature. If both are, the penalty is 10.
    """
    eta0 = np.fmax(proposed, neighbours)
    unknown = np.isnan(eta0)
    return np.where(unknown, USUAL, eta0), unknown.astype(np.float64)
