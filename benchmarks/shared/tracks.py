"""One run of distributed structure from motion on a file of tracks."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.shared.experiment import Case, run_case
from dadmm.core import metrics
from dadmm.data import datasets
from dadmm.data.shard import split_frames
from dadmm.problems import StructureFromMotion

CAMERAS = 5


@lru_cache(maxsize=4)
def cameras(file: Path) -> list[StructureFromMotion]:
    """Return the local problems of a file's frames, split over the cameras."""
    frames = split_frames(datasets.load_tracks(file), CAMERAS)
    return [StructureFromMotion(rows) for rows in frames]


class Work:
    """Run a case on the file of its data; in a form that another process can get."""

    def __init__(self, folder: Path, most: int = 1000, patient: bool = True) -> None:
        self.folder, self.most, self.patient = folder, most, patient

    def __call__(self, case: Case) -> dict:
        problems = cameras(self.folder / f"{case.data}.mat")
        shards = [problem.rows for problem in problems]
        best = metrics.ppca_reference(np.vstack(shards), 3, zero_mean=True)
        targets = {"centralised": best.W}
        longest = 300 if case.setting == "printed" else 1000
        longest = min(longest, self.most)
        return run_case(case, problems, shards, targets, longest, self.patient)
