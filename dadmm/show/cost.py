"""The section on traffic and time: bytes, phases, and who waited for whom."""

from __future__ import annotations

import numpy as np

from dadmm.admm.clock import PHASES
from dadmm.core.errors import ConfigError
from dadmm.runs.stored import StoredRun
from dadmm.show.figure import MOST_POINTS, Axis, Panel, said
from dadmm.show.html import facts, number, paragraph, table
from dadmm.show.page import Page
from dadmm.show.panels import ITERATION, by_run, edge_map, phases, sent, spreads
from dadmm.timing import waiting
from dadmm.timing.trace import Trace

ROWS = 30  # of a table
WORDS = (
    "Solve is a node's own problem, exchange is messages and waiting, update is "
    "multipliers and penalties, observe is callbacks and records. Bytes count the "
    "messages between neighbours in the iterations, without opening messages."
)


def section(page: Page) -> str:
    """Return the section."""
    runs = page.recorded
    if not runs:
        return page.not_recorded()
    if page.is_comparison:
        found, lines = by_run(runs), list[str]()
    else:
        found, lines = _of_run(runs[0])
    return (
        page.panels(found)
        + facts(lines)
        + paragraph(WORDS)
        + page.tables(_table(page, run) for run in runs)
    )


def _of_run(run: StoredRun) -> tuple[list[Panel], list[str]]:
    """Return the panels of one run, and sentences on waiting."""
    total = run.column("bytes").sum(axis=1, keepdims=True) / run.spans[:, None]
    each = "Bytes in each iteration"
    if np.ptp(total) == 0:
        axes = ITERATION, Axis()
        found = [Panel(each, *axes, note=f"{total[0, 0]:,.0f}, the same in all")]
    else:
        curves = spreads([total], [run], MOST_POINTS)
        found = [Panel(each, ITERATION, Axis("bytes", from_zero=True), curves)]
    found += [phases(run), sent(run)]
    if run.is_going:
        return found, ["Waiting times are estimated when the run ends."]
    try:
        waited = waiting.waiting(Trace.of(run))
    except ConfigError as error:
        return found, [f"Waiting times are not known: {error}."]
    name, ends = "Who waited for whom (estimate)", ("Waited for", "Node")
    found.append(edge_map(name, run, waited.by_edge, "s", ends))
    return found, waiting.table(waited).split("\n")


def _table(page: Page, run: StoredRun) -> str:
    """Return messages, bytes and seconds by node."""
    sums = {name: run.column(name).sum(axis=0) for name in ("messages", "bytes")}
    spent = [run.column(f"{phase}_seconds").sum(axis=0) for phase in PHASES]
    order = np.argsort(-np.sum(spent, axis=0), kind="stable")[:ROWS]
    rows = [
        [f"node {i}", *(f"{own[i]:,.0f}" for own in sums.values()),
         *(number(float(own[i]), 3) for own in spent)]
        for i in order
    ]  # fmt: skip
    few = said(len(rows), len(spent[0]), "nodes")
    words = page.titled(f"What a node sent, and its seconds by phase. {few}", run)
    return table(["node", *sums, *PHASES], rows, words)
