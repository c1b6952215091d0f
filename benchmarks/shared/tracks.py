"""One run of distributed structure from motion on a file of tracks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from benchmarks.shared.experiment import ARCHIVE, Case, leave, readable, run_case
from dadmm.data import datasets
from dadmm.data.shard import split_frames
from dadmm.problems import StructureFromMotion, metrics

CAMERAS = 5


@lru_cache(maxsize=4)
def cameras(file: Path) -> list[StructureFromMotion]:
    """Return the local problems of a file's frames, split over the cameras."""
    frames = split_frames(datasets.load_tracks(file), CAMERAS)
    return [StructureFromMotion(rows) for rows in frames]


def check(folder: Path | None, names: Sequence[str], dataset: str) -> None:
    """End the program with one sentence if tracks are absent or cannot be used.

    Parameters
    ----------
    folder : Path, optional
    names : sequence of str
        Of the files, without ``.mat``; none is an error, too.
    dataset : str
        The folder of the authors' archive that holds them.
    """
    advice = (
        f"get them from {dataset} of {ARCHIVE}, or arrange tracks as "
        "benchmarks/PAPER.md says in its section Data"
    )
    if folder is None or not folder.is_dir() or not names:
        leave(
            "--data must name a folder of files 001.mat, 002.mat and so on, each with "
            f"measurement_matrix of shape (2 F, N); {advice}"
        )
    for name in names:
        readable(advice, cameras, folder / f"{name}.mat")


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
