"""The section on penalties and budgets by edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.core.layout import Vector
from dadmm.drawing.figures import draw_eta
from dadmm.page import thinning
from dadmm.page.convergence import log_axis
from dadmm.page.markup import details, number, paragraph, table
from dadmm.page.network import NO_ROWS, still
from dadmm.page.parts import Page
from dadmm.page.runs import PageRun
from dadmm.penalty import SCHEMES

ROWS = 30  # of a table


def section(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section on penalties and budgets by edge; `network.js` draws it."""
    found = [run for run in runs if run.by_edge]
    if not found:
        return paragraph(NO_ROWS)
    every = np.concatenate([run.eta.ravel() for run in found])
    time = {"title": {"text": "Iteration"}, "type": "log"}  # schemes adapt early
    axes: dict[str, Any] = {"xaxis": time, "yaxis": log_axis(every)}
    plots = page.plot("Penalty eta of the edges", [], axes, "iterations", "eta")
    if any("budget0" in SCHEMES[run.config.scheme].uses for run in found):
        title = "Budget of the chosen edge and what it has spent, up to 1.5 budgets"
        axes = {"xaxis": time, "yaxis": {}}
        plots += page.plot(title, [], axes, "iterations", "budget")
    words = "Bands hold the drawn edges, thinner lines are their medians"
    if len(found) == 1:
        words = "Thin lines are the drawn edges; a click on one chooses it"
    return (
        paragraph(f"{words}. The thickest line is the chosen edge.", "js")
        + page.legend(found)
        + f'<div class="panels wide js">{plots}</div>'
        + still(page, found, draw_eta, "Penalties of the edges over the iterations")
        + "".join(details(page.titled("Table", run), _table(run)) for run in found)
    )  # fmt: skip


def _table(run: PageRun) -> str:
    """Return the edges of the largest penalties at the end."""
    eta, edges = run.eta[-1], run.topology.edges
    order = np.argsort(-eta, kind="stable")[:ROWS]
    head = ["edge", "penalty"]
    columns: list[Vector] = [eta]
    if "budget0" in SCHEMES[run.config.scheme].uses:
        head += ["spent", "budget"]
        columns += [run.edge_column(name)[-1] for name in ("spent", "budget")]
    rows = [
        [f"{edges[e, 0]} to {edges[e, 1]}", *(number(float(c[e])) for c in columns)]
        for e in order
    ]
    few = thinning.said(len(rows), len(eta), "edges")
    return table(head, rows, f"The largest penalties after the last iteration. {few}")
