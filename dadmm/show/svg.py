"""Drawings as SVG: a graph with its edges and nodes, and what tables have in cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers, Topology
from dadmm.show.html import Markup, text
from dadmm.show.style import N_LEVELS

WIDE, MARGIN = 640.0, 26.0
MOST_NUMBERED = 60  # nodes that have room for their numbers
MOST_NODES = 5000
THIN = 1.2
# of a line in a legend, by plotly's name of the dash
STROKES = {"solid": "", "dash": "9 5", "dashdot": "9 4 2 4", "dot": "2 3"}
SHAPES = {
    "circle": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "square": "M-4-4h8v8h-8z",
    "triangle-up": "M0-5l5 9h-10z", "diamond": "M0-5l5 5l-5 5l-5-5z",
    "triangle-down": "M0 5l5-9h-10z", "cross": "M-2-5h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "diamond-tall": "M0-6l3.5 6l-3.5 6l-3.5-6z",
    "star": "M0-6l1.7 4h4.3l-3.5 2.8l1.4 4.4l-3.9-2.7l-3.9 2.7l1.4-4.4l-3.5-2.8h4.3z",
    "x": "M-4-5l4 3.5l4-3.5l1.5 1.5l-3.7 3.5l3.7 3.5l-1.5 1.5l-4-3.5l-4 3.5l-1.5-1.5"
    "l3.7-3.5l-3.7-3.5z",
}  # fmt: skip


def position(value: float, scale: tuple[float, float]) -> float:
    """Return where a penalty lies on the logarithmic scale, from 0 to 1."""
    low, high = scale
    if not value > 0 or high <= low * (1 + 1e-9):
        return 0.5
    return min(max(math.log(value / low) / math.log(high / low), 0.0), 1.0)


def graph(
    name: str,
    topology: Topology,
    places: Matrix,
    pairs: Integers,
    eta: Vector,
    scale: tuple[float, float],
) -> str:
    """Return a graph with the penalties of its drawn edges; NaN is unknown."""
    xy, high = _placed(places)
    most, lines, hits = float(np.clip(50 / len(pairs) ** 0.5, 2.5, 8.0)), [], []
    for k, (i, j) in enumerate(pairs.tolist()):
        (x1, y1), (x2, y2) = xy[i], xy[j]
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        at, is_known = position(float(eta[k]), scale), np.isfinite(eta[k])
        level = f"level{round(at * (N_LEVELS - 1))}" if is_known else "plain"
        width = THIN + (most - THIN) * at if is_known else 1.5
        lines.append(f'<line {ends} class="edge {level}" stroke-width="{width:.2f}"/>')
        hits.append(f'<line {ends} data-edge="{k}"/>')
    return (
        f'<svg class="graph" id="{name}" viewBox="0 0 {WIDE:.0f} {high:.0f}" '
        f'tabindex="0" role="img" aria-label="Graph of {topology.n_nodes} nodes and '
        f'{len(topology.edges) // 2} edges" data-thick="{most:.2f}">'
        '<line class="halo" visibility="hidden"/>'
        f'<g class="edges">{"".join(lines)}</g><g class="hits">{"".join(hits)}</g>'
        f"{_nodes(xy, pairs, topology.names)}</svg>"
    )


def _placed(places: Matrix) -> tuple[list[tuple[float, float]], float]:
    """Return the places within the drawing, and its height."""
    low, span = places.min(axis=0), np.ptp(places, axis=0)
    unit = (WIDE - 2 * MARGIN) / max(float(span[0]), float(span[1]) / 0.85, 1e-9)
    high = span[1] * unit + 2 * MARGIN
    x = (WIDE - span[0] * unit) / 2 + (places[:, 0] - low[0]) * unit
    y = high - MARGIN - (places[:, 1] - low[1]) * unit
    return list(zip(x.tolist(), y.tolist(), strict=True)), float(high)


def _nodes(
    xy: Sequence[tuple[float, float]], pairs: Integers, names: Sequence[str]
) -> str:
    """Return the nodes, with their numbers and names if there is room."""
    shown = list(range(len(xy)))
    if len(xy) > MOST_NODES:
        shown = sorted(set(pairs.ravel().tolist()))
    numbered = len(xy) <= MOST_NUMBERED
    r = 11 if numbered else 4 if len(xy) <= 400 else 2
    items = []
    for i in shown:
        x, y = xy[i]
        word = f'<text x="{x:.1f}" y="{y + 4:.1f}">{i}</text>' if numbered else ""
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
        name = text(names[i]) if names else ""
        if name and numbered:
            word += f'<text x="{x:.1f}" y="{y + 24:.1f}">{name}</text>'
        items.append(f'<g data-node="{i}" data-name="{name or i}">{circle}{word}</g>')
    return f'<g class="nodes">{"".join(items)}</g>'


def strength(scale: tuple[float, float]) -> str:
    """Return the scale of the penalties as items of a legend."""
    low, high = scale
    if high <= low * (1 + 1e-9):
        return f"<li>{edge_sample(f'level{N_LEVELS // 2}', 4.4)} {low:.3g}</li>"
    items = []
    for k in range(0, N_LEVELS, 2):
        at = k / (N_LEVELS - 1)
        sample = edge_sample(f"level{k}", THIN + (8 - THIN) * at)
        items.append(f"<li>{sample} {low * (high / low) ** at:.3g}</li>")
    return "".join(items)


def edge_sample(kind: str, width: float = 4.0) -> str:
    """Return a short line as an edge is drawn."""
    return (
        '<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">'
        f'<line x1="1" y1="7" x2="33" y2="7" class="edge {kind}" '
        f'stroke-width="{width:.2f}"/></svg>'
    )


def run_sample(look: dict[str, Any]) -> Markup:
    """Return a short line with the colour, dash and marker of a run."""
    colour = f"var(--{look['colour'][1:]})"
    dash = STROKES.get(look["dash"], look["dash"].replace("px", ""))
    return Markup(
        '<svg width="46" height="14" viewBox="0 0 46 14" aria-hidden="true">'
        f'<path d="M1 7H45" stroke="{colour}" stroke-width="2.5" '
        f'stroke-dasharray="{dash}"/>'
        f'<path d="{SHAPES[look["marker"]]}" transform="translate(23 7)" '
        f'fill="{colour}"/></svg>'
    )


def bar(value: float) -> Markup:
    """Return a number from -1 to 1 with a bar from the middle of its cell."""
    left, width = 50 + 50 * min(value, 0), 50 * abs(value)
    kind = "below" if value < 0 else "above"
    return Markup(
        f'<span class="bar {kind}" style="--left:{left:.1f}%;--wide:{width:.1f}%">'
        f"{value:.3f}</span>"
    )


def intervals(
    rows: Sequence[tuple[float, float, float, str]], span: tuple[float, float]
) -> Markup:
    """Return values with intervals (value, low, high, colour) on a common scale."""
    low, high = span
    wide, unit = 240, 228 / max(high - low, 1e-300)
    tall = 8 * len(rows) + 10

    def at(value: float) -> float:
        return 6 + (min(max(value, low), high) - low) * unit

    drawn = "".join(
        f'<path d="M{at(first):.1f} {8 * k + 9}H{at(last):.1f}" stroke="{colour}"/>'
        f'<circle cx="{at(value):.1f}" cy="{8 * k + 9}" r="3.4" fill="{colour}"/>'
        for k, (value, first, last, colour) in enumerate(rows)
    )
    zero = f'<path class="zero" d="M{at(0):.1f} 0V{tall}"/>' if low <= 0 <= high else ""
    return Markup(
        f'<svg class="interval" width="{wide}" height="{tall}" viewBox="0 0 {wide} '
        f'{tall}" aria-hidden="true">{zero}{drawn}</svg>'
    )
