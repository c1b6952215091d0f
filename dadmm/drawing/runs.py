"""Figures of runs: convergence, penalties by edge, and traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from dadmm.core.layout import Matrix, Vector
from dadmm.drawing.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREY,
    LOAD,
    ORANGE,
    SKY,
    curve,
    legend,
    log_axis,
    quantiles,
    sheet,
    styled,
)


class Penalties(NamedTuple):
    """The penalties of a run."""

    edges: np.ndarray  # (E, 2)
    eta: Matrix  # (iterations, E)
    start: float  # ticks are multiples of it
    given: bool  # whether it is eta0, and is marked


class Load(NamedTuple):
    """Bytes and seconds of a run."""

    sent: Matrix | None  # (n_nodes, n_nodes) bytes from i to j, NaN without an edge
    seconds: Mapping[str, Vector]  # by phase: (n_nodes,)


@styled
def convergence(
    panels: Mapping[str, Mapping[str, Matrix]],
    styles: Mapping[str, Mapping[str, Any]],
    title: str,
    levels: Mapping[str, tuple[float, str]],
    moments: Mapping[str, int],
) -> Figure:
    """Draw quantities of each run over the iterations, one panel per quantity.

    Parameters
    ----------
    panels : dict of str to dict of str to ndarray of shape (iterations, n_nodes)
        By title, then by run; the line is the median over the nodes, the band their
        range.
    styles : dict of str to dict
        Colour, dash and marker of each run.
    levels : dict of str to (float, str)
        A level to mark in the panel with this title, and its name.
    moments : dict of str to int
        One or two iterations to mark in all panels, by name.
    """
    known = {
        label: runs
        for label, runs in panels.items()
        if not all(np.isnan(values).all() for values in runs.values())
    }
    panels = known or panels  # NaN is a criterion that the rule does not judge
    figure, axes = sheet(len(panels), 3.5, 2.7)
    figure.suptitle(title)
    handles: dict[str, Any]
    handles = {run: Line2D([], [], **style) for run, style in styles.items()}
    if len(styles) == 1:
        handles = {"median over the nodes": handles.popitem()[1]}
    band = Patch(color=GREY, alpha=0.4, linewidth=0)
    handles |= {"smallest to largest node": band}
    for axis, (label, runs) in zip(axes, panels.items(), strict=False):
        for run, values in runs.items():
            # the scale is logarithmic
            values = np.where((values > 0) & (values < np.inf), values, np.nan)
            spread = quantiles(values, (0, 0.5, 1), 1)
            curve(axis, spread, styles[run], 0.22 if len(runs) == 1 else 0.12)
        axis.set_title(label, loc="left")
        every = np.concatenate([values.ravel() for values in runs.values()])
        if not ((every > 0) & (every < np.inf)).any():
            text = "all zero" if (every == 0).any() else "unknown"
            axis.text(0.5, 0.5, text, ha="center", transform=axis.transAxes)
            axis.set(xticks=[], yticks=[])
            continue
        if label in levels:
            level, name = levels[label]
            handles[name] = axis.axhline(level, color=GREY, linewidth=1, linestyle=":")
        dashes = ("--", "-")[-len(moments) :]
        for (name, t), dash in zip(moments.items(), dashes, strict=False):
            handles[name] = axis.axvline(t, color=GREY, linewidth=1, linestyle=dash)
        log_axis(axis, unit="°" if "degrees" in label else "")
    legend(figure, axes[len(panels) :], handles)
    return figure


@styled
def penalties(runs: Mapping[str, Penalties], title: str) -> Figure:
    """Draw the penalty of every directed edge over time, one panel per run.

    The edges whose penalties have the widest range are highlighted. The axis of the
    iterations is logarithmic, because schemes adapt early and runs can be long.
    """
    figure, axes = sheet(len(runs), 4.6, 3.0, legends=True)
    figure.suptitle(title)
    for axis, (name, run) in zip(axes, runs.items(), strict=False):
        axis.set_title(name if len(runs) > 1 else "")
        _penalties(axis, run)
    handles = {
        "one directed edge": Line2D([], [], color="0.5", linewidth=0.6),
        "median": Line2D([], [], color=BLACK, linewidth=2),
    }
    start = {f"{run.start:g}" for run in runs.values() if run.given}
    if start:
        known = f" = {start.pop()}" if len(start) == 1 else ""
        dotted = Line2D([], [], color=BLACK, linewidth=0.9, linestyle=":")
        handles[f"$\\eta_0${known}"] = dotted
    legend(figure, axes[len(runs) :], handles)
    return figure


def _penalties(axis: Any, run: Penalties) -> None:
    """Draw all edges in grey, edges of widest range in colour, and the median."""
    t, values = np.arange(1, len(run.eta) + 1), run.eta
    faint = max(0.12, min(0.8, 40 / values.shape[1]))
    light = [_corners(t, column) for column in values.T]
    axis.add_collection(
        LineCollection(light, colors="0.5", linewidths=0.4, alpha=faint)
    )
    if run.given:
        axis.axhline(run.start, color=BLACK, linewidth=0.9, linestyle=":")
    for style, e in zip(CYCLE, _widest(values, 4), strict=False):
        i, j = run.edges[e]
        look = {**style, "marker": "", "linewidth": 1.0, "label": f"{i}→{j}"}
        axis.plot(*_corners(t, values[:, e]).T, **look)
    axis.plot(*_corners(t, np.median(values, axis=1)).T, color=BLACK, linewidth=2)
    axis.set(ylabel=r"Penalty $\eta_{ij}$", xscale="log", xlim=(1, max(len(t), 2)))
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_locator(NullLocator())
    room = 1.1 if values.max() > values.min() else 2.0
    axis.set_ylim(values.min() / room, max(values.max(), run.start) * room)
    log_axis(axis, base=run.start)
    if axis.get_legend_handles_labels()[1]:
        beside = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        axis.legend(title="Widest range", title_fontsize=8, **beside)


def _corners(t: np.ndarray, values: Vector) -> Matrix:
    """Return the curve (points, 2) without the inner points of its flat stretches."""
    moves = np.diff(values) != 0
    keep = np.concatenate([[True], moves]) | np.concatenate([moves, [True]])
    points: Matrix = np.column_stack([t, values])[keep]
    return points


def _widest(values: Matrix, n: int) -> list[int]:
    """Return up to n columns of the widest range that mostly differ from each other."""
    spread = np.log(values.max(axis=0) / values.min(axis=0))
    chosen: list[int] = []
    for e in np.argsort(-spread, kind="stable"):
        alike = (values[:, chosen] == values[:, [e]]).mean(axis=0) > 0.7
        if spread[e] > 1e-9 and not alike.any():
            chosen.append(int(e))
        if len(chosen) == n:
            break
    return chosen


@styled
def traffic(runs: Mapping[str, Load], title: str) -> Figure:
    """Draw bytes by directed edge and seconds by node and phase, a row per run."""
    size = (8.8, 3.4 * len(runs) + 0.4)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.06))
    figure.suptitle(title)
    axes = figure.subplots(len(runs), 2, squeeze=False)
    known = [run.sent for run in runs.values() if run.sent is not None]
    most = max((float(np.nanmax(sent, initial=0)) for sent in known), default=0.0)
    for (left, right), (name, run) in zip(axes, runs.items(), strict=True):
        left.set_title("Bytes by directed edge" if len(runs) == 1 else name)
        right.set_title("Time by phase" if len(runs) == 1 else name)
        _heat(figure, left, run.sent, most)
        _phases(right, run.seconds)
    top = max(right.get_ylim()[1] for right in axes[:, 1])
    for right in axes[:, 1]:
        right.set_ylim(0, top)
    axes[0, 1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _heat(figure: Figure, axis: Any, sent: Matrix | None, most: float) -> None:
    """Draw the bytes from node i to node j."""
    if sent is None:
        axis.axis("off")
        axis.text(0.5, 0.5, "not recorded", ha="center", transform=axis.transAxes)
        return
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
    size, unit = next((u for u in units if most >= u[0]), units[-1])
    image = axis.pcolormesh(
        sent / size, cmap=LOAD, vmin=0, vmax=max(most, 1.0) / size,
        edgecolor="white", linewidth=0.4,
    )  # fmt: skip
    figure.colorbar(image, ax=axis, label=f"Sent by i to j ({unit})", shrink=0.85)
    axis.set(xlabel=f"Receiver j ({np.nansum(sent):,.0f} bytes in all)")
    axis.set(ylabel="Sender i", aspect="equal")
    axis.invert_yaxis()
    ticks = _ticks(len(sent))
    for side in (axis.xaxis, axis.yaxis):
        side.set_ticks(ticks + 0.5, ticks)
        side.set_tick_params(length=0)
    axis.spines[:].set_visible(True)


def _ticks(n_nodes: int) -> np.ndarray:
    """Return at most ten evenly spaced nodes for labels."""
    return np.arange(0, n_nodes, -(-n_nodes // 10))


def _phases(axis: Any, seconds: Mapping[str, Vector]) -> None:
    """Draw a bar per node, made of its phases."""
    bottom: Any = 0.0
    looks = ((BLUE, ""), (ORANGE, "////"), (SKY, "...."), ("0.85", ""))
    for (phase, values), (colour, hatch) in zip(seconds.items(), looks, strict=False):
        axis.bar(
            range(len(values)), values, bottom=bottom, color=colour, hatch=hatch,
            label=phase, edgecolor="white", linewidth=0,
        )  # fmt: skip
        bottom = bottom + values
    axis.set_xticks(_ticks(len(bottom)))
    axis.set(xlabel="Node", ylabel="Time (s)", xlim=(-0.6, len(bottom) - 0.4))
