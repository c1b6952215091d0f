"""Structure from motion of one camera that loses tracks."""

from __future__ import annotations

import numpy as np

from dadmm.layout import Vector
from dadmm.problems.missing import IncompletePPCA
from dadmm.problems.ppca import PPCA
from dadmm.problems.sfm import StructureFromMotion


class LostTracks(IncompletePPCA, StructureFromMotion):
    """Structure from motion of a camera that loses tracks (NaN).

    ``StructureFromMotion(rows)`` makes one where a row has a NaN.

    Notes
    -----
    The mean over a row's observed points is not that over all points, so removing it
    does not remove the row's translation. Here the translation is a free offset of the
    row, and what is removed is a start that keeps numbers small: the result does not
    depend on it. The structure is then known up to a translation.
    """

    free_offsets = True

    def init(self, rng: np.random.Generator) -> Vector:
        """Return starting parameters (size,)."""
        if self.start == "random":
            return PPCA.init(self, rng)
        x, y, *_, later, _ = np.where(np.isnan(self.rows), 0.0, self.rows)
        W = np.column_stack([x + 0.1, y + 0.1, later if len(self.rows) > 2 else 1.0])
        return self.layout.pack(W=W, mu=0.0, a=1.0 / (0.5 * rng.random() + 0.5))


StructureFromMotion.with_gaps = LostTracks
