"""Describe panels as figures of plotly, which `plots.js` draws in the browser.

A colour is a name such as ``@blue``, which `plots.js` replaces for the light or dark
page.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dadmm.core.layout import Vector
from dadmm.show.figure import Axis, Bars, Curve, Map, Panel, log_ticks
from dadmm.show.html import packed, text
from dadmm.show.style import plotly_look

FILLS = (("@blue", ""), ("@orange", "/"), ("@sky", "."), ("@pale", "x"))
FEW = 12  # nodes or runs that have a tick each
Figure = dict[str, Any]


def describe(panel: Panel) -> Figure:
    """Return the data and the layout of a panel."""
    data: list[Figure] = []
    only = sum(isinstance(mark, Curve) for mark in panel.marks) == 1
    layout: Figure = {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y)}
    for mark in panel.marks:
        if isinstance(mark, Curve):
            data += _curve(mark, only)
        elif isinstance(mark, Bars):
            data += _bars(mark, panel.x)
            layout |= {"barmode": "stack", "hovermode": "x unified",
                       "showlegend": len(mark.parts) > 1}  # fmt: skip
        elif isinstance(mark, Map):
            data.append(_map(mark, panel))
            few = _few_ticks(len(mark.values))
            layout["xaxis"] |= {"showgrid": False, "constrain": "domain"} | few
            layout["yaxis"] |= {"showgrid": False, "scaleanchor": "x",
                                "autorange": "reversed"} | few  # fmt: skip
    if (limits := panel.limits()) is not None:
        layout["yaxis"] |= _log_axis(*limits)
    layout["shapes"] = (
        [] if panel.level is None else [_line("y", panel.level[0], "dot")]
    )
    dashes = ("dot", "dash", "solid")
    for k, x in enumerate(reversed(panel.moments.values())):
        layout["shapes"].append(_line("x", x, dashes[max(2 - k, 0)]))
    layout["annotations"] = [_note(name, x) for name, x in panel.moments.items()]
    return {"data": data, "layout": layout}


def _axis(axis: Axis) -> Figure:
    found: Figure = {"title": {"text": text(axis.label)}} if axis.label else {}
    if axis.from_zero:
        found["rangemode"] = "tozero"
    if axis.log:
        found["type"] = "log"
    if axis.names:
        found |= {"type": "category"} | _few_ticks(len(axis.names))
    return found


def _few_ticks(count: int) -> Figure:
    """Return an axis that has a tick for each of a few things."""
    return {"dtick": 1} if count <= FEW else {}


def _log_axis(low: float, high: float) -> Figure:
    ticks = log_ticks(low, high)
    if high > 1e3 * low:
        words = [f"10<sup>{round(np.log10(tick))}</sup>" for tick in ticks]
    else:
        words = [f"{tick:g}" for tick in ticks]
    ends = [float(np.log10(low)), float(np.log10(high))]
    return {"range": ends, "tickvals": ticks, "ticktext": words}


def _curve(curve: Curve, only: bool) -> list[Figure]:
    """Return the traces of a curve: a band, a line, and a marker at the end."""
    look, x = plotly_look(curve.look), packed(curve.x, "f8")
    shape = "hv" if curve.steps else "linear"
    found: list[Figure] = []
    if curve.low is not None and curve.high is not None:
        unseen: Figure = {"mode": "lines", "line": {"width": 0, "shape": shape}}
        shade = f"{look['colour']}/{0.22 if only else 0.12}"
        found += [
            {"x": x, "y": packed(_shown(curve.low), "f4"), **unseen},
            {"x": x, "y": packed(_shown(curve.high), "f4"), **unseen,
             "fill": "tonexty", "fillcolor": shade},
        ]  # fmt: skip
    line = {"color": look["colour"], "dash": "solid" if only else look["dash"],
            "width": 2, "shape": shape}  # fmt: skip
    found.append({"x": x, "y": packed(curve.y), "name": text(curve.name),
                  "mode": "lines", "line": line})  # fmt: skip
    known = np.flatnonzero(np.isfinite(curve.y) & (curve.y != 0))
    if len(known):
        end = {"x": [float(curve.x[known[-1]])], "y": [float(curve.y[known[-1]])]}
        mark = {"symbol": look["marker"], "size": 9, "color": look["colour"]}
        found.append({**end, "mode": "markers", "marker": mark})
    return [own | {"hoverinfo": "none", "meta": {"run": curve.run}} for own in found]


def _shown(values: Vector) -> Vector:
    """Return numbers that a browser draws on any axis: no infinite ones."""
    return np.where(np.isfinite(values), values, np.nan)


def _bars(bars: Bars, x: Axis) -> list[Figure]:
    names = [text(name) for name in x.names]
    return [
        {
            "type": "bar", "name": name, "x": names, "y": packed(values, "f4"),
            "marker": {"color": colour, "pattern": {
                "shape": shape, "size": 6, "fillmode": "overlay", "fgcolor": "@text",
                "fgopacity": 0.5}},
            "hovertemplate": "%{y:.3g}",
        }
        for (name, values), (colour, shape) in zip(
            bars.parts.items(), FILLS, strict=False)
    ]  # fmt: skip


def _map(mark: Map, panel: Panel) -> Figure:
    ends = f"{panel.y.label.lower()} %{{y}}, {panel.x.label.lower()} %{{x}}"
    return {
        "type": "heatmap", "z": packed(mark.values, "f4"), "zmin": 0,
        "zmax": float(max(np.nanmax(mark.values, initial=0.0), 1e-12)),
        "colorscale": "@scale", "hoverongaps": False, "xgap": 1, "ygap": 1,
        "hovertemplate": f"{ends}: %{{z:.4s}} {mark.unit}<extra></extra>",
        "colorbar": {"title": {"text": mark.unit}, "thickness": 14},
    }  # fmt: skip


def _line(axis: str, at: float, dash: str) -> Figure:
    """Return a line over the whole plot, at a value of an axis."""
    other = "x" if axis == "y" else "y"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1}
    look = {"color": "@muted", "width": 1.2, "dash": dash}
    return {"type": "line", f"{other}ref": "paper", **ends, "line": look}


def _note(name: str, x: float) -> Figure:
    """Return the name of a moment, along its line."""
    return {
        "x": x, "y": 1, "yref": "paper", "text": name.partition(":")[0],
        "textangle": -90, "xanchor": "right", "yanchor": "top", "showarrow": False,
        "font": {"size": 11, "color": "@muted"}, "bgcolor": "@paper/0.8",
    }  # fmt: skip
