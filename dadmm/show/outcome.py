"""The top of a page: how the runs ended, in tiles or as a table; and their results."""

from __future__ import annotations

import numpy as np

from dadmm.admm.clock import PHASES
from dadmm.admm.rule import CRITERIA
from dadmm.core import files
from dadmm.core.errors import DadmmError
from dadmm.core.linalg import principal_axes
from dadmm.models.model import NAME, load_model
from dadmm.runs.stored import StoredRun
from dadmm.runs.summary import (
    ANGLES,
    Summary,
    at_most,
    least_angle,
    with_bound,
    worst_error,
)
from dadmm.show import panels, svg
from dadmm.show.figure import evenly, said
from dadmm.show.html import (
    NONE,
    Markup,
    details,
    facts,
    number,
    packed,
    paragraph,
    prose,
    table,
    text,
)
from dadmm.show.page import Page

MOST_ROWS = 60  # coefficients, and columns of components
MOST_NAMED = 40  # nodes
MOST_POINTS = 5000  # of a structure
MANY = 6  # runs whose coefficients have a column each
NORMAL = 1.96  # standard errors of an interval of 95 %
GOING = {
    "still going": "The run is still going",
    "interrupted": "The run was interrupted, and no process is at work in its folder",
    "not finished": "The run has not finished",
}
COLOURS = {
    "certified": "good", "stationary": "good", "not converged": "bad",
    "stopped": "fair", "interrupted": "fair", "not finished": "fair",
}  # fmt: skip


def badge(run: StoredRun) -> str:
    """Return the status of a run as a word in a colour."""
    status = run.summary.get("status", "unknown")
    kind = COLOURS.get(status, "plain")
    words = {"max_iter": "done as asked"}.get(status, status)
    return f'<span class="badge {kind}">{text(words)}</span>'


def top(page: Page) -> str:
    """Return what comes first: tiles for one run, a table for several."""
    if page.is_comparison:
        printed = (
            f"<h3>{text(page.name(run))}</h3>{_printed(run)}" for run in page.runs
        )
        return _comparison(page) + details("What the runs printed", "".join(printed))
    (run,) = page.runs
    tiles = "".join(
        f"<li><b>{text(value)}</b><span>{text(name)}</span>"
        f"<small>{text(note)}</small></li>"
        for name, value, note in _tiles(run)
    )
    more = _printed(run)
    if not run.is_going:
        more = details("What the run printed", more)
    return f'<ul class="tiles">{tiles}</ul>{more}'


def _tiles(run: StoredRun) -> list[tuple[str, str, str]]:
    """Return six facts about a run: a name, a value and a note each."""
    found, most = run.summary, f"of at most {run.config.max_iter:,}"
    count = found.get("iterations", run.n_iterations)
    tiles = [("iterations", f"{count:,}", most), _error(run)]
    if run.is_going:
        return tiles[:1] + _tiles_so_far(run)
    agreement, seconds = found.get("consensus", {}), found.get("seconds", {})
    error = agreement.get("error")
    where = f"at most, relative; worst in {agreement.get('where', NONE)}"
    tiles.append(("nodes differ by", NONE if error is None else at_most(error), where))
    sent = f"{found['bytes']:,}" if "bytes" in found else NONE
    tiles.append(("bytes", sent, f"in {found.get('messages', 0):,} messages"))
    loop = sum(seconds.get(name, 0) for name in PHASES)
    took = f"{seconds['total']:.2f}" if "total" in seconds else NONE
    tiles.append(("seconds", took, f"{loop:.2f} in the loop of a node"))
    scores = Summary(found).scores()
    for name, value in scores.items():
        number_, _, bound = value.partition(" (")
        return [
            *tiles,
            (name, number_, f"on these rows{f' ({bound}' if bound else ''}"),
        ]
    return [*tiles, ("objective", number(found.get("objective"), 6), "at the solution")]


def _tiles_so_far(run: StoredRun) -> list[tuple[str, str, str]]:
    """Return facts about a run that goes on."""
    if not run.has_rows:
        return []
    over = [run.column(f"{name}_over_limit")[-1] for name in CRITERIA]
    worst = np.nanmax(over) if np.isfinite(over).any() else np.nan
    spent = panels.cumulative(run)
    return [
        ("times its limit", number(float(worst), 3), "the worst criterion"),
        ("disagreement", number(float(run.column("disagreement")[-1].max()), 3),
         "the largest of all nodes"),
        ("bytes", f"{spent['bytes'][-1]:,.0f}", "in these iterations"),
        ("seconds", f"{spent['seconds'][-1]:.2f}", "in the loop of a node"),
    ]  # fmt: skip


def _error(run: StoredRun) -> tuple[str, str, str]:
    """Return a bound on the error of a run, or an angle, as a tile."""
    found, certificate = run.summary, run.summary.get("certificate") or {}
    bounds = certificate.get("coefficients") or {}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    if bounds and certificate.get("radius") is not None and found.get("coefficients"):
        errors = found.get("standard_errors") or {}
        return "error bound", *worst_error(found["coefficients"], bounds, errors)
    within = (found.get("subspace") or {}).get("within_degrees")
    if within is not None:
        return "angle, at most", f"{least_angle(within)}°", "to the principal subspace"
    if certificate.get("gap") is not None:
        return "error bound", at_most(certificate["gap"]), "objective above the minimum"
    for key, what in reversed(ANGLES.items()):
        angle = (found.get("metrics") or {}).get(key)
        if angle is not None:
            return "angle", f"{angle:.3f}°", f"to {what}"
    return "error bound", NONE, "none is known"


def _comparison(page: Page) -> str:
    """Return the runs as a table that can be sorted."""
    rows = []
    for run in page.runs:
        found = run.summary
        error, seconds = (
            found.get("consensus", {}).get("error"),
            found.get("seconds", {}),
        )
        score = next(iter(Summary(found).scores().values()), NONE)
        label = Markup(f"{svg.run_sample(page.look(run))} {text(page.name(run))}")
        rows.append([
            label,
            found.get("status", NONE),
            f"{found.get('iterations', run.n_iterations):,}",
            number(found.get("objective"), 6),
            _error(run)[1] if not run.is_going else NONE,
            NONE if error is None else at_most(error),
            f"{found['bytes']:,}" if "bytes" in found else NONE,
            f"{seconds['total']:.2f}" if "total" in seconds else NONE,
            score,
        ])  # fmt: skip
    head = ["run", "status", "iterations", "objective", "error or angle",
            "nodes differ by", "bytes", "seconds", "score"]  # fmt: skip
    words = f"{len(rows)} runs; a click on a column sorts them"
    return table(head, rows, words, "sortable")


def _printed(run: StoredRun) -> str:
    """Return what a run printed, and which nodes are left if some were lost."""
    if run.is_going:
        state = GOING[run.summary["status"]]
        return paragraph(
            f"{state} (as of {run.as_of}): {run.summary['iterations']:,} of at most "
            f"{run.config.max_iter:,} iterations have been written.",
            "going",
        )
    try:
        words = Summary(run.summary).text(run.config, run.folder)
    except (KeyError, TypeError, ValueError, AttributeError):  # of another version
        status, count = (
            run.summary.get(k, "unknown") for k in ("status", "iterations")
        )
        words = (
            f"Status: {status}, iterations: {count}. summary.json lacks other entries; "
            "it is damaged, or another version of dadmm made it."
        )
    shown = f'<pre class="printed" tabindex="0">{prose(words)}</pre>'
    if not run.summary.get("lost_nodes") or len(run.topology.edges) == 0:
        return shown
    left = np.unique(run.arrays["edges"])  # the page counts them, see `topology`
    names = ", ".join(map(str, left[:MOST_NAMED])) + ", ..." * (len(left) > MOST_NAMED)
    return shown + paragraph(
        f"On this page, nodes 0 to {len(left) - 1} are those that are left, in their "
        f"order: {names}."
    )


def results(page: Page) -> str:
    """Return the section on results."""
    ended = [run for run in page.runs if not run.is_going]
    if not ended:
        return paragraph("Results are written at the end.")
    found = _scores(page, ended)
    found += _coefficients(page, [r for r in ended if r.summary.get("coefficients")])
    solid = [run for run in ended if "structure" in run.arrays]
    flat = [run for run in ended if "W" in run.arrays and run not in solid]
    found += _structure(page, solid[0]) if solid else ""
    found += _components(page, flat) if flat else ""
    return found or paragraph("The arrays of the result are in result.npz.")


def _coefficients(page: Page, runs: list[StoredRun]) -> str:
    """Return the coefficients of linear models, with bounds, errors and intervals."""
    if not runs:
        return ""
    names = list(dict.fromkeys(n for run in runs for n in run.summary["coefficients"]))
    size = {name: max(abs(run.summary["coefficients"].get(name) or 0.0) for run in runs)
            for name in names}  # fmt: skip
    kept = set(sorted(names, key=lambda name: -size[name])[:MOST_ROWS])
    shown = [name for name in names if name in kept or name == "intercept"]
    head, columns = ["coefficient"], []
    if len(runs) > MANY:
        values = [run.summary["coefficients"] for run in runs]
        known = {n: [v for own in values if (v := own.get(n)) is not None] or [np.nan]
                 for n in shown}  # fmt: skip
        head += ["smallest of all runs", "largest"]
        columns = [{n: number(float(min(v)), 6) for n, v in known.items()},
                   {n: number(float(max(v)), 6) for n, v in known.items()}]  # fmt: skip
    else:
        for run in runs:
            for title, column in _columns(run, len(runs) > 1).items():
                head.append(page.name(run) if len(runs) > 1 else title)
                columns.append(column)
    certain = all(run.summary.get("standard_errors") for run in runs)
    head.append("value and 95 % interval" if certain else "value")
    drawn = _intervals(page, runs, shown)
    rows = [
        [name, *(values.get(name, NONE) for values in columns), drawn.get(name, NONE)]
        for name in shown
    ]
    few = said(len(shown), len(names), "coefficients")
    about = facts(line for line in Summary(runs[0].summary).comparison())
    return table(head, rows, f"Coefficients, in the units of the table. {few}") + about


def _columns(run: StoredRun, only_values: bool) -> dict[str, dict[str, str]]:
    """Return the columns of a run in the table of coefficients, by title and name."""
    values = run.summary["coefficients"]
    found = run.summary.get("certificate") or {}
    bounds = found.get("coefficients") if found.get("radius") is not None else None
    errors = run.summary.get("standard_errors")
    if bounds is None or errors or only_values:
        shown = {"value": {name: number(value, 6) for name, value in values.items()}}
    else:
        both = {
            name: (number(value, 6), "open") if None in (value, bounds.get(name))
            else with_bound(value, bounds[name])
            for name, value in values.items()
        }  # fmt: skip
        shown = {
            "value": {name: value for name, (value, _) in both.items()},
            "bound on the error": {name: bound for name, (_, bound) in both.items()},
        }
    if errors and not only_values:
        shown["standard error"] = {name: number(e, 3) for name, e in errors.items()}
    return shown


def _intervals(page: Page, runs: list[StoredRun], names: list[str]) -> dict[str, str]:
    """Return a drawing for each coefficient, on one scale; the intercept has none."""
    rows: dict[str, list[tuple[float, float, float, str]]] = {}
    for name in names:
        for run in runs:
            value = run.summary["coefficients"].get(name)
            error = (run.summary.get("standard_errors") or {}).get(name)
            half = NORMAL * error if error is not None else 0.0
            colour = page.look(run)["colour"][1:] if page.is_comparison else "blue"
            if value is not None and name != "intercept":
                own = (value, value - half, value + half, f"var(--{colour})")
                rows.setdefault(name, []).append(own)
    every = [x for own in rows.values() for row in own for x in row[:3]]
    span = (min([0.0, *every]), max([0.0, *every]))
    return {name: svg.intervals(own, span) for name, own in rows.items()}


def _scores(page: Page, runs: list[StoredRun]) -> str:
    """Return how well the models fit the rows of all nodes."""
    scores = {page.name(run): Summary(run.summary).scores() for run in runs}
    names = list(dict.fromkeys(name for own in scores.values() for name in own))
    if not page.is_comparison:
        words = ", ".join(f"{k} {v}" for own in scores.values() for k, v in own.items())
        return paragraph(f"On the rows of all nodes: {words}." if words else "")
    if len(names) < 2:  # it is in the table of the runs
        return ""
    rows = [[run, *(own.get(name, NONE) for name in names)]
            for run, own in scores.items()]  # fmt: skip
    return table(["run", *names], rows, "On the rows of all nodes", "sortable")


def _components(page: Page, runs: list[StoredRun]) -> str:
    """Return the principal components of the first run as a table with bars.

    Of other runs, the angles between their subspaces and the first are given.
    """
    try:
        axes, lengths, names = _axes(runs[0])
    except DadmmError as error:
        return paragraph(f"The model cannot be read: {error}")
    largest = np.sort(np.argsort(-np.abs(axes).max(axis=1), kind="stable")[:MOST_ROWS])
    heads = [f"component {m + 1}" for m in range(len(lengths))]
    rows = [[names[k], *(svg.bar(float(v)) for v in axes[k])] for k in largest]
    spread = ["length", *(number(float(length)) for length in lengths)]
    few = said(len(rows), len(axes), "columns, with the largest entries,")
    words = page.titled("Directions of unit length, and the length of each", runs[0])
    found = table(["column", *heads], [spread, *rows], f"{words}. {few}", "loadings")
    others = []
    for run in runs[1:]:
        other = _axes(run)[0]
        if other.shape[0] == axes.shape[0]:
            others.append([page.name(run), f"{_angle(axes, other):.3f}"])
    if others:
        words = f"Largest angle to the subspace of {page.name(runs[0])}, in degrees"
        return table(["run", "angle"], others, words, "sortable") + details(
            page.titled("Components", runs[0]), found
        )
    return found


def _angle(first: np.ndarray, other: np.ndarray) -> float:
    """Return the largest angle between two subspaces, in degrees."""
    q, r = (np.linalg.qr(basis)[0] for basis in (first, other))
    beyond = r - q @ (q.T @ r)  # its length is a sine, exact for small angles
    return float(np.degrees(np.arcsin(min(float(np.linalg.norm(beyond, 2)), 1.0))))


def _axes(run: StoredRun) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return principal axes, their lengths, and the names of the columns."""
    if files.kind(run.folder / NAME) != "file":
        W = run.arrays["W"].mean(axis=0)
        return *principal_axes(W), [f"x{k}" for k in range(len(W))]
    model = load_model(run.folder / NAME)
    return *principal_axes(model.parameters["W"]), list(model.feature_names)


def _structure(page: Page, run: StoredRun) -> str:
    """Return the points of structure from motion, which turn with the mouse."""
    points = run.array("structure", (None, 3))
    points = points[evenly(len(points), MOST_POINTS)]
    points = points - points.mean(axis=0)
    x, y, z = points.T
    trace = {
        "type": "scatter3d", "mode": "markers", "x": packed(x, "f4"),
        "y": packed(z, "f4"), "z": packed(y, "f4"),
        "marker": {"size": 3.5, "color": packed(z, "f4"), "colorscale": "@scale"},
        "hovertemplate": "x %{x:.3g}, y %{z:.3g}, depth %{y:.3g}<extra></extra>",
    }  # fmt: skip
    look = {
        "color": "@text", "gridcolor": "@grid", "zerolinecolor": "@axis",
        "showbackground": False,
    }  # fmt: skip
    ends = {"xaxis": "x", "yaxis": "depth z", "zaxis": "y"}
    scene = {key: look | {"title": {"text": word}} for key, word in ends.items()}
    layout = {
        "scene": {"aspectmode": "data", **scene}, "height": 520,
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
    }  # fmt: skip
    title = page.titled(f"Structure ({panels.structure_frame(run)})", run)
    turns = "".join(
        f'<button type="button" data-turn="{turn}">{word}</button>'
        for turn, word in (("left", "Turn left"), ("right", "Turn right"),
                           ("up", "Tilt up"), ("down", "Tilt down"))
    )  # fmt: skip
    few = said(len(points), len(run.arrays["structure"]), "points")
    plot = page.plot(title, {"data": [trace], "layout": layout}, name="solid")
    return (
        paragraph(f"Drag to turn, or use the buttons. {few}", "js")
        + f'<div class="controls js" role="group" aria-label="Turn">{turns}</div>'
        + f'<div class="panels wide js">{plot}</div>'
    )
