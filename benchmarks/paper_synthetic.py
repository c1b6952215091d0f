"""The paper's synthetic experiment: six schemes, five graphs, twenty starts.

    python -m benchmarks.paper_synthetic [--quick] [--data FILE.mat] [--out DIR]

Without --data the samples are drawn with seed 0, and no file is needed. The authors'
own samples are a .mat file with X (20, 500) and GT (20, 5); PAPER.md says where to get
it. Writes rows.csv and, with matplotlib, figures.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.shared.experiment import (
    ARCHIVE,
    SCHEMES,
    SETTINGS,
    Case,
    arguments,
    readable,
    run_all,
    run_case,
    say,
    write_rows,
)
from benchmarks.shared.report import draw_angles, print_table
from dadmm.data import datasets
from dadmm.data.shard import split
from dadmm.problems import PPCA, metrics

GRAPHS = (
    ("complete", 12),
    ("complete", 16),
    ("complete", 20),
    ("ring", 20),
    ("cluster", 20),
)


@cache
def samples_and_truth(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Return samples (500, 20) and true W (20, 5): drawn, or the authors' own."""
    if data.startswith("seed"):
        return datasets.synthetic(seed=int(data.removeprefix("seed")))
    samples = datasets.load_matrix(f"{data}::X").T.copy()
    return samples, datasets.load_matrix(f"{data}::GT")


def outcome(case: Case, data: str | None = None) -> dict:
    """Run one case."""
    samples, truth = samples_and_truth(data or case.data)
    shards = split(samples, case.n_nodes)
    problems = [PPCA(shard, 5) for shard in shards]
    best = metrics.ppca_reference(samples, 5)
    targets = {"truth": truth, "centralised": best.W}
    longest = 300 if case.setting == "printed" else 1000
    return run_case(case, problems, shards, targets, longest)


class Work:
    """`outcome` for a data file, in a form that can be sent to another process."""

    def __init__(self, data: str) -> None:
        self.data = data

    def __call__(self, case: Case) -> dict:
        return outcome(case, self.data)


def cases(data: str, starts: int, quick: bool) -> list[Case]:
    """Return all runs of the experiment."""
    graphs = (("complete", 12), ("ring", 20)) if quick else GRAPHS
    return [
        Case("synthetic", data, setting, graph, n, scheme, 50, start)
        for setting, (graph, n), scheme, start in product(
            SETTINGS, graphs, SCHEMES, range(starts)
        )
    ]


def main() -> None:
    chosen = arguments(__doc__, "the authors' .mat file instead of generated samples")
    data = str(chosen.data.resolve()) if chosen.data else "seed0"
    advice = (
        f"get the authors' file from dataset/synthetic of {ARCHIVE}, or leave out "
        "--data to draw samples"
    )
    readable(advice, samples_and_truth, data)
    name = chosen.data.stem if chosen.data else data
    out = chosen.out or Path(__file__).parent / "out" / f"synthetic-{name}"
    starts = chosen.starts or (2 if chosen.quick else 20)
    todo = cases(name, starts, chosen.quick)
    rows = run_all(todo, Work(data), out / "runs", chosen.jobs)
    write_rows(rows, out / "rows.csv")
    for setting in SETTINGS:
        print_table(rows, setting)
        draw_angles(rows, setting, "truth", out)
    say(f"rows and figures in {out}")


if __name__ == "__main__":
    main()
