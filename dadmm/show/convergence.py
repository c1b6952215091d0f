"""The section on convergence: objective, criteria of the stopping rule, angles."""

from __future__ import annotations

import numpy as np

from dadmm.runs.stored import StoredRun
from dadmm.show.figure import MOST_POINTS, Curve, Panel, said, thinned
from dadmm.show.html import number, packed, paragraph, table
from dadmm.show.page import Page
from dadmm.show.panels import OBJECTIVE, convergence, cumulative

ROWS = 12  # of a table
AXES = (
    '<div class="controls js"><label for="across">Over</label><select id="across">'
    '<option value="">iterations</option><option value="log">iterations, '
    'logarithmic</option><option value="bytes">bytes sent by all nodes</option>'
    '<option value="seconds">seconds in the loop, mean over the nodes</option>'
    "</select></div>"
)


def section(page: Page) -> str:
    """Return the section."""
    runs = page.recorded
    if not runs:
        return page.not_recorded()
    panels = convergence(runs, MOST_POINTS)
    longest = max(run.n_iterations for run in runs)
    shown = len(thinned(longest, MOST_POINTS))
    words = "Lines are medians over the nodes, bands reach from the smallest to the "
    words += f"largest node. {said(shown, longest, 'iterations')}"
    for run in runs:  # bytes and seconds at the points of the curves
        rows = thinned(run.n_iterations, MOST_POINTS)
        costs = {name: packed(own[rows]) for name, own in cumulative(run).items()}
        page.costs.append(costs)
    return (
        page.legend(runs)
        + AXES
        + page.panels(panels, "criteria")
        + paragraph(words)
        + page.tables(_table(page, panels, k, run) for k, run in enumerate(runs))
    )


def _table(page: Page, panels: list[Panel], k: int, run: StoredRun) -> str:
    """Return medians over the nodes at some iterations."""
    curves = {
        panel.title: mark
        for panel in panels
        for mark in panel.marks
        if isinstance(mark, Curve) and mark.run == k
    }
    if not curves:
        return ""
    t = next(iter(curves.values())).x
    rows = []
    for row in thinned(len(t), ROWS):
        values = (float(curve.y[row]) for curve in curves.values())
        rows.append([f"{t[row]:,}", *(number(v, 4) for v in values)])
    ending = " (0 at the end)" if OBJECTIVE in curves and np.isnan(
        curves[OBJECTIVE].y[-1]) else ""  # fmt: skip
    words = page.titled(f"Medians over the nodes{ending}", run)
    return table(["iteration", *curves], rows, words)
