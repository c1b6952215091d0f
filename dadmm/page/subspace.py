"""Results with a subspace: principal components, and structure from motion."""

from __future__ import annotations

from typing import Any

import numpy as np

from dadmm.core import files
from dadmm.core.errors import DadmmError
from dadmm.core.linalg import principal_axes
from dadmm.drawing.figures import draw_structure
from dadmm.models.model import NAME, load_model
from dadmm.page import thinning
from dadmm.page.markup import details, number, packed, paragraph, table, text
from dadmm.page.parts import Page
from dadmm.page.runs import PageRun

MOST_ROWS = 60  # columns of components
MOST_POINTS = 5000  # of a structure


def components(page: Page, run: PageRun) -> str:
    """Return the principal components: a matrix of their entries, and a table."""
    try:
        model = load_model(run.folder / NAME) if _has_model(run) else None
    except DadmmError as error:
        return paragraph(f"The model cannot be read: {error}")
    W = run.arrays["W"].mean(axis=0) if model is None else model.parameters["W"]
    names = [f"x{k}" for k in range(len(W))]
    if model is not None:
        names = list(model.feature_names)
    axes, lengths = principal_axes(W)
    largest = np.sort(np.argsort(-np.abs(axes).max(axis=1), kind="stable")[:MOST_ROWS])
    axes, names = axes[largest], [names[k] for k in largest]
    heads = [f"component {m + 1}" for m in range(len(lengths))]
    title = page.titled("Components", run)
    few = thinning.said(len(largest), len(W), "columns, with the largest entries,")
    trace = {
        "type": "heatmap", "z": packed(axes, "f4"), "zmin": -1, "zmax": 1,
        "x": heads, "y": [text(name) for name in names], "colorscale": "@diverging",
        "hovertemplate": "%{y}, %{x}: %{z:.3f}<extra></extra>",
        "xgap": 1, "ygap": 1, "colorbar": {"thickness": 14},
    }  # fmt: skip
    layout = {
        "yaxis": {"autorange": "reversed", "type": "category", "automargin": True},
        "xaxis": {"type": "category"},
        "height": 140 + 16 * len(names),
    }
    rows = [[name, *(f"{value:.3f}" for value in row)]
            for name, row in zip(names, axes, strict=True)]  # fmt: skip
    spread = ["length", *(number(float(length)) for length in lengths)]
    caption = "Directions of unit length, and the length of each column of W"
    return (
        f'<div class="panels wide js">{page.plot(title, [trace], layout)}</div>'
        + paragraph(few)
        + details(
            page.titled("Components as a table", run),
            table(["column", *heads], [spread, *rows], caption),
        )
    )


def _has_model(run: PageRun) -> bool:
    return files.kind(run.folder / NAME) == "file"


def structure(page: Page, run: PageRun) -> str:
    """Return the points of structure from motion, which turn with the mouse."""
    points = run.array("structure", (None, 3))
    points = points[thinning.evenly(len(points), MOST_POINTS)]
    points = points - points.mean(axis=0)
    x, y, z = points.T
    trace = {
        "type": "scatter3d", "mode": "markers", "x": packed(x, "f4"),
        "y": packed(z, "f4"), "z": packed(y, "f4"),
        "marker": {"size": 3.5, "color": packed(z, "f4"), "colorscale": "@scale"},
        "hovertemplate": "x %{x:.3g}, y %{z:.3g}, depth %{y:.3g}<extra></extra>",
    }  # fmt: skip
    axis = {
        "color": "@text",
        "gridcolor": "@grid",
        "zerolinecolor": "@axis",
        "showbackground": False,
    }
    scene: dict[str, Any] = {
        "aspectmode": "data",
        "xaxis": axis | {"title": {"text": "x"}},
        "yaxis": axis | {"title": {"text": "depth z"}},
        "zaxis": axis | {"title": {"text": "y"}},
    }
    metric = bool(run.array("metric", ()))
    frame = "metric" if metric else "affine: too few different views"
    title = page.titled(f"Structure ({frame})", run)
    layout = {"scene": scene, "height": 520, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}
    name = f"solid-{len(page.figures)}"
    turns = "".join(
        f'<button type="button" data-turn="{turn}" data-plot="plot-{name}">'
        f"{word}</button>"
        for turn, word in (("left", "Turn left"), ("right", "Turn right"),
                           ("up", "Tilt up"), ("down", "Tilt down"))
    )  # fmt: skip
    few = thinning.said(len(points), len(run.arrays["structure"]), "points")
    return (
        paragraph(f"Drag to turn, or use the buttons. {few}", "js")
        + f'<div class="controls js" role="group" aria-label="Turn">{turns}</div>'
        + f'<div class="panels wide js">{page.plot(title, [trace], layout, name=name)}'
        + "</div>"
        + page.still(lambda: draw_structure([run], []), "Structure in three views")
    )
