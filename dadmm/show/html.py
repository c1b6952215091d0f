"""What a page is made of: HTML, figures of plotly, and data for the scripts.

A colour of a figure is a name such as ``@blue``, which `plots.js` replaces for the
light or dark page.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import printable
from dadmm.runs.stored import StoredRun
from dadmm.show.figure import Axis, Bars, Curve, Map, Panel, log_ticks
from dadmm.show.panels import named
from dadmm.show.style import FILLS, plotly_look

NONE = "\N{EN DASH}"  # in a table
FEW = 12  # nodes or runs that have a tick each
Json = dict[str, Any]
Table = tuple[str, list[str], list[list[str]]]  # caption, head and rows


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def text(words: object) -> str:
    """Return words as HTML text, with control characters made visible."""
    return words if isinstance(words, Markup) else escape(printable(str(words)))


def content(name: str) -> str:
    """Return the content of a file beside this one."""
    return files("dadmm.show").joinpath(name).read_text("utf-8")


def fragment(name: str) -> str:
    """Return a file of HTML, in one line."""
    return content(name).replace("\n", "")


def number(value: float | None, digits: int = 4) -> str:
    """Return a number in few digits; a dash if it is unknown."""
    return NONE if value is None or np.isnan(value) else f"{value:.{digits}g}"


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str,
    kind: str = "",
) -> str:
    """Return a table; the first cell of a row is its header, the others numbers.

    The columns of a table of the ``kind`` "sortable" can be sorted in the browser.
    """
    top = "".join(f'<th scope="col">{text(word)}</th>' for word in head)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{text(word)}</td>" for word in others)
        lines.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table class="{kind}"><caption>{text(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def side_by_side(
    found: Sequence[Mapping[str, object]], names: Iterable[str] = ()
) -> list[list[object]]:
    """Return rows of a table: names, by default all, and what each mapping has."""
    rows = names or dict.fromkeys(name for own in found for name in own)
    return [[name, *(own.get(name, NONE) for own in found)] for name in rows]


def details(summary: str, inner: str) -> str:
    """Return HTML that is folded until the reader opens it; nothing for nothing."""
    folded = f"<details><summary>{text(summary)}</summary>{inner}</details>"
    return folded if inner else ""


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph of plain words; nothing for none."""
    return f'<p class="{kind}">{text(words)}</p>' if words else ""


def facts(lines: Iterable[str]) -> str:
    """Return a list of sentences; nothing for none."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="facts">{items}</ul>' if items else ""


class Page:
    """What the sections of a page have added, and the names and looks of its runs."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.runs = list(runs)
        self.recorded = [run for run in runs if run.has_rows]
        self.is_comparison = len(runs) > 1
        self.figures: list[Json] = []
        self.network: Json = {"frames": [], "scale": [1, 1], "runs": []}
        self.costs: list[Json] = []  # of the recorded runs
        self._named = named(runs) if runs else []

    def plot(self, title: str, figure: Json, kind: str = "", name: str = "") -> str:
        """Add a figure of plotly, and return the element in which it is drawn.

        The ``kind`` "criteria" has an axis that may be iterations, bytes or seconds;
        "iterations" has one of iterations. ``name`` is a number by default.
        """
        name = f"plot-{name or len(self.figures)}"
        self.figures.append({"id": name, "kind": kind, **figure})
        words, line = text(title), '<output class="values"></output>' if kind else ""
        return (
            f'<figure class="plot"><figcaption>{words}{line}</figcaption>'
            f'<div class="canvas" id="{name}" aria-label="{words}"></div></figure>'
        )

    def panels(self, panels: Sequence[Panel], kind: str = "") -> str:
        """Return panels side by side; those that are a sentence come below."""
        plots = [own for own in panels if not own.note]
        drawn = "".join(self.plot(own.title, describe(own), kind) for own in plots)
        notes = facts(f"{own.title}: {own.note}." for own in panels if own.note)
        return (f'<div class="panels js">{drawn}</div>' if drawn else "") + notes

    def look(self, run: StoredRun) -> dict[str, str]:
        """Return colour, dash and marker of a run."""
        return plotly_look(self._named[self.runs.index(run)][1])

    def name(self, run: StoredRun) -> str:
        """Return the label of a run."""
        return self._named[self.runs.index(run)][0]

    def titled(self, words: str, run: StoredRun) -> str:
        """Return a title, after the label of the run if there are several."""
        return f"{self.name(run)}: {words}" if self.is_comparison else words

    def sample(self, run: StoredRun) -> Markup:
        """Return the label of a run, after a short line as its curves are drawn."""
        look = self.look(run)
        colour, dash = f"var(--{look['colour']})", look["dash"].replace("solid", "none")
        return Markup(
            '<svg width="46" height="14" viewBox="0 0 46 14" aria-hidden="true">'
            f'<path d="M1 7H45" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dash}"/><text x="23" y="12" fill="{colour}" '
            f'text-anchor="middle">{look["letter"]}</text></svg> {text(self.name(run))}'
        )

    def legend(self, runs: Sequence[StoredRun]) -> str:
        """Return a legend of several runs; nothing for one."""
        items = "".join(f"<li>{self.sample(run)}</li>" for run in runs)
        legend = f'<ul class="legend" aria-label="Legend">{items}</ul>'
        return legend if self.is_comparison else ""

    def tables(
        self, runs: Sequence[StoredRun], rows_of: Callable[[StoredRun], Table]
    ) -> str:
        """Return a table of each run, folded."""
        found = ""
        for run in runs:
            words, head, rows = rows_of(run)
            found += table(head, rows, self.titled(words, run))
        return details("Tables" if len(runs) > 1 else "Table", found)


def packed(values: ArrayLike, kind: str = "f8") -> Json:
    """Return an array as plotly and the scripts read it: base64 of its bytes.

    Numbers of 4 bytes that are infinite, or become so, are NaN: no axis has them.
    """
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(values, dtype=f"<{kind}")
    if kind == "f4":
        array = np.where(np.isfinite(array), array, np.float32(np.nan))
    found: Json = {"dtype": kind, "bdata": b64encode(array.tobytes()).decode()}
    if array.ndim > 1:
        found["shape"] = ",".join(map(str, array.shape))
    return found


def describe(panel: Panel) -> Json:
    """Return the data and the layout of a panel, as a figure of plotly."""
    data: list[Json] = []
    only = len(panel.curves) == 1
    x, y = _axis(panel.x), _axis(panel.y)
    layout: Json = {"xaxis": x, "yaxis": y}
    for mark in panel.marks:
        if isinstance(mark, Curve):
            data += _curve(mark, only)
        elif isinstance(mark, Bars):
            data += _bars(mark, panel.x)
            layout |= {"barmode": "stack", "hovermode": "x unified",
                       "showlegend": len(mark.parts) > 1}  # fmt: skip
        elif isinstance(mark, Map):
            data.append(_map(mark, panel))
            few = {"showgrid": False} | _few_ticks(len(mark.values))
            x |= {"constrain": "domain"} | few
            y |= {"scaleanchor": "x", "autorange": "reversed"} | few
    if (limits := panel.limits()) is not None:
        ticks, is_long = log_ticks(*limits), limits[1] > 1e3 * limits[0]
        words = [f"10<sup>{round(np.log10(tick))}</sup>" if is_long else f"{tick:g}"
                 for tick in ticks]  # fmt: skip
        y |= {"range": np.log10(limits).tolist(), "tickvals": ticks, "ticktext": words}
    shapes = [_line(axis, at, dash) for _, axis, at, dash in panel.lines()]
    notes: list[Json] = []
    for name, at in panel.moments.items():  # names that are too close would collide
        if not notes or at - notes[-1]["x"] > 0.06 * max(panel.moments.values()):
            notes.append({
                "x": at, "y": 1, "yref": "paper", "text": name.partition(":")[0],
                "textangle": -90, "xanchor": "right", "yanchor": "top",
                "showarrow": False, "font": {"size": 11, "color": "@muted"},
                "bgcolor": "@paper/cc",
            })  # fmt: skip
    return {"data": data, "layout": layout | {"shapes": shapes, "annotations": notes}}


def _axis(axis: Axis) -> Json:
    found: Json = {"title": {"text": text(axis.label)}} if axis.label else {}
    if axis.from_zero:
        found["rangemode"] = "tozero"
    if axis.log:
        found |= {"type": "log", "nticks": 5, "tickangle": 0}
    if axis.names:
        found |= {"type": "category"} | _few_ticks(len(axis.names))
    return found


def _few_ticks(count: int) -> Json:
    return {"dtick": 1} if count <= FEW else {}


def _curve(curve: Curve, only: bool) -> list[Json]:
    """Return the traces of a curve: a band, a line, and a marker at the end."""
    look, x = plotly_look(curve.look), packed(curve.x)
    colour, shape = f"@{look['colour']}", "hv" if curve.steps else "linear"
    found: list[Json] = []
    if curve.low is not None and curve.high is not None:
        unseen: Json = {"x": x, "line": {"width": 0, "shape": shape}}
        shade = {"fill": "tonexty", "fillcolor": f"{colour}/{'38' if only else '1f'}"}
        found.append(unseen | {"y": packed(curve.low, "f4")})
        found.append(unseen | {"y": packed(curve.high, "f4")} | shade)
    dash = "solid" if only else look["dash"]
    line = {"color": colour, "dash": dash, "width": 2, "shape": shape}
    found.append({"x": x, "y": packed(curve.y), "name": text(curve.name), "line": line})
    found = [own | {"mode": "lines"} for own in found]
    if np.isfinite(y := float(curve.y[curve.last])):
        mark = {"symbol": look["marker"], "size": 9, "color": colour}
        end = {"x": [float(curve.x[curve.last])], "y": [y]}
        found.append(end | {"mode": "markers", "marker": mark})
    shared = {"hoverinfo": "none", "meta": {"run": curve.run}}
    return [own | shared | {"showlegend": "name" in own} for own in found]


def _bars(bars: Bars, x: Axis) -> list[Json]:
    names, look = [text(name) for name in x.names], {"size": 6, "fillmode": "overlay"}
    look |= {"fgcolor": "@text", "fgopacity": 0.5}
    return [
        {
            "type": "bar", "name": name, "x": names, "y": packed(values, "f4"),
            "marker": {"color": f"@{colour}", "pattern": look | {"shape": shape}},
            "hovertemplate": "%{y:.3g}",
        }
        for (name, values), (colour, shape) in zip(
            bars.parts.items(), FILLS, strict=False)
    ]  # fmt: skip


def _map(mark: Map, panel: Panel) -> Json:
    ends = f"{panel.y.label.lower()} %{{y}}, {panel.x.label.lower()} %{{x}}"
    return {
        "type": "heatmap", "z": packed(mark.values, "f4"), "zmin": 0,
        "zmax": float(np.nanmax(mark.values, initial=1e-12)),
        "colorscale": "@scale", "hoverongaps": False, "xgap": 1, "ygap": 1,
        "hovertemplate": f"{ends}: %{{z:.4s}} {mark.unit}<extra></extra>",
        "colorbar": {"title": {"text": mark.unit}, "thickness": 14},
    }  # fmt: skip


def _line(axis: str, at: float, dash: str) -> Json:
    """Return a line over the whole plot, at a value of an axis."""
    other = "x" if axis == "y" else "y"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1}
    look = {"color": "@muted", "width": 1.2, "dash": dash}
    return {"type": "line", f"{other}ref": "paper", **ends, "line": look}
