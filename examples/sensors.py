"""Thirty sensors map a temperature field although a fifth of them are broken.

    python examples/sensors.py [--out DIR]

Each sensor has its position and its own readings, and sends to the sensors within
reach. All agree on the coefficients of a smooth field: by least squares, which the
broken sensors spoil, and by Huber's loss, which they do not. Needs the extra `plot`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import dadmm
from dadmm import Topology
from dadmm.problems import Huber, LeastSquares

SENSORS, READINGS, BROKEN, WAVES = 30, 20, 6, 2


def features(place: np.ndarray) -> np.ndarray:
    """Return products of low cosines at places (..., 2), shape (..., (WAVES + 1)^2)."""
    waves = np.pi * np.arange(WAVES + 1)
    x, y = np.cos(place[..., :1] * waves), np.cos(place[..., 1:] * waves)
    return (x[..., :, None] * y[..., None, :]).reshape(*place.shape[:-1], -1)


def network(seed: int = 3):
    """Return places, readings (SENSORS, READINGS), the true field, who is broken."""
    rng = np.random.default_rng(seed)
    places = rng.random((SENSORS, READINGS, 2)) * 0.3  # a sensor moves about a little
    places += rng.random((SENSORS, 1, 2)) * 0.7
    truth = 3.0 * rng.standard_normal((WAVES + 1) ** 2)
    readings = features(places) @ truth + 0.3 * rng.standard_normal((SENSORS, READINGS))
    broken = rng.choice(SENSORS, BROKEN, replace=False)
    stuck = rng.random((BROKEN, READINGS)) < 0.7
    readings[broken] = np.where(stuck, 40.0, readings[broken])  # stuck at its maximum
    return places, readings, truth, broken


def reach(places: np.ndarray) -> Topology:
    """Join the sensors that are near each other: the smallest radius that connects."""
    home = places.mean(axis=1)
    apart = np.linalg.norm(home[:, None] - home, axis=-1)
    for radius in np.linspace(0.1, 1.5, 141):
        near = [
            (i, j) for i in range(SENSORS) for j in range(i) if apart[i, j] < radius
        ]
        try:
            return Topology.from_edges(SENSORS, near)
        except dadmm.TopologyError:  # not connected yet
            continue
    raise AssertionError("a radius of 1.5 connects the unit square")


def run(seed: int = 3) -> dict:
    """Return the fields found and how wrong they are."""
    places, readings, truth, broken = network(seed)
    topology = reach(places)
    pairs = list(zip(features(places), readings, strict=True))
    corners = np.linspace(0, 1, 60)
    square = np.stack(np.meshgrid(corners, corners), axis=-1)
    fields = {"true field": features(square) @ truth}
    errors, endings = {}, {}
    for name, problems in {
        "least squares": [LeastSquares(X, y, fit_intercept=False) for X, y in pairs],
        "Huber": [
            Huber(X, y, delta=0.5, alpha=1e-3, fit_intercept=False) for X, y in pairs
        ],
    }.items():
        result = dadmm.solve(problems, topology)
        fields[name] = features(square) @ result.solution
        off = fields[name] - fields["true field"]
        errors[name] = float(np.sqrt(np.mean(off**2)))
        endings[name] = f"{result.status} after {result.iterations} iterations"
    return {
        "places": places.mean(axis=1), "broken": broken, "topology": topology,
        "fields": fields, "errors": errors, "endings": endings,
    }  # fmt: skip


def draw(found: dict, out: Path) -> Path:
    """Draw the three fields, with the network on the first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.1), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    low, high = (f(found["fields"]["true field"]) for f in (np.min, np.max))
    for axis, (name, field) in zip(axes, found["fields"].items(), strict=True):
        image = axis.imshow(
            field,
            origin="lower",
            extent=(0, 1, 0, 1),
            vmin=low,
            vmax=high,
            cmap="cividis",
        )
        error = found["errors"].get(name)
        axis.set_xticks([0, 0.5, 1])
        axis.set_title(name if error is None else f"{name}: off by {error:.2g}")
    places, broken = found["places"], found["broken"]
    for i, j in found["topology"].edges:
        axes[0].plot(*places[[i, j]].T, color="white", linewidth=0.5, alpha=0.7)
    axes[0].plot(*places.T, "o", color="white", markersize=4)
    axes[0].plot(*places[broken].T, "X", color="#D55E00", markersize=8, label="broken")
    axes[0].legend(loc="upper right", fontsize=7)
    figure.colorbar(image, ax=axes, shrink=0.8)
    path = out / "sensors.png"
    figure.savefig(path, dpi=150)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path())
    out = parser.parse_args().out
    found = run()
    for name, error in found["errors"].items():
        print(f"{name}: off by {error:.3f}, {found['endings'][name]}")
    print(f"picture: {draw(found, out)}")


if __name__ == "__main__":
    main()
