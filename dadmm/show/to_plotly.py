"""Describe panels as figures of plotly, which `plots.js` draws in the browser.

A colour is a name such as ``@blue``, which `plots.js` replaces for the light or dark
page.
"""

from __future__ import annotations

from base64 import b64encode
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dadmm.core.errors import printable
from dadmm.core.layout import Vector
from dadmm.show.figure import Axis, Bars, Curve, Map, Panel, log_ticks
from dadmm.show.style import plotly_look

TYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "u1": "|u1"}
FILLS = (("@blue", ""), ("@orange", "/"), ("@sky", "."), ("@pale", "x"))
FEW = 12  # nodes or runs that have a tick each
Json = dict[str, Any]


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def text(words: object) -> str:
    """Return words as HTML text, with control characters made visible."""
    return words if isinstance(words, Markup) else escape(printable(str(words)))


def packed(values: ArrayLike, kind: str = "f8") -> Json:
    """Return an array as plotly and the scripts read it: base64 of its bytes."""
    array = np.ascontiguousarray(values, dtype=TYPES[kind])
    found: Json = {"dtype": kind, "bdata": b64encode(array.tobytes()).decode()}
    if array.ndim > 1:
        found["shape"] = ",".join(map(str, array.shape))
    return found


def describe(panel: Panel) -> Json:
    """Return the data and the layout of a panel."""
    data: list[Json] = []
    only = sum(isinstance(mark, Curve) for mark in panel.marks) == 1
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
    shapes = [] if panel.level is None else [_line("y", panel.level[0], "dot")]
    dashes = ("dot", "dash", "solid")
    for k, at in enumerate(reversed(panel.moments.values())):
        shapes.append(_line("x", at, dashes[max(2 - k, 0)]))
    notes: list[Json] = []
    for name, at in panel.moments.items():  # names that are too close would collide
        if not notes or at - notes[-1]["x"] > 0.06 * max(panel.moments.values()):
            notes.append(_note(name, at))
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
    """Return an axis that has a tick for each of a few things."""
    return {"dtick": 1} if count <= FEW else {}


def _curve(curve: Curve, only: bool) -> list[Json]:
    """Return the traces of a curve: a band, a line, and a marker at the end."""
    look, x = plotly_look(curve.look), packed(curve.x)
    colour, shape = f"@{look['colour']}", "hv" if curve.steps else "linear"
    found: list[Json] = []
    if curve.low is not None and curve.high is not None:
        unseen: Json = {"x": x, "line": {"width": 0, "shape": shape}}
        shade = {"fill": "tonexty", "fillcolor": f"{colour}/{'38' if only else '1f'}"}
        found.append(unseen | {"y": packed(_finite(curve.low), "f4")})
        found.append(unseen | {"y": packed(_finite(curve.high), "f4")} | shade)
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


def _finite(values: Vector) -> Vector:
    """Return numbers that a browser draws on any axis: no infinite ones."""
    return np.where(np.isfinite(values), values, np.nan)


def _bars(bars: Bars, x: Axis) -> list[Json]:
    names, look = [text(name) for name in x.names], {"size": 6, "fillmode": "overlay"}
    look |= {"fgcolor": "@text", "fgopacity": 0.5}
    return [
        {
            "type": "bar", "name": name, "x": names, "y": packed(values, "f4"),
            "marker": {"color": colour, "pattern": look | {"shape": shape}},
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


def _note(name: str, x: float) -> Json:
    """Return the name of a moment, along its line."""
    return {
        "x": x, "y": 1, "yref": "paper", "text": name.partition(":")[0],
        "textangle": -90, "xanchor": "right", "yanchor": "top", "showarrow": False,
        "font": {"size": 11, "color": "@muted"}, "bgcolor": "@paper/cc",
    }  # fmt: skip
