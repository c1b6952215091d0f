"""The section on convergence: objective, criteria of the stopping rule, angles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.core.layout import Matrix, Vector
from dadmm.drawing.figures import ANGLES, criteria, draw_convergence, labels, stops
from dadmm.drawing.style import quantiles
from dadmm.page import look
from dadmm.page.markup import details, number, packed, paragraph, table, text
from dadmm.page.parts import Page, not_recorded
from dadmm.page.runs import PageRun
from dadmm.page.thinning import MOST_POINTS, iterations, said

OBJECTIVE = "Objective, sum over the nodes"
ROWS = 12  # of a table
RANGE = 10.0  # of an objective that is drawn on a log axis


def section(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section."""
    known = [run for run in runs if run.has_rows]
    if not known:
        return not_recorded(runs)
    panels, levels = criteria(known)
    panels = {OBJECTIVE: [_total(run) for run in known]} | panels
    panels |= {
        title: [run.column(name) for run in known]
        for name, title in ANGLES.items()
        if all(name in run.history for run in known)
    }
    panels = {k: v for k, v in panels.items() if k == OBJECTIVE or _has_numbers(v)}
    marks = stops(known[0]) if len(known) == 1 else {}
    drawn = [
        _panel(page, title, values, known, levels.get(title, (0.0, ""))[0], marks)
        for title, values in panels.items()
    ]
    longest = max(run.n_iterations for run in known)
    shown = len(iterations(longest, MOST_POINTS))
    return (
        paragraph(_caption(levels, marks))
        + paragraph(said(shown, longest, "iterations"), "js")
        + page.legend(known)
        + '<p class="js"><label><input type="checkbox" id="log-iterations"> '
        "logarithmic axis of iterations</label></p>"
        + f'<div class="panels js">{"".join(drawn)}</div>'
        + page.still(lambda: draw_convergence(known, []), "Convergence of the runs")
        + "".join(
            details(page.titled("Table", run), _table(panels, k, run))
            for k, run in enumerate(known)
        )
    )


def _has_numbers(values: Sequence[Matrix]) -> bool:
    return any(np.isfinite(own).any() for own in values)


def _total(run: PageRun) -> Matrix:
    """Return the sum of the nodes' objectives, (iterations, 1)."""
    total: Matrix = run.column("objective").sum(axis=1, keepdims=True)
    return total


def _caption(levels: dict[str, Any], marks: dict[str, int]) -> str:
    words = "Lines are medians over the nodes, bands reach from the smallest to the "
    words += "largest node. "
    if levels:
        names = {name for _, name in levels.values()}
        words += f"Dotted horizontal line: {' or '.join(sorted(names))}. "
    dashes = ("dashed", "solid")[-len(marks) :] if marks else ()
    for dash, name in zip(dashes, marks, strict=True):
        words += f"{dash.capitalize()} vertical line: {name}. "
    return words


def _panel(
    page: Page,
    title: str,
    values: Sequence[Matrix],
    runs: Sequence[PageRun],
    level: float,
    marks: dict[str, int],
) -> str:
    """Add a plot of one quantity, and return its place."""
    total = title == OBJECTIVE
    every = np.concatenate([own.ravel() for own in values])
    every = every[np.isfinite(every)]
    logarithmic = not total or (
        len(every) > 0 and every.min() > 0 and every.max() > RANGE * every.min()
    )
    if logarithmic and not (every > 0).any():
        fact = "all zero" if (every == 0).any() else "unknown"
        return f'<figure class="empty"><h3>{text(title)}</h3><p>{fact}</p></figure>'
    traces: list[dict[str, Any]] = []
    for own, name, style in zip(values, labels(runs), look.of_runs(runs), strict=True):
        traces += curves(own, name, style, logarithmic, only=len(runs) == 1)
    lines = [_line("y", level, "dot")] if level > 0 else []
    dashes = ("dash", "solid")[-len(marks) :] if marks else ()
    lines += [_line("x", t, d) for t, d in zip(marks.values(), dashes, strict=True)]
    layout = {
        "xaxis": {"title": {"text": "Iteration"}},
        "yaxis": log_axis(every) if logarithmic else {},
        "shapes": lines,
    }
    return page.plot(title, traces, layout, kind="iterations")


def log_axis(values: Vector) -> dict[str, Any]:
    """Return a logarithmic axis with few ticks: 1, 2 and 5, or powers of ten."""
    values = values[np.isfinite(values) & (values > 0)]
    low, high = (values.min(), values.max()) if len(values) else (1.0, 1.0)
    decades = float(np.log10(high / low))
    if decades > 2.2:
        return {"type": "log", "dtick": max(1, round(decades / 6))}
    steps = range(1, 10) if decades < 0.5 else (1, 2, 5)
    tens = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1)
    ticks = [float(f"{step}e{power}") for power in tens for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{v:g}" for v in ticks]}


def curves(
    values: Matrix, name: str, style: dict[str, Any], logarithmic: bool, only: bool
) -> list[dict[str, Any]]:
    """Return the traces of one run: a band, a median, and a marker at the end."""
    t = iterations(len(values), MOST_POINTS)
    own = values[t - 1]
    allowed = np.isfinite(own) & ((own > 0) | (not logarithmic))
    low, middle, high = quantiles(np.where(allowed, own, np.nan), (0, 0.5, 1), 1)
    x, dash = packed(t, "i4"), "solid" if only else style["dash"]
    unseen = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    shade = f"{style['colour']}/{0.22 if only else 0.12}"
    found: list[dict[str, Any]] = []
    several = values.shape[1] > 1
    if several:
        found += [
            {"x": x, "y": packed(low, "f4"), **unseen},
            {"x": x, "y": packed(high, "f4"), **unseen, "fill": "tonexty",
             "fillcolor": shade},
        ]  # fmt: skip
    spread = " (nodes: %{customdata[0]:.3g} to %{customdata[1]:.3g})" * several
    found.append(
        {
            "x": x, "y": packed(middle), "name": text(name), "mode": "lines",
            "line": {"color": style["colour"], "dash": dash, "width": 2},
            "customdata": packed(np.column_stack([low, high]), "f4"),
            "hovertemplate": f"%{{y:.6g}}{spread}",
        }
    )  # fmt: skip
    known = np.flatnonzero(np.isfinite(middle))
    if len(known):
        end = {"x": [int(t[known[-1]])], "y": [float(middle[known[-1]])]}
        mark = {"symbol": style["marker"], "size": 9, "color": style["colour"]}
        found.append({**end, "mode": "markers", "marker": mark, "hoverinfo": "skip"})
    return found


def _line(axis: str, at: float, dash: str) -> dict[str, Any]:
    """Return a line over the whole plot, at a value of an axis."""
    other = "x" if axis == "y" else "y"
    ends = {f"{axis}0": at, f"{axis}1": at, f"{other}0": 0, f"{other}1": 1}
    look = {"color": "@muted", "width": 1.2, "dash": dash}
    return {"type": "line", f"{other}ref": "paper", **ends, "line": look}


def _table(panels: dict[str, list[Matrix]], k: int, run: PageRun) -> str:
    """Return medians over the nodes at some iterations."""
    rows = []
    for t in iterations(run.n_iterations, ROWS).tolist():
        middles = [np.median(own[k][t - 1]) for own in panels.values()]
        rows.append([t, *(number(float(value), 6) for value in middles)])
    return table(
        ["iteration", *panels], rows, "Medians over the nodes; of objectives the sum"
    )
