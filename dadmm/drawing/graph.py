"""Figures of the graph, with the penalties of its edges at some iterations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from dadmm.core.layout import Matrix, Vector
from dadmm.drawing.style import BLACK, STRENGTH, octaves, styled
from dadmm.graphs.topology import Topology

MOST_EXACT = 300  # nodes of a graph whose layout is by Kamada and Kawai
MOST_NODES, MOST_EDGES = 3000, 200_000  # a larger graph is drawn as a circle


class Network(NamedTuple):
    """The penalties of a graph's edges at some iterations of a run."""

    places: Matrix  # (n_nodes, 2)
    pairs: np.ndarray  # (n_pairs, 2), each edge once
    frames: Mapping[int, Vector]  # by iteration: the penalty of each pair
    eta0: float


@styled
def network(runs: Mapping[str, Network], title: str) -> Figure:
    """Draw the graph at some iterations, a row per run.

    The width and the colour of an edge show its penalty; an edge of small penalty is
    hardly visible.
    """
    columns = max(len(run.frames) for run in runs.values())
    shapes = [np.ptp(run.places, axis=0) + 0.2 for run in runs.values()]
    wide = 2.6 if max(y / x for x, y in shapes) > 0.7 else 3.2
    heights = [wide * min(max(y / x, 0.3), 1.3) + 0.45 for x, y in shapes]
    size = (max(wide * columns, 5.2), sum(heights) + 1.2)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(len(runs), columns, squeeze=False, height_ratios=heights)
    colours = _colours(runs.values())
    for row, (name, run) in zip(axes, runs.items(), strict=True):
        row[0].set_ylabel(name if len(runs) > 1 else "")
        for axis in row[len(run.frames) :]:
            axis.set_visible(False)
        for axis, (t, values) in zip(row, run.frames.items(), strict=False):
            _graph(axis, run, values, colours)
            axis.set_title(f"Iteration {t}")
            low, high = (f"{value:.3g}" for value in (values.min(), values.max()))
            axis.set_xlabel(f"η = {low}" if low == high else f"η from {low} to {high}")
    _colour_bar(figure, axes, colours, next(iter(runs.values())).eta0)
    return figure


def _colours(runs: Iterable[Network]) -> ScalarMappable:
    """Return the colours of all penalties, over 1 to 8 octaves around eta0."""
    every, eta0 = [], []
    for run in runs:
        every += [value for frame in run.frames.values() for value in frame]
        eta0.append(run.eta0)
    low = max(min([*every, min(eta0) / 2**0.5]), min(eta0) / 16)
    high = min(max([*every, max(eta0) * 2**0.5]), max(eta0) * 16)
    colours = ScalarMappable(LogNorm(low, high, clip=True), STRENGTH)
    colours.set_array(every)
    return colours


def _colour_bar(
    figure: Figure, axes: Any, colours: ScalarMappable, base: float
) -> None:
    """Draw the scale of the penalties below the graphs."""
    low, high = colours.get_clim()
    every = np.append(np.asarray(colours.get_array()), base)
    ends = (every.min() < low, every.max() > high)
    beyond = ("neither", "max", "min", "both")[2 * ends[0] + ends[1]]
    bar = figure.colorbar(
        colours, extend=beyond, ax=axes, location="bottom", aspect=45, fraction=0.05,
        shrink=min(1.0, 4.5 / figure.get_figwidth()), pad=0.03,
    )  # fmt: skip
    bar.set_label(r"Penalty of the edge: mean of $\eta_{ij}$ and $\eta_{ji}$")
    ticks = octaves(low, high, base)
    bar.set_ticks(ticks, labels=[f"{tick:.4g}" for tick in ticks])
    bar.minorticks_off()


def _graph(axis: Any, run: Network, values: Vector, colours: ScalarMappable) -> None:
    """Draw one graph, with edges of large penalty on top."""
    order = np.argsort(values, kind="stable")
    usual = min(2.0, 13 / max(len(values), 1) ** 0.5)  # else a complete graph is a disc
    lines = LineCollection(
        run.places[run.pairs[order]], colors=colours.to_rgba(values[order]),
        linewidths=usual * np.clip(values[order] / run.eta0, 0.03, 3),
    )  # fmt: skip
    axis.add_collection(lines)
    draw_nodes(axis, run.places)


def draw_nodes(axis: Any, places: Matrix) -> None:
    """Draw the nodes of a graph at their places, without axes."""
    many = len(places) > 40
    axis.scatter(
        *places.T, s=18 if many else 95, color="white", edgecolor=BLACK,
        linewidth=0.8, zorder=3,
    )  # fmt: skip
    for i, place in enumerate(places):
        if not many:
            axis.text(*place, str(i), ha="center", va="center", fontsize=6, zorder=4)
    axis.set_aspect("equal")
    low, high = places.min(axis=0), places.max(axis=0)
    x, y = np.column_stack([low, high]) + np.outer(_margin(low, high), [-1, 1])
    axis.set(xticks=[], yticks=[], xlim=x, ylim=y)
    axis.spines[:].set_visible(False)


def _margin(low: Vector, high: Vector) -> Vector:
    """Return the margin around a graph, (2,), so that no node is cut."""
    span = high - low
    least, most = 0.1 * max(span.max(), 1e-9), 0.15 * span.max()
    margin: Vector = np.maximum(least, most - span / 2)
    return margin


def moments(eta: Matrix) -> list[int]:
    """Return up to four iterations (from 1) to show, given penalties (iterations, E).

    These are the first, the last, the one in which the edges differ most, and one
    before or after it, where the edges differ more.
    """
    spread = np.log(eta).std(axis=1)
    if spread.max() < 1e-9:  # all edges are equal: use the distance from the end
        spread = np.abs(np.log(eta / eta[-1])).max(axis=1)
    n, peak = len(eta), int(spread.argmax()) + 1
    if spread.max() < 1e-9:
        return [n]
    after = spread[peak:].sum() > spread[: peak - 1].sum()
    first, last = (peak, n) if after else (0, peak - 1)
    part = spread[first:last].cumsum()
    half = first + 1 + int(np.searchsorted(part, part[-1] / 2)) if len(part) else 1
    return sorted({1, half, peak, n})


def places(graph: Topology) -> Matrix:
    """Return the position of each node, (n_nodes, 2); known graphs have fixed ones."""
    n = graph.n_nodes
    all_pairs = len(graph.edges) == n * (n - 1)  # a complete graph
    if all_pairs or graph == Topology.ring(n):
        start = 0.5 if n == 2 else 0.25  # two nodes are side by side
        return _arc(n, start, start - 1)
    if graph == Topology.star(n):
        return np.vstack([[0.0, 0.0], _arc(n - 1, 0.25, -0.75)])
    if graph == Topology.chain(n):
        return _arc(n + 1, -0.3, -1.2)[:n]
    if graph == Topology.grid(n):
        width = int(n**0.5)
        return np.array([[i % width, -(i // width)] for i in range(n)], dtype=float)
    if n <= MOST_NODES and graph == Topology.cluster(n):
        # The two nodes of the bridge face each other.
        left = _arc(n // 2, 0.0, 1.0)[::-1]
        right = np.array([-1, 1]) * _arc(n - n // 2, 0.0, -1.0)
        apart = np.array([1.35, 0])
        return np.vstack([left - apart, right + apart])
    if n > MOST_NODES or len(graph.edges) > MOST_EDGES:
        return _arc(n, 0.25, -0.75)
    import networkx as nx

    if n > MOST_EXACT:  # the time of the other layout grows with n^3
        found = nx.spring_layout(graph.to_graph(), iterations=30, seed=0)
    else:
        found = nx.kamada_kawai_layout(graph.to_graph())
    return np.array([found[i] for i in range(n)])


def _arc(n: int, start: float, stop: float) -> Matrix:
    """Return n points of the unit circle; angles are in turns, without the stop."""
    angle = 2 * np.pi * np.linspace(start, stop, n, endpoint=False)
    return np.column_stack([np.cos(angle), np.sin(angle)])
