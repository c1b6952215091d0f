"""Draw figures with matplotlib, into files.

None opens a window or changes matplotlib's global state.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis as Side
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.layout import Matrix
from dadmm.show import figure as description
from dadmm.show.figure import Axis, Bars, Curve, Graph, Map, Panel, Points
from dadmm.show.style import BLACK, FILLS, GREY, LIGHT, STYLE, Look

STRENGTH = ListedColormap(colormaps["viridis_r"](np.linspace(0.08, 1, 256)))
LOAD = ListedColormap(colormaps["viridis_r"](np.linspace(0, 0.7, 256)))
LINES = {"solid": "-", "dash": "--", "dot": ":"}
MOST_NUMBERED = 40  # nodes that have room for their numbers
Handles = dict[str, Artist]  # of a legend, by name
styled = rc_context(STYLE)  # for functions that draw, whatever the settings are


def save(
    figure: Figure, stem: str | Path, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure as ``stem.png``, ``stem.svg``, ...; return the paths.

    The same figure gives the same bytes.
    """
    stem = Path(stem)
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in formats]
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with writing(stem.parent), rc_context(STYLE), warnings.catch_warnings():
        # names too long for the figure: matplotlib then leaves out the layout
        warnings.filterwarnings("ignore", message="constrained_layout not applied")
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, suffix in zip(paths, formats, strict=True):
            with files.replacing(path) as file:
                figure.savefig(file, format=suffix, metadata=dates.get(suffix))
    return paths


@styled
def draw(title: str, panels: Sequence[Panel], width: float = 3.5) -> Figure:
    """Draw panels, at most three in a row, with one legend of all curves."""
    columns = min(len(panels), 3 if width < 4 else 2)
    rows = [panels[k : k + columns] for k in range(0, len(panels), columns)]
    size = (max(5.4, columns * width), len(rows) * 2.8 + 0.5)
    figure, handles = _draw_rows(title, rows, size)
    if handles:
        inches = 0.49 + 0.067 * max(map(len, handles))  # of a column
        count = max(1, min(len(handles), int(size[0] / inches)))
        figure.legend(handles.values(), handles, loc="outside lower center",
                      ncols=count)  # fmt: skip
    return figure


@styled
def draw_networks(title: str, rows: Sequence[Sequence[Panel]]) -> Figure:
    """Draw graphs, a row per run, with the scale of their edges below."""
    marks = [mark for panel in chain(*rows) for mark in panel.marks]
    graphs = [mark for mark in marks if isinstance(mark, Graph)]
    spans = [np.ptp(mark.places, axis=0) + 0.2 for mark in graphs]
    tall = min(max(float(y / x) for x, y in spans), 1.3)
    columns, wide = max(map(len, rows)), 2.6 if tall > 0.7 else 3.2
    high = wide * max(tall, 0.3) + (0.7 if len(rows) > 1 else 0.45)
    size = (max(wide * columns, 5.2), high * len(rows) + 1.2)
    figure, _ = _draw_rows(title, rows, size)
    colours = _colours(graphs[0])
    bar = figure.colorbar(
        colours, ax=figure.axes, location="bottom", aspect=45, fraction=0.05,
        shrink=min(1.0, 4.5 / size[0]), pad=0.03,
    )  # fmt: skip
    bar.set_label("Penalty η of an edge, the mean of its two directions")
    if isinstance(colours.norm, LogNorm):
        log_ticks_of(bar.ax.xaxis, *graphs[0].scale)
    else:
        bar.ax.locator_params(axis="x", nbins=5, min_n_ticks=3)
    return figure


def _draw_rows(
    title: str, rows: Sequence[Sequence[Panel]], size: tuple[float, float]
) -> tuple[Figure, Handles]:
    figure, handles = Figure(figsize=size, layout="constrained"), Handles()
    figure.suptitle(_plain(title), wrap=True)
    axes = figure.subplots(len(rows), max(map(len, rows)), squeeze=False)
    for cells, row in zip(axes, rows, strict=True):
        for axis, panel in zip_longest(cells, row):
            if panel is None:
                axis.set_visible(False)
            else:
                _draw_panel(axis, panel, handles)
    return figure, handles


def _plain(text: str) -> str:
    """Return a text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")


def _draw_panel(axis: Axes, panel: Panel, handles: Handles) -> None:
    axis.set_title(_plain(panel.title), loc="left")
    if panel.note:
        axis.text(
            0.5, 0.5, panel.note, ha="center", wrap=True, transform=axis.transAxes
        )
        _without_axes(axis)
        return
    axis.set(xlabel=panel.x.label, ylabel=_plain(panel.y.label))
    axis.grid(visible=not isinstance(panel.marks[0], Map))
    alpha = 0.22 if len(panel.curves) == 1 else 0.12  # of bands
    for mark in panel.marks:
        match mark:
            case Curve():
                _draw_curve(axis, mark, alpha, handles)
            case Bars():
                _draw_bars(axis, mark, panel.x, handles)
            case Map():
                _draw_map(axis, mark)
            case Graph():
                _draw_graph(axis, mark)
            case Points():
                size = max(3, min(14, 3000 / len(mark.x)))
                axis.scatter(mark.x, mark.y, size, mark.depth, cmap="cividis_r")
                axis.set_aspect("equal", adjustable="datalim")
    for name, side, at, dash in panel.lines():
        line = axis.axhline if side == "y" else axis.axvline
        handles[name] = line(at, color=GREY, linewidth=1, linestyle=LINES[dash])
    if panel.curves:
        _scale(axis, panel)


def _scale(axis: Axes, panel: Panel) -> None:
    """Set the scales and at least three ticks of both axes."""
    limits = panel.limits()
    if limits is not None:
        axis.set_ylim(limits)
        log_axis(axis, panel.y.unit)
    else:
        axis.locator_params(axis="y", nbins=6, min_n_ticks=3)
        axis.ticklabel_format(axis="y", useOffset=False)
    if panel.x.log:
        axis.set_xscale("log")
        axis.set_xlim(min(curve.x[0] for curve in panel.curves), None)
        log_ticks_of(axis.xaxis, *axis.get_xlim())
    elif panel.x.from_zero:
        axis.set_xlim(left=0)
    else:
        axis.locator_params(axis="x", nbins=6, min_n_ticks=3, integer=True)


def _draw_curve(axis: Axes, curve: Curve, alpha: float, handles: Handles) -> None:
    look: Look = {"marker": "", "linestyle": "-"} | curve.look
    if curve.low is not None and curve.high is not None:
        band: Look = {"color": look["color"], "alpha": alpha, "linewidth": 0}
        band["step"] = "post" if curve.steps else None
        axis.fill_between(curve.x, curve.low, curve.high, **band)
        handles[curve.band] = Patch(color=GREY, alpha=0.4, linewidth=0)
    axis.plot(
        curve.x, curve.y, markevery=[curve.last], markeredgecolor="white",
        markeredgewidth=0.4, drawstyle="steps-post" if curve.steps else "default",
        zorder=2.0 if look["linestyle"] == "-" else 2.1, **look,
    )  # fmt: skip
    handles[_plain(curve.name)] = Line2D([], [], **look)


def _draw_bars(axis: Axes, bars: Bars, x: Axis, handles: Handles) -> None:
    bottom = np.zeros(len(x.names))
    for (name, values), (colour, hatch) in zip(bars.parts.items(), FILLS, strict=False):
        drawn = axis.bar(
            range(len(values)), values, bottom=bottom, hatch=4 * hatch,
            color=LIGHT[colour], edgecolor="white", linewidth=0,
        )  # fmt: skip
        if len(bars.parts) > 1:
            handles[name] = drawn[0]
        bottom = bottom + values
    short = max(map(len, x.names)) < 4  # the numbers of nodes
    ticks = range(0, len(x.names), -(-len(x.names) // 10) if short else 1)
    turned: Look = {"rotation": 30, "ha": "right"}
    turned = {} if short or len(x.names) < 3 else turned
    axis.set_xticks(ticks, [_plain(x.names[k]) for k in ticks], **turned)
    axis.grid(visible=False, axis="x")


def _draw_map(axis: Axes, map_: Map) -> None:
    """Draw a matrix from node i to node j."""
    most = float(np.nanmax(map_.values, initial=1e-12))
    size, unit = (
        description.byte_unit(most) if map_.unit == "bytes" else (1.0, map_.unit)
    )
    image = axis.pcolormesh(map_.values / size, cmap=LOAD, vmin=0, vmax=most / size,
                            edgecolor="white", linewidth=0.4)  # fmt: skip
    axis.figure.colorbar(image, ax=axis, label=unit, shrink=0.85)
    axis.set(aspect="equal")
    axis.invert_yaxis()
    n = len(map_.values)
    ticks = np.arange(0, n, -(-n // 10))
    for side in (axis.xaxis, axis.yaxis):
        side.set_ticks(ticks + 0.5, ticks)
        side.set_tick_params(length=0)
    axis.spines[:].set_visible(True)


def _draw_graph(axis: Axes, graph: Graph) -> None:
    """Draw one graph, with edges of large value on top."""
    order, colours = np.argsort(graph.values, kind="stable"), _colours(graph)
    values = graph.values[order]
    thick = min(4.0, 26 / max(len(values), 1) ** 0.5)  # else a complete graph is a disc
    widths = 0.3 + (thick - 0.3) * np.asarray(colours.norm(values))
    lines = list(graph.places[graph.pairs[order]])
    axis.add_collection(
        LineCollection(lines, colors=colours.to_rgba(values), linewidths=widths)
    )
    draw_nodes(axis, graph.places, graph.names)


def _colours(graph: Graph) -> ScalarMappable:
    """Return the colours of the values of edges."""
    low, high = graph.scale
    if high > description.WIDE * low:
        return ScalarMappable(LogNorm(low, high), STRENGTH)
    room = 0.0 if high > low else 0.2 * low
    return ScalarMappable(Normalize(low - room, high + room), STRENGTH)


def draw_nodes(axis: Axes, places: Matrix, names: Sequence[str] = ()) -> None:
    """Draw the nodes of a graph at their places, without axes."""
    few = len(places) <= MOST_NUMBERED
    axis.scatter(places[:, 0], places[:, 1], 95 if few else 18, color="white",
                 edgecolor=BLACK, linewidth=0.8, zorder=3)  # fmt: skip
    look: Look = {"ha": "center", "fontsize": 6, "zorder": 4}
    for i, (x, y) in enumerate(places if few else ()):
        axis.text(x, y, str(i), va="center", **look)
        if names:
            axis.annotate(_plain(names[i]), (x, y), (0, -7), va="top",
                          textcoords="offset points", **look)  # fmt: skip
    axis.set_aspect("equal")
    low, high = places.min(axis=0), places.max(axis=0)
    span = high - low
    margin = np.maximum(0.1 * max(span.max(), 1e-9), 0.15 * span.max() - span / 2)
    xlim, ylim = np.column_stack([low, high]) + np.outer(margin, [-1, 1])
    axis.set(xlim=xlim, ylim=ylim)
    _without_axes(axis)


def _without_axes(axis: Axes) -> None:
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)


def log_axis(axis: Axes, unit: str = "") -> None:
    """Make the y axis logarithmic, with plain numbers if it has few decades."""
    axis.set_yscale("log", nonpositive="mask")
    log_ticks_of(axis.yaxis, *axis.get_ylim(), unit)


def log_ticks_of(side: Side, low: float, high: float, unit: str = "") -> None:
    """Set the ticks of one side of a logarithmic plot."""
    ticks = [tick for tick in description.log_ticks(low, high) if low <= tick <= high]
    side.set_major_locator(FixedLocator(ticks))
    side.set_minor_locator(NullLocator())
    if unit or high <= 1e3 * low:
        side.set_major_formatter("{x:g}" + unit)
