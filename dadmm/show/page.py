"""A page while it is built: its figures, and data for the browser."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dadmm.runs.stored import StoredRun
from dadmm.show import to_plotly
from dadmm.show.figure import Panel
from dadmm.show.html import details, facts, paragraph, text
from dadmm.show.panels import labels, looks
from dadmm.show.style import plotly_look
from dadmm.show.svg import run_sample


class Page:
    """What the sections of a page have added, and the names and looks of its runs."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.runs = list(runs)
        self.recorded = [run for run in runs if run.has_rows]
        self.figures: list[dict[str, Any]] = []
        self.network: dict[str, Any] = {"frames": [], "scale": [1, 1], "runs": []}
        self.costs: list[dict[str, Any]] = []  # of the recorded runs
        self._names = labels(runs)
        self._looks = [plotly_look(look) for look in looks(runs)]

    @property
    def is_comparison(self) -> bool:
        """Whether the page has several runs."""
        return len(self.runs) > 1

    def plot(
        self, title: str, figure: dict[str, Any], kind: str = "", name: str = ""
    ) -> str:
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

    def panels(
        self, panels: Iterable[Panel], kind: str = "", name: str = "", wide: str = ""
    ) -> str:
        """Return panels side by side; those that are a sentence come below."""
        panels = list(panels)
        drawn = [
            self.plot(panel.title, to_plotly.describe(panel), kind, name)
            for panel in panels
            if not panel.note
        ]
        lines = [f"{panel.title}: {panel.note}." for panel in panels if panel.note]
        shown = f'<div class="panels {wide} js">{"".join(drawn)}</div>' if drawn else ""
        return shown + facts(lines)

    def look(self, run: StoredRun) -> dict[str, Any]:
        """Return colour, dash and marker of a run."""
        return self._looks[self.runs.index(run)]

    def name(self, run: StoredRun) -> str:
        """Return the label of a run."""
        return self._names[self.runs.index(run)]

    def titled(self, words: str, run: StoredRun) -> str:
        """Return a title, with the label of the run if there are several."""
        return f"{words}: {self.name(run)}" if self.is_comparison else words

    def legend(self, runs: Sequence[StoredRun]) -> str:
        """Return a legend of several runs; nothing for one."""
        if not self.is_comparison:
            return ""
        items = "".join(
            f"<li>{run_sample(self.look(run))} {text(self.name(run))}</li>"
            for run in runs
        )
        return f'<ul class="legend" aria-label="Legend">{items}</ul>'

    def tables(self, tables: Iterable[str]) -> str:
        """Return tables of all runs, folded."""
        found = list(tables)
        return details("Tables" if len(found) > 1 else "Table", "".join(found))

    def not_recorded(self) -> str:
        """Return a paragraph for runs that have no rows."""
        if all(run.is_going for run in self.runs):
            return paragraph("There are no complete iterations yet.")
        return paragraph(
            "The iterations were not recorded. --record records them; it is the "
            "default up to 1,000 nodes."
        )
