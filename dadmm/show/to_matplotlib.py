"""Draw figures with matplotlib, into files.

None opens a window or changes matplotlib's global state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator

from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Integers
from dadmm.show.figure import (
    WIDE,
    Axis,
    Bars,
    Bundle,
    Curve,
    Map,
    Panel,
    byte_unit,
    log_ticks,
)
from dadmm.show.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREY,
    ORANGE,
    SKY,
    STYLE,
    Look,
)

STRENGTH = ListedColormap(colormaps["viridis_r"](np.linspace(0.08, 1, 256)))
LOAD = ListedColormap(colormaps["viridis_r"](np.linspace(0, 0.7, 256)))
FILLS = ((BLUE, ""), (ORANGE, "////"), (SKY, "...."), ("0.85", ""))
DOTTED = {"color": GREY, "linewidth": 1, "linestyle": ":"}
BAND = "smallest to largest node"
P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the style of this package, whatever matplotlib's settings are."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


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
    rows = -(-len(panels) // columns)
    size = (max(5.4, columns * width), rows * 2.8 + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(_plain(title))
    grid = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for axis, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(figure, axis, panel, handles)
    for axis in grid.flat[len(panels) :]:
        axis.axis("off")
    _legend(figure, list(grid.flat[len(panels) :]), handles)
    return figure


def _plain(text: str) -> str:
    """Return a text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")


def _draw_panel(figure: Figure, axis: Any, panel: Panel, handles: Look) -> None:
    axis.set_title(_plain(panel.title), loc="left")
    if panel.note:
        axis.text(
            0.5, 0.5, panel.note, ha="center", wrap=True, transform=axis.transAxes
        )
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
        return
    axis.set(xlabel=panel.x.label, ylabel=_plain(panel.y.label))
    axis.grid(visible=not isinstance(panel.marks[0], Map))
    curves = [mark for mark in panel.marks if isinstance(mark, Curve)]
    for mark in panel.marks:
        if isinstance(mark, Curve):
            _draw_curve(axis, mark, 0.22 if len(curves) == 1 else 0.12, handles)
        elif isinstance(mark, Bundle):
            _draw_bundle(axis, mark, handles)
        elif isinstance(mark, Bars):
            _draw_bars(axis, mark, panel.x, handles)
        else:
            _draw_map(figure, axis, mark)
    if panel.level is not None:
        handles[panel.level[1]] = axis.axhline(panel.level[0], **DOTTED)
    dashes = ((0, (1, 3)), "--", "-")
    for k, (name, x) in enumerate(reversed(panel.moments.items())):
        dash = {"linestyle": dashes[max(2 - k, 0)]}
        handles[name] = axis.axvline(x, **DOTTED | dash)
    _scale(axis, panel)


def _scale(axis: Any, panel: Panel) -> None:
    """Set the scales and at least three ticks of both axes."""
    limits = panel.limits()
    if limits is not None:
        axis.set_ylim(limits)
        log_axis(axis, panel.y.unit)
    elif isinstance(panel.marks[0], Curve | Bundle):
        axis.locator_params(axis="y", nbins=6, min_n_ticks=3)
        axis.ticklabel_format(axis="y", useOffset=False)
    if panel.x.log:
        axis.set_xscale("log")
        axis.set_xlim(1, None)
        log_ticks_of(axis.xaxis, *axis.get_xlim())
    elif panel.x.from_zero:
        axis.set_xlim(left=0)
    elif not panel.x.names and isinstance(panel.marks[0], Curve | Bundle):
        axis.locator_params(axis="x", nbins=6, min_n_ticks=3, integer=True)


def _draw_curve(axis: Any, curve: Curve, alpha: float, handles: Look) -> None:
    look: Look = {"marker": "", "linestyle": "-"} | curve.look
    where: Any = {"drawstyle": "steps-post"} if curve.steps else {}
    if curve.low is not None and curve.high is not None:
        step = "post" if curve.steps else None
        axis.fill_between(curve.x, curve.low, curve.high, color=look["color"],
                          alpha=alpha, linewidth=0, step=step)  # fmt: skip
        handles[BAND] = Patch(color=GREY, alpha=0.4, linewidth=0)
    known = np.flatnonzero(np.isfinite(curve.y) & (curve.y != 0))
    mark = [known[-1] if len(known) else 0] if curve.end is None else [curve.end]
    over = 2.0 if look["linestyle"] == "-" else 2.1  # dashes over solid lines
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.4}
    axis.plot(curve.x, curve.y, markevery=mark, zorder=over, **edge, **look, **where)
    handles[_plain(curve.name)] = Line2D([], [], **look)


def _draw_bundle(axis: Any, bundle: Bundle, handles: Look) -> None:
    """Draw all lines in grey, and the chosen ones in colour."""
    faint = max(0.12, min(0.8, 40 / bundle.rows.shape[1]))
    light = [_corners(bundle.x, column) for column in bundle.rows.T]
    axis.add_collection(
        LineCollection(light, colors="0.5", linewidths=0.4, alpha=faint)
    )
    handles["one directed edge"] = Line2D([], [], color="0.5", linewidth=0.6)
    for style, (name, k) in zip(CYCLE, bundle.chosen.items(), strict=False):
        look = style | {"marker": "", "linewidth": 1.0}
        axis.plot(*_corners(bundle.x, bundle.rows[:, k]).T, **look)
        handles[name] = Line2D([], [], **look)
    axis.set_xlim(bundle.x[0], max(bundle.x[-1], bundle.x[0] + 1))
    least, most = bundle.rows.min(), bundle.rows.max()
    room = 0.05 * (most - least) or 0.1 * most
    axis.set_ylim(least - room, most + room)


def _corners(t: Vector | Integers, values: Vector) -> Matrix:
    """Return the steps of a curve, (points, 2), without its flat stretches."""
    moves = np.flatnonzero(np.diff(values)) + 1
    x = np.concatenate([t[:1], np.repeat(t[moves], 2), t[-1:]])
    points: Matrix = np.column_stack(
        [x, np.repeat(values[np.concatenate([[0], moves])], 2)]
    )
    return points


def _draw_bars(axis: Any, bars: Bars, x: Axis, handles: Look) -> None:
    bottom: Any = 0.0
    for (name, values), (colour, hatch) in zip(bars.parts.items(), FILLS, strict=False):
        drawn = axis.bar(
            range(len(values)), values, bottom=bottom, color=colour, hatch=hatch,
            edgecolor="white", linewidth=0,
        )  # fmt: skip
        if len(bars.parts) > 1:
            handles[name] = drawn
        bottom = bottom + values
    many = -(-len(x.names) // 10) if max(map(len, x.names)) < 4 else 1
    places = np.arange(0, len(x.names), many)
    turned = {"rotation": 30, "ha": "right"} if many == 1 and len(x.names) > 2 else {}
    if max(map(len, x.names)) < 4:
        turned = {}
    axis.set_xticks(places, [_plain(x.names[k]) for k in places], **turned)
    axis.grid(visible=False, axis="x")


def _draw_map(figure: Figure, axis: Any, map_: Map) -> None:
    """Draw a matrix from node i to node j."""
    most = float(np.nanmax(map_.values, initial=0))
    size, unit = byte_unit(most) if map_.unit == "bytes" else (1.0, map_.unit)
    image = axis.pcolormesh(
        map_.values / size, cmap=LOAD, vmin=0, vmax=max(most, 1e-12) / size,
        edgecolor="white", linewidth=0.4,
    )  # fmt: skip
    figure.colorbar(image, ax=axis, label=unit, shrink=0.85)
    axis.set(aspect="equal")
    axis.invert_yaxis()
    n = len(map_.values)
    ticks = np.arange(0, n, -(-n // 10))
    for side in (axis.xaxis, axis.yaxis):
        side.set_ticks(ticks + 0.5, ticks)
        side.set_tick_params(length=0)
    axis.spines[:].set_visible(True)


def _legend(figure: Figure, free: Sequence[Any], handles: Mapping[str, Any]) -> None:
    """Draw the legend in a free cell of the grid, or below the panels."""
    if not handles:
        return
    if free:
        free[0].legend(handles.values(), handles, loc="center", fontsize=9)
    else:
        width = 0.49 + 0.067 * max(map(len, handles), default=0)  # inches, of a column
        figure.legend(
            handles.values(), handles, loc="outside lower center",
            ncols=max(1, min(len(handles), int(figure.get_figwidth() / width))),
        )  # fmt: skip


def log_axis(axis: Any, unit: str = "") -> None:
    """Make the y axis logarithmic, with plain numbers if it has few decades."""
    axis.set_yscale("log", nonpositive="mask")
    low, high = axis.get_ylim()
    if high / low > 1e3:
        axis.yaxis.set_major_locator(LogLocator(numticks=7))
        if unit:
            axis.yaxis.set_major_formatter("{x:g}" + unit)
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        log_ticks_of(axis.yaxis, low, high, unit)


def log_ticks_of(side: Any, low: float, high: float, unit: str = "") -> None:
    """Set the ticks of one side of a logarithmic plot."""
    ticks = [tick for tick in log_ticks(low, high) if low <= tick <= high]
    side.set_major_locator(FixedLocator(ticks))
    side.set_major_formatter("{x:g}" + unit)
    side.set_minor_locator(NullLocator())
    side.set_minor_formatter(NullFormatter())


class Network(NamedTuple):
    """The penalties of a graph's edges at some iterations of a run."""

    places: Matrix  # (n_nodes, 2)
    pairs: np.ndarray  # (n_pairs, 2), each edge once
    frames: Mapping[int, Vector]  # by iteration: the penalty of each pair
    names: Sequence[str] = ()  # of the nodes, if they have any


@styled
def draw_networks(title: str, runs: Mapping[str, Network]) -> Figure:
    """Draw graphs at some iterations, a row per run.

    The width and the colour of an edge show its penalty, on one scale for all.
    """
    columns = max(len(run.frames) for run in runs.values())
    shapes = [np.ptp(run.places, axis=0) + 0.2 for run in runs.values()]
    wide = 2.6 if max(y / x for x, y in shapes) > 0.7 else 3.2
    heights = [wide * min(max(y / x, 0.3), 1.3) + 0.45 for x, y in shapes]
    size = (max(wide * columns, 5.2), sum(heights) + 1.2)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(_plain(title))
    axes = figure.subplots(len(runs), columns, squeeze=False, height_ratios=heights)
    every = np.concatenate([v for run in runs.values() for v in run.frames.values()])
    low, high = float(every.min()), float(every.max())
    if high <= low:
        low, high = low / 1.2, high * 1.2
    is_log = high > WIDE * low
    norm = (LogNorm if is_log else Normalize)(low, high)
    colours = ScalarMappable(norm, STRENGTH)
    for row, (name, run) in zip(axes, runs.items(), strict=True):
        row[0].set_ylabel(_plain(name) if len(runs) > 1 else "")
        for axis in row[len(run.frames) :]:
            axis.set_visible(False)
        for axis, (t, values) in zip(row, run.frames.items(), strict=False):
            _draw_graph(axis, run, values, colours)
            axis.set_title(f"Iteration {t}")
            ends = (f"{value:.3g}" for value in (values.min(), values.max()))
            least, most = ends
            axis.set_xlabel(f"η = {least}" if least == most else f"η {least} to {most}")
    bar = figure.colorbar(
        colours, ax=axes, location="bottom", aspect=45, fraction=0.05,
        shrink=min(1.0, 4.5 / figure.get_figwidth()), pad=0.03,
    )  # fmt: skip
    bar.set_label("Penalty η of an edge, the mean of its two directions")
    if is_log:
        log_ticks_of(bar.ax.xaxis, low, high)
    else:
        bar.ax.locator_params(axis="x", nbins=5, min_n_ticks=3)
    return figure


def _draw_graph(
    axis: Any, run: Network, values: Vector, colours: ScalarMappable
) -> None:
    """Draw one graph, with edges of large penalty on top."""
    order = np.argsort(values, kind="stable")
    thick = min(4.0, 26 / max(len(values), 1) ** 0.5)  # else a complete graph is a disc
    strength = np.asarray(colours.norm(values[order]))
    lines = LineCollection(
        run.places[run.pairs[order]], colors=colours.to_rgba(values[order]),
        linewidths=0.3 + (thick - 0.3) * strength,
    )  # fmt: skip
    axis.add_collection(lines)
    draw_nodes(axis, run.places, run.names)


def draw_nodes(axis: Any, places: Matrix, names: Sequence[str] = ()) -> None:
    """Draw the nodes of a graph at their places, without axes."""
    many = len(places) > 40
    axis.scatter(
        *places.T, s=18 if many else 95, color="white", edgecolor=BLACK,
        linewidth=0.8, zorder=3,
    )  # fmt: skip
    for i, place in enumerate(places):
        if not many:
            axis.text(*place, str(i), ha="center", va="center", fontsize=6, zorder=4)
        if names and not many:
            axis.annotate(
                _plain(names[i]), place, (0, -7), textcoords="offset points",
                ha="center", va="top", fontsize=6, zorder=4,
            )  # fmt: skip
    axis.set_aspect("equal")
    low, high = places.min(axis=0), places.max(axis=0)
    span = high - low
    margin = np.maximum(0.1 * max(span.max(), 1e-9), 0.15 * span.max() - span / 2)
    x, y = np.column_stack([low, high]) + np.outer(margin, [-1, 1])
    axis.set(xticks=[], yticks=[], xlim=x, ylim=y)
    axis.spines[:].set_visible(False)


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
    solid.locator_params(nbins=3)
    solid.tick_params(labelsize=6, pad=-1)
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
