"""The sections on traffic, and on time: phases, and who waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dadmm.admm.clock import PHASES
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix, Vector
from dadmm.drawing.figures import draw_traffic
from dadmm.page import thinning
from dadmm.page.convergence import curves
from dadmm.page.markup import details, number, packed, paragraph, table, text
from dadmm.page.parts import Page, not_recorded
from dadmm.page.runs import PageRun
from dadmm.timing import waiting
from dadmm.timing.trace import Trace

FILLS = (("@blue", ""), ("@orange", "/"), ("@sky", "."), ("@pale", "x"))
ROWS = 30  # of a table
BINS = 40
FEW = 12  # nodes of a matrix with a tick for each


def traffic(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section on traffic."""
    plots, known = "", [run for run in runs if run.has_rows]
    if known:
        traces: list[dict[str, Any]] = []
        for run in known:
            total = run.column("bytes").sum(axis=1, keepdims=True)
            look, only = page.look(run), len(known) == 1
            traces += curves(total, page.name(run), look, False, only)
        axes = {
            "xaxis": {"title": {"text": "Iteration"}},
            "yaxis": {"title": {"text": "Bytes"}, "rangemode": "tozero"},
        }
        plots = page.plot("Bytes in each iteration", traces, axes, kind="iterations")
    for run in runs:
        plots += _by_edge(page, run, page.titled("Bytes by directed edge", run))
    small = [run for run in known if run.topology.n_nodes <= thinning.MOST_NODES]
    still = ""
    if small:
        still = page.still(lambda: draw_traffic(small, []), "Traffic and time by phase")
    return (
        paragraph(
            "The bytes in each iteration are of messages between neighbours, "
            "without opening messages, which have all parameters."
        )
        + page.legend(known)
        + f'<div class="panels js">{plots}</div>'
        + still
        + "".join(details(page.titled("Table", run), _sent_table(run)) for run in known)
    )


def _sent(run: PageRun) -> Vector | None:
    """Return the bytes of each directed edge, if they are known."""
    if "edge_bytes" in run.arrays:
        return run.array("edge_bytes", (len(run.topology.edges),)).astype(float)
    return run.edge_column("bytes").sum(axis=0) if run.by_edge else None


def _by_edge(page: Page, run: PageRun, title: str) -> str:
    """Add a matrix of the bytes by edge, or their distribution if there are many."""
    sent, edges = _sent(run), run.topology.edges
    if sent is None or not len(edges):
        return f'<figure class="empty"><h3>{text(title)}</h3><p>not known</p></figure>'
    n = run.topology.n_nodes
    if n > thinning.MOST_NODES:
        counts, ends = np.histogram(sent, BINS)
        middle = 0.5 * (ends[1:] + ends[:-1])
        bars = {
            "type": "bar", "x": packed(middle), "y": packed(counts, "i4"),
            "width": float(ends[1] - ends[0]), "marker": {"color": "@blue"},
            "hovertemplate": "about %{x:.4s} bytes: %{y} edges<extra></extra>",
        }  # fmt: skip
        axes = {
            "xaxis": {"title": {"text": "Bytes of an edge"}},
            "yaxis": {"title": {"text": "Edges"}},
        }
        return page.plot(title, [bars], axes)
    matrix = np.full((n, n), np.nan)
    matrix[tuple(edges.T)] = sent
    return _matrix(page, title, matrix, "%{y} to %{x}: %{z:,.0f} bytes", "Bytes",
                   ("Receiver", "Sender"))  # fmt: skip


def _matrix(
    page: Page, title: str, values: Matrix, hover: str, unit: str, axes: tuple[str, str]
) -> str:
    """Add a matrix with a colour per cell, and return its place."""
    trace = {
        "type": "heatmap", "z": packed(values, "f4"), "zmin": 0,
        "zmax": float(max(np.nanmax(values, initial=0.0), 1e-12)),
        "colorscale": "@scale", "hoverongaps": False, "xgap": 1, "ygap": 1,
        "hovertemplate": f"{hover}<extra></extra>",
        "colorbar": {"title": {"text": unit}, "thickness": 14},
    }  # fmt: skip
    few = {"dtick": 1} if len(values) <= FEW else {}
    x, y = ({"title": {"text": name}, "showgrid": False, **few} for name in axes)
    layout = {"xaxis": x | {"constrain": "domain"}, "yaxis": y}
    layout["yaxis"] |= {"autorange": "reversed", "scaleanchor": "x"}
    return page.plot(title, [trace], layout)


def _sent_table(run: PageRun) -> str:
    """Return messages and bytes by node."""
    messages, sent = (run.column(name).sum(axis=0) for name in ("messages", "bytes"))
    order = np.argsort(-sent, kind="stable")[:ROWS]
    rows = [[f"node {i}", f"{messages[i]:,.0f}", f"{sent[i]:,.0f}"] for i in order]
    few = thinning.said(len(rows), len(sent), "nodes")
    return table(["node", "messages", "bytes"], rows, f"Sent by the nodes. {few}")


def seconds(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section on time."""
    known = [run for run in runs if run.has_rows]
    if not known:
        return not_recorded(runs)
    plots = "".join(_phases(page, run) for run in known)
    words, matrices = "", ""
    for run in known:
        said, plot = _waiting(page, run, len(runs) > 1)
        words += said
        matrices += plot
    return (
        paragraph(
            "Solve is a node's own problem, exchange is messages and waiting, update "
            "is multipliers and penalties, observe is callbacks and "
            "records."
        )
        + f'<div class="panels js">{plots}{matrices}</div>{words}'
        + "".join(details(page.titled("Table", run), _time_table(run)) for run in known)
    )


def _phases(page: Page, run: PageRun) -> str:
    """Add a bar per node, made of its phases."""
    spent = {phase: run.column(f"{phase}_seconds").sum(axis=0) for phase in PHASES}
    total = np.sum(list(spent.values()), axis=0)
    shown = np.arange(len(total))
    if len(total) > thinning.MOST_NODES:
        shown = np.sort(np.argsort(-total, kind="stable")[: thinning.MOST_NODES])
    traces = [
        {
            "type": "bar", "name": phase, "x": packed(shown, "i4"),
            "y": packed(values[shown], "f4"),
            "marker": {"color": colour, "pattern": {
                "shape": shape, "size": 6, "fillmode": "overlay", "fgcolor": "@text",
                "fgopacity": 0.5}},
            "hovertemplate": "%{y:.3g} s",
        }
        for (phase, values), (colour, shape) in zip(spent.items(), FILLS, strict=True)
    ]  # fmt: skip
    layout = {
        "barmode": "stack", "hovermode": "x unified", "showlegend": True,
        "legend": {"traceorder": "normal"},
        "xaxis": {"title": {"text": "Node"}, "hoverformat": "d"},
        "yaxis": {"title": {"text": "Seconds"}},
    }  # fmt: skip
    few = thinning.said(len(shown), len(total), "nodes, with the longest times,")
    title = f"{page.titled('Time by phase', run)}. {few}".rstrip(". ")
    return page.plot(title, traces, layout)


def _waiting(page: Page, run: PageRun, several: bool) -> tuple[str, str]:
    """Return who waited for whom, as words and as a plot."""
    name = f"{page.name(run)}: " if several else ""
    if run.is_going:
        return paragraph(f"{name}Waiting times are estimated when the run ends."), ""
    try:
        found = waiting.waiting(Trace.of(run))
    except ConfigError as error:
        return paragraph(f"{name}Waiting times are not known: {error}."), ""
    lines = waiting.table(found).split("\n")
    items = "".join(f"<li>{text(name + line)}</li>" for line in lines)
    words = f'<ul class="facts">{items}</ul>'
    n = run.topology.n_nodes
    if n > thinning.MOST_NODES:
        return words, ""
    matrix = np.full((n, n), np.nan)
    matrix[tuple(found.edges.T)] = found.by_edge
    title = page.titled("Who waited for whom (estimate)", run)
    hover = "%{y} waited for %{x}: %{z:.3g} s"
    return words, _matrix(page, title, matrix, hover, "s", ("Waited for", "Who waited"))


def _time_table(run: PageRun) -> str:
    """Return seconds by node and phase."""
    spent = np.array([run.column(f"{phase}_seconds").sum(axis=0) for phase in PHASES])
    order = np.argsort(-spent.sum(axis=0), kind="stable")[:ROWS]
    rows = [[f"node {i}", *(number(float(s)) for s in spent[:, i])] for i in order]
    few = thinning.said(len(rows), spent.shape[1], "nodes")
    return table(["node", *PHASES], rows, f"Seconds by phase. {few}")
