"""The units, the start and the final variances of PPCA.

EM is fast, and W, mu and a are of similar size, if the noise is about one and the
columns have mean zero. So rows are centred and divided by the size of the noise. The
start is the closed-form solution of the rows of one node, which it sends to all. If the
noise is small, EM finds the subspace long before the variances inside it, which have a
closed form given the subspace, or an approximation if entries are missing. Sums over
the nodes go along a spanning tree of the graph, outside the iterations. ``rows`` are
those of the nodes of this process, and ``total`` adds up rows of numbers over all
nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import World
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import triangular
from dadmm.data.patterns import posterior

Total = Callable[[Any], Vector]
JITTER = 1e-3  # of the start, in units of the noise: with it, zero axes can grow


class Spectrum(NamedTuple):
    """Sums of squares (k,) of one node's rows along their principal axes (k, D)."""

    squares: Vector
    axes: Matrix


def spectrum(rows: Matrix) -> Spectrum:
    """Return the spectrum of rows (n, D) about their mean."""
    factor = triangular(rows - rows.mean(axis=0))
    _, singular, axes = np.linalg.svd(factor, full_matrices=False)
    return Spectrum(singular**2, axes)


def scale(
    total: Total, rows: list[Matrix], spectra: list[Spectrum], n_components: int
) -> float:
    """Return an estimate of the standard deviation of the noise.

    It is the residual of the best subspace of each node, per degree of freedom. If the
    nodes have too few rows for this, it is the root mean square of all entries.
    """
    table = []
    for own, (squares, _) in zip(rows, spectra, strict=True):
        n, D = own.shape
        freedom = max(n - 1 - n_components, 0) * (D - n_components)
        left = squares[n_components:].sum() if freedom else 0.0
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


def initial_loadings(
    world: World,
    counts: list[int],
    spectra: list[Spectrum],
    unit: float,
    jitter: Matrix,
) -> Matrix:
    """Return the perturbed W (D, M) of the node with most rows, on all ranks.

    ``jitter`` (D, M) is orthonormal, and the same on all ranks. It replaces axes along
    which the node has no signal, because EM never leaves zero.
    """
    D, M = jitter.shape
    everyone = world.gather(np.array(counts, dtype=np.float64)[:, None])
    most = np.argmax(everyone, axis=0) if world.rank == 0 else np.empty(0, np.int64)
    chosen = int(world.share_array(most)[0])
    mine = chosen if world.comm is None else 0
    W = np.zeros((D, M))
    if world.comm is None or world.rank == chosen:
        squares, axes = spectra[mine]
        signal = squares[:M] / (counts[mine] * unit**2) - 1.0
        W[:, : len(signal)] = axes[:M].T * np.sqrt(np.maximum(signal, 0.0))
    W = world.share_array(W.ravel(), root=chosen).reshape(D, M)
    return np.asarray(W + np.where(W.any(axis=0), JITTER, 1.0) * jitter)
