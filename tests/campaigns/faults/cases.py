"""The runs of a campaign: a kind of fault and a seed decide everything but the clock.

What happens to a run is drawn in ``strikes.py``.
"""

from typing import NamedTuple

from tests.campaigns.draw import Draw

KINDS = (
    "kill", "signal", "freeze", "full_disk", "slow_disk", "corrupt", "delay", "loss",
    "error", "stand", "cut", "lag", "readonly", "unlike", "twice", "foreign",
)  # fmt: skip
WATCHED = KINDS[8:]  # jobs that launch/local starts
PROBLEMS = (
    "ppca --n-components 2", "ppca --n-components 2 --missing-fraction 0.1",
    "ridge", "lasso", "huber", "logistic",
)  # fmt: skip
GRAPHS = ("ring", "complete", "chain", "star", "ring,star", "erdos-renyi")
SCHEMES = (
    "snap", "fixed", "vp", "ap", "nap", "vp_ap", "vp_nap", "global_balance",
)  # fmt: skip
SENDING = (
    "", "--payload float32", "--payload quantised:5", "--censor 1e-2",
    "--send-every 3", "--edge-sleep 0.2",
    "--payload quantised:6 --censor 1e-2 --send-every 2",
)  # fmt: skip
EXTRAS = (
    "--agreement global", "--record-edges", "--init independent",
    "--stopping residuals", "--schedule matchings",
)  # fmt: skip


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
        graph, scheme, more = by.pick(GRAPHS), by.pick(("snap", "fixed", "nap")), ""
    else:
        ranks = by.integer(3, 4 if kind in WATCHED else 5)
        nodes = ranks * per_rank
        rows, dimension, max_iter, tolerance = 12 * nodes, 5, by.integer(60, 299), 0.0
        problem, graph, scheme = by.pick(PROBLEMS), by.pick(GRAPHS), by.pick(SCHEMES)
        has_turns = graph == "ring,star"
        extras = [x for x in EXTRAS[: 4 if has_turns else 5] if by.chance(0.2)]
        more = " ".join([by.pick(SENDING), *extras])
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
