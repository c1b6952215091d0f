"""Affine structure from motion of one camera's frames, as PPCA of image coordinates."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dadmm.core.errors import ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.data.patterns import observed_means
from dadmm.problems.ppca import PPCA

STARTS = ("frame", "random")


class StructureFromMotion(PPCA):
    """PPCA in which each sample is one image coordinate of all points in a frame.

    A node is a camera with some frames. W (N, 3) is the structure, which all cameras
    share; the latent means of a camera's rows are its motion; mu is fixed at zero.

    Parameters
    ----------
    rows : ndarray of shape (2 F_i, N)
        Image coordinates of N points, x and y of one frame after the other. The mean
        over the points is subtracted from each row. If some point is lost (NaN), the
        object is a `LostTracks`.
    start : {"frame", "random"}
        The authors' start from the camera's first frame, W = [x + 0.1, y + 0.1, 1],
        with 1/a drawn from [1/2, 1]; or a random orthonormal W, which is much slower.
    """

    def __new__(cls, rows: Any = (), **_: Any) -> Self:
        """Return an object of this class, or a `LostTracks` if the rows have NaN."""
        return super().__new__(cls, rows)

    def __init__(self, rows: Matrix, *, start: str = "frame") -> None:
        rows = np.asarray(rows, dtype=np.float64)
        if rows.ndim != 2 or len(rows) % 2 or not len(rows):
            raise ProblemError(
                "structure from motion needs x and y of each frame, rows of shape "
                f"(2 F, N), got {rows.shape}"
            )
        if start not in STARTS:
            raise ProblemError(
                f"unknown start {start!r}; choose one of {', '.join(STARTS)}"
            )
        self.rows = rows - observed_means(rows, axis=1)
        self.start = start
        super().__init__(self.rows, 3, zero_mean=True)

    def init(self, rng: np.random.Generator) -> Vector:
        """Return starting parameters (size,)."""
        if self.start == "random":
            return super().init(rng)
        x, y = self.rows[:2]
        W = np.column_stack([x + 0.1, y + 0.1, np.ones_like(x)])
        return self.layout.pack(W=W, mu=0.0, a=1.0 / (0.5 * rng.random() + 0.5))

    def motion(self, theta: Vector) -> Matrix:
        """Return the affine camera of each row, E[z], shape (2 F_i, 3)."""
        return self.latent(theta, self.rows)
