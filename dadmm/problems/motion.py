"""Metric upgrade of an affine reconstruction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dadmm.core.layout import Matrix


class Reconstruction(NamedTuple):
    """Cameras and points, up to a similarity and a reflection in depth."""

    motion: Matrix  # (2 F, 3) two rows per frame
    structure: Matrix  # (N, 3)
    metric: bool  # False if the frames do not resolve the affine ambiguity


def upgrade(motion: Matrix, structure: Matrix) -> Reconstruction:
    """Remove the affine ambiguity of ``measurements = motion @ structure.T``.

    Parameters
    ----------
    motion : ndarray of shape (2 F, 3)
        Affine cameras: the x row and the y row of each frame.
    structure : ndarray of shape (N, 3)

    Notes
    -----
    Tomasi and Kanade (1992), for scaled orthographic cameras: find the symmetric
    ``L = Q Q'`` for which the two rows of every frame are orthogonal and equally long,
    with a mean square length of one, in the least-squares sense. Q is its root. It
    exists only if L is positive definite, which needs at least three different views.
    The result is ``motion Q`` and ``structure Q^-T``.
    """
    x, y = motion[0::2], motion[1::2]
    homogeneous = np.vstack([_products(x, y), _products(x, x) - _products(y, y)])
    scale = (_products(x, x) + _products(y, y)).mean(axis=0) / 2.0
    weight = np.linalg.norm(homogeneous)  # gives the scale the weight of all others
    A = np.vstack([homogeneous, weight * scale])
    b = np.append(np.zeros(len(homogeneous)), weight)
    l11, l12, l13, l22, l23, l33 = np.linalg.lstsq(A, b, rcond=None)[0]
    L = np.array([[l11, l12, l13], [l12, l22, l23], [l13, l23, l33]])
    lengths, axes = np.linalg.eigh(L)
    if lengths[0] <= 1e-9 * lengths[-1]:
        return Reconstruction(motion, structure, metric=False)
    Q = axes * np.sqrt(lengths)
    return Reconstruction(motion @ Q, np.linalg.solve(Q, structure.T).T, metric=True)


def _products(u: Matrix, v: Matrix) -> Matrix:
    """Return the coefficients of ``u' L v`` in the six entries of symmetric L."""
    i, j = np.triu_indices(3)
    return np.ascontiguousarray(u[:, i] * v[:, j] + (i != j) * u[:, j] * v[:, i])
