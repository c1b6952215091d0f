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

    ``names`` are those of the files, ``dataset`` their folder in the authors' archive.
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


def outcome(case: Case, folder: Path, most: int = 1000, patient: bool = True) -> dict:
    """Run a case on the file of its data, for at most so many iterations."""
    problems = cameras(folder / f"{case.data}.mat")
    shards = [problem.rows for problem in problems]
    best = metrics.ppca_reference(np.vstack(shards), 3, zero_mean=True)
    longest = min(300 if case.setting == "printed" else 1000, most)
    return run_case(case, problems, shards, {"centralised": best.W}, longest, patient)
