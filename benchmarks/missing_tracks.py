"""How far do lost tracks move the structure? On the Caltech Turntable.

    python -m benchmarks.missing_tracks --data DIR [--scheme NAME] [--init NAME]

DIR holds 001.mat to 005.mat, five cameras each, on a ring. Of their tracks 5, 10 or
30 % are removed: at random, x and y of a point in a frame together, or as blocks, for
each camera a run of points of its own in all of its frames. Angles are those of the
worst camera's structure, about its mean, to the centralised solution of all tracks;
and of the structure that EM finds in one place, from the same tracks with gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

import dadmm
from benchmarks.paper_caltech import OBJECTS
from benchmarks.shared.commands import parser_of, print_markdown
from benchmarks.shared.tracks import CAMERAS, check
from dadmm.data import datasets
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split_frames
from dadmm.problems import StructureFromMotion, metrics

LOSSES = (0.0, 0.05, 0.1, 0.3)
HEAD = ("object", "removed", "", "angle", "centralised EM", "pixels", "iterations")


def hide(tracks: np.ndarray, fraction: float) -> np.ndarray:
    """Return the tracks, from each camera of which a block of points is hidden."""
    n_points, parts = tracks.shape[1], []
    for i, rows in enumerate(split_frames(tracks, CAMERAS)):
        first = i * n_points // CAMERAS
        hidden = (first + np.arange(round(fraction * n_points))) % n_points
        rows[:, hidden] = np.nan
        parts.append(rows)
    return np.vstack(parts)


def angle(result: dadmm.Result, best: np.ndarray) -> float:
    """Return the largest angle of a node's structure about its mean, in degrees."""
    W = result.layout.views(result.theta).W
    return float(metrics.subspace_angle(W - W.mean(axis=1, keepdims=True), best).max())


def cells(
    tracks: np.ndarray, gappy: np.ndarray, scheme: str, init: str | None
) -> list[str]:
    """Return how a ring of cameras does on tracks with gaps."""
    centred = tracks - tracks.mean(axis=1, keepdims=True)
    best = metrics.ppca_reference(centred, 3, zero_mean=True)
    shards = split_frames(gappy, CAMERAS)
    cameras = [StructureFromMotion(rows) for rows in shards]
    ring, one = dadmm.Topology.ring(CAMERAS), dadmm.Topology.chain(1)
    stop = dadmm.Stopping(max_iter=5000)
    result = dadmm.solve(
        cameras, ring, scheme=scheme, init=init, stopping=stop, record=False
    )
    stop = dadmm.Stopping(tolerance=0, max_iter=1000)
    central = dadmm.solve(
        [StructureFromMotion(gappy)], one, init="shared", stopping=stop, record=False
    )
    errors = [np.empty(0)]
    for i, full in enumerate(split_frames(tracks, CAMERAS)):
        lost = np.isnan(shards[i])
        if lost.any():
            filled, _ = cameras[i].impute(result.theta[i], shards[i])  # type: ignore
            errors.append((filled - full)[lost])
    wrong = np.concatenate(errors)
    pixels = float(np.sqrt(np.mean(wrong**2))) if len(wrong) else np.nan
    numbers = (angle(result, best.W), angle(central, best.W), pixels)
    ended = f"{result.iterations}{'' if result.converged else ' (not)'}"
    return [*(f"{number:.2f}" for number in numbers), ended]


def rows(folder: Path, scheme: str, init: str | None) -> Iterator[list[str]]:
    for name in OBJECTS:
        tracks = datasets.load_tracks(folder / f"{name}.mat")
        for loss in LOSSES:
            ways = {"random": remove_entries(tracks, loss, 0, together=2)}
            ways |= {"blocks": hide(tracks, loss)} if loss else {}
            for way, gappy in ways.items():
                found = cells(tracks, gappy, scheme, init)
                yield [name, f"{loss:.0%}", way if loss else "", *found]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder of 001.mat to 005.mat")
    parser.add_argument("--scheme", default="snap")
    parser.add_argument("--init", help="default: that of the scheme")
    chosen = parser.parse_args()
    check(chosen.data, list(OBJECTS), "dataset/caltech")
    print_markdown(HEAD, rows(chosen.data, chosen.scheme, chosen.init))


if __name__ == "__main__":
    main()
