"""Affine structure from motion, as PPCA of image coordinates; metric upgrade."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.schema import choice
from dadmm.data.patterns import observed_means
from dadmm.problems.base import Traits, as_floats
from dadmm.problems.missing import IncompletePPCA
from dadmm.problems.ppca import PPCA

STARTS = ("frame", "random")


class StructureFromMotion(PPCA):
    """PPCA in which each sample is one image coordinate of all points in a frame.

    A node is a camera with some frames. W (N, 3) is the structure, which all cameras
    share; the latent means of a camera's rows are its motion; mu is fixed at zero.

    Parameters
    ----------
    rows : ndarray of shape (2 F_i, N)
        Image coordinates of N points, x and y of one frame after the other. If some
        point is lost (NaN), the object is a `LostTracks`.
    start : {"frame", "random"}
        Where a run without a merged start begins: as the authors from the camera's
        first frame, W = [x + 0.1, y + 0.1, 1]; or a random W, which is much slower.

    Examples
    --------
    >>> import dadmm
    >>> tracks, _ = dadmm.datasets.turntable(n_frames=20, n_points=30)
    >>> frames = dadmm.shard.split_frames(tracks, 5)
    >>> cameras = [dadmm.problems.StructureFromMotion(rows) for rows in frames]
    >>> result = dadmm.solve(cameras, dadmm.Topology.ring(5))
    >>> result.status, result.parts(0).W.shape
    ('stationary', (30, 3))
    """

    standardised = PPCA.standardised  # a merged start is possible in place of `init`
    free_axes = True  # the structure is known up to an affine map
    usual_init = "independent"  # from each camera's own first frame
    traits = Traits(
        sends="W (the structure), mu and a", title="structure from motion",
        tracks=True, components=3, nodes=5,
    )  # fmt: skip

    def __init__(self, rows: Matrix, *, start: str = "frame") -> None:
        rows = as_floats("structure from motion", "rows", rows)
        if rows.ndim != 2 or len(rows) % 2 or not len(rows):
            raise ProblemError(
                "structure from motion needs x and y of each frame, rows of shape "
                f"(2 F, N), got {rows.shape}"
            )
        choice(STARTS).check("start", start, ProblemError)
        self.rows = rows - observed_means(rows, axis=1)
        self.start = start
        super().__init__(self.rows, 3, zero_mean=True)

    def init(self, rng: np.random.Generator) -> Vector:
        if self.start == "random":
            return super().init(rng)
        x, y = _first_seen(self.rows[0::2]) + 0.1, _first_seen(self.rows[1::2]) + 0.1
        lost = self.free_offsets and len(self.rows) > 2
        third = _first_seen(self.rows[-2::-2]) if lost else np.ones(len(x))
        W = np.column_stack([x, y, third])
        return self.layout.pack(W=W, mu=0.0, a=1.0 / (0.5 * rng.random() + 0.5))

    def motion(self, theta: Vector) -> Matrix:
        """Return the affine camera of each row, E[z], shape (2 F_i, 3)."""
        return self.latent(theta, self.rows)


class LostTracks(IncompletePPCA, StructureFromMotion):
    """Structure from motion of a camera that loses tracks (NaN in its rows).

    The arguments are those of `StructureFromMotion`. The translation of a row is a free
    offset, because not all points are observed, and the structure is known up to a
    translation. The start "frame" is W = [x + 0.1, y + 0.1, x'], from the first frame
    in which each point is observed; x' is from the last one.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(4, 5))
    >>> rows[0, 0] = np.nan
    >>> type(StructureFromMotion(rows)).__name__
    'LostTracks'
    """

    free_offsets = True
    standardised = IncompletePPCA.standardised


def _first_seen(rows: Matrix) -> Vector:
    """Return the first observed coordinate of each point, or zero, (N,)."""
    first = np.argmin(np.isnan(rows), axis=0)
    found = np.take_along_axis(rows, first[None], axis=0)[0]
    return np.where(np.isnan(found), 0.0, found)


StructureFromMotion.with_gaps = LostTracks


class Reconstruction(NamedTuple):
    """Cameras and points, up to a similarity and a reflection in depth."""

    motion: Matrix  # (2 F, 3) two rows per frame
    structure: Matrix  # (N, 3)
    metric: bool  # False if the frames do not resolve the affine ambiguity


def upgrade(motion: Matrix, structure: Matrix) -> Reconstruction:
    """Remove the affine ambiguity of ``measurements = motion @ structure.T``.

    Motion (2 F, 3) has the x row and the y row of each frame; structure is (N, 3).
    Tomasi and Kanade (1992), for scaled orthographic cameras: find the symmetric
    ``L = Q Q'`` for which the two rows of every frame are orthogonal and equally long,
    with a mean square length of one. The result is ``motion Q`` and ``structure Q^-T``.
    """
    x, y = motion[0::2], motion[1::2]
    homogeneous = np.vstack([_products(x, y), _products(x, x) - _products(y, y)])
    scale = (_products(x, x) + _products(y, y)).mean(axis=0) / 2.0
    weight = np.linalg.norm(homogeneous)  # gives the scale the weight of all others
    A = np.vstack([homogeneous, weight * scale])
    b = np.append(np.zeros(len(homogeneous)), weight)
    entries = np.linalg.lstsq(A, b, rcond=None)[0]  # l11, l12, l13, l22, l23, l33
    lengths, axes = np.linalg.eigh(entries[[[0, 1, 2], [1, 3, 4], [2, 4, 5]]])
    if lengths[0] <= 1e-9 * lengths[-1]:
        return Reconstruction(motion, structure, metric=False)
    Q = axes * np.sqrt(lengths)
    return Reconstruction(motion @ Q, np.linalg.solve(Q, structure.T).T, metric=True)


def _products(u: Matrix, v: Matrix) -> Matrix:
    """Return the coefficients of ``u' L v`` in the six entries of symmetric L."""
    i, j = np.triu_indices(3)
    return np.ascontiguousarray(u[:, i] * v[:, j] + (i != j) * u[:, j] * v[:, i])
