"""Tables and figures of the paper's experiments, from rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.shared.commands import print_markdown, say
from benchmarks.shared.experiment import SCHEMES, curves
from dadmm.core.layout import Matrix

Row = Mapping[str, Any]
Rows = Sequence[Row]
Cell = Callable[[Rows], str]


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    named = {name: str(value) for name, value in wanted.items()}
    return [row for row in rows if all(str(row[k]) == v for k, v in named.items())]


def middle(rows: Rows, column: str) -> float:
    """Return the median of a column; a run that never got there counts as infinite."""
    values = [row[column] for row in rows]
    return median(float("inf") if v in (None, "") else float(v) for v in values)


def whole(number: float, never: str = "-") -> str:
    """Return a median in whole iterations; one that is infinite in a word."""
    return f"{number:.0f}" if np.isfinite(number) else never


def print_groups(
    title: str, groups: Mapping[str, Rows], cell: Cell, names: Sequence[str] = SCHEMES,
    by: str = "scheme",
) -> None:  # fmt: skip
    """Print a line for each group of rows, with a cell for each scheme or variant."""
    print()
    print_markdown(
        (title, *names),
        ((name, *(cell(select(own, **{by: each})) for each in names))
         for name, own in groups.items() if own),
    )  # fmt: skip


def grouped(rows: Iterable[Row], setting: str) -> dict[str, list[Row]]:
    """Return the rows of a setting by graph, nodes and t_max."""
    groups: dict[str, list[Row]] = {}
    for row in select(rows, setting=setting):
        panel = f"{row['graph']}, {row['n_nodes']} nodes, t_max {row['t_max']}"
        groups.setdefault(panel, []).append(row)
    return groups


def draw_angles(
    rows: Rows, setting: str, target: str, out: Path, name: str = ""
) -> None:
    """Draw angle against iteration in the paper's form, if matplotlib is there."""
    try:
        from dadmm.show.to_matplotlib import save
    except ImportError:
        say("no figures: pip install 'dadmm[plot]'")
        return
    panels = {
        title: {s: curves(select(own, scheme=s), target) for s in SCHEMES}
        for title, own in grouped(rows, setting).items()
    }
    if panels:
        goal = {"truth": "true subspace", "centralised": "centralised solution"}[target]
        figure = angles(panels, f"Largest angle to the {goal} (degrees)")
        save(figure, out / f"angle-{target}-{name or setting}")


def angles(curves: Mapping[str, Mapping[str, Matrix]], ylabel: str) -> Any:
    """Return the paper's figure: angle against iteration, one panel per graph.

    ``curves`` (n_starts, n_iterations) are by title of the panel and scheme; in
    degrees, NaN after the end of a run. The line is the median over the starts, the
    band their quartiles, the marker the median of the last iterations. A run that has
    ended keeps its last angle.
    """
    from dadmm.show.figure import Axis, Curve, Panel, quantiles
    from dadmm.show.style import SCHEME_STYLE, SPARE
    from dadmm.show.to_matplotlib import draw

    panels = []
    for name, panel in curves.items():
        found = []
        for scheme, starts in panel.items():
            kept, ends = _held(np.asarray(starts, dtype=float))
            if len(ends):
                kept = kept[:, : ends.max()].T
                low, middle, high = quantiles(kept, (0.25, 0.5, 0.75), 1)
                style, end = SCHEME_STYLE.get(scheme, SPARE), int(np.median(ends)) - 1
                x = np.arange(1, len(middle) + 1)
                curve = Curve(scheme, x, middle, style, low, high, end=end)
                found.append(replace(curve, band="quartiles of the starts"))
        axes = Axis("Iteration"), Axis(log=True, unit="°")
        panels.append(Panel(name, *axes, found, note="" if found else "no curves"))
    figure = draw("", panels)
    figure.supylabel(ylabel, fontsize=9)
    return figure


def _held(starts: Matrix) -> tuple[Matrix, np.ndarray]:
    """Return curves (n_starts, n_iterations) that keep their last value, and ends."""
    known = np.isfinite(starts)
    starts, known = starts[known.any(axis=1)], known[known.any(axis=1)]
    latest = np.maximum.accumulate(np.where(known, np.arange(known.shape[1]), 0), 1)
    return np.take_along_axis(starts, latest, 1), latest[:, -1] + 1
