"""Figures of the paper's experiments: angles and structures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dadmm.core.layout import Matrix
from dadmm.drawing.style import (
    SCHEME_STYLE,
    SPARE,
    curve,
    legend,
    log_axis,
    quantiles,
    sheet,
    styled,
)


@styled
def angles(curves: Mapping[str, Mapping[str, Matrix]], ylabel: str) -> Figure:
    """Draw the paper's figure: angle against iteration, one panel per graph.

    ``curves`` (n_starts, n_iterations) are by title of the panel and scheme; in
    degrees, NaN after the end of a run. The line is the median over the starts, the
    band their quartiles, the marker the median of the last iterations. A run that has
    ended keeps its last angle.
    """
    figure, axes = sheet(len(curves), 3.5, 2.7, sharey=True)
    figure.supylabel(ylabel, fontsize=9)
    schemes = list(dict.fromkeys(s for panel in curves.values() for s in panel))
    for axis, (name, panel) in zip(axes, curves.items(), strict=False):
        for scheme, starts in panel.items():
            kept, ends = _held(np.asarray(starts, dtype=float))
            if not len(ends):
                continue
            spread = quantiles(kept[:, : ends.max()].T, (0.25, 0.5, 0.75), 1)
            style = SCHEME_STYLE.get(scheme, SPARE)
            curve(axis, spread, style, 0.18, end=int(np.median(ends)))
        axis.set_title(name)
        log_axis(axis, unit="°")
    handles = {s: Line2D([], [], **SCHEME_STYLE.get(s, SPARE)) for s in schemes}
    legend(figure, axes[len(curves) :], handles)
    return figure


def _held(starts: Matrix) -> tuple[Matrix, np.ndarray]:
    """Return curves (n_starts, n_iterations) that keep their last value, and ends."""
    known = np.isfinite(starts)
    starts, known = starts[known.any(axis=1)], known[known.any(axis=1)]
    latest = np.maximum.accumulate(np.where(known, np.arange(known.shape[1]), 0), 1)
    return np.take_along_axis(starts, latest, 1), latest[:, -1] + 1


@styled
def points3d(structure: Matrix, title: str) -> Figure:
    """Draw 3-D points (N, 3) in an oblique, a front and a top view."""
    points = np.asarray(structure, dtype=float)
    points = points - points.mean(axis=0)
    points = points[np.argsort(-points[:, 2], kind="stable")]  # the near ones on top
    reach = 1.08 * np.abs(points).max()
    x, y, depth = points.T
    look = {"c": depth, "cmap": "cividis_r", "s": max(3, min(14, 3000 / len(x)))}
    figure = Figure(figsize=(9.6, 3.5), layout="constrained")
    figure.suptitle(title)
    solid = figure.add_subplot(1, 3, 1, projection="3d")
    solid.scatter(x, depth, y, depthshade=False, **look)
    solid.view_init(elev=22, azim=-60)
    solid.set(xlabel="x", ylabel="z", zlabel="y", title="Oblique")
    solid.set_aspect("equal")
    solid.locator_params(nbins=4)
    for k, (name, up, vertical) in enumerate(
        (("Front", y, "y"), ("Above", depth, "z"))
    ):
        flat = figure.add_subplot(1, 3, k + 2)
        drawn = flat.scatter(x, up, **look)
        flat.set(xlabel="x", ylabel=vertical, title=name)
        flat.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        flat.locator_params(nbins=5)
        flat.grid()
    figure.colorbar(drawn, ax=figure.axes[1:], label="Depth z", shrink=0.8)
    return figure
