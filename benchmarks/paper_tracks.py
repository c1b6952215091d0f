"""The paper's structure from motion on tracks: Caltech Turntable and Hopkins 155.

    python -m benchmarks.paper_tracks caltech --data DIR [--quick] [--out DIR]
    python -m benchmarks.paper_tracks hopkins --data DIR [--quick] [--every 3]

DIR holds one .mat file per object with ``measurement_matrix`` (2F, N), for caltech
001.mat to 005.mat; PAPER.md says where to get them. Five cameras share the frames.
Caltech has ring and complete graph with t_max = 50, and complete with 5; Hopkins has
ring and complete graph. With --every 3 only every third object is taken. Writes
rows.csv, and figures of Caltech; `paper_claims` prints tables.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.shared import experiment
from benchmarks.shared.report import draw_angles, select
from dadmm.data import datasets
from dadmm.data.shard import split_frames
from dadmm.problems import StructureFromMotion, metrics

CAMERAS = 5
OBJECTS = {"001": "BallSander", "002": "BoxStuff", "003": "Rooster", "004": "Standing",
           "005": "StorageBin"}  # fmt: skip
NETWORKS = {
    "caltech": [("ring", CAMERAS, 50), ("complete", CAMERAS, 50),
                ("complete", CAMERAS, 5)],
    "hopkins": [("ring", CAMERAS, 50), ("complete", CAMERAS, 50)],
}  # fmt: skip


@lru_cache(maxsize=4)
def cameras(file: Path) -> list[StructureFromMotion]:
    """Return the local problems of a file's frames, split over the cameras."""
    frames = split_frames(datasets.load_tracks(file), CAMERAS)
    return [StructureFromMotion(rows) for rows in frames]


def check(folder: Path | None, names: Sequence[str], dataset: str) -> None:
    """End the program with one sentence if tracks are absent or cannot be used."""
    advice = (
        f"get them from dataset/{dataset} of {experiment.ARCHIVE}, or arrange tracks "
        "as benchmarks/PAPER.md says in its section Data"
    )
    if folder is None or not folder.is_dir() or not names:
        experiment.leave(
            "--data must name a folder of files 001.mat, 002.mat and so on, each with "
            f"measurement_matrix of shape (2 F, N); {advice}"
        )
    for name in names:
        experiment.readable(advice, cameras, folder / f"{name}.mat")


def outcome(
    case: experiment.Case, folder: Path, most: int = 1000, patient: bool = True
) -> dict:
    problems = cameras(folder / f"{case.data}.mat")
    shards = [problem.rows for problem in problems]
    best = metrics.ppca_reference(np.vstack(shards), 3, zero_mean=True)
    longest = min(300 if case.setting == "printed" else 1000, most)
    return experiment.run_case(
        case, problems, shards, {"centralised": best.W}, longest, patient
    )


def main() -> None:
    chosen = experiment.arguments(
        __doc__, "folder with a .mat file per object", [*NETWORKS]
    )
    name, quick = chosen.experiment, chosen.quick
    caltech = name == "caltech"
    if caltech:
        objects = ["004"] if quick else list(OBJECTS)
    else:
        found = sorted(f.stem for f in chosen.data.glob("*.mat")) if chosen.data else []
        objects = found[:6] if quick else found[:: chosen.every]
    check(chosen.data, objects, name)
    starts = chosen.starts or (2 if quick else 20 if caltech else 5)
    # By default all cameras draw the same noise precision: a few starts tell enough.
    counts = {"printed": starts, "dadmm": min(starts, 2) if caltech else 1}
    most = (200 if quick else 1000) if caltech else 300
    work = partial(outcome, folder=chosen.data, most=most, patient=caltech)
    todo = experiment.cases(name, objects, NETWORKS[name], counts)
    rows, out = experiment.conduct(chosen, name, todo, work)
    if caltech:
        for data, setting in product(objects, experiment.SETTINGS):
            own, title = select(rows, data=data), f"{OBJECTS[data]}-{setting}"
            draw_angles(own, setting, "centralised", out, title)


if __name__ == "__main__":
    main()
