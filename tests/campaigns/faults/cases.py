"""The cases of a campaign: a kind of fault and a seed decide everything but the clock.

What is run is drawn here: problem, graph, scheme, way of sending, checkpoints. What
happens to it is drawn in ``strikes.py``.
"""

from typing import Any, NamedTuple

import numpy as np

KINDS = (
    "kill", "signal", "freeze", "full_disk", "slow_disk", "corrupt", "delay", "loss",
    "error", "stand", "cut", "lag", "readonly", "unlike", "twice", "foreign",
)  # fmt: skip
WATCHED = KINDS[8:]  # by launch/local; see watched.py

PROBLEMS = {
    "ppca": ("--n-components", 2),
    "gaps": ("--n-components", 2, "--missing-fraction", 0.1),
    "ridge": (), "lasso": (), "huber": (), "logistic": (),
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
    "most": (
        "--payload", "quantised:6", "--censor", 1e-2, "--send-every", 2,
    ),
}  # fmt: skip


class Case(NamedTuple):
    """A run, and the kind of fault that befalls it."""

    kind: str
    seed: int
    ranks: int
    max_iter: int
    every: int  # iterations between checkpoints, or about as many by the clock
    settings: tuple[str, ...]  # that decide the result
    saving: tuple[str, ...]  # that do not
    words: str  # what was drawn, in short
    nodes: int

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.seed}"

    def rng(self, purpose: int) -> np.random.Generator:
        """Return a stream of its own for each purpose."""
        return np.random.default_rng([self.seed, KINDS.index(self.kind), purpose])


def pick(rng: np.random.Generator, options: Any) -> Any:
    options = tuple(options)
    return options[int(rng.integers(len(options)))]


def draw(kind: str, seed: int, per_rank: int = 1) -> Case:
    """Return a case, with several nodes per rank if asked."""
    rng = np.random.default_rng([seed, KINDS.index(kind), 0])
    if kind == "loss":
        return _draw_convex(kind, seed, rng)
    ranks = int(rng.integers(3, 5 if kind in WATCHED else 6))
    problem, graph, scheme = (pick(rng, x) for x in (PROBLEMS, GRAPHS, SCHEMES))
    sending = pick(rng, SENDING)
    nodes, max_iter = ranks * per_rank, int(rng.integers(60, 300))
    words: list[Any] = ["--problem", "ppca" if problem == "gaps" else problem]
    words += [*PROBLEMS[problem], *SENDING[sending], "--topology", graph]
    words += ["--scheme", scheme, "--n-samples", 12 * nodes, "--dimension", 5]
    words += ["--data-seed", seed, "--max-iter", max_iter, "--tolerance", 0]
    extras = [
        ("--schedule", "matchings"), ("--agreement", "global"), ("--record-edges",),
        ("--init", "independent"), ("--stopping", "residuals"),
    ]  # fmt: skip
    drawn = [extra for extra in extras if rng.random() < 0.2]
    if graph == "ring,star" and drawn[:1] == extras[:1]:  # which has turns
        del drawn[0]
    words += [word for extra in drawn for word in extra]
    every, saving = _draw_saving(rng, max_iter)
    more = " ".join(extra[-1] for extra in drawn)
    return Case(
        kind, seed, ranks, max_iter, every, tuple(map(str, words)), saving,
        f"{problem} {graph} {scheme} {sending} {more}".strip(), nodes,
    )  # fmt: skip


def _draw_saving(
    rng: np.random.Generator, max_iter: int
) -> tuple[int, tuple[str, ...]]:
    every = int(rng.integers(3, max_iter // 4))
    if rng.random() < 0.25:
        seconds = round(float(rng.uniform(0.02, 0.2)), 3)
        return every, ("--checkpoint-seconds", str(seconds))
    return every, ("--checkpoint-every", str(every), "--checkpoint-seconds", "0")


def _draw_convex(kind: str, seed: int, rng: np.random.Generator) -> Case:
    """Return a run that survivors can bring to the optimum of their own data."""
    ranks = int(rng.integers(4, 7))
    problem, graph = pick(rng, ("ridge", "huber", "logistic")), pick(rng, GRAPHS)
    scheme = pick(rng, ("snap", "fixed", "nap"))
    words: list[Any] = ["--problem", problem, "--topology", graph, "--scheme", scheme]
    words += ["--n-samples", 30 * ranks, "--dimension", 4, "--data-seed", seed]
    words += ["--alpha", float(ranks), "--max-iter", 3000, "--tolerance", 1e-7]
    every = int(rng.integers(5, 100))
    saving = ("--checkpoint-every", str(every), "--checkpoint-seconds", "0")
    return Case(
        kind, seed, ranks, 3000, every, tuple(map(str, words)), saving,
        f"{problem} {graph} {scheme}", ranks,
    )  # fmt: skip
