"""What the paper says of its schemes in words, measured on its synthetic data.

    python -m benchmarks.paper_variants [--quick] [--data FILE.mat] [--out DIR]

Every run is as printed (`--config as-printed`) but for the setting that a variant
names, and does exactly 300 iterations. Writes rows.csv; `paper_claims` prints tables.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import dadmm
from benchmarks.paper_synthetic import NETWORKS, samples_and_truth
from benchmarks.shared.experiment import (
    PRINTED,
    SETTINGS,
    arguments,
    conduct,
    file_name,
)
from benchmarks.shared.observers import Angles, PaperRule, consensus_error
from benchmarks.shared.rejected import VPKept, VPTau
from dadmm import penalty
from dadmm.admm.loop import Run
from dadmm.data.shard import split
from dadmm.graphs.topology import GRAPHS
from dadmm.problems import PPCA, metrics
from dadmm.solver.solve import grouped

SCHEMES: dict[str, type[penalty.Scheme]] = {
    **{name: penalty.SCHEMES[name] for name in ("fixed", "vp", "ap", "nap", "vp_ap")},
    "vp_kept": VPKept,
    "vp_tau": VPTau,
}
# Variants by name: a scheme, and the settings in which it differs from what is printed.
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in SCHEMES}
CHANGED: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"{name}, eta0 = {eta0:g}": (name, {"eta0": eta0})
        for name in ("fixed", "vp", "ap", "nap")
        for eta0 in (1.0, 100.0)
    },
    "nap, T = 0.5": ("nap", {"budget0": 0.5}),
    "nap, T = 50": ("nap", {"budget0": 50.0}),
    "nap, alpha = 0.9": ("nap", {"budget_decay": 0.9}),
    "nap, beta = 0.01": ("nap", {"budget_trigger": 0.01}),
    "nap, beta = 0.9": ("nap", {"budget_trigger": 0.9}),
    "vp, mu = 2": ("vp", {"residual_ratio": 2.0}),
    "vp, t_max = 20": ("vp", {"t_max": 20}),
    "ap, t_max = 20": ("ap", {"t_max": 20}),
    "vp, one penalty per edge": ("vp", {"coupling": "symmetric"}),
    "vp_kept, one penalty per edge": ("vp_kept", {"coupling": "symmetric"}),
}
VARIANTS = PLAIN | CHANGED
LENGTH, LAST = 300, 250  # iterations of a run, and those after t_max
STAGES = (5, 10, 20, 49)  # iterations of which a row has penalties and agreement
OF_SCHEMES = ("eta0", "t_max", "residual_ratio", "budget0", "budget_decay",
              "budget_trigger", "relaxation", "coupling", "probe")  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One run: a key of VARIANTS on a graph, from a start."""

    data: str
    graph: str
    n_nodes: int
    variant: str
    start: int
    setting: str = "printed"

    @property
    def name(self) -> str:
        """A file name that tells the run, and its settings by a hash."""
        words = (f"{self.graph}{self.n_nodes}", self.variant.replace(" ", ""))
        told = (self.data, VARIANTS[self.variant], SETTINGS[self.setting])
        return file_name((*words, f"s{self.start}"), *told)


class Stages:
    """A callback that keeps penalties over eta0 and the consensus error, by stage."""

    def __init__(self, eta0: float) -> None:
        self._eta0 = eta0
        self.found: dict[str, float] = {}

    def __call__(self, t: int, run: Run) -> None:
        if t in STAGES:
            self.found[f"eta_{t}"] = float(np.mean(run.state.eta)) / self._eta0
            self.found[f"consensus_{t}"] = consensus_error(run.theta)


def swing(values: np.ndarray) -> float:
    """Return how far values move to and fro: all moves, less the net one."""
    moves = np.diff(values)
    return float(np.abs(moves).sum() - abs(moves.sum()))


def outcome(case: Variant, data: str | None = None) -> dict[str, Any]:
    samples, truth = samples_and_truth(data or case.data)
    problems = [PPCA(shard, 5) for shard in split(samples, case.n_nodes)]
    best = metrics.ppca_reference(samples, 5)
    targets = {"truth": truth, "centralised": best.W}
    scheme, changes = VARIANTS[case.variant]
    of_scheme = {name: PRINTED[name] for name in OF_SCHEMES} | changes
    made = SCHEMES[scheme](**of_scheme)
    angles, paper = Angles(problems[0].layout, targets), PaperRule()
    stages = Stages(of_scheme["eta0"])
    others = {k: v for k, v in SETTINGS["printed"].items() if k not in OF_SCHEMES}
    dadmm.solve(
        problems,
        GRAPHS[case.graph](case.n_nodes, 0),
        callbacks=[angles, paper, stages],
        **grouped(
            others | {"scheme": made, "seed": case.start, "max_iter": LENGTH,
                      "tolerance": 0.0, "record": False}
        ),
    )  # fmt: skip
    curves = {name: np.array(curve) for name, curve in angles.curves.items()}
    totals = np.array(paper.totals)
    row = vars(case) | changes | {
        "iterations": paper.stop or LENGTH,
        "angle_last": float(curves["centralised"][-1]),
        "swing_angle": swing(curves["centralised"][-LAST:]),
        "swing_likelihood": swing(totals[-LAST:]),
    }  # fmt: skip
    for t in STAGES:
        row[f"likelihood_{t}"] = float(totals[t - 1])
    for name, level in (("truth", 5), ("centralised", 1)):
        below = np.flatnonzero(curves[name] < level)
        row[f"first_{name}_{level}"] = int(below[0]) + 1 if len(below) else None
    return row | stages.found | {"dadmm": dadmm.__version__}


def cases(
    data: str, networks: Iterable[tuple[str, int, int]], starts: int, changed: int
) -> list[Variant]:
    """Return all runs; variants with other settings have so many starts."""
    return [
        Variant(data, graph, n_nodes, variant, start)
        for graph, n_nodes, _ in networks
        for variant in VARIANTS
        for start in range(changed if variant in CHANGED else starts)
    ]


def main() -> None:
    chosen = arguments(__doc__, "the authors' .mat file instead of generated samples")
    data = str(chosen.data.resolve()) if chosen.data else "seed0"
    name = chosen.data.stem if chosen.data else data
    starts = chosen.starts or (1 if chosen.quick else 20)
    networks = NETWORKS[:1] if chosen.quick else NETWORKS
    todo = cases(name, networks, starts, min(starts, 5))
    conduct(chosen, f"variants-{name}", todo, partial(outcome, data=data))


if __name__ == "__main__":
    main()
