"""The style of all figures: colours, axes, curves and files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from dadmm.core import files
from dadmm.core.documents import writing
from dadmm.core.layout import Matrix

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#999999"
ULTRAMARINE = "#2B2BF5"
SCHEME_STYLE: dict[str, dict[str, Any]] = {
    "fixed": {"color": BLACK, "linestyle": "-", "marker": "o"},
    "vp": {"color": ORANGE, "linestyle": "--", "marker": "s"},
    "ap": {"color": SKY, "linestyle": "-.", "marker": "^"},
    "nap": {"color": BLUE, "linestyle": "-", "marker": "D"},
    "vp_ap": {"color": GREEN, "linestyle": (0, (6, 1, 1, 1, 1, 1)), "marker": "v"},
    "vp_nap": {"color": PURPLE, "linestyle": (0, (2, 1)), "marker": "P"},
    "global_balance": {
        "color": ULTRAMARINE, "linestyle": (0, (4, 1, 1, 1, 1, 1, 1, 1)), "marker": "d",
    },
    "snap": {
        "color": VERMILLION, "linestyle": "-", "marker": "*",
        "linewidth": 2.2, "markersize": 9.0,
    },
}  # fmt: skip
SPARE = {"color": VERMILLION, "linestyle": (0, (1, 1)), "marker": "X"}
CYCLE = (*(SCHEME_STYLE[s] for s in ("nap", "vp", "vp_ap", "vp_nap")), SPARE,
         *(SCHEME_STYLE[s] for s in ("ap", "fixed")))  # fmt: skip
STRENGTH = ListedColormap(colormaps["viridis_r"](np.linspace(0.08, 1, 256)))
LOAD = ListedColormap(colormaps["viridis_r"](np.linspace(0, 0.7, 256)))
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "figure.titlesize": 10,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "dadmm",
}
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
    with writing(stem.parent), rc_context(STYLE):
        stem.parent.mkdir(parents=True, exist_ok=True)
        for path, suffix in zip(paths, formats, strict=True):
            with files.replacing(path) as file:
                figure.savefig(file, format=suffix, metadata=dates.get(suffix))
    return paths


def sheet(
    n: int, width: float, height: float, sharey: bool = False, legends: bool = False
) -> tuple[Figure, list[Any]]:
    """Return a figure with n panels, 3 in a row, or 2 with legends beside them."""
    columns = min(n, 2 if legends else 3)
    rows = -(-n // columns)
    size = (max(5.4, columns * (width + 1.2 * legends)), rows * height + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=sharey)
    for axis in grid.flat[:n]:
        axis.set_xlabel("Iteration")
        axis.grid()
    for axis in grid.flat[n:]:
        axis.axis("off")
    return figure, list(grid.flat)


def quantiles(values: Matrix, levels: Iterable[float], axis: int) -> Matrix:
    """Return quantiles (levels, ...) that ignore NaN, or NaN if all values are."""
    none = np.asarray(np.isnan(values).all(axis=axis))
    filled = np.where(np.expand_dims(none, axis), 0.0, values)
    found = np.nanquantile(filled, tuple(levels), axis=axis)
    return np.where(none, np.nan, found)


def curve(
    axis: Any, spread: Matrix, style: Mapping[str, Any], alpha: float, end: int = 0
) -> None:
    """Draw a median and two quantiles, (3, iterations), with a marker at the end."""
    low, middle, high = spread
    t = np.arange(1, len(middle) + 1)
    axis.fill_between(t, low, high, color=style["color"], alpha=alpha, linewidth=0)
    mark = [(end or len(t)) - 1]
    over = 2.0 if style["linestyle"] == "-" else 2.1  # dashes over solid lines
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.4}
    axis.plot(t, middle, markevery=mark, zorder=over, **edge, **style)


def legend(figure: Figure, free: Sequence[Any], handles: Mapping[str, Any]) -> None:
    """Draw the legend in a free cell of the grid, or below the panels."""
    if free:
        free[0].legend(handles.values(), handles, loc="center", fontsize=9)
    else:
        width = 0.49 + 0.067 * max(map(len, handles), default=0)  # inches, of a column
        figure.legend(
            handles.values(), handles, loc="outside lower center",
            ncols=max(1, min(len(handles), int(figure.get_figwidth() / width))),
        )  # fmt: skip


def log_axis(axis: Any, unit: str = "", base: float = 1.0) -> None:
    """Make the y axis logarithmic, with plain numbers if it has few decades.

    The ticks are 1, 2 and 5 times powers of ten; or ``base`` times powers of two.
    """
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    if high / low > 300:
        axis.yaxis.set_major_locator(LogLocator(numticks=7))
        if unit:
            axis.yaxis.set_major_formatter("{x:g}" + unit)
    elif base != 1.0:
        axis.set_yticks(octaves(low, high, base))
        axis.yaxis.set_major_formatter("{x:.4g}")
    else:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}" + unit)
    axis.yaxis.set_minor_locator(NullLocator())


def octaves(low: float, high: float, base: float) -> list[float]:
    """Return base times the powers of two that lie within the limits."""
    first, last = np.ceil(np.log2(low / base)), np.floor(np.log2(high / base))
    return [float(base * 2**k) for k in np.arange(first, last + 1)]
