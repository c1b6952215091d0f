"""Tables and figures of the paper's experiments, from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.shared.commands import say
from benchmarks.shared.experiment import SCHEMES, curves

Row = Mapping[str, Any]


def grouped(rows: Sequence[Row], setting: str) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of a setting by panel and scheme."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        if row["setting"] == setting:
            panel = f"{row['graph']}, {row['n_nodes']} nodes"
            group = groups.setdefault(panel, {s: [] for s in SCHEMES})
            group[row["scheme"]].append(row)
    return groups


def middle(rows: Sequence[Row], column: str) -> float:
    """Return the median of a column; a run that never got there counts as infinite."""
    values = [row[column] for row in rows]
    return median(float("inf") if v in (None, "") else float(v) for v in values)


def print_table(
    rows: Sequence[Row], setting: str, target: str = "truth", title: str = ""
) -> None:
    """Print medians over the starts: iterations, angle, and first below 5 degrees."""
    print(f"\n{title or setting}: median of", end=" ")
    print(f"iterations (both rules) / angle to {target} / first below 5 degrees")
    print(f"{'':24}" + "".join(f"{scheme:>26}" for scheme in SCHEMES))
    for name, schemes in grouped(rows, setting).items():
        cells = [
            f"{middle(of, 'iterations'):.0f} ({middle(of, 'both_rules'):.0f}) / "
            f"{middle(of, f'angle_{target}'):.2f} / "
            f"{middle(of, f'first_{target}_5'):.0f}"
            for of in schemes.values()
        ]
        print(f"{name:24}" + "".join(f"{cell:>26}" for cell in cells))


def draw_angles(
    rows: Sequence[Row], setting: str, target: str, out: Path, name: str = ""
) -> None:
    """Draw angle against iteration in the paper's form, if matplotlib is there."""
    try:
        from dadmm.drawing.paper import angles
        from dadmm.drawing.style import save
    except ImportError:
        say("no figures: pip install 'dadmm[plot]'")
        return
    known = [row for row in rows if "curves" in row]  # stored rows have none
    panels = {
        title: {scheme: curves(of, target) for scheme, of in schemes.items() if of}
        for title, schemes in grouped(known, setting).items()
    }
    if not panels:
        say(f"no figure of {name or setting}: its rows are stored ones, without curves")
        return
    goal = {"truth": "true subspace", "centralised": "centralised solution"}[target]
    figure = angles(panels, f"Largest angle to the {goal} (degrees)")
    save(figure, out / f"angle-{target}-{name or setting}")
