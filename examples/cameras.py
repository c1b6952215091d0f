"""Five cameras reconstruct a cube although each loses a third of its tracks.

    python examples/cameras.py [--out DIR]

The data are a synthetic turntable. Every camera has some of the frames. In each frame a
block of points is hidden, another block for each camera, and some tracks are lost at
random. The cameras agree on the structure by D-PPCA over the tracks they have. Missing
positions are predicted, with a standard deviation. Needs the extra `plot`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import dadmm
from dadmm import Topology
from dadmm.data.shard import split_frames
from dadmm.problems import StructureFromMotion, metrics

CAMERAS, HIDDEN, LOST = 5, 0.25, 0.1


def film(seed: int = 0):
    """Return tracks with and without gaps (2F, N), and the true structure (N, 3)."""
    tracks, structure = dadmm.datasets.turntable(seed=seed)
    rng = np.random.default_rng(seed)
    gaps = np.zeros(tracks.shape, dtype=bool)
    n_frames, n_points = len(tracks) // 2, tracks.shape[1]
    for camera, frames in enumerate(np.array_split(np.arange(n_frames), CAMERAS)):
        first = camera * n_points // CAMERAS
        hidden = (first + np.arange(int(HIDDEN * n_points))) % n_points
        for frame in frames:
            gaps[2 * frame : 2 * frame + 2, hidden] = True
    lost = rng.random((n_frames, n_points)) < LOST
    gaps |= np.repeat(lost, 2, axis=0)  # x and y are lost together
    return tracks, np.where(gaps, np.nan, tracks), structure


def run(seed: int = 0) -> dict:
    """Return structures with and without gaps, and how well gaps were filled."""
    tracks, gappy, truth = film(seed)
    topology, stopping = Topology.ring(CAMERAS), dadmm.Stopping(max_iter=3000)
    found = {"missing": float(np.isnan(gappy).mean()), "truth": truth}
    for name, rows in {"all tracks": tracks, "with gaps": gappy}.items():
        shards = split_frames(rows, CAMERAS)
        problems = [StructureFromMotion(shard) for shard in shards]
        result = dadmm.solve(problems, topology, stopping=stopping)
        W = result.layout.views(result.theta).W
        W = W - W.mean(axis=1, keepdims=True)  # a camera's position is its own
        centred = truth - truth.mean(axis=0)
        found[name] = {
            "angle": float(metrics.subspace_angle(W, centred).max()),
            "iterations": result.iterations,
            "structure": _aligned(W[0], centred),
        }
    errors, spreads = [], []
    for problem, theta, shard, full in zip(
        problems, result.theta, shards, split_frames(tracks, CAMERAS), strict=True
    ):
        filled, variance = problem.impute(theta, shard)
        gap = np.isnan(shard)
        errors.append((filled - full)[gap])
        spreads.append(np.sqrt(variance[gap]))
    found["error"] = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    found["spread"] = float(np.mean(np.concatenate(spreads)))
    return found


def _aligned(W: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return W in the frame of the truth: a structure is known up to that."""
    return W @ np.linalg.lstsq(W, truth, rcond=None)[0]


def draw(found: dict, out: Path) -> Path:
    """Draw the structures over the truth, from above."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    centred = found["truth"] - found["truth"].mean(axis=0)
    for axis, name in zip(axes, ("all tracks", "with gaps"), strict=True):
        axis.plot(*centred[:, :2].T, "o", color="0.7", markersize=7, label="truth")
        shape = found[name]["structure"]
        axis.plot(*shape[:, :2].T, ".", color="#0072B2", markersize=4, label="found")
        axis.set(
            title=f"{name}: {found[name]['angle']:.2f} degrees off", aspect="equal"
        )
    axes[0].legend(loc="lower left", bbox_to_anchor=(0.08, 0.08), fontsize=8)
    figure.suptitle(f"The cube from above; {100 * found['missing']:.0f} % missing")
    path = out / "cameras.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    found = run()
    for name in ("all tracks", "with gaps"):
        print(f"{name}: {found[name]['angle']:.2f} degrees from the true structure")
    print(
        f"missing positions found to {found['error']:.2f} pixels "
        f"(predicted {found['spread']:.2f}; the tracker's noise is 0.5)"
    )
    print(f"picture: {draw(found, out)}")


if __name__ == "__main__":
    main()
