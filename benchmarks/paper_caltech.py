"""The paper's structure from motion on five objects of the Caltech Turntable.

    python -m benchmarks.paper_caltech --data DIR [--quick] [--out DIR]

DIR holds 001.mat to 005.mat, each with ``measurement_matrix`` (60, N): 30 frames, five
cameras of six frames. PAPER.md says where to get them. Ring and complete graph with
t_max = 50, complete with 5.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from benchmarks.shared.experiment import (
    SCHEMES,
    SETTINGS,
    Case,
    arguments,
    run_all,
    say,
    write_rows,
)
from benchmarks.shared.report import draw_angles, print_table
from benchmarks.shared.tracks import CAMERAS, Work, check

OBJECTS = {
    "001": "BallSander",
    "002": "BoxStuff",
    "003": "Rooster",
    "004": "Standing",
    "005": "StorageBin",
}
NETWORKS = (("ring", 50), ("complete", 50), ("complete", 5))


def cases(objects: list[str], starts: int) -> list[Case]:
    """Return all runs of the experiment."""
    # By default all cameras draw the same noise precision: a few tell enough.
    counts = {"printed": starts, "dadmm": min(starts, 2)}
    return [
        Case("caltech", name, setting, graph, CAMERAS, scheme, t_max, start)
        for name, setting, (graph, t_max), scheme in product(
            objects, SETTINGS, NETWORKS, SCHEMES
        )
        for start in range(counts[setting])
    ]


def main() -> None:
    chosen = arguments(__doc__, "folder of 001.mat to 005.mat")
    objects = ["004"] if chosen.quick else list(OBJECTS)
    check(chosen.data, objects, "dataset/caltech")
    starts = chosen.starts or (2 if chosen.quick else 20)
    out = chosen.out or Path(__file__).parent / "out" / "caltech"
    work = Work(chosen.data, 200 if chosen.quick else 1000)
    rows = run_all(cases(objects, starts), work, out / "runs", chosen.jobs)
    write_rows(rows, out / "rows.csv")
    for name in objects:
        own = [
            row | {"graph": f"{row['graph']}, t_max {row['t_max']}"}
            for row in rows
            if row["data"] == name
        ]
        for setting in SETTINGS:
            title = f"{OBJECTS[name]}, {setting}"
            print_table(own, setting, "centralised", title)
            draw_angles(own, setting, "centralised", out, f"{OBJECTS[name]}-{setting}")
    say(f"rows and figures in {out}")


if __name__ == "__main__":
    main()
