"""What does accuracy cost: bytes, messages and modelled seconds, by scheme and sending.

    python -m benchmarks.bench_communication [--quick] [--out DIR] [--jobs N]

Two problems on 20 nodes, on ring and complete graph: logistic regression of the breast
cancer data (569 rows, 31 parameters; every node within 1e-6, relative, of the optimum)
and D-PPCA of the paper's synthetic data (121 parameters; every node within 1 degree of
the centralised subspace and 1e-2 of the mean). Everything is counted until all nodes
are within the goal for good (see `trials`); iterations and bytes until they are first
within it are also written. `fixed` has its best eta, found by a search without
compression; `nap` and `snap` have their defaults. Seconds are those of `dadmm.replay`
on three networks with 0.1 ms of work per node and iteration.

Writes results/communication.csv and figures/communication-*.png beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.cases import Goal, Near, instance
from benchmarks.shared.commands import OUT, RESULTS
from benchmarks.shared.communication_report import draw_pareto, print_tables
from benchmarks.shared.experiment import arguments, file_name, run_all, write_rows
from benchmarks.shared.trials import Arrival, Outcome, best_penalty
from dadmm.admm.loop import Run
from dadmm.comm.sending import Sending
from dadmm.core.interfaces import Problem
from dadmm.data.shard import split
from dadmm.graphs.topology import GRAPHS
from dadmm.problems import LogisticRegression
from dadmm.timing.network import Network
from dadmm.timing.replay import Replay
from dadmm.timing.trace import Trace

NODES, CAP = 20, 1500
NETWORKS = ("lan", "wan", "wireless")
WORK = 1e-4  # seconds of a node's local problem, for the modelled time
SENDINGS: dict[str, dict[str, Any]] = {
    "float64": {},
    "float32": {"payload": "float32"},
    "float16": {"payload": "float16"},
    "8 bits": {"payload": "quantised:8"},
    "4 bits": {"payload": "quantised:4"},
    "3 bits": {"payload": "quantised:3"},
    "2 bits": {"payload": "quantised:2"},
    "censored": {"censor": 0.03, "censor_decay": 0.95},
    "every 2": {"send_every": 2},
    "sleeping": {"edge_sleep": 0.3},
    "4 bits, censored": {
        "payload": "quantised:4", "censor": 0.03, "censor_decay": 0.95,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Talk:
    """One run."""

    problem: str
    graph: str
    scheme: str
    eta0: float | str
    sending: str
    cap: int = CAP

    @property
    def name(self) -> str:
        """A name that no other run has."""
        words = (self.problem, self.graph, self.scheme)
        return file_name(words, asdict(self), SENDINGS[self.sending])


@lru_cache(maxsize=4)
def setting(problem: str) -> tuple[Sequence[Problem], Goal, Any]:
    """Return the nodes' problems, the goal, and a measure of the error."""
    if problem == "ppca":
        case = instance("dppca", NODES, 1)
        goal: Any = case.goal

        def angle(theta: np.ndarray) -> float:  # in degrees, the largest
            own = goal.layout.views(theta).W
            return float(dadmm.metrics.subspace_angle(own, goal.W).max())

        return case.problems, goal, angle
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    order = np.random.default_rng(0).permutation(len(X))
    blocks = split(np.column_stack([X, y])[order], NODES)
    nodes = [LogisticRegression(b[:, :-1], b[:, -1], alpha=1 / NODES) for b in blocks]
    pooled = LogisticRegression(X, y, alpha=1.0)
    zero = np.zeros(pooled.layout.size)
    optimum = pooled.prox(zero, None, zero, 0.0)
    size = np.linalg.norm(optimum)

    def error(theta: np.ndarray) -> float:
        return float(np.linalg.norm(theta - optimum, axis=1).max() / size)

    return nodes, Near(optimum), error


class Watch:
    """Note the error and what was sent, until it is known when the nodes arrived."""

    def __init__(self, goal: Goal, error: Any, cap: int) -> None:
        self.goal, self.error, self.arrival = goal, error, Arrival(cap)
        self.errors: list[float] = []
        self.sent: list[np.ndarray] = []
        self.silent: list[int] = []  # so far

    def __call__(self, t: int, run: Run) -> str | None:
        self.errors.append(self.error(run.theta))
        self.sent.append(run.by_edge(run.exchange.lengths))
        self.silent.append(int(run.state.sending.get("silent", np.zeros(1)).sum()))
        return "stop" if self.arrival.known(t, self.goal(run.theta)) else None


def work(talk: Talk) -> dict[str, Any]:
    """Run until the goal is reached for good and return what it took."""
    problems, goal, error = setting(talk.problem)
    graph = GRAPHS[talk.graph](NODES, 0)
    watch = Watch(goal, error, talk.cap)
    result = dadmm.solve(
        problems, graph, scheme=dadmm.penalty.build(talk.scheme, eta0=talk.eta0),
        stopping=dadmm.Stopping(tolerance=0, max_iter=watch.arrival.longest),
        sending=Sending(**SENDINGS[talk.sending]), seed=1, record=False,
        callbacks=[watch], coordinates="raw",
    )  # fmt: skip
    first, for_good = watch.arrival.first, watch.arrival.for_good
    sent = np.array(watch.sent, dtype=float)
    opening = result.traffic.edge_bytes - sent.sum(axis=0)
    total = opening.sum() + np.cumsum(sent.sum(axis=1))
    outcome = asdict(talk) | {"first": first, "for_good": for_good}
    if first:
        outcome["first_bytes"] = int(total[first - 1])
    if for_good:
        outcome |= {
            "messages": len(graph.edges) * (for_good + 1),
            "bytes": int(total[for_good - 1]),
            "silent": watch.silent[for_good - 1],
        }
        none = np.zeros((for_good, NODES))
        times = (none + WORK, none, none, none)
        trace = Trace(graph.edges, *times, sent[:for_good], opening)
        for name in NETWORKS:
            outcome[f"{name}_seconds"] = Replay(trace, Network.read(name)).seconds
    keep = np.unique(np.geomspace(1, len(total), 120).astype(int)) - 1
    outcome["curves"] = {
        "bytes": total[keep].tolist(),
        "error": np.array(watch.errors)[keep].tolist(),
    }
    return outcome | {"dadmm": dadmm.__version__, "numpy": np.__version__}


def best_eta(problem: str, graph: str, out: Path) -> float:
    """Return the eta with which `fixed` is soonest within the goal for good."""

    def attempt(eta: float, cap: int) -> Outcome:
        talk = Talk(problem, graph, "fixed", eta, "float64", cap)
        (row,) = run_all([talk], work, out, 1)
        return Outcome(row["first"], row["for_good"], "")

    return best_penalty(attempt, 0, CAP, wide=True)[0]


def main() -> None:
    """Run all, print the tables, write rows and figures."""
    given = arguments(__doc__)
    given.out = given.out or OUT / "communication"
    problems = ("logistic",) if given.quick else ("logistic", "ppca")
    graphs = ("ring",) if given.quick else ("ring", "complete")
    names = list(SENDINGS)[:5] if given.quick else list(SENDINGS)
    talks = []
    for problem, graph in product(problems, graphs):
        eta = 1.0 if given.quick else best_eta(problem, graph, given.out)
        schemes = {"fixed": eta, "nap": 10.0, "snap": "auto"}
        talks += [
            Talk(problem, graph, scheme, eta0, name)
            for (scheme, eta0), name in product(schemes.items(), names)
        ]
    rows = run_all(talks, work, given.out, given.jobs)
    print_tables(rows)
    target = given.out if given.quick else RESULTS.parent
    (target / "results").mkdir(exist_ok=True)
    write_rows(rows, target / "results" / "communication.csv")
    for path in draw_pareto(rows, target / "figures"):
        print(path)


if __name__ == "__main__":
    main()
