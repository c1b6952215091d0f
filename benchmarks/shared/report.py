"""Tables and figures of the paper's experiments, from rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.shared.commands import print_markdown, say
from benchmarks.shared.experiment import SCHEMES

Row = Mapping[str, Any]
Rows = Sequence[Row]
Cell = Callable[[Rows], str]


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
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
        title: {
            scheme: [row["curves"][target] for row in select(own, scheme=scheme)]
            for scheme in SCHEMES
        }
        for title, own in grouped(rows, setting).items()
    }
    if panels:
        goal = {"truth": "true subspace", "centralised": "centralised solution"}[target]
        figure = angles(panels, f"Largest angle to the {goal} (degrees)")
        save(figure, out / f"angle-{target}-{name or setting}")


def angles(
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], ylabel: str
) -> Any:
    """Return the paper's figure: angle against iteration, one panel per graph.

    ``curves`` are by title of the panel and scheme, one for each start, in degrees. The
    line is the median over the starts, the band their quartiles, the marker the median
    of the last iterations. A run that has ended keeps its last angle.
    """
    from dadmm.show.figure import Axis, Curve, Panel
    from dadmm.show.style import SCHEME_STYLE, SPARE
    from dadmm.show.to_matplotlib import draw

    panels = []
    for name, panel in curves.items():
        found = []
        for scheme, starts in panel.items():
            if starts:
                ends = [len(curve) for curve in starts]
                kept = [np.pad(c, (0, max(ends) - len(c)), "edge") for c in starts]
                low, middle, high = np.quantile(kept, (0.25, 0.5, 0.75), axis=0)
                style, end = SCHEME_STYLE.get(scheme, SPARE), int(np.median(ends)) - 1
                x = np.arange(1, max(ends) + 1)
                look = {"end": end, "band": "quartiles of the starts"}
                found.append(Curve(scheme, x, middle, style, low, high, **look))
        axes = Axis("Iteration"), Axis(log=True, unit="°")
        panels.append(Panel(name, *axes, found, note="" if found else "no curves"))
    figure = draw("", panels)
    figure.supylabel(ylabel, fontsize=9)
    return figure
