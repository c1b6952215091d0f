"""The units and the final variances of PPCA.

EM is fast, and W, mu and a are of similar size, if the noise is about one and the
columns have mean zero. So rows are centred and divided by the size of the noise. If the
noise is small, EM finds the subspace long before the variances inside it, which have a
closed form given the subspace, or an approximation if entries are missing. Sums over
the nodes go along a spanning tree of the graph, outside the iterations. ``rows`` are
those of the nodes of this process, and ``total`` adds up rows of numbers over all
nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import triangular
from dadmm.data.patterns import posterior

Total = Callable[[Any], Vector]


def scale(total: Total, rows: list[Matrix], n_components: int) -> float:
    """Return an estimate of the standard deviation of the noise.

    It is the residual of the best subspace of each node, per degree of freedom. If the
    nodes have too few rows for this, it is the root mean square of all entries.
    """
    table = []
    for own in rows:
        n, D = own.shape
        freedom = max(n - 1 - n_components, 0) * (D - n_components)
        lengths = np.linalg.svd(triangular(own - own.mean(axis=0)), compute_uv=False)
        left = (lengths[n_components:] ** 2).sum() if freedom else 0.0
        table.append([freedom, left, own.size, np.vdot(own, own)])
    freedom, left, size, square = total(table).tolist()
    if square == 0.0:
        raise ProblemError("all samples are equal; PPCA needs samples that vary")
    if freedom > 0.0 and left / freedom > 1e-14 * square / size:
        return float(np.sqrt(left / freedom))
    return float(np.sqrt(square / size))


def variances(
    total: Total, rows: list[Matrix], basis: Matrix
) -> tuple[Matrix, Vector, float]:
    """Return the maximum-likelihood variances given the subspace.

    ``rows`` have mean zero over all nodes, and ``basis`` (D, M) is orthonormal. Return
    the principal axes (D, M) of all rows inside the subspace, the variances (M,) along
    them in decreasing order, and the variance along every other direction.
    """
    D, M = basis.shape
    table = []
    for own in rows:
        inner = own @ basis
        left = own - inner @ basis.T
        table.append([len(own), np.vdot(left, left), *(inner.T @ inner).ravel()])
    n, left, *squares = total(table).tolist()
    inside, turn = np.linalg.eigh(np.reshape(squares, (M, M)) / n)
    return basis @ turn[:, ::-1], inside[::-1].copy(), left / (n * (D - M))


def rescale_latent(
    total: Total, rows: list[Matrix], W: Matrix, mu: Vector, a: float
) -> Matrix:
    """Return W (D, M) such that the latent variables of all rows have covariance one.

    This is the additional step of parameter-expanded EM (Liu, Rubin and Wu, 1998).
    """
    M = W.shape[1]
    table = []
    for own in rows:
        means, covariances, found = posterior(own, W, mu, a, np.eye(M))
        squares = means.T @ means + np.tensordot(found.counts, covariances, axes=1)
        table.append([len(own), *squares.ravel()])
    n, *squares = total(table).tolist()
    return np.asarray(W @ np.linalg.cholesky(np.reshape(squares, (M, M)) / n))
