"""Structure from motion on the Caltech Turntable with tracks removed.

    python -m benchmarks.missing_tracks --data DIR [--scheme NAME]

DIR holds 001.mat to 005.mat, five cameras each, on a ring. Of their tracks 5, 10 or
30 % are removed: at random, x and y of a point in a frame together, or as blocks, for
each camera a run of points of its own in all of its frames. Angles are those of the
worst camera's structure, about its mean, to the centralised solution of all tracks;
and of the structure that EM finds in one place, from the same tracks with gaps.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import dadmm
from benchmarks.shared.tracks import CAMERAS, check
from dadmm.data import datasets
from dadmm.data.patterns import remove_entries
from dadmm.data.shard import split_frames
from dadmm.problems import StructureFromMotion, metrics

OBJECTS = ("001", "002", "003", "004", "005")
LOSSES = (0.0, 0.05, 0.1, 0.3)


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


def outcome(tracks: np.ndarray, gappy: np.ndarray, scheme: str) -> dict:
    """Return how a ring of cameras does on tracks with gaps."""
    centred = tracks - tracks.mean(axis=1, keepdims=True)
    best = metrics.ppca_reference(centred, 3, zero_mean=True)
    shards = split_frames(gappy, CAMERAS)
    cameras = [StructureFromMotion(rows) for rows in shards]
    result = dadmm.solve(
        cameras,
        dadmm.Topology.ring(CAMERAS),
        scheme=scheme,
        max_iter=5000,
        record=False,
    )
    central = dadmm.solve(
        [StructureFromMotion(gappy)],
        dadmm.Topology.chain(1),
        tolerance=0,
        max_iter=1000,
        record=False,
    )
    errors = [np.empty(0)]
    for i, full in enumerate(split_frames(tracks, CAMERAS)):
        lost = np.isnan(shards[i])
        if lost.any():
            filled, _ = cameras[i].impute(result.theta[i], shards[i])  # type: ignore
            errors.append((filled - full)[lost])
    wrong = np.concatenate(errors)
    return {
        "angle": angle(result, best.W),
        "central": angle(central, best.W),
        "iterations": result.iterations,
        "converged": result.converged,
        "pixels": float(np.sqrt(np.mean(wrong**2))) if len(wrong) else np.nan,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of 001.mat to 005.mat")
    parser.add_argument("--scheme", default="auto")
    chosen = parser.parse_args()
    check(chosen.data, OBJECTS, "dataset/caltech")
    print("| object | removed | | angle | centralised EM | pixels | iterations |")
    print("|---|---|---|---|---|---|---|")
    for name in OBJECTS:
        tracks = datasets.load_tracks(chosen.data / f"{name}.mat")
        for loss in LOSSES:
            ways = {"random": remove_entries(tracks, loss, 0, together=2)}
            ways |= {"blocks": hide(tracks, loss)} if loss else {}
            for way, gappy in ways.items():
                found = outcome(tracks, gappy, chosen.scheme)
                print(
                    f"| {name} | {loss:.0%} | {way if loss else ''} | "
                    f"{found['angle']:.2f} | {found['central']:.2f} | "
                    f"{found['pixels']:.2f} | "
                    f"{found['iterations']}{'' if found['converged'] else ' (not)'} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
