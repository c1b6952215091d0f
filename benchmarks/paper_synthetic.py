"""The paper's synthetic experiment: six schemes, five graphs, twenty starts.

    python -m benchmarks.paper_synthetic [--quick] [--data FILE.mat] [--out DIR]

Without --data the samples are drawn with seed 0, and no file is needed. The authors'
own samples are a .mat file with X (20, 500) and GT (20, 5); PAPER.md says where to get
it. Writes rows.csv and, with matplotlib, figures; `paper_claims` prints tables.
"""

from functools import cache, partial

import numpy as np

from benchmarks.shared import experiment
from benchmarks.shared.report import draw_angles
from dadmm.data import datasets
from dadmm.data.shard import split
from dadmm.problems import PPCA, metrics

NETWORKS = (("complete", 12, 50), ("complete", 16, 50), ("complete", 20, 50),
            ("ring", 20, 50), ("cluster", 20, 50))  # fmt: skip


@cache
def samples_and_truth(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Return samples (500, 20) and true W (20, 5): drawn, or the authors' own."""
    if data.startswith("seed"):
        return datasets.synthetic(seed=int(data.removeprefix("seed")))
    samples = datasets.load_array(f"{data}::X").T.copy()
    return samples, datasets.load_array(f"{data}::GT")


def outcome(case: experiment.Case, data: str | None = None) -> dict:
    samples, truth = samples_and_truth(data or case.data)
    shards = split(samples, case.n_nodes)
    problems = [PPCA(shard, 5) for shard in shards]
    best = metrics.ppca_reference(samples, 5)
    targets = {"truth": truth, "centralised": best.W}
    longest = 300 if case.setting == "printed" else 1000
    return experiment.run_case(case, problems, shards, targets, longest)


def main() -> None:
    words = "the authors' .mat file instead of generated samples"
    chosen = experiment.arguments(__doc__, words)
    data = str(chosen.data.resolve()) if chosen.data else "seed0"
    advice = (
        f"get the authors' file from dataset/synthetic of {experiment.ARCHIVE}, or "
        "leave out --data to draw samples"
    )
    experiment.readable(advice, samples_and_truth, data)
    name = chosen.data.stem if chosen.data else data
    starts = chosen.starts or (2 if chosen.quick else 20)
    networks = (NETWORKS[0], NETWORKS[3]) if chosen.quick else NETWORKS
    todo = experiment.cases(
        "synthetic", [name], networks, dict.fromkeys(experiment.SETTINGS, starts)
    )
    work = partial(outcome, data=data)
    rows, out = experiment.conduct(chosen, f"synthetic-{name}", todo, work)
    for setting in experiment.SETTINGS:
        draw_angles(rows, setting, "truth", out)


if __name__ == "__main__":
    main()
