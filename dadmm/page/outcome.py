"""The first section, what the run printed, and the section on its results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dadmm.page import subspace, thinning
from dadmm.page.markup import (
    NONE,
    number,
    paragraph,
    prose,
    table,
    text,
)
from dadmm.page.parts import Page
from dadmm.page.runs import PageRun
from dadmm.runs.summary import Summary, with_bound

MOST_ROWS = 60  # coefficients
MOST_NAMED = 40  # nodes
GOING = {
    "still going": "The run is still going",
    "interrupted": "The run was interrupted, and no process is at work in its folder",
    "not finished": "The run has not finished",
}


def printed(run: PageRun) -> str:
    """Return what the run printed, or how far it is."""
    if run.is_going:
        state = GOING[run.summary["status"]]
        words = [f"{state} (as of {run.as_of}): {run.n_iterations:,} of at most "
                 f"{run.config.max_iter:,} iterations have been written."]  # fmt: skip
        if run.has_rows:
            last = [f"{name} {run.column(name)[-1].max():.3g}"
                    for name in ("disagreement", "residual")]  # fmt: skip
            words.append(f"Largest of all nodes in the last one: {', '.join(last)}.")
        words.append("Make this page again to see more.")
        return "\n".join(words)
    try:
        return Summary(run.summary).text(run.config, run.folder)
    except (KeyError, TypeError, ValueError, AttributeError):  # of another version
        status, count = (
            run.summary.get(k, "unknown") for k in ("status", "iterations")
        )
        return (
            f"Status: {status}, iterations: {count}. summary.json lacks other entries; "
            "it is damaged, or another version of dadmm made it."
        )


def top(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the first section."""
    if len(runs) == 1:
        kind = "printed going" if runs[0].is_going else "printed"
        words = f'<pre class="{kind}" tabindex="0">{prose(printed(runs[0]))}</pre>'
        return words + paragraph(_new_numbers(runs[0]))
    rows = []
    for run in runs:
        found = run.summary
        took = found.get("seconds", {})
        rows.append(
            [
                page.name(run),
                found.get("status", NONE),
                f"{found.get('iterations', run.n_iterations):,}",
                number(found.get("objective"), 6),
                number(found.get("consensus", {}).get("error"), 2),
                f"{found['bytes']:,}" if "bytes" in found else NONE,
                number(took.get("total"), 3),
            ]
        )
    head = ["run", "status", "iterations", "objective", "nodes agree to", "bytes",
            "seconds"]  # fmt: skip
    each = "".join(
        f"<details><summary>{text(page.name(run))}: what it printed</summary>"
        f'<pre class="printed" tabindex="0">{prose(printed(run))}</pre>'
        f"{paragraph(_new_numbers(run))}</details>"
        for run in runs
    )
    return table(head, rows, "The runs") + page.legend(runs) + each


def _new_numbers(run: PageRun) -> str:
    """Return which nodes are left, if some were lost: the rest of the page counts them.

    See `StoredRun.topology`.
    """
    if not run.summary.get("lost_nodes") or len(run.topology.edges) == 0:
        return ""
    left = np.unique(run.arrays["edges"])
    names = ", ".join(map(str, left[:MOST_NAMED])) + ", ..." * (len(left) > MOST_NAMED)
    return (
        f"In the sections below, nodes 0 to {len(left) - 1} are those that are left, "
        f"in their order: {names}."
    )


def results(page: Page, runs: Sequence[PageRun]) -> str:
    """Return the section on results."""
    ended = [run for run in runs if not run.is_going]
    parts = [paragraph(f"{page.name(run)}: results are written at the end.")
             for run in runs if run.is_going]  # fmt: skip
    parts.append(
        _coefficients(page, [r for r in ended if r.summary.get("coefficients")])
    )
    for run in ended:
        if "structure" in run.arrays:
            parts.append(subspace.structure(page, run))
        elif "W" in run.arrays:
            parts.append(subspace.components(page, run))
    parts.append(_scores(page, ended))
    found = "".join(parts)
    return found or paragraph("The arrays of the result are in result.npz.")


def _coefficients(page: Page, runs: Sequence[PageRun]) -> str:
    """Return a table of the coefficients of linear models, with bounds and errors."""
    if not runs:
        return ""
    names = list(dict.fromkeys(n for run in runs for n in run.summary["coefficients"]))
    size = {name: max(abs(run.summary["coefficients"].get(name) or 0.0) for run in runs)
            for name in names}  # fmt: skip
    kept = set(sorted(names, key=lambda name: -size[name])[:MOST_ROWS])
    shown = [name for name in names if name in kept or name == "intercept"]
    head, columns = ["coefficient"], []
    for run in runs:
        prefix = f"{page.name(run)}: " if len(runs) > 1 else ""
        for title, values in _columns(run).items():
            head.append(prefix + title)
            columns.append(values)
    rows = [[name, *(values.get(name, NONE) for values in columns)] for name in shown]
    few = thinning.said(len(shown), len(names), "coefficients")
    about = "".join(
        paragraph(line)
        for run in runs[:1]
        for line in Summary(run.summary).comparison()
    )
    return table(head, rows, f"Coefficients, in the units of the table. {few}") + about


def _columns(run: PageRun) -> dict[str, dict[str, str]]:
    """Return the columns of a run in the table of coefficients, by title and name."""
    values = run.summary["coefficients"]
    found = run.summary.get("certificate") or {}
    bounds = found.get("coefficients") if found.get("radius") is not None else None
    if bounds is None:
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
    if errors := run.summary.get("standard_errors"):
        shown["standard error"] = {name: number(e, 3) for name, e in errors.items()}
    return shown


def _scores(page: Page, runs: Sequence[PageRun]) -> str:
    """Return how well the models fit the rows of all nodes."""
    rows = [
        [page.titled(name, run), value]
        for run in runs
        for name, value in Summary(run.summary).scores().items()
    ]
    return table(["score", "value"], rows, "On the rows of all nodes") * bool(rows)
