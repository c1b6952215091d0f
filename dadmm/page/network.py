"""The section on the network over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dadmm.core.layout import Matrix
from dadmm.drawing.figures import draw_network, positions, reference
from dadmm.graphs.topology import Integers
from dadmm.page import graph_svg, thinning
from dadmm.page.markup import packed, paragraph
from dadmm.page.parts import Page
from dadmm.page.runs import PageRun

MOST_STILL = 2000  # edges of a picture
STILL = "Penalties of the edges at some iterations"
NO_ROWS = "The edges were not recorded in every iteration; run with --record-edges."


class Drawn(NamedTuple):
    """The network of a run as it is drawn."""

    run: PageRun
    pairs: Integers  # rows of the drawn edges, each once
    frames: Integers  # iterations; empty without rows of edges
    eta: Matrix  # (frames, pairs), mean of the two directions; of the end if no frames
    idle: np.ndarray  # (frames, pairs) bits: 1 if i sent no payload, 2 if j sent none
    over: np.ndarray  # (frames, pairs): 1 if the budgets of both ends are used up


def networks(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section on the network over time."""
    found = [run for run in runs if len(run.pairs)]
    if not found:
        return paragraph("The graph has one node and no edges.")
    longest = max((run.n_iterations for run in found if run.by_edge), default=0)
    drawn = [choose(run, longest) for run in found]
    scale = _scale(drawn)
    pictures: list[str] = []
    for own in drawn:
        svg = graph_svg.graph(
            f"network-{len(pictures)}", own.run.topology, positions(own.run),
            own.run.topology.edges[own.pairs], own.eta[-1:], own.idle[-1:],
            own.over[-1:], scale,
        )  # fmt: skip
        words = page.name(own.run) if len(runs) > 1 else ""
        pictures.append(
            f'<figure class="network">{paragraph(words)}{svg}{paragraph(_ending(own))}'
            "</figure>"
        )
    moving = [own for own in drawn if len(own.frames)]
    page.networks = _data(page, drawn, moving, scale)
    legend = graph_svg.legend(scale, moving)
    return (
        paragraph(_words(drawn, moving))
        + paragraph(_frames(moving, longest), "js")
        + (CONTROLS if moving else "")
        + f'<div class="networks">{"".join(pictures)}</div>'
        + legend
        + (READOUT if moving else "")
        + still(page, [own.run for own in moving], draw_network, STILL)
    )


CONTROLS = (
    '<div class="controls js" role="group" aria-label="Iteration of the network">'
    '<button type="button" id="play" aria-pressed="false">Play</button>'
    '<label for="frame">Iteration</label>'
    '<input type="range" id="frame" min="0" max="0" value="0" step="1">'
    '<output id="frame-words" for="frame"></output></div>'
)
READOUT = (
    '<div class="controls js"><label for="edge">Edge</label>'
    '<select id="edge"></select>'
    "<span>Or click an edge; with the focus on the graph, arrow keys choose one."
    '</span></div><div id="readout" class="js scroll" role="status"></div>'
)


def choose(run: PageRun, longest: int) -> Drawn:
    """Choose the edges and iterations of a run that are drawn."""
    graph, pairs = run.topology, run.pairs
    none = np.zeros((1, len(pairs)), dtype=np.uint8)
    if not run.by_edge:
        pairs = pairs[thinning.evenly(len(pairs), thinning.MOST_EDGES)]
        eta = np.full((1, len(pairs)), np.nan)
        if "eta" in run.arrays:
            both = run.array("eta", (len(graph.edges),))
            eta = 0.5 * (both[pairs] + both[graph.reverse[pairs]])[None]
        none = none[:, : len(pairs)]
        return Drawn(run, pairs, np.empty(0, np.int64), eta, none, none)
    mean = 0.5 * (run.eta[:, pairs] + run.eta[:, graph.reverse[pairs]])
    chosen = thinning.widest(mean, thinning.MOST_EDGES)
    pairs, mean = pairs[chosen], mean[:, chosen]
    frames = thinning.iterations(longest, thinning.n_frames(len(pairs)))
    frames = np.unique(np.append(frames[frames <= run.n_iterations], run.n_iterations))
    rows = frames - 1
    silent = (~run.has_payload[rows]).astype(np.uint8)
    idle = silent[:, pairs] + 2 * silent[:, graph.reverse[pairs]]
    over = np.zeros_like(idle)
    if run.has_budgets:
        used_up = run.edge_column("used_up")[rows].astype(np.uint8)
        over = used_up[:, pairs] & used_up[:, graph.reverse[pairs]]
    return Drawn(run, pairs, frames, mean[rows], idle, over)


def _scale(drawn: Sequence[Drawn]) -> tuple[float, float]:
    """Return the least and the largest penalty that is drawn."""
    every = np.concatenate([own.eta.ravel() for own in drawn])
    every = every[np.isfinite(every) & (every > 0)]
    return (float(every.min()), float(every.max())) if len(every) else (1.0, 1.0)


def _ending(own: Drawn) -> str:
    """Return what a network shows before its slider is moved."""
    if len(own.frames):
        return f"iteration {own.frames[-1]:,}"
    if np.isnan(own.eta).any():
        return "the graph; penalties are not known yet"
    return f"penalties at the end. {NO_ROWS}"


def _frames(moving: Sequence[Drawn], longest: int) -> str:
    """Return how many iterations the slider has, if these are not all."""
    shown = max((len(own.frames) for own in moving), default=longest)
    return thinning.said(shown, longest, "iterations")


def _words(drawn: Sequence[Drawn], moving: Sequence[Drawn]) -> str:
    """Return what the section shows, and which edges it leaves out."""
    words = ""
    if not moving and all(own.run.is_going for own in drawn):
        words = NO_ROWS + " "
    if moving:
        words = "Width and colour of an edge are its penalty eta, the mean of its two "
        words += "directions, as it is after the iteration. "
    for own in drawn:
        words += thinning.said(
            len(own.pairs), len(own.run.pairs),
            "edges (those whose penalty changes most)" if len(own.frames) else "edges",
        )  # fmt: skip
    return words


def _data(
    page: Page, drawn: Sequence[Drawn], moving: Sequence[Drawn], scale: Any
) -> dict[str, Any]:
    """Return what `network.js` needs."""
    frames = sorted({int(t) for own in moving for t in own.frames})
    return {
        "frames": frames,
        "scale": list(scale),
        "runs": [_of_run(page, drawn.index(own), own) for own in moving],
    }


def _of_run(page: Page, k: int, own: Drawn) -> dict[str, Any]:
    """Return the frames of a run as packed arrays."""
    run, rows = own.run, own.frames - 1
    back = run.topology.reverse[own.pairs]
    found: dict[str, Any] = {
        "id": f"network-{k}",
        "name": page.name(run),
        "look": page.look(run),
        "start": reference(run),
        "frames": packed(own.frames, "i4"),
        "pairs": packed(run.topology.edges[own.pairs], "i4"),
        "eta": packed(own.eta, "f4"),
    }
    for name, drawn in (("idle", own.idle), ("over", own.over)):
        if drawn.any():
            found[name] = packed(drawn, "u1")
    if (run.eta[:, own.pairs] != run.eta[:, back]).any():
        found["forth"] = packed(run.eta[rows][:, own.pairs], "f4")
        found["back"] = packed(run.eta[rows][:, back], "f4")
    if run.has_budgets:
        alike = run.budgets["spent"][:, own.pairs] == run.budgets["spent"][:, back]
        ends = own.pairs if alike.all() else np.append(own.pairs, back)
        for name, values in run.budgets.items():
            found[name] = _few(values[rows][:, ends])
    return found


def _few(values: Matrix) -> dict[str, Any]:
    """Return an array of few different numbers as places in a list; else as it is."""
    levels, places = np.unique(values, return_inverse=True)
    if len(levels) > 256:
        return packed(values, "f4")
    return packed(places.reshape(values.shape), "u1") | {"levels": levels.tolist()}


def still(page: Page, runs: Sequence[PageRun], draw: Any, words: str) -> str:
    """Return a picture, unless there are too many edges for one."""
    if not runs or max(len(run.pairs) for run in runs) > MOST_STILL:
        return ""
    return page.still(lambda: draw(runs, []), words)
