"""The paper's structure from motion on the 135 objects of Hopkins 155.

    python -m benchmarks.paper_hopkins --data DIR [--quick] [--out DIR]

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
from itertools import product

from benchmarks.shared.commands import print_markdown
from benchmarks.shared.experiment import SCHEMES, SETTINGS, arguments, cases, conduct
from benchmarks.shared.report import Row, Rows, select
from benchmarks.shared.tracks import CAMERAS, check, outcome

LIMIT = 15.0  # degrees
NETWORKS = [(graph, CAMERAS, 50) for graph in ("ring", "complete")]
Run = dict[str, Row]  # rows of all schemes, on one object from one start


def mean(values: Iterable[float]) -> float:
    """Return the mean; NaN of nothing, where a filter has left no run."""
    values = list(values)
    return statistics.mean(values) if values else math.nan


def readings(rows: Rows, column: str = "iterations") -> dict[str, dict[str, float]]:
    """Return the speed-up of each scheme over `fixed`, in per cent, by reading.

    ``column`` says by which rule runs end: "iterations", or "both_rules".
    """
    angle = "angle_centralised" + ("_both_rules" if column == "both_rules" else "")
    by_case: dict[tuple[str, str], Run] = {}
    for row in rows:
        by_case.setdefault((row["data"], row["start"]), {})[row["scheme"]] = row

    def good(run: Run, scheme: str) -> bool:
        return float(run[scheme][angle]) <= LIMIT

    def average(scheme: str, keep: Callable[[Run], bool]) -> float:
        kept = filter(keep, by_case.values())
        return mean(float(run[scheme][column]) for run in kept)

    def table(keep: Callable[[Run, str, str], bool]) -> dict[str, float]:
        """Take the runs to keep, of a scheme that is compared with a rival."""
        found = {}
        for rival in SCHEMES[1:]:
            plain = average("fixed", lambda run: keep(run, "fixed", rival))  # noqa: B023
            own = average(rival, lambda run: keep(run, rival, rival))  # noqa: B023
            found[rival] = 100.0 * (plain - own) / plain
        return found

    return {
        "no filter": table(lambda run, scheme, rival: True),
        "each scheme's own runs below 15 degrees": table(
            lambda run, scheme, rival: good(run, scheme)
        ),
        "runs where the scheme and ADMM are below": table(
            lambda run, scheme, rival: good(run, rival) and good(run, "fixed")
        ),
        "runs where all six are below": table(
            lambda run, scheme, rival: all(good(run, s) for s in SCHEMES)
        ),
    }


def print_readings(rows: Rows, column: str = "iterations") -> None:
    """Print the mean iterations of plain ADMM, and the speed-ups over it."""
    for setting, (graph, _, _) in product(SETTINGS, NETWORKS):
        own = select(rows, setting=setting, graph=graph)
        plain = mean(float(row[column]) for row in select(own, scheme="fixed"))
        print(f"\n{setting}, {graph}, {column}: plain ADMM takes {plain:.1f}\n")
        lines = readings(own, column).items()
        print_markdown(
            ("speed-up over fixed, %", *SCHEMES[1:]),
            ((name, *(f"{x:.1f}" for x in each.values())) for name, each in lines),
        )


def main() -> None:
    chosen = arguments(__doc__, "folder with a .mat file per object")
    objects = sorted(f.stem for f in chosen.data.glob("*.mat")) if chosen.data else []
    objects = objects[:6] if chosen.quick else objects[:: chosen.every]
    check(chosen.data, objects, "dataset/hopkins")
    starts = chosen.starts or (2 if chosen.quick else 5)
    # By default all cameras draw the same noise precision: one start tells enough.
    todo = cases("hopkins", objects, NETWORKS, {"printed": starts, "dadmm": 1})
    work = partial(outcome, folder=chosen.data, most=300, patient=False)
    rows, _ = conduct(chosen, "hopkins", todo, work)
    print_readings(rows)


if __name__ == "__main__":
    main()
