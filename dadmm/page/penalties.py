"""The section on penalties and budgets by edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.drawing.figures import draw_eta
from dadmm.page import thinning
from dadmm.page.convergence import log_axis
from dadmm.page.markup import details, number, paragraph, table
from dadmm.page.network import NO_ROWS, still
from dadmm.page.parts import Page
from dadmm.page.runs import PageRun

ROWS = 30  # of a table
BITS = "bits, each of which doubles or halves a penalty"


def section(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section on penalties and budgets by edge; `network.js` draws it."""
    found = [run for run in runs if run.by_edge]
    if not found:
        return paragraph(NO_ROWS)
    every = np.concatenate([run.eta.ravel() for run in found])
    time = {"title": {"text": "Iteration"}, "type": "log"}  # schemes adapt early
    axes: dict[str, Any] = {"xaxis": time, "yaxis": log_axis(every)}
    plots = page.plot("Penalty eta of the edges", [], axes, "iterations", "eta")
    units = {_unit(run) for run in found if run.has_budgets}
    if units:
        title = "Budget of the chosen edge and what it has spent"
        title += f", in {min(units)}" * (len(units) == 1)
        axes = {"xaxis": time, "yaxis": {"rangemode": "tozero"}}
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


def _unit(run: PageRun) -> str:
    """Return the unit of the budgets of a run."""
    return BITS if run.config.scheme == "snap" else "sums of |tau|"


def _table(run: PageRun) -> str:
    """Return the edges of the largest penalties at the end."""
    columns, edges = {"penalty": run.eta[-1]}, run.topology.edges
    if run.has_budgets:
        columns |= {name: values[-1] for name, values in run.budgets.items()}
    ends, word = np.arange(len(edges)), "to"
    if all(np.array_equal(c, c[run.topology.reverse]) for c in columns.values()):
        ends, word = run.pairs, "\N{EN DASH}"
    order = ends[np.argsort(-run.eta[-1, ends], kind="stable")[:ROWS]]
    rows = [
        [f"{edges[e, 0]} {word} {edges[e, 1]}",
         *(number(float(values[e])) for values in columns.values())]
        for e in order
    ]  # fmt: skip
    words = f"The largest penalties after the last iteration. {_in_words(run)}"
    few = thinning.said(len(rows), len(ends), "edges")
    return table(["edge", *columns], rows, words + few)


def _in_words(run: PageRun) -> str:
    """Return the unit of the budgets as a sentence; nothing without budgets."""
    return f"Budgets are in {_unit(run)}. " if run.has_budgets else ""
