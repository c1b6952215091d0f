"""A page while it is built: HTML, its figures, and data for the browser."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dadmm.runs.stored import StoredRun
from dadmm.show.figure import Panel
from dadmm.show.panels import labels, looks
from dadmm.show.style import plotly_look
from dadmm.show.to_plotly import Json, Markup, describe, text

NONE = "\N{EN DASH}"  # in a table
Table = tuple[str, list[str], list[list[str]]]  # caption, head and rows


def number(value: float | None, digits: int = 4) -> str:
    """Return a number in few digits; a dash if it is unknown."""
    return NONE if value is None or np.isnan(value) else f"{value:.{digits}g}"


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str,
    kind: str = "",
) -> str:
    """Return a table; the first cell of a row is its header, the others numbers.

    The columns of a table of the ``kind`` "sortable" can be sorted in the browser.
    """
    top = "".join(f'<th scope="col">{text(word)}</th>' for word in head)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{text(word)}</td>" for word in others)
        lines.append(f'<tr><th scope="row">{text(first)}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table class="{kind}"><caption>{text(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def details(summary: str, inner: str) -> str:
    """Return HTML that is folded until the reader opens it; nothing for nothing."""
    folded = f"<details><summary>{text(summary)}</summary>{inner}</details>"
    return folded if inner else ""


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph of plain words; nothing for none."""
    return f'<p class="{kind}">{text(words)}</p>' if words else ""


def facts(lines: Iterable[str]) -> str:
    """Return a list of sentences; nothing for none."""
    items = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<ul class="facts">{items}</ul>' if items else ""


class Page:
    """What the sections of a page have added, and the names and looks of its runs."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.runs = list(runs)
        self.recorded = [run for run in runs if run.has_rows]
        self.is_comparison = len(runs) > 1
        self.figures: list[Json] = []
        self.network: Json = {"frames": [], "scale": [1, 1], "runs": []}
        self.costs: list[Json] = []  # of the recorded runs
        self._names = labels(runs) if runs else []
        self._looks = [plotly_look(look) for look in looks(runs)] if runs else []

    def plot(self, title: str, figure: Json, kind: str = "", name: str = "") -> str:
        """Add a figure of plotly, and return the element in which it is drawn.

        The ``kind`` "criteria" has an axis that may be iterations, bytes or seconds;
        "iterations" has one of iterations. ``name`` is a number by default.
        """
        name = f"plot-{name or len(self.figures)}"
        self.figures.append({"id": name, "kind": kind, **figure})
        words, line = text(title), '<output class="values"></output>' if kind else ""
        return (
            f'<figure class="plot"><figcaption>{words}{line}</figcaption>'
            f'<div class="canvas" id="{name}" aria-label="{words}"></div></figure>'
        )

    def panels(self, panels: Sequence[Panel], kind: str = "") -> str:
        """Return panels side by side; those that are a sentence come below."""
        drawn = "".join(
            self.plot(panel.title, describe(panel), kind)
            for panel in panels
            if not panel.note
        )
        notes = facts(f"{panel.title}: {panel.note}." for panel in panels if panel.note)
        return (f'<div class="panels js">{drawn}</div>' if drawn else "") + notes

    def look(self, run: StoredRun) -> dict[str, str]:
        """Return colour, dash and marker of a run."""
        return self._looks[self.runs.index(run)]

    def name(self, run: StoredRun) -> str:
        """Return the label of a run."""
        return self._names[self.runs.index(run)]

    def titled(self, words: str, run: StoredRun) -> str:
        """Return a title, after the label of the run if there are several."""
        return f"{self.name(run)}: {words}" if self.is_comparison else words

    def sample(self, run: StoredRun) -> Markup:
        """Return the label of a run, after a short line as its curves are drawn."""
        look = self.look(run)
        colour, dash = f"var(--{look['colour']})", look["dash"].replace("solid", "none")
        return Markup(
            '<svg width="46" height="14" viewBox="0 0 46 14" aria-hidden="true">'
            f'<path d="M1 7H45" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dash}"/><text x="23" y="12" fill="{colour}" '
            f'text-anchor="middle">{look["letter"]}</text></svg> {text(self.name(run))}'
        )

    def legend(self, runs: Sequence[StoredRun]) -> str:
        """Return a legend of several runs; nothing for one."""
        items = "".join(f"<li>{self.sample(run)}</li>" for run in runs)
        legend = f'<ul class="legend" aria-label="Legend">{items}</ul>'
        return legend if self.is_comparison else ""

    def tables(
        self, runs: Sequence[StoredRun], rows_of: Callable[[StoredRun], Table]
    ) -> str:
        """Return a table of each run, folded."""
        found = ""
        for run in runs:
            words, head, rows = rows_of(run)
            found += table(head, rows, self.titled(words, run))
        return details("Tables" if len(runs) > 1 else "Table", found)
