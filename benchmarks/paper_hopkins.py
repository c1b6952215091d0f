"""The paper's structure from motion on the 135 objects of Hopkins 155.

    python -m benchmarks.paper_hopkins --data DIR [--quick] [--from FILE] [--out DIR]

DIR holds one .mat file per object with ``measurement_matrix`` (2F, N); PAPER.md says
where to get them. Five cameras, ring and complete graph, five starts. With --every 3
only every third object is taken, from the first on. The paper leaves
out objects of "more than 15 degrees" without saying how; the speed-up over plain ADMM
is given for several readings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from benchmarks.shared.experiment import SCHEMES, SETTINGS, arguments, cases, conduct
from benchmarks.shared.tracks import CAMERAS, check, outcome

LIMIT = 15.0  # degrees
Row = dict[str, Any]


def mean(values: Iterable[float]) -> float:
    """Return the mean; NaN of nothing, where a filter has left no run."""
    values = list(values)
    return statistics.mean(values) if values else math.nan


def readings(rows: list[Row], column: str = "iterations") -> dict[str, dict]:
    """Return the speed-up of each scheme over `fixed`, in per cent, by reading.

    ``column`` says by which rule runs end: "iterations", or "both_rules".
    """
    angle = "angle_centralised" + ("_both_rules" if column == "both_rules" else "")

    def good(row: Row) -> bool:
        return float(row[angle]) <= LIMIT

    by_case: dict[tuple, dict[str, Row]] = {}
    for row in rows:
        key = (row["data"], row["start"])
        by_case.setdefault(key, {})[row["scheme"]] = row
    runs = list(by_case.values())

    def table(keep: Callable[[dict[str, Row], str], bool]) -> dict[str, float]:
        found = {}
        for scheme in SCHEMES[1:]:
            kept = [run for run in runs if keep(run, scheme)]
            plain = mean(float(run["fixed"][column]) for run in kept)
            own = mean(float(run[scheme][column]) for run in kept)
            found[scheme] = 100.0 * (plain - own) / plain
        return found

    def single() -> dict[str, float]:
        kept = {s: [run[s] for run in runs if good(run[s])] for s in SCHEMES}
        own = {s: mean(float(row[column]) for row in kept[s]) for s in SCHEMES}
        return {s: 100.0 * (own["fixed"] - own[s]) / own["fixed"] for s in SCHEMES[1:]}

    return {
        "no filter": table(lambda run, scheme: True),
        "each scheme's own runs below 15 degrees": single(),
        "runs where the scheme and ADMM are below": table(
            lambda run, scheme: good(run[scheme]) and good(run["fixed"])
        ),
        "runs where all six are below": table(
            lambda run, scheme: all(map(good, run.values()))
        ),
    }


def print_readings(
    rows: list[Row], setting: str, graph: str, column: str = "iterations"
) -> None:
    """Print the mean iterations of plain ADMM, and the speed-ups over it."""
    plain = [float(row[column]) for row in rows if row["scheme"] == "fixed"]
    angle = "angle_centralised" + ("_both_rules" if column == "both_rules" else "")
    below: dict[tuple, list[bool]] = {}
    for row in rows:
        good = float(row[angle]) <= LIMIT
        below.setdefault((row["data"], row["start"]), []).append(good)
    all_six = sum(map(all, below.values()))
    print(
        f"\n{all_six} of {len(below)} runs have all six below {LIMIT:g} degrees", end=""
    )
    print(f"\n{setting}, {graph}: plain ADMM takes {mean(plain):.1f} iterations")
    print(f"{'speed-up over fixed, %':44}" + "".join(f"{s:>9}" for s in SCHEMES[1:]))
    for name, speedups in readings(rows, column).items():
        print(f"{name:44}" + "".join(f"{value:9.1f}" for value in speedups.values()))


def main() -> None:
    chosen = arguments(__doc__, "folder with a .mat file per object", stored=True)
    objects = sorted(f.stem for f in chosen.data.glob("*.mat")) if chosen.data else []
    objects = objects[:6] if chosen.quick else objects[:: chosen.every]
    check(chosen.data, objects, "dataset/hopkins")
    starts = chosen.starts or (2 if chosen.quick else 5)
    networks = [(graph, CAMERAS, 50) for graph in ("ring", "complete")]
    # By default all cameras draw the same noise precision: one start tells enough.
    todo = cases("hopkins", objects, networks, {"printed": starts, "dadmm": 1})
    work = partial(outcome, folder=chosen.data, most=300, patient=False)
    rows, _ = conduct(chosen, "hopkins", todo, work)
    for setting in SETTINGS:
        for graph in ("ring", "complete"):
            wanted = (setting, graph)
            own = [row for row in rows if (row["setting"], row["graph"]) == wanted]
            print_readings(own, setting, graph)


if __name__ == "__main__":
    main()
