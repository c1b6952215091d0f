"""Twelve nodes find the principal components of all digits; each node has some of them.

    python examples/digits.py [--out DIR]

The data are the digits of scikit-learn (1797 images of 8 x 8 pixels). Each node of a
grid has a block of consecutive images. D-PPCA gives every node the components of the
whole collection. The picture shows them beside those of PCA on all data in one place,
and those that a node finds alone. Needs the extras `sklearn` and `plot`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import dadmm
from dadmm import Topology
from dadmm.data.shard import split
from dadmm.problems import PPCA, metrics

NODES, COMPONENTS = 12, 10
UNIT = 4.0  # grey levels: about the noise, so that W, mu and a are of one size


def axes_of(W: np.ndarray) -> np.ndarray:
    """Return the principal axes (M, D) of W W', largest first, with fixed signs."""
    axes = np.linalg.svd(W, full_matrices=False)[0].T
    peak = np.abs(axes).argmax(axis=1)
    return axes * np.sign(axes[np.arange(len(axes)), peak])[:, None]


def run() -> dict:
    """Return the axes found together, centrally and alone, and the angles between."""
    samples = load_digits().data / UNIT
    shards = split(samples, NODES)
    problems = [PPCA(rows, COMPONENTS) for rows in shards]
    stopping = dadmm.Stopping(max_iter=2000)
    result = dadmm.solve(problems, Topology.grid(NODES), stopping=stopping)
    best = metrics.ppca_reference(samples, COMPONENTS).W
    alone = [metrics.ppca_reference(rows, COMPONENTS).W for rows in shards]
    found = result.layout.views(result.theta).W
    return {
        "together": axes_of(found[0]),
        "central": axes_of(best),
        "alone": axes_of(alone[0]),
        "angle_together": float(metrics.subspace_angle(found, best).max()),
        "angle_alone": [metrics.subspace_angle(W, best) for W in alone],
        "iterations": result.iterations,
        "converged": result.converged,
    }


def draw(found: dict, out: Path) -> Path:
    """Draw the components as images."""
    from matplotlib.figure import Figure

    names = {
        "central": "all data in one place",
        "together": "D-PPCA, any node",
        "alone": "one node alone",
    }
    figure = Figure(figsize=(7.5, 3.3), layout="constrained")
    grid = figure.subplots(len(names), COMPONENTS)
    for row, (key, name) in zip(grid, names.items(), strict=True):
        for axis, image in zip(row, found[key], strict=True):
            most = np.abs(image).max()
            axis.imshow(image.reshape(8, 8), cmap="PuOr", vmin=-most, vmax=most)
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name.replace(" in", "\nin").replace(", ", ",\n"), fontsize=8)
    figure.suptitle("The first principal components of the digits", fontsize=10)
    path = out / "digits.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    found = run()
    print(f"{found['iterations']} iterations on a grid of {NODES}")
    print(f"largest angle to PCA of all data: {found['angle_together']:.2f} degrees")
    worst, best = max(found["angle_alone"]), min(found["angle_alone"])
    print(f"a node alone: {best:.0f} to {worst:.0f} degrees")
    print(f"picture: {draw(found, out)}")


if __name__ == "__main__":
    main()
