"""The tables of PAPER.md as Markdown, from the stored rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.paper_caltech import NETWORKS as CAMERAS
from benchmarks.paper_hopkins import readings
from benchmarks.paper_synthetic import NETWORKS as GRAPHS
from benchmarks.shared.commands import print_markdown
from benchmarks.shared.experiment import SCHEMES, SETTINGS
from benchmarks.shared.report import middle

Row = dict[str, Any]
NAMES = {"printed": "as printed", "dadmm": "dadmm"}  # of the settings
TURNTABLE = (("004", "Standing", "complete"), ("002", "BoxStuff", "complete"),
             ("002", "BoxStuff", "ring"))  # fmt: skip
LEFT = {  # angles and what they are measured from, by data
    "synthetic": ("truth_10", "truth_5", "centralised_1"),
    "Caltech": ("centralised_10", "centralised_5", "centralised_1"),
    "Hopkins": ("centralised_10", "centralised_5", "centralised_1"),
}


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[k] == str(v) for k, v in wanted.items())]


def whole(number: float, never: str) -> str:
    """Return a median in whole iterations; one that is infinite in a word."""
    return f"{number:.0f}" if np.isfinite(number) else never


def by_scheme(rows: Sequence[Row], cell: Any) -> list[str]:
    """Return a cell for the rows of each scheme."""
    return [cell(select(rows, scheme=scheme)) for scheme in SCHEMES]


def left_again(rows: Iterable[Row], target: str) -> str:
    """Return how many runs that were once below an angle are above it at the end."""
    own = [row for row in rows if row[f"first_{target}"]]
    goal, level = target.split("_")
    above = sum(float(row[f"angle_{goal}_last"]) >= float(level) for row in own)
    return f"{above} of {len(own)}"


def print_left(data: Mapping[str, Sequence[Row]]) -> None:
    """Print the table of first passages, for three sets of data."""
    lines = []
    for name, setting in ((name, s) for name in data for s in SETTINGS):
        own = select(data[name], setting=setting)
        cells = (left_again(own, target) for target in LEFT[name])
        lines.append((f"{name}, {NAMES[setting]}", *cells))
    head = "above the angle at the end, of the runs once below it"
    print_markdown((head, "10 degrees", "5 degrees", "1 degree"), lines)


def print_synthetic(rows: Sequence[Row]) -> None:
    """Print iterations to the rules and the first below 5 degrees, by graph."""

    def printed(own: list[Row]) -> str:
        ends = (f"{middle(own, name):.0f}" for name in ("iterations", "both_rules"))
        first = whole(middle(own, "first_truth_5"), "never")
        return "{} ({}), {}".format(*ends, first)

    def usual(own: list[Row]) -> str:
        return f"{middle(own, 'iterations'):.0f}, {middle(own, 'first_truth_5'):.0f}"

    for setting, cell in (("printed", printed), ("dadmm", usual)):
        lines = []
        for graph, n, _ in GRAPHS:
            own = select(rows, setting=setting, graph=graph, n_nodes=n)
            lines.append((f"{graph} {n}", *by_scheme(own, cell)))
        print_markdown((NAMES[setting], *SCHEMES), lines)
        print()


def print_caltech(rows: Sequence[Row]) -> None:
    """Print first passages as printed, and some objects with dadmm's settings."""

    def passages(own: list[Row]) -> str:
        levels = (middle(own, f"first_centralised_{k}") for k in (10, 5, 1))
        return " / ".join(whole(level, "-") for level in levels)

    def ends(own: list[Row]) -> str:
        columns = ("iterations", "first_centralised_5")
        return ", ".join(f"{middle(own, name):.0f}" for name in columns)

    lines = []
    for graph, _, t_max in CAMERAS:
        own = select(rows, setting="printed", graph=graph, t_max=t_max)
        lines.append((f"{graph}, t_max {t_max}", *by_scheme(own, passages)))
    print_markdown((NAMES["printed"], *SCHEMES), lines)
    lines = []
    for data, name, graph in TURNTABLE:
        own = select(rows, setting="dadmm", data=data, graph=graph, t_max=50)
        lines.append((f"{name}, {graph}, t_max 50", *by_scheme(own, ends)))
    print()
    print_markdown((NAMES["dadmm"], *SCHEMES), lines)


def print_hopkins(rows: Sequence[Row]) -> None:
    """Print the speed-ups over `fixed`, in per cent."""

    def speedups(setting: str, graph: str, column: str) -> dict[str, list[str]]:
        own = select(rows, setting=setting, graph=graph)
        found = readings(own, column)
        return {
            k: ["0" if abs(x) < 0.5 else f"{x:.0f}" for x in v.values()]
            for k, v in found.items()
        }

    title = "complete, both rules (the paper's text: VP 40.2, VP + AP 37.3)"
    of = speedups("printed", "complete", "both_rules")
    print_markdown((title, *SCHEMES[1:]), ((k, *cells) for k, cells in of.items()))
    others = {
        "ring, both rules": ("printed", "ring", "both_rules"),
        "complete, the paper's rule alone": ("printed", "complete", "iterations"),
        "ring, the paper's rule alone": ("printed", "ring", "iterations"),
        "complete, dadmm": ("dadmm", "complete", "iterations"),
        "ring, dadmm (at most 300 iterations)": ("dadmm", "ring", "iterations"),
    }
    title, reading = "other rules, runs where all six are below", [*of][-1]
    print()
    print_markdown(
        (title, *SCHEMES[1:]),
        ((name, *speedups(*which)[reading]) for name, which in others.items()),
    )


def print_variants(rows: Sequence[Row]) -> None:
    """Print what the paper says in words: rejected rules, stages and settings."""

    def lines(variants: Sequence[str], cell: Any) -> list[tuple[str, ...]]:
        return [
            (f"{graph} {n}", *(cell(select(own, variant=name)) for name in variants))
            for graph, n, _ in GRAPHS
            if (own := select(rows, graph=graph, n_nodes=n))
        ]

    def swings(own: list[Row]) -> str:
        columns = ("swing_likelihood", "swing_angle", "angle_last")
        return "{:.0f}, {:.1f}, {:.1f}".format(*(middle(own, name) for name in columns))

    def heights(own: list[Row]) -> str:
        return " / ".join(f"{middle(own, f'eta_{t}'):.3g}" for t in (5, 10, 20, 49))

    def passages(own: list[Row]) -> str:
        columns = ("iterations", "first_truth_5", "first_centralised_1")
        return " / ".join(whole(middle(own, name), "-") for name in columns)

    def ends(own: list[Row]) -> str:
        first = whole(middle(own, "first_truth_5"), "-")
        return f"{first}, {middle(own, 'angle_last'):.1f}"

    kept = ("fixed", "vp", "vp_kept", "vp, one penalty per edge",
            "vp_kept, one penalty per edge")  # fmt: skip
    title = "swing of (14), swing of the angle, angle at the end"
    print_markdown((title, *kept), lines(kept, swings))
    print()
    mixed = ("fixed", "vp", "vp_ap", "vp_tau")
    print_markdown(("stop / 5 degrees / 1 degree", *mixed), lines(mixed, passages))
    print()
    mixed = ("vp", "vp_tau")
    title = "mean penalty over eta0, t = 5 / 10 / 20 / 49"
    print_markdown((title, *mixed), lines(mixed, heights))
    print()
    _print_stages(rows)
    print()
    changed = [name for name in dict.fromkeys(row["variant"] for row in rows)
               if name in ("fixed", "vp", "ap", "nap") or " = " in name]  # fmt: skip
    by_graph = dict(
        (name, []) for name in sorted(changed, key=lambda k: k.partition(",")[0])
    )
    for graph, n, _ in GRAPHS:
        own = select(rows, graph=graph, n_nodes=n)
        for name, cells in by_graph.items():
            cells.append(ends(select(own, variant=name)) if own else "")
    head = (
        "first below 5 degrees, angle at the end",
        *(f"{g} {n}" for g, n, _ in GRAPHS),
    )
    print_markdown(head, ((name, *cells) for name, cells in by_graph.items()))


def _print_stages(rows: Sequence[Row]) -> None:
    """Print penalties, misfit and disagreement of `ap` over those of `fixed`."""

    def ratio(graph: str, n: int, column: str) -> float:
        own = select(rows, graph=graph, n_nodes=n)
        ap, fixed = (middle(select(own, variant=v), column) for v in ("ap", "fixed"))
        return ap / fixed

    stages = (5, 10, 20, 49)
    lines = []
    for graph, n, _ in GRAPHS:
        if select(rows, graph=graph, n_nodes=n):
            cells = (
                " / ".join(
                    f"{ratio(graph, n, f'{what}_{t}'):.2f}"
                    for what in ("eta", "likelihood", "consensus")
                )
                for t in stages
            )
            lines.append((f"{graph} {n}", *cells))
    head = "`ap` over `fixed`: eta / (14) / consensus error"
    print_markdown((head, *(f"t = {t}" for t in stages)), lines)


def print_all(data: Mapping[str, Sequence[Row]]) -> None:
    """Print all tables, given the rows of synthetic-authors, caltech and hopkins."""
    synthetic, caltech = data["synthetic-authors"], data["caltech"]
    hopkins = data["hopkins"]
    print_left({"synthetic": synthetic, "Caltech": caltech, "Hopkins": hopkins})
    for rows, draw in ((synthetic, print_synthetic), (caltech, print_caltech),
                       (hopkins, print_hopkins)):  # fmt: skip
        print()
        draw(rows)
    for name, rows in data.items():
        count = {s: len({row["start"] for row in select(rows, setting=s)})
                 for s in SETTINGS}  # fmt: skip
        objects = len({row["data"] for row in rows})
        print(f"\n{name}: {len(rows)} rows, data: {objects}, starts: {count}", end="")
    print("\n")
