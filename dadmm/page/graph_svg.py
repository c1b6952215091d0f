"""The drawing of a graph as SVG: width, colour and dashes of its edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers, Topology
from dadmm.page.look import LEVELS

WIDE, MARGIN = 640.0, 26.0
MOST_NUMBERED = 60  # nodes that have room for their numbers
MOST_NODES = 5000
THIN = 1.2


def position(value: float, scale: tuple[float, float]) -> float:
    """Return where a penalty lies on the logarithmic scale, from 0 to 1."""
    low, high = scale
    if not value > 0 or high <= low * (1 + 1e-9):
        return 0.5
    return min(max(math.log(value / low) / math.log(high / low), 0.0), 1.0)


def thickest(n_edges: int) -> float:
    """Return the width of the strongest edge; of many edges it is smaller."""
    return float(np.clip(50 / max(n_edges, 1) ** 0.5, 2.5, 8.0))


def graph(
    name: str,
    topology: Topology,
    places: Matrix,
    pairs: Integers,
    eta: Matrix,
    idle: np.ndarray,
    over: np.ndarray,
    scale: tuple[float, float],
) -> str:
    """Return a graph with what holds for its edges (1, pairs) in one iteration."""
    xy, high = _placed(places)
    most, lines, hits = thickest(len(pairs)), [], []
    for k, (i, j) in enumerate(pairs.tolist()):
        (x1, y1), (x2, y2) = xy[i], xy[j]
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        known = np.isfinite(eta[0, k])
        at = position(float(eta[0, k]), scale)
        level = f"level{round(at * (LEVELS - 1))}" if known else "plain"
        state = _state(int(idle[0, k]), bool(over[0, k]))
        width = THIN + (most - THIN) * at if known else 1.5
        lines.append(
            f'<line {ends} class="edge {level}{state}" stroke-width="{width:.2f}"/>'
        )
        hits.append(f'<line {ends} data-edge="{k}"/>')
    return (
        f'<svg class="graph" id="{name}" viewBox="0 0 {WIDE:.0f} {high:.0f}" '
        f'tabindex="0" role="img" aria-label="Graph of {topology.n_nodes} nodes and '
        f'{len(topology.edges) // 2} edges" data-thick="{most:.2f}">'
        f'<g class="edges">{"".join(lines)}</g><g class="hits">{"".join(hits)}</g>'
        f"<g>{_nodes(xy, pairs)}</g></svg>"
    )


def _state(idle: int, over: bool) -> str:
    """Return the class of an edge that is dotted or dashed."""
    return " idle" if idle == 3 else " over" if over else ""


def _placed(places: Matrix) -> tuple[list[tuple[float, float]], float]:
    """Return the places within the drawing, and its height."""
    low, span = places.min(axis=0), np.ptp(places, axis=0)
    unit = (WIDE - 2 * MARGIN) / max(float(span[0]), float(span[1]) / 0.85, 1e-9)
    high = span[1] * unit + 2 * MARGIN
    x = (WIDE - span[0] * unit) / 2 + (places[:, 0] - low[0]) * unit
    y = high - MARGIN - (places[:, 1] - low[1]) * unit
    return list(zip(x.tolist(), y.tolist(), strict=True)), float(high)


def _nodes(xy: Sequence[tuple[float, float]], pairs: Integers) -> str:
    """Return the nodes, with their numbers if there is room."""
    shown = range(len(xy))
    if len(xy) > MOST_NODES:
        shown = sorted(set(pairs.ravel().tolist()))  # type: ignore[assignment]
    if len(xy) > MOST_NUMBERED:
        r = 4 if len(xy) <= 400 else 2
        dots = (f'<circle cx="{xy[i][0]:.1f}" cy="{xy[i][1]:.1f}" r="{r}"/>'
                for i in shown)  # fmt: skip
        return f'<g class="nodes">{"".join(dots)}</g>'
    return "".join(
        f'<g class="nodes"><circle cx="{x:.1f}" cy="{y:.1f}" r="11"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}">{i}</text></g>'
        for i, (x, y) in enumerate(xy)
    )


def legend(scale: tuple[float, float], moving: Sequence[Any]) -> str:
    """Return the scale of the penalties, and the meaning of dots and dashes."""
    low, high = scale
    at: Vector = np.linspace(0, 1, LEVELS)
    items = []
    if high > low * (1 + 1e-9):
        for k in range(LEVELS):
            value = low * (high / low) ** at[k]
            width = THIN + (8 - THIN) * at[k]
            items.append(f"<li>{_line(f'level{k}', width)} {value:.3g}</li>")
    elif low != 1.0 or moving:
        items.append(f"<li>{_line(f'level{LEVELS // 2}', 4.4)} {low:.3g}</li>")
    if not items:
        return ""
    title = "<p>Penalty eta of an edge</p>"
    found = f'{title}<ul class="legend" aria-label="Penalties">{"".join(items)}</ul>'
    if any(own.idle.any() for own in moving):
        found += (
            f'<ul class="legend"><li>{_line("level6 idle", 4)} dotted: no payload was '
            "sent in this iteration in either direction (the edge sleeps, waits for "
            "its turn, or has no news)</li></ul>"
        )
    if any(own.over.any() for own in moving):
        schemes = {own.run.config.scheme for own in moving if own.over.any()}
        found += (
            f'<ul class="legend"><li>{_line("level6 over", 4)} dashed: the budgets of '
            "both ends are used up: they ask for more than is left, and no longer "
            f"move; {' and '.join(map(_used_up, sorted(schemes)))}</li></ul>"
        )
    return found


def _used_up(scheme: str) -> str:
    """Return what a scheme does with the penalty of an edge that is out of budget."""
    if scheme == "snap":
        return "snap leaves the penalty about where it is"
    return f"{scheme} has set the penalty back to its start"


def _line(kind: str, width: float) -> str:
    return (
        '<svg width="46" height="14" viewBox="0 0 46 14" aria-hidden="true">'
        f'<line x1="1" y1="7" x2="45" y2="7" class="edge {kind}" '
        f'stroke-width="{width:.2f}"/></svg>'
    )
