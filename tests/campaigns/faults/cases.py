"""The runs of a campaign: a kind of fault and a seed decide everything but the clock.

What happens to a run is drawn in ``strikes.py``.
"""

from typing import Any, NamedTuple

import numpy as np

KINDS = (
    "kill", "signal", "freeze", "full_disk", "slow_disk", "corrupt", "delay", "loss",
    "error", "stand", "cut", "lag", "readonly", "unlike", "twice", "foreign",
)  # fmt: skip
WATCHED = KINDS[8:]  # jobs that launch/local starts
PPCA = ("--problem", "ppca", "--n-components", 2)
PROBLEMS = {
    "ppca": PPCA, "gaps": (*PPCA, "--missing-fraction", 0.1),
    **{name: ("--problem", name) for name in ("ridge", "lasso", "huber", "logistic")},
}  # fmt: skip
GRAPHS = ("ring", "complete", "chain", "star", "ring,star", "erdos-renyi")
SCHEMES = (
    "snap", "fixed", "vp", "ap", "nap", "vp_ap", "vp_nap", "global_balance",
)  # fmt: skip
SENDING = {
    "everything": (),
    "float32": ("--payload", "float32"),
    "quantised": ("--payload", "quantised:5"),
    "censored": ("--censor", 1e-2),
    "every": ("--send-every", 3),
    "asleep": ("--edge-sleep", 0.2),
    "most": ("--payload", "quantised:6", "--censor", 1e-2, "--send-every", 2),
}
EXTRAS = (
    ("--schedule", "matchings"), ("--agreement", "global"), ("--record-edges",),
    ("--init", "independent"), ("--stopping", "residuals"),
)  # fmt: skip


class Case(NamedTuple):
    """A run, and the kind of fault that befalls it."""

    kind: str
    seed: int
    ranks: int
    nodes: int
    max_iter: int
    every: int  # iterations between checkpoints, or about as many by the clock
    settings: tuple[str, ...]  # that decide the result
    saving: tuple[str, ...] = ()  # that do not
    words: str = ""  # what was drawn, in short

    def rng(self, purpose: int) -> np.random.Generator:
        """Return a stream of its own for each purpose."""
        return np.random.default_rng([self.seed, KINDS.index(self.kind), purpose])


def pick(rng: np.random.Generator, options: Any) -> Any:
    options = tuple(options)
    return options[int(rng.integers(len(options)))]


def draw(kind: str, seed: int, per_rank: int = 1) -> Case:
    """Return a case, with several nodes per rank if asked.

    Survivors of a loss can bring their run to the optimum of their own data.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind), 0])
    words: list[Any]
    if kind == "loss":
        ranks = nodes = int(rng.integers(4, 7))
        drawn = [pick(rng, each) for each in (
            ("ridge", "huber", "logistic"), GRAPHS, ("snap", "fixed", "nap"),
        )]  # fmt: skip
        rows, dimension, max_iter, tolerance = 30 * ranks, 4, 3000, 1e-7
        words = [*PROBLEMS[drawn[0]], "--alpha", float(ranks)]
    else:
        ranks = int(rng.integers(3, 5 if kind in WATCHED else 6))
        nodes = ranks * per_rank
        drawn = [pick(rng, each) for each in (PROBLEMS, GRAPHS, SCHEMES, SENDING)]
        rows, dimension, max_iter, tolerance = 12 * nodes, 5, rng.integers(60, 300), 0.0
        extras = [extra for extra in EXTRAS if rng.random() < 0.2]
        if drawn[1] == "ring,star" and extras[:1] == [EXTRAS[0]]:  # which has turns
            del extras[0]
        words = [*PROBLEMS[drawn[0]], *SENDING[drawn[3]]]
        words += [word for extra in extras for word in extra]
        drawn += [extra[-1] for extra in extras]
    words += ["--topology", drawn[1], "--scheme", drawn[2], "--n-samples", rows]
    words += ["--dimension", dimension, "--data-seed", seed]
    words += ["--max-iter", max_iter, "--tolerance", tolerance]
    every = int(rng.integers(3, 100 if kind == "loss" else max_iter // 4))
    saving = ("--checkpoint-every", str(every), "--checkpoint-seconds", "0")
    if kind != "loss" and rng.random() < 0.25:
        saving = ("--checkpoint-seconds", f"{rng.uniform(0.02, 0.2):.3f}")
    settings = tuple(map(str, words))
    return Case(
        kind, seed, ranks, nodes, int(max_iter), every, settings, saving,
        " ".join(drawn),
    )  # fmt: skip
