"""Structure from motion of one camera that loses tracks."""

from __future__ import annotations

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.problems.missing import IncompletePPCA
from dadmm.problems.ppca import PPCA
from dadmm.problems.sfm import StructureFromMotion


class LostTracks(IncompletePPCA, StructureFromMotion):
    """Structure from motion of a camera that loses tracks (NaN).

    ``StructureFromMotion(rows)`` makes one where a row has a NaN.

    Notes
    -----
    The mean over the observed points of a row differs from the mean over all points, so
    subtracting it does not remove the translation of the row. Therefore the translation
    is a free offset of the row. The mean is subtracted only to keep numbers small; the
    result does not depend on it. The structure is known up to a translation.

    The start "frame" is W = [x + 0.1, y + 0.1, x'], from the first frame in which each
    point is observed; x' is from the last one. It is zero for a point that is never
    observed. (A column of ones, as with complete tracks, would be a translation.)
    """

    free_offsets = True

    def init(self, rng: np.random.Generator) -> Vector:
        """Return starting parameters (size,)."""
        if self.start == "random":
            return PPCA.init(self, rng)
        x, y = _first_seen(self.rows[0::2]), _first_seen(self.rows[1::2])
        third = _first_seen(self.rows[-2::-2]) if len(self.rows) > 2 else 1.0 + 0.0 * x
        W = np.column_stack([x + 0.1, y + 0.1, third])
        return self.layout.pack(W=W, mu=0.0, a=1.0 / (0.5 * rng.random() + 0.5))


def _first_seen(rows: Matrix) -> Vector:
    """Return the first observed coordinate of each point, or zero, (N,)."""
    first = np.argmin(np.isnan(rows), axis=0)
    found = np.take_along_axis(rows, first[None], axis=0)[0]
    return np.where(np.isnan(found), 0.0, found)


StructureFromMotion.with_gaps = LostTracks
