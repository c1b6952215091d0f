"""Eight nodes, each with a strip of a scratched photograph, repair it together.

    python examples/inpainting.py [--out DIR]

The samples are patches of a photograph of scikit-learn; scratched pixels are missing
entries. The nodes agree on one model of patches by D-PPCA, and each fills in its own
strip. Messages hold parameters, not pixels. Needs the extras `sklearn` and `plot`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_sample_image

import dadmm
from dadmm import Topology
from dadmm.problems import PPCA

NODES, SIDE, STEP, COMPONENTS = 8, 8, 4, 12


def photograph() -> np.ndarray:
    """Return a grey image in which a step of brightness is about the noise."""
    image = load_sample_image("china.jpg").mean(axis=2)
    height, width = 24 * NODES, 320  # strips that whole patches cover
    image = image[20 : 20 + 2 * height, : 2 * width]
    return image.reshape(height, 2, width, 2).mean(axis=(1, 3)) / 16.0


def scratch(image: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return the image with scratches and lost pixels as NaN."""
    rng = np.random.default_rng(seed)
    height, width = image.shape
    lost = rng.random(image.shape) < 0.15
    y, x = np.mgrid[:height, :width]
    for _ in range(14):
        angle, where = rng.uniform(0, np.pi), rng.uniform(0, width)
        away = np.cos(angle) * (x - where) + np.sin(angle) * (y - height / 2)
        lost |= np.abs(away) < 1.2
    return np.where(lost, np.nan, image)


def patches(strip: np.ndarray) -> np.ndarray:
    """Return overlapping patches of a strip as rows, (n, SIDE^2)."""
    windows = sliding_window_view(strip, (SIDE, SIDE))[::STEP, ::STEP]
    return windows.reshape(-1, SIDE * SIDE)


def repair(strip: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the strip with its gaps filled by the mean of all patches over them."""
    total, count = np.zeros(strip.shape), np.zeros(strip.shape)
    corners = [
        (a, b)
        for a in range(0, strip.shape[0] - SIDE + 1, STEP)
        for b in range(0, strip.shape[1] - SIDE + 1, STEP)
    ]
    for (a, b), patch in zip(corners, rows, strict=True):
        total[a : a + SIDE, b : b + SIDE] += patch.reshape(SIDE, SIDE)
        count[a : a + SIDE, b : b + SIDE] += 1
    return np.where(np.isnan(strip), total / np.maximum(count, 1), strip)


def run(seed: int = 0) -> dict:
    """Return the images and the error over the lost pixels, in grey levels of 256."""
    image = photograph()
    broken = scratch(image, seed)
    strips = np.vsplit(broken, NODES)
    samples = [patches(strip) for strip in strips]
    problems = [PPCA(rows, COMPONENTS) for rows in samples]
    stopping = dadmm.Stopping(max_iter=30)  # enough for a picture
    result = dadmm.solve(problems, Topology.chain(NODES), stopping=stopping)
    repaired = np.vstack(
        [
            repair(strip, problem.impute(theta, rows)[0])
            for strip, problem, theta, rows in zip(
                strips, problems, result.theta, samples, strict=True
            )
        ]
    )
    lost = np.isnan(broken)
    plain = np.where(lost, np.nanmean(broken), broken)

    def error(guess):
        return float(16.0 * np.sqrt(np.mean((guess - image)[lost] ** 2)))

    return {
        "image": image, "broken": broken, "repaired": repaired,
        "lost": float(lost.mean()), "error": error(repaired), "plain": error(plain),
        "iterations": result.iterations,
    }  # fmt: skip


def draw(found: dict, out: Path) -> Path:
    """Draw the image before, between and after."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.0), layout="constrained")
    axes = figure.subplots(1, 3)
    titles = {
        "image": "the photograph",
        "broken": f"{100 * found['lost']:.0f} % lost",
        "repaired": "repaired by eight nodes",
    }
    for axis, (name, title) in zip(axes, titles.items(), strict=True):
        axis.imshow(found[name], cmap="gray", vmin=0, vmax=16)
        axis.set_facecolor("#D55E00")
        axis.set(title=title, xticks=[], yticks=[])
    path = out / "inpainting.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    found = run()
    print(
        f"{100 * found['lost']:.0f} % of the pixels lost, "
        f"{found['iterations']} iterations"
    )
    print(f"error over lost pixels: {found['error']:.1f} of 256 grey levels")
    print(f"by the mean grey: {found['plain']:.1f}")
    print(f"picture: {draw(found, out)}")


if __name__ == "__main__":
    main()
