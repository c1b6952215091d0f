"""The section on the network over time: its graph, penalties and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers
from dadmm.runs.stored import StoredRun
from dadmm.show import html
from dadmm.show.figure import MOST_POINTS, Axis, Panel, said, thinned
from dadmm.show.html import Json, Page, Table, describe, number, packed, paragraph, text
from dadmm.show.panels import pair_means, penalties, positions
from dadmm.show.style import N_LEVELS, SCHEME_STYLE

MOST_FRAMES = 100
MOST_EDGES = 1000  # of a drawn network
MOST_NUMBERS = 20_000  # of all frames of a network, for each quantity
MOST_NETWORKS = 8  # that are drawn
MOST_NUMBERED = 60  # nodes that have room for a number
ROWS = 30  # of a table
WIDE, MARGIN, THIN, THICK = 640.0, 26.0, 1.2, 8.0  # of a drawing and its edges
ABOUT = (
    "Width and colour of an edge are its penalty η, the mean of its two directions, as "
    "it is after the iteration. "
)
NO_ROWS = "The edges were not recorded in every iteration; run with --record-edges."
UNITS = (  # of other schemes, and of snap
    "A budget is in sums of |tau|",
    "A budget is in bits, each of which doubles or halves a penalty",
)
IDLE = "dotted: no payload in this iteration"
OVER = "dashed: the budgets of both ends are used up"


@dataclass(frozen=True)
class Drawn:
    """The network of a run as it is drawn."""

    name: str  # of its element
    run: StoredRun
    pairs: Integers  # rows of the drawn edges, each once
    rows: Integers  # of the frames, in the columns of the run; empty without rows
    eta: Matrix  # (frames or 1, pairs), mean of both directions; NaN if unknown


def section(page: Page) -> str:
    found = [run for run in page.runs if len(run.pairs)]
    if not found:
        return paragraph("The graph has one node and no edges.")
    longest = max(run.n_iterations for run in found)
    drawn = [_choose(k, run, longest) for k, run in enumerate(found[:MOST_NETWORKS])]
    every = np.concatenate([own.eta.ravel() for own in drawn])
    known = every[every > 0]
    scale = (float(known.min()), float(known.max())) if len(known) else (1.0, 1.0)
    moving = [own for own in drawn if len(own.rows)]
    frames = sorted({int(t) for own in moving for t in own.run.iterations[own.rows]})
    page.network = {"frames": frames, "scale": list(scale),
                    "runs": [_data(page, own) for own in moving]}  # fmt: skip
    words = ABOUT + said(len(frames) or longest, longest, "iterations")
    for own in drawn:
        which = " (those whose penalty changes most)" if own.run.by_edge else ""
        words += said(len(own.pairs), len(own.run.pairs), f"edges{which}")
    pictures = "".join(_picture(page, own, scale) for own in drawn)
    by_edge = [own.run for own in moving if own.run.by_edge]
    return (
        paragraph(words + said(len(drawn), len(found), "networks"))
        + f'<div class="beside {"several" * (len(drawn) > 1)}">'
        f'<div class="networks">{pictures}</div><div>'
        + (_legend(scale, by_edge) if len(known) else "")
        + (html.fragment("network.html") if moving else "")
        + "</div></div>"
        + (_curves(page, by_edge) if by_edge else "")
    )


def _choose(k: int, run: StoredRun, longest: int) -> Drawn:
    graph, pairs = run.topology, run.pairs
    if run.by_edge:
        mean = pair_means(run)
        spread = mean.max(axis=0) / mean.min(axis=0)
        chosen = np.sort(np.argsort(-spread, kind="stable")[:MOST_EDGES])
        pairs, mean = pairs[chosen], mean[:, chosen]
    else:
        pairs = pairs[:: -(-len(pairs) // MOST_EDGES)]
        mean = np.full((1, len(pairs)), np.nan)
        if "eta" in run.arrays:
            both = run.array("eta", (len(graph.edges),))
            mean = 0.5 * (both[pairs] + both[graph.reverse[pairs]])[None]
    rows = np.empty(0, np.int64)
    if run.has_rows:
        rows = thinned(longest, min(max(MOST_NUMBERS // len(pairs), 20), MOST_FRAMES))
        rows = np.append(rows[rows < run.n_iterations - 1], run.n_iterations - 1)
    return Drawn(f"network-{k}", run, pairs, rows, mean[rows] if run.by_edge else mean)


def _data(page: Page, own: Drawn) -> Json:
    """Return the frames of a run as packed arrays, which `network.js` reads.

    Those of edges have the first direction of all drawn edges, then the second.
    """
    run, rows, edges = own.run, own.rows, own.run.topology.edges
    found: Json = {
        "id": own.name,
        "name": page.name(run),
        "look": page.look(run),
        "frames": packed(run.iterations[rows], "i4"),
        "pairs": packed(edges[own.pairs].ravel(), "i4"),
        "nodes": {},
    }
    names = {"disagreement": "disagreement", "objective": "objective"}
    if run.summary.over_mpi:  # else no node waits
        names["exchange_seconds"] = "seconds of exchange and waiting"
    if run.topology.n_nodes * len(rows) <= 10 * MOST_NUMBERS:
        for name, words in names.items():
            found["nodes"][words] = packed(run.column(name)[rows].ravel(), "f4")
    if run.by_edge:
        columns = {"eta": run.eta, "silent": ~run.has_payload}
        if run.has_budgets:
            columns |= run.budgets | {"used_up": run.edge_column("used_up") > 0}
        ends = np.append(own.pairs, run.topology.reverse[own.pairs])
        for name, values in columns.items():
            kind = "u1" if values.dtype == bool else "f4"
            found[name] = packed(values[rows][:, ends].ravel(), kind)
    return found


def _picture(page: Page, own: Drawn, scale: tuple[float, float]) -> str:
    """Return the drawing of a graph: edges, and nodes with their numbers and names."""
    ending = f"penalties at the end. {NO_ROWS}"
    if own.run.by_edge:
        ending = f"iteration {own.run.iterations[-1]:,}"
    elif np.isnan(own.eta).any():
        ending = "the graph; penalties are not known yet"
    topology, places, n_pairs = own.run.topology, positions(own.run), len(own.pairs)
    low, span = places.min(axis=0), np.ptp(places, axis=0)
    unit = (WIDE - 2 * MARGIN) / max(float(span[0]), float(span[1]) / 0.85, 1e-9)
    high = span[1] * unit + 2 * MARGIN
    x = (WIDE - span[0] * unit) / 2 + (places[:, 0] - low[0]) * unit
    y = high - MARGIN - (places[:, 1] - low[1]) * unit
    thick = float(np.clip(50 / n_pairs**0.5, 2.5, THICK))
    pairs = topology.edges[own.pairs].tolist()
    lines, hits, nodes = [], [], []
    for k, ((i, j), eta) in enumerate(zip(pairs, own.eta[-1].tolist(), strict=True)):
        ends = f'x1="{x[i]:.1f}" y1="{y[i]:.1f}" x2="{x[j]:.1f}" y2="{y[j]:.1f}"'
        look = _edge_look(eta, scale, thick)
        lines.append(f"<line {ends} {look}/>")
        hits.append(f'<line {ends} data-edge="{k}"/>')
    n = topology.n_nodes
    is_numbered, r = n <= MOST_NUMBERED, 11 if n <= MOST_NUMBERED else 4
    for i in sorted({i for pair in pairs for i in pair}):
        at, name = f'x="{x[i]:.1f}"', text(topology.names[i]) if topology.names else ""
        words = f'<text {at} y="{y[i] + 4:.1f}">{i}</text>'
        words += f'<text {at} y="{y[i] + 24:.1f}">{name}</text>' if name else ""
        nodes.append(
            f'<g data-node="{i}" data-name="{name or i}"><circle cx="{x[i]:.1f}" '
            f'cy="{y[i]:.1f}" r="{r}"/>{words if is_numbered else ""}</g>'
        )
    label = paragraph(page.name(own.run) if page.is_comparison else "")
    return (
        f'<figure class="network">{label}'
        f'<svg class="graph" id="{own.name}" viewBox="0 0 {WIDE:.0f} {high:.0f}" '
        f'tabindex="0" role="img" aria-label="Graph of {n} nodes and '
        f'{len(own.run.pairs)} edges" data-thick="{thick:.2f}">'
        '<line class="halo" visibility="hidden"/>'
        f'<g class="edges">{"".join(lines)}</g><g class="hits">{"".join(hits)}</g>'
        f'<g class="nodes">{"".join(nodes)}</g></svg>{paragraph(ending)}</figure>'
    )


def _edge_look(eta: float, scale: tuple[float, float], thick: float) -> str:
    """Return the attributes of an edge, as `network.js` sets them in other frames."""
    low, high = scale
    if not eta > 0:
        return 'class="edge plain" stroke-width="1.5"'
    share = 0.5 if high <= low else float(np.log(eta / low) / np.log(high / low))
    level, width = round(share * (N_LEVELS - 1)), THIN + (thick - THIN) * share
    return f'class="edge level{level}" stroke-width="{width:.2f}"'


def _legend(scale: tuple[float, float], runs: Sequence[StoredRun]) -> str:
    """Return the scale of the penalties, and what dotted and dashed edges are."""
    low, high = scale
    samples = {
        f"{eta:.3g}": _edge_look(eta, scale, THICK)
        for eta in (np.geomspace(low, high, 5).tolist() if high > low else [low])
    }
    if any(not run.has_payload.all() for run in runs):
        samples[IDLE] = 'class="edge level6 idle" stroke-width="4"'
    if any((run.edge_column("used_up") > 0).any() for run in runs if run.has_budgets):
        samples[OVER] = 'class="edge level6 over" stroke-width="4"'
    items = "".join(
        '<li><svg width="34" height="14" aria-hidden="true"><line x1="1" y1="7" '
        f'x2="33" y2="7" {look}/></svg> {words}</li>'
        for words, look in samples.items()
    )
    return f'<ul class="legend" aria-label="Penalties">{items}</ul>'


def _curves(page: Page, runs: Sequence[StoredRun]) -> str:
    """Return penalties and budgets over time, to which `network.js` adds an edge."""
    panel, budget = penalties(runs, MOST_POINTS, page.runs), ""
    figure = describe(panel)  # its axis has room for all edges
    words = "Bands hold the edges of a run, thin lines are their medians"
    if not page.is_comparison:  # the script draws the edges
        words = "Thin lines are the drawn edges, the black line is their median"
        (curve,) = panel.curves
        median = replace(curve, name="median", look=SCHEME_STYLE["fixed"], low=None)
        figure["data"] = describe(replace(panel, marks=[median]))["data"]
        if runs[0].has_budgets:
            title = "Budget of the chosen edge"
            words += f". {UNITS[runs[0].config.scheme == 'snap']}"
            empty = describe(Panel(title, panel.x, Axis(from_zero=True)))
            budget = page.plot(title, empty, "iterations", "budget")
    plots = page.plot(panel.title, figure, "iterations", "eta") + budget
    return (
        page.legend(runs)
        + f'<div class="panels halves js">{plots}</div>'
        + paragraph(f"{words}. The thickest line is the chosen edge.", "js")
        + page.tables(runs, _table)
    )


def _table(run: StoredRun) -> Table:
    """Return the edges of the largest penalties at the end."""
    columns, edges = {"penalty": run.eta[-1]}, run.topology.edges
    words = "The largest penalties after the last iteration. "
    if run.has_budgets:
        columns |= {name: values[-1] for name, values in run.budgets.items()}
        words += f"{UNITS[run.config.scheme == 'snap']}. "
    order = np.argsort(-run.eta[-1], kind="stable")[:ROWS]
    rows = [
        [f"{edges[e, 0]} to {edges[e, 1]}",
         *(number(float(values[e])) for values in columns.values())]
        for e in order
    ]  # fmt: skip
    few = said(len(rows), len(edges), "directed edges")
    return words + few, ["edge", *columns], rows
