"""The top of a page: how the runs ended, in tiles or as a table; and their results.

`dadmm.runs.summary` composes the text that a run prints, which a page repeats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import subspace_angles

from dadmm.admm.rule import CRITERIA
from dadmm.admm.state import PHASES
from dadmm.core import files
from dadmm.core.errors import DadmmError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import principal_axes
from dadmm.models.model import NAME, load_model
from dadmm.runs import summary
from dadmm.runs.stored import GoingRun, StoredRun
from dadmm.runs.summary import ANGLES, at_most
from dadmm.show import html, panels
from dadmm.show.figure import said
from dadmm.show.html import NONE, Markup, Page, number, paragraph, table, text

MOST_ROWS = 60  # coefficients, and columns of components
MOST_POINTS = 5000  # of a structure
MANY = 6  # runs whose coefficients have a column each
NORMAL = 1.96  # standard errors of an interval of 95 %
COLOURS = {
    "certified": "good", "stationary": "good", "not converged": "bad",
    "stopped": "fair", "interrupted": "fair", "not finished": "fair",
}  # fmt: skip
HEAD = ("run", "status", "objective", "iterations", "error or angle", "nodes differ by",
        "bytes", "seconds", "score")  # fmt: skip
Tile = tuple[str, str, str]  # a name, a value and a note


def badge(run: StoredRun) -> str:
    """Return the status of a run as a word in a colour."""
    status = run.summary.get("status", "unknown")
    kind = COLOURS.get(status, "plain")
    words = "done as asked" if status == "max_iter" else status
    return f'<span class="badge {kind}">{text(words)}</span>'


def top(page: Page) -> str:
    """Return what comes first: tiles for one run, a table for several."""
    if page.is_comparison:
        rows, printed = [], ""
        for run in page.runs:
            values = [value for _, value, _ in _tiles(run)] + [NONE] * 4
            if run.is_going:
                values[1:3] = NONE, NONE
            status, objective = (run.summary.get(k) for k in ("status", "objective"))
            scores = [*run.summary.scores().values(), NONE]
            rows.append([page.sample(run), status or NONE, number(objective, 6),
                         *values[:5], scores[0]])  # fmt: skip
            printed += f"<h3>{text(page.name(run))}</h3>{_printed(run)}"
        words = f"{len(rows)} runs; a click on a column sorts them"
        folded = html.details("What the runs printed", printed)
        return table(HEAD, rows, words, "sortable") + folded
    (run,) = page.runs
    tiles = "".join(
        f"<li><b>{text(value)}</b><span>{text(name)}</span>"
        f"<small>{text(note)}</small></li>"
        for name, value, note in _tiles(run)
    )
    more = _printed(run)
    more = more if run.is_going else html.details("What the run printed", more)
    return f'<ul class="tiles">{tiles}</ul>{more}'


def _tiles(run: StoredRun) -> list[Tile]:
    """Return facts about a run: six at its end."""
    found = run.summary
    count = f"{found.get('iterations', run.n_iterations):,}"
    first = ("iterations", count, f"of at most {run.config.max_iter:,}")
    if run.is_going:
        return [first, *(_tiles_so_far(run) if run.has_rows else ())]
    agreement, seconds = found.get("consensus", {}), found.get("seconds", {})
    differ = NONE if "error" not in agreement else at_most(agreement["error"])
    sent = f"{found['bytes']:,}" if "bytes" in found else NONE
    took = f"{seconds['total']:.2f}" if "total" in seconds else NONE
    loop = sum(seconds.get(name, 0) for name in PHASES)
    last = ("objective", number(found.get("objective"), 6), "at the solution")
    for name, value in [*found.scores().items()][:1]:
        score, _, bound = value.partition(" (")
        last = (name, score, f"on these rows{f' ({bound}' if bound else ''}")
    return [
        first,
        _error(run),
        ("nodes differ by", differ,
         f"at most, relative; worst in {agreement.get('where', NONE)}"),
        ("bytes", sent, f"in {found.get('messages', 0):,} messages"),
        ("seconds", took, f"{loop:.2f} in the loop of a node"),
        last,
    ]  # fmt: skip


def _tiles_so_far(run: StoredRun) -> list[Tile]:
    over = np.array([run.column(f"{name}_over_limit")[-1] for name in CRITERIA])
    worst = float(np.nanmax(over, initial=-1.0)) if run.config.tolerance else -1.0
    spent, apart = panels.cumulative(run), float(run.column("disagreement")[-1].max())
    return [
        ("times its limit", number(worst, 3) if worst >= 0 else NONE,
         "the worst criterion"),
        ("disagreement", number(apart, 3), "the largest of all nodes"),
        ("bytes", f"{spent['bytes'][-1]:,.0f}", "in these iterations"),
        ("seconds", f"{spent['seconds'][-1]:.2f}", "in the loop of a node"),
    ]  # fmt: skip


def _error(run: StoredRun) -> Tile:
    """Return a bound on the error of a run, or an angle."""
    found, certificate = run.summary, run.summary.get("certificate") or {}
    bounds = certificate.get("coefficients") or {}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    if bounds and certificate.get("radius") is not None and found.get("coefficients"):
        errors = found.get("standard_errors") or {}
        worst = summary.worst_error(found["coefficients"], bounds, errors)
        return "error bound", *worst
    within = (found.get("subspace") or {}).get("within_degrees")
    if within is not None:
        least = f"{summary.least_angle(within)}°"
        return "angle, at most", least, "to the principal subspace"
    if certificate.get("gap") is not None:
        return "error bound", at_most(certificate["gap"]), "objective above the minimum"
    for key, what in reversed(ANGLES.items()):
        angle = (found.get("metrics") or {}).get(f"{key}_degrees")
        if angle is not None:
            return "angle", f"{angle:.3f}°", f"to {what}"
    return "error bound", NONE, "none is known"


def _printed(run: StoredRun) -> str:
    """Return what a run printed, and which nodes are left if some were lost."""
    found = run.summary
    if isinstance(run, GoingRun):
        done, most = f"{found['iterations']:,}", f"{run.config.max_iter:,} iterations"
        words = f"The run is {found['status']} (as of {run.as_of}): {done} of at most "
        return paragraph(f"{words}{most} have been written.", "going")
    try:
        words = found.text(run.config, run.folder)
    except (KeyError, TypeError, ValueError, AttributeError):
        words = "summary.json lacks entries; it is damaged, or of another version."
    lines = "\n".join(map(text, words.split("\n")))
    shown = f'<pre class="printed" tabindex="0">{lines}</pre>'
    lost = ", ".join(map(str, found.get("lost_nodes") or ()))
    words = f"The nodes {lost} were lost; this page counts the others from 0."
    return shown + paragraph(words if lost else "")


def results(page: Page) -> str:
    """Return the section on results."""
    ended = [run for run in page.runs if not run.is_going]
    if not ended:
        return paragraph("Results are written at the end.")
    linear = [run for run in ended if run.summary.get("coefficients")]
    solid = [run for run in ended if "structure" in run.arrays]
    flat = [run for run in ended if "W" in run.arrays and run not in solid]
    scores = [run.summary.scores() for run in ended]
    names, found = list(dict.fromkeys(name for own in scores for name in own)), ""
    if names:
        cells = [[own.get(name, NONE) for name in names] for own in scores]
        rows = [[page.name(run), *own] for run, own in zip(ended, cells, strict=True)]
        found = table(["run", *names], rows, "On the rows of all nodes", "sortable")
    found += _coefficients(page, linear) if linear else ""
    found += _structure(page, solid[0]) if solid else ""
    found += _components(page, flat) if flat else ""
    return found or paragraph("The arrays of the result are in result.npz.")


def _coefficients(page: Page, runs: Sequence[StoredRun]) -> str:
    """Return the coefficients of linear models, with bounds, errors and intervals."""
    values = [run.summary["coefficients"] for run in runs]
    names = list(dict.fromkeys(name for own in values for name in own))
    size = {name: max(abs(own.get(name) or 0.0) for own in values) for name in names}
    largest = sorted(names, key=lambda name: -size[name])[:MOST_ROWS]
    shown = [name for name in names if name in {*largest, "intercept"}]
    columns = _columns(runs[0]) if len(runs) == 1 else {}
    if 1 < len(runs) <= MANY:  # of more runs there are drawings only
        for run, own in zip(runs, values, strict=True):
            columns[page.name(run)] = {k: number(value, 6) for k, value in own.items()}
    certain = all(run.summary.get("standard_errors") for run in runs)
    head = ["coefficient", *columns]
    head.append("value and 95 % interval" if certain else "value")
    rows = html.side_by_side([*columns.values(), _intervals(page, runs, shown)], shown)
    few = said(len(shown), len(names), "coefficients")
    caption = f"Coefficients, in the units of the table. {few}"
    return table(head, rows, caption) + html.facts(runs[0].summary.comparison())


def _columns(run: StoredRun) -> dict[str, dict[str, str]]:
    """Return values with errors or bounds, by title and coefficient."""
    values = run.summary["coefficients"]
    shown = {"value": {name: number(value, 6) for name, value in values.items()}}
    if errors := run.summary.get("standard_errors"):
        return shown | {"standard error": {n: number(e, 3) for n, e in errors.items()}}
    found = run.summary.get("certificate") or {}
    if found.get("radius") is None or not found.get("coefficients"):
        return shown
    shown["bound on the error"] = dict.fromkeys(values, "open")
    for name, bound in found["coefficients"].items():
        if bound is not None and values.get(name) is not None:
            pair = summary.with_bound(values[name], bound)
            shown["value"][name], shown["bound on the error"][name] = pair
    return shown


def _intervals(
    page: Page, runs: Sequence[StoredRun], names: Sequence[str]
) -> dict[str, Markup]:
    """Return a drawing for each coefficient, on one scale; the intercept has none."""
    rows: dict[str, list[tuple[float, float, float, str]]] = {}
    every = [0.0]  # the ends of all intervals
    for name in names:
        for run in runs:
            value = run.summary["coefficients"].get(name)
            error = (run.summary.get("standard_errors") or {}).get(name)
            half = NORMAL * (error or 0.0)
            colour = page.look(run)["colour"] if page.is_comparison else "blue"
            if value is not None and name != "intercept":
                row = (value - half, value, value + half, f"var(--{colour})")
                rows.setdefault(name, []).append(row)
                every += row[:3]
    low, unit = min(every), 228 / max(max(every) - min(every), 1e-300)
    found = {}
    for name, own in rows.items():
        tall, drawn = 8 * len(own) + 10, ""
        for k, (*ends, colour) in enumerate(own):
            first, at, last = (f"{6 + (x - low) * unit:.1f}" for x in ends)
            drawn += (
                f'<path d="M{first} {8 * k + 9}H{last}" stroke="{colour}"/>'
                f'<circle cx="{at}" cy="{8 * k + 9}" r="3.4" fill="{colour}"/>'
            )
        found[name] = Markup(
            f'<svg class="interval" width="240" height="{tall}" aria-hidden="true">'
            f'<path class="zero" d="M{6 - low * unit:.1f} 0V{tall}"/>{drawn}</svg>'
        )
    return found


def _components(page: Page, runs: Sequence[StoredRun]) -> str:
    """Return the principal components of the first run as a table with bars.

    Of other runs, the angles between their subspaces and the first are given.
    """
    try:
        (axes, lengths, names), *more = (_axes(run) for run in runs)
    except DadmmError as error:
        return paragraph(f"The model cannot be read: {error}")
    largest = np.sort(np.argsort(-np.abs(axes).max(axis=1), kind="stable")[:MOST_ROWS])
    heads = [f"component {m + 1}" for m in range(len(lengths))]
    rows = [[names[k], *map(_bar, axes[k].tolist())] for k in largest]
    spread = ["length", *map(number, lengths.tolist())]
    few = said(len(rows), len(axes), "columns, with the largest entries,")
    words = page.titled("Directions of unit length, and the length of each", runs[0])
    found = table(["column", *heads], [spread, *rows], f"{words}. {few}", "loadings")
    angles = [
        [page.name(run), f"{np.degrees(subspace_angles(axes, other)).max():.3f}"]
        for run, (other, *_) in zip(runs[1:], more, strict=True)
        if len(other) == len(axes)
    ]
    if not angles:
        return found
    words = f"Largest angle to the subspace of {page.name(runs[0])}, in degrees"
    folded = html.details(page.titled("Components", runs[0]), found)
    return table(["run", "angle"], angles, words, "sortable") + folded


def _bar(value: float) -> Markup:
    """Return a number from -1 to 1 with a bar from the middle of its cell."""
    left, width = 50 + 50 * min(value, 0), 50 * abs(value)
    kind = "below" if value < 0 else "above"
    return Markup(
        f'<span class="bar {kind}" style="--left:{left:.1f}%;--wide:{width:.1f}%">'
        f"{value:.3f}</span>"
    )


def _axes(run: StoredRun) -> tuple[Matrix, Vector, list[str]]:
    """Return principal axes, their lengths, and the names of the columns."""
    if files.kind(run.folder / NAME) != "file":
        W = run.arrays["W"].mean(axis=0)
        return *principal_axes(W), [f"x{k}" for k in range(len(W))]
    model = load_model(run.folder / NAME)
    return *principal_axes(model.parameters["W"]), list(model.feature_names)


def _structure(page: Page, run: StoredRun) -> str:
    """Return the points of structure from motion, which turn with the mouse."""
    title, points = panels.structure(run)
    shown = points[:: -(-len(points) // MOST_POINTS)]
    x, y, z = (html.packed(column, "f4") for column in shown.T)
    trace = {
        "type": "scatter3d", "mode": "markers", "x": x, "y": z, "z": y,
        "marker": {"size": 3.5, "color": z, "colorscale": "@scale"},
        "hovertemplate": "x %{x:.3g}, y %{z:.3g}, depth %{y:.3g}<extra></extra>",
    }  # fmt: skip
    look = {"color": "@text", "gridcolor": "@grid", "zerolinecolor": "@axis",
            "showbackground": False}  # fmt: skip
    ends = {"xaxis": "x", "yaxis": "depth z", "zaxis": "y"}
    scene = {key: look | {"title": {"text": word}} for key, word in ends.items()}
    layout = {"scene": {"aspectmode": "data", **scene}, "height": 520,
              "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}  # fmt: skip
    figure = {"data": [trace], "layout": layout}
    few = said(len(shown), len(points), "points")
    return (
        paragraph(f"Drag to turn, or use the buttons. {few}", "js")
        + html.fragment("turn.html")
        + '<div class="panels wide js">'
        + page.plot(page.titled(title, run), figure, name="solid")
        + "</div>"
    )
