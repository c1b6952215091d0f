"""The section on the network over time, with its penalties and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers
from dadmm.runs.stored import StoredRun
from dadmm.show import svg, to_plotly
from dadmm.show.figure import MOST_POINTS, Axis, Panel, evenly, said, thinned
from dadmm.show.graph import pair_means, positions
from dadmm.show.html import number, packed, paragraph, table
from dadmm.show.page import Page
from dadmm.show.panels import penalty_medians

MOST_FRAMES = 100
MOST_EDGES = 1000  # of a drawn network
MOST_NUMBERS = 40_000  # of all frames of a network, for each quantity
MOST_NETWORKS = 8  # that are drawn
ROWS = 30  # of a table
NO_ROWS = "The edges were not recorded in every iteration; run with --record-edges."
ASIDE = (
    '<div class="controls js"><label for="edge">Edge</label><select id="edge"></select>'
    '<label for="colour">Colour of nodes</label><select id="colour"></select></div>'
    '<div id="readout" class="js scroll" role="status"></div>'
    '<p class="js">Click an edge or a node; with the focus on the graph, arrow keys '
    "choose an edge.</p>"
)


class Drawn(NamedTuple):
    """The network of a run as it is drawn."""

    run: StoredRun
    pairs: Integers  # rows of the drawn edges, each once
    rows: Integers  # of the frames, in the columns of the run; empty without rows
    eta: Matrix  # (frames or 1, pairs), mean of both directions; NaN if unknown


def section(page: Page) -> str:
    """Return the section on the network over time."""
    found = [run for run in page.runs if len(run.pairs)]
    if not found:
        return paragraph("The graph has one node and no edges.")
    longest = max(run.n_iterations for run in found)
    drawn = [_choose(run, longest) for run in found[:MOST_NETWORKS]]
    every = np.concatenate([own.eta.ravel() for own in drawn])
    every = every[np.isfinite(every) & (every > 0)]
    scale = (float(every.min()), float(every.max())) if len(every) else (1.0, 1.0)
    pictures = []
    for k, own in enumerate(drawn):
        edges = own.run.topology.edges[own.pairs]
        picture = svg.graph(f"network-{k}", own.run.topology, positions(own.run), edges,
                            own.eta[-1], scale)  # fmt: skip
        words = page.name(own.run) if page.is_comparison else ""
        figure = paragraph(words) + picture + paragraph(_ending(own))
        pictures.append(f'<figure class="network">{figure}</figure>')
    moving = [own for own in drawn if len(own.rows)]
    frames = sorted({int(t) for own in moving for t in own.run.iterations[own.rows]})
    page.network = {
        "frames": frames,
        "scale": list(scale),
        "runs": [_data(page, k, own) for k, own in enumerate(drawn) if own in moving],
    }
    several = "several" if len(drawn) > 1 else ""
    legend = f'<ul class="legend" aria-label="Penalties">{svg.strength(scale)}</ul>'
    return (
        paragraph(_words(found, drawn, len(frames), longest))
        + f'<div class="beside {several}"><div class="networks">{"".join(pictures)}'
        + f"</div><div>{legend * bool(len(every))}{_dashes(moving)}"
        + f"{ASIDE * bool(moving)}</div></div>"
        + _curves(page, [own.run for own in moving if own.run.by_edge])
    )


def _choose(run: StoredRun, longest: int) -> Drawn:
    """Choose the edges and iterations of a run that are drawn."""
    graph, pairs = run.topology, run.pairs
    if run.by_edge:
        mean = pair_means(run)
        spread = mean.max(axis=0) / mean.min(axis=0)
        chosen = np.sort(np.argsort(-spread, kind="stable")[:MOST_EDGES])
        pairs, mean = pairs[chosen], mean[:, chosen]
    else:
        pairs = pairs[evenly(len(pairs), MOST_EDGES)]
        mean = np.full((1, len(pairs)), np.nan)
        if "eta" in run.arrays:
            both = run.array("eta", (len(graph.edges),))
            mean = 0.5 * (both[pairs] + both[graph.reverse[pairs]])[None]
    if not run.has_rows:
        return Drawn(run, pairs, np.empty(0, np.int64), mean)
    most = int(np.clip(MOST_NUMBERS // len(pairs), 20, MOST_FRAMES))
    rows = thinned(longest, most)
    last = len(run.iterations) - 1
    rows = np.unique(np.append(rows[rows < last], last))
    return Drawn(run, pairs, rows, mean[rows] if run.by_edge else mean)


def _ending(own: Drawn) -> str:
    """Return what a network shows before its slider is moved."""
    if own.run.by_edge:
        return f"iteration {own.run.iterations[-1]:,}"
    if np.isnan(own.eta).any():
        return "the graph; penalties are not known yet"
    return f"penalties at the end. {NO_ROWS}"


def _words(
    found: Sequence[StoredRun], drawn: Sequence[Drawn], n_frames: int, longest: int
) -> str:
    """Return what the section shows, and what it leaves out."""
    words = "Width and colour of an edge are its penalty η, the mean of its two "
    words += "directions, as it is after the iteration. "
    words += said(n_frames or longest, longest, "iterations")
    for own in drawn:
        what = "edges (those whose penalty changes most)"
        what = what if own.run.by_edge else "edges"
        words += said(len(own.pairs), len(own.run.pairs), what)
    return words + said(len(drawn), len(found), "networks")


def _dashes(moving: Sequence[Drawn]) -> str:
    """Return the meaning of dotted and dashed edges, if there are such."""
    by_edge = [own.run for own in moving if own.run.by_edge]
    items = ""
    if any(not run.has_payload.all() for run in by_edge):
        items += (
            f"<li>{svg.edge_sample('level6 idle')} dotted: no payload in this "
            "iteration (the edge sleeps, waits for its turn, or has no news)</li>"
        )
    spent = {run.config.scheme for run in by_edge
             if run.has_budgets and (run.edge_column("used_up") > 0).any()}  # fmt: skip
    if spent:
        words = " and ".join(
            "snap leaves the penalty about where it is" if scheme == "snap"
            else f"{scheme} has set the penalty back to its start"
            for scheme in sorted(spent)
        )  # fmt: skip
        items += (
            f"<li>{svg.edge_sample('level6 over')} dashed: the budgets of both ends "
            f"are used up, and {words}</li>"
        )
    return f'<ul class="legend">{items}</ul>' if items else ""


def _data(page: Page, k: int, own: Drawn) -> dict[str, Any]:
    """Return the frames of a run as packed arrays, which `network.js` reads."""
    run, rows = own.run, own.rows
    found: dict[str, Any] = {
        "id": f"network-{k}",
        "name": page.name(run),
        "look": page.look(run),
        "frames": packed(run.iterations[rows], "i4"),
        "pairs": packed(run.topology.edges[own.pairs], "i4"),
    }
    n = run.topology.n_nodes
    if n * len(rows) <= 5 * MOST_NUMBERS:
        names = {"disagreement": "disagreement", "objective": "objective"}
        if run.over_mpi:  # else no node waits
            names["exchange_seconds"] = "seconds of exchange and waiting"
        found["nodes"] = {
            words: packed(run.column(name)[rows], "f4") for name, words in names.items()
        }
    return found | (_edge_data(own) if run.by_edge else {})


def _edge_data(own: Drawn) -> dict[str, Any]:
    """Return what is known of the drawn edges, as packed arrays."""
    run, rows, pairs = own.run, own.rows, own.pairs
    back = run.topology.reverse[pairs]
    found: dict[str, Any] = {"eta": packed(own.eta, "f4")}
    silent = ~run.has_payload[rows]
    idle = silent[:, pairs] + 2 * silent[:, back].astype(np.uint8)
    if idle.any():
        found["idle"] = packed(idle, "u1")
    if (run.eta[:, pairs] != run.eta[:, back]).any():
        found["forth"] = packed(run.eta[rows][:, pairs], "f4")
        found["back"] = packed(run.eta[rows][:, back], "f4")
    if not run.has_budgets:
        return found
    used_up = run.edge_column("used_up")[rows] > 0
    over = used_up[:, pairs] & used_up[:, back]
    if over.any():
        found["over"] = packed(over, "u1")
    budgets = run.budgets
    alike = budgets["spent"][:, pairs] == budgets["spent"][:, back]
    ends = pairs if alike.all() else np.append(pairs, back)
    for name, values in budgets.items():
        found[name] = _few(values[rows][:, ends])
    return found


def _few(values: Matrix) -> dict[str, Any]:
    """Return an array of few different numbers as places in a list; else as it is."""
    levels, places = np.unique(values, return_inverse=True)
    if len(levels) > 256:
        return packed(values, "f4")
    return packed(places.reshape(values.shape), "u1") | {"levels": levels.tolist()}


def _curves(page: Page, runs: Sequence[StoredRun]) -> str:
    """Return penalties and budgets over time, to which `network.js` adds an edge."""
    if not runs:
        return ""
    panel = penalty_medians(runs, MOST_POINTS)
    figure, plots = to_plotly.describe(panel), ""
    words = "Bands hold the edges of a run, thin lines are their medians"
    if not page.is_comparison:
        words = "Thin lines are the drawn edges, the black line is their median"
        line = figure["data"][2]  # the script draws the edges instead of the band
        line["line"]["color"], line["name"] = "@text", "median"
        figure["data"] = [line]
        if runs[0].has_budgets:
            title = "Budget of the chosen edge"
            words += f". A budget is in {_unit(runs[0])}"
            empty = to_plotly.describe(Panel(title, panel.x, Axis(from_zero=True)))
            plots = page.plot(title, empty, "iterations", "budget")
    plots = page.plot(panel.title, figure, "iterations", "eta") + plots
    return (
        page.legend(runs)
        + f'<div class="panels halves js">{plots}</div>'
        + paragraph(f"{words}. The thickest line is the chosen edge.", "js")
        + page.tables(_table(page, run) for run in runs)
    )


def _unit(run: StoredRun) -> str:
    """Return the unit of the budgets of a run."""
    if run.config.scheme == "snap":
        return "bits, each of which doubles or halves a penalty"
    return "sums of |tau|"


def _table(page: Page, run: StoredRun) -> str:
    """Return the edges of the largest penalties at the end."""
    columns, edges = {"penalty": run.eta[-1]}, run.topology.edges
    words = "The largest penalties after the last iteration. "
    if run.has_budgets:
        columns |= {name: values[-1] for name, values in run.budgets.items()}
        words += f"Budgets are in {_unit(run)}. "
    ends, word = np.arange(len(edges)), "to"
    if all(np.array_equal(c, c[run.topology.reverse]) for c in columns.values()):
        ends, word = run.pairs, "\N{EN DASH}"
    order = ends[np.argsort(-run.eta[-1, ends], kind="stable")[:ROWS]]
    rows = [
        [f"{edges[e, 0]} {word} {edges[e, 1]}",
         *(number(float(values[e])) for values in columns.values())]
        for e in order
    ]  # fmt: skip
    few = said(len(rows), len(ends), "edges")
    return table(["edge", *columns], rows, page.titled(words + few, run))
