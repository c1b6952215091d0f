"""Tables and figures of bench_communication.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.shared.commands import print_markdown
from dadmm.show.style import CYCLE
from dadmm.show.to_matplotlib import save, styled

Row = Mapping[str, Any]
GOALS = {"logistic": 1e-6, "ppca": 1.0}
AXES = {
    "logistic": "Largest relative distance from the optimum",
    "ppca": "Largest angle to the centralised subspace (degrees)",
}
BASES = (("fixed", "float64"), ("nap", "float64"), ("snap", "float64"))
DRAWN = ("float64", "float16", "8 bits", "4 bits", "2 bits", "censored", "every 2")


def cases(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield problem, graph and their rows."""
    for problem, graph in dict.fromkeys((r["problem"], r["graph"]) for r in rows):
        own = [r for r in rows if (r["problem"], r["graph"]) == (problem, graph)]
        yield problem, graph, own


def bytes_of(rows: Sequence[Row], scheme: str, sending: str) -> float:
    """Return the bytes to the goal for good; infinite where it was not reached."""
    for row in rows:
        if (row["scheme"], row["sending"]) == (scheme, sending):
            return float(row["bytes"]) if row["for_good"] else float("inf")
    return float("nan")


def print_tables(rows: Sequence[Row]) -> None:
    """Print one table for each problem and graph."""
    head = ("scheme", "sending", "first", "for good", "messages", "silent", "MB")
    head += ("LAN s", "WAN s", "wireless s", "fewer bytes than fixed / nap / snap")
    for problem, graph, own in cases(rows):
        bases = [bytes_of(own, *base) for base in BASES]
        print(f"\n**{problem}, {graph} of 20**, goal {GOALS[problem]:g}\n")
        print_markdown(head, (cells(row, bases) for row in own))


def cells(row: Row, bases: Sequence[float]) -> list[str]:
    """Return the cells of one line."""
    label = row["scheme"]
    if label == "fixed":
        label += f" (eta {float(row['eta0']):.3g})"
    first = row["first"] or f"not within {row['cap']}"
    if not row["for_good"]:
        return [label, row["sending"], f"{first}", *["-"] * 8]
    times = [f"{float(row[f'{n}_seconds']):.3g}" for n in ("lan", "wan", "wireless")]
    ratios = [base / float(row["bytes"]) for base in bases]
    fewer = " / ".join(f"{ratio:.1f}" if isfinite(ratio) else "-" for ratio in ratios)
    counts = [f"{int(row[k]):,}" for k in ("for_good", "messages", "silent")]
    counts = [f"{first}", *counts, f"{row['bytes'] / 1e6:.2f}"]
    return [label, row["sending"], *counts, *times, fewer]


@styled
def pareto(problem: str, panels: Mapping[str, Sequence[Row]]) -> Figure:
    """Draw the error against the bytes sent; a panel for each graph and scheme."""
    schemes = list(dict.fromkeys(r["scheme"] for rows in panels.values() for r in rows))
    size = (2.6 * len(schemes) + 1.9, 2.5 * len(panels) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(
        len(panels), len(schemes), squeeze=False, sharex="row", sharey=True
    )
    for line, (graph, rows) in zip(axes, panels.items(), strict=True):
        for axis, scheme in zip(line, schemes, strict=True):
            own = [r for r in rows if r["scheme"] == scheme and r["sending"] in DRAWN]
            for row in own:
                style = CYCLE[DRAWN.index(row["sending"])]
                x, y = row["curves"]["bytes"], row["curves"]["error"]
                look = dict(style) | {"markevery": 0.25, "markersize": 3.5}
                axis.plot(x, y, label=row["sending"], **look)
            axis.axhline(GOALS[problem], color="0.6", linewidth=0.8, zorder=0)
            axis.set(xscale="log", yscale="log", title=f"{scheme}, {graph}")
            axis.grid()
    figure.supxlabel("Bytes sent by all nodes", fontsize=9)
    figure.supylabel(AXES[problem], fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper")
    return figure


def draw_pareto(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write all figures and return their paths."""
    paths = []
    for problem in dict.fromkeys(row["problem"] for row in rows):
        panels = {g: own for p, g, own in cases(rows) if p == problem}
        stem = folder / f"communication-{problem}"
        paths += save(pareto(problem, panels), stem, ["png"])
    return paths
