"""The paper's structure from motion on five objects of the Caltech Turntable.

    python -m benchmarks.paper_caltech --data DIR [--quick] [--out DIR]

DIR holds 001.mat to 005.mat, each with ``measurement_matrix`` (60, N): 30 frames, five
cameras of six frames. PAPER.md says where to get them. Ring and complete graph with
t_max = 50, complete with 5.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from benchmarks.shared.experiment import SETTINGS, arguments, cases, conduct
from benchmarks.shared.report import draw_angles, print_table, select
from benchmarks.shared.tracks import CAMERAS, check, outcome

OBJECTS = {"001": "BallSander", "002": "BoxStuff", "003": "Rooster", "004": "Standing",
           "005": "StorageBin"}  # fmt: skip
NETWORKS = (("ring", CAMERAS, 50), ("complete", CAMERAS, 50), ("complete", CAMERAS, 5))


def main() -> None:
    chosen = arguments(__doc__, "folder of 001.mat to 005.mat")
    objects = ["004"] if chosen.quick else list(OBJECTS)
    check(chosen.data, objects, "dataset/caltech")
    starts = chosen.starts or (2 if chosen.quick else 20)
    # By default all cameras draw the same noise precision: a few tell enough.
    counts = {"printed": starts, "dadmm": min(starts, 2)}
    todo = cases("caltech", objects, NETWORKS, counts)
    work = partial(
        outcome, folder=chosen.data, most=200 if chosen.quick else 1000, patient=True
    )
    rows, out = conduct(chosen, "caltech", todo, work)
    for name, setting in product(objects, SETTINGS):
        own, title = select(rows, data=name), OBJECTS[name]
        print_table(own, setting, "centralised", f"{title}, ")
        draw_angles(own, setting, "centralised", out, f"{title}-{setting}")


if __name__ == "__main__":
    main()
