"""The runs of a campaign: a kind of fault and a seed decide everything but the clock.

What happens to a run is drawn in ``strikes.py``; tables are in ``faults.toml``.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.campaigns.draw import Draw

KINDS = (
    "kill", "signal", "freeze", "full_disk", "slow_disk", "corrupt", "delay", "loss",
    "error", "stand", "cut", "lag", "readonly", "unlike", "twice", "foreign",
)  # fmt: skip
WATCHED = KINDS[8:]  # jobs that launch/local starts
TABLE = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())


class Case(NamedTuple):
    """A run, and the kind of fault that befalls it."""

    kind: str
    seed: int
    ranks: int
    nodes: int
    max_iter: int
    every: int  # iterations between checkpoints, or about as many by the clock
    settings: str  # that decide the result
    saving: str = ""  # that do not

    def draw(self, purpose: int) -> Draw:
        """Return choices of their own for each purpose."""
        return Draw(self.seed, KINDS.index(self.kind), purpose)


def draw(kind: str, seed: int, per_rank: int = 1) -> Case:
    """Return a case, with several nodes per rank if asked.

    Survivors of a loss can bring their run to the optimum of their own data.
    """
    by = Draw(seed, KINDS.index(kind), 0)
    if kind == "loss":
        ranks = nodes = by.integer(4, 6)
        rows, dimension, max_iter, tolerance = 30 * ranks, 4, 3000, 1e-7
        problem = f"{by.pick(('ridge', 'huber', 'logistic'))} --alpha {ranks}"
        graph, scheme = by.pick(TABLE["graphs"]), by.pick(("snap", "fixed", "nap"))
        more = ""
    else:
        ranks = by.integer(3, 4 if kind in WATCHED else 5)
        nodes = ranks * per_rank
        rows, dimension, max_iter, tolerance = 12 * nodes, 5, by.integer(60, 299), 0.0
        names = ("problems", "graphs", "schemes")
        problem, graph, scheme = (by.pick(TABLE[name]) for name in names)
        extras = TABLE["extras"][: 4 if graph == "ring,star" else 5]  # it has turns
        extras = [extra for extra in extras if by.chance(0.2)]
        more = " ".join([by.pick(TABLE["sending"]), *extras])
    every = by.integer(3, 99 if kind == "loss" else max_iter // 4 - 1)
    saving = f"--checkpoint-every {every} --checkpoint-seconds 0"
    if kind != "loss" and by.chance(0.25):
        saving = f"--checkpoint-seconds {by.uniform(0.02, 0.2):.3f}"
    settings = (
        f"--problem {problem} --topology {graph} --scheme {scheme} {more} "
        f"--n-samples {rows} --dimension {dimension} --data-seed {seed} "
        f"--max-iter {max_iter} --tolerance {tolerance}"
    )
    return Case(kind, seed, ranks, nodes, max_iter, every, settings, saving)
