"""How soon does D-PPCA find the centralised subspace: `auto` and the paper's schemes.

    python -m benchmarks.bench_dppca [--quick] [--data FILE.mat] [--out DIR]

The goal: every node is within 1 degree of the centralised subspace and within 1e-2
(relative) of the mean of all nodes. Counted are the first iteration within the goal,
and the iteration from which on all nodes stay within it (see `trials`); both at most
600. 20 nodes, on samples drawn with seed 0 or on the authors' own.

`auto` has no settings and ignores eta0, which is checked on the first start. The
paper's schemes run with relaxation 1, their default; `fixed` and `nap` also with 1.6,
which is what `auto` uses. Each has the eta0 (1, 10 or 100) and the t_max or first
budget that is soonest within the goal for good on the first start. Medians are over
20 starts.

Then whole runs of `auto` with all defaults, from merged axes (one run each) and from
random starts: iterations until the stop, and how far the worst node is then from the
centralised solution.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np

import dadmm
from benchmarks.shared.cases import instance
from benchmarks.shared.commands import OUT, print_markdown, say
from benchmarks.shared.experiment import arguments, run_all, write_rows
from benchmarks.shared.trials import Outcome, Trial, outcome, row, run
from dadmm.graphs import topology
from dadmm.problems import metrics

NODES = 20
GRAPHS = ("complete", "cluster", "ring")
INITS = ("shared", "independent")
AIMS = {
    ("shared", "complete"): 25, ("shared", "cluster"): 40, ("shared", "ring"): 60,
    ("independent", "complete"): 27, ("independent", "cluster"): 50,
    ("independent", "ring"): 120,
}  # fmt: skip
STOPS = {"complete": 95, "cluster": 130, "ring": 200}  # aims of whole runs
MERGED_STOP = 30
ETAS = (10.0, 100.0, 1.0)
T_MAX, BUDGETS = (10, 20, 30, 50, 100), (1.0, 5.0, 20.0)
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "fixed": [{}],
    **{name: [{"t_max": t} for t in T_MAX] for name in ("vp", "ap", "vp_ap")},
    **{name: [{"budget0": b} for b in BUDGETS] for name in ("nap", "vp_nap")},
}
RELAXED = ("fixed", "nap")  # that are run with relaxation 1.6, too
# With 0, numpy would draw the shared start from the very stream that drew the samples'
# true subspace: default_rng([0, 0]) is default_rng(0).
FIRST = 1
NEVER = float("inf")
Row = dict[str, Any]


def auto_trials(problem: str, starts: int) -> list[Trial]:
    """Return the runs of `auto`: all starts, and the first one with every eta0."""
    return [
        Trial(problem, graph, NODES, start, "auto", 1.6, eta0, init)
        for init, graph, start in product(INITS, GRAPHS, range(FIRST, FIRST + starts))
        for eta0 in (sorted(ETAS) if start == FIRST else [1.0])
    ]


def searches(problem: str) -> list[Trial]:
    """Return the searches of the paper's schemes; their eta0 of 0 stands for all."""
    return [
        Trial(problem, graph, NODES, FIRST, scheme, alpha, 0.0, init)
        for alpha, schemes in ((1.0, SETTINGS), (1.6, RELAXED))
        for init, graph, scheme in product(INITS, GRAPHS, schemes)
    ]


def search(trial: Trial) -> Row:
    """Run a scheme with every eta0 and setting; return the best one's row.

    The best is the soonest within the goal for good; where no run stays there, it is
    the first within it. A run is given up when it is outside the goal later than the
    best run so far.
    """
    best, least = (trial, Outcome(None, None, "")), (NEVER, NEVER)
    for eta0, setting in product(ETAS, SETTINGS[trial.scheme]):
        one = replace(trial, eta0=eta0, **setting)
        found = run(replace(one, cap=best[1].for_good))
        rank = (found.for_good or NEVER, found.first or NEVER)
        if best[0] is trial or rank < least:
            best, least = (one, found), rank
    return row(best[0], trial.scheme, best[1])


def again(chosen: Iterable[Row], start: int) -> list[Trial]:
    """Return the chosen settings from another start, where they got there at all."""
    names = [field.name for field in fields(Trial)]
    trials = [Trial(**{k: r[k] for k in names}) for r in chosen if r["first"]]
    return [replace(trial, seed=start) for trial in trials]


def middle(rows: Sequence[Row], column: str) -> float:
    """Return the median over starts; a run that did not get there is infinite."""
    return median(r[column] or NEVER for r in rows)


def place(row: Row) -> tuple[str, ...]:
    """Return what a median over starts is taken for."""
    return row["init"], row["graph"], row["label"]


def told(count: float) -> str:
    """Return a number of iterations, or a dash if infinite."""
    return f"{count:g}" if count < NEVER else "-"


def spread(counts: Sequence[float]) -> str:
    """Return the median of numbers of iterations, and the least and most of several."""
    least, centre, most = map(told, (min(counts), median(counts), max(counts)))
    return f"{centre} ({least} to {most})" if len(counts) > 1 else centre


def print_auto(rows: Sequence[Row]) -> None:
    """Print `auto` beside its aims; a dash where the cap came first."""
    lines = []
    for init, graph in product(INITS, GRAPHS):
        auto = [r for r in rows if place(r) == (init, graph, "auto")]
        start = {(r["first"], r["for_good"]) for r in auto if r["seed"] == FIRST}
        assert len(start) == 1, f"auto depends on eta0: {start}"
        auto = [r for r in auto if r["eta0"] == 1.0]
        aim, columns = AIMS[init, graph], ("first", "for_good")
        cells = [spread([r[column] or NEVER for r in auto]) for column in columns]
        met = "yes" if middle(auto, "for_good") <= aim else "no"
        lines.append([f"{init}, {graph}", aim, *cells, met])
    print("\nmedian of auto (least to most)\n")
    head = "start, graph", "aim", "first", "for good", "aim met, for good"
    print_markdown(head, lines)


def whole(trial: Trial, data: str = "") -> Row:
    """Run `auto` until it stops; return its row."""
    case = instance(trial.problem, trial.n_nodes, trial.seed, data)
    graph = topology.build(trial.graph, trial.n_nodes)
    result = dadmm.solve(
        case.problems, graph, init=trial.init, seed=trial.seed, record=False
    )
    W, goal = result.layout.views(result.theta).W, case.goal.W
    want = goal @ goal.T
    off = np.linalg.norm(W @ W.mT - want, axis=(1, 2)) / np.linalg.norm(want)
    return {
        "problem": trial.problem, "graph": trial.graph, "init": trial.init,
        "seed": trial.seed, "iterations": result.iterations, "status": result.status,
        "angle": float(metrics.subspace_angle(W, goal).max()),
        "length_error": float(off.max()), "bytes": int(result.traffic.bytes),
        "tree_bytes": int(np.sum(result.traffic.tree_bytes)),
        "dadmm": dadmm.__version__,
    }  # fmt: skip


def whole_trials(problem: str, starts: int) -> list[Trial]:
    """Return the whole runs of `auto`; merged axes do not depend on a seed."""
    drawn = list(product(INITS, range(FIRST, FIRST + starts)))
    return [
        Trial(problem, graph, NODES, start, "auto", 1.6, 1.0, init)
        for graph in GRAPHS
        for init, start in [("merged", FIRST), *drawn]
    ]


def print_whole(rows: Sequence[Row]) -> None:
    """Print the whole runs of `auto`."""
    lines = []
    for init, graph in product(("merged", *INITS), GRAPHS):
        own = [r for r in rows if (r["init"], r["graph"]) == (init, graph)]
        ends = [r["iterations"] for r in own]
        done = sum(r["status"] == "stationary" for r in own)
        lines.append([
            f"{init}, {graph}", MERGED_STOP if init == "merged" else STOPS[graph],
            spread(ends), f"{done} of {len(own)}",
            f"{max(r['angle'] for r in own):.3f}",
            f"{100 * max(r['length_error'] for r in own):.2f} %",
        ])  # fmt: skip
    head = ("start, graph", "aim", "iterations", "stationary", "angle, degrees",
            "W W' off by")  # fmt: skip
    print("\nwhole runs of auto: median (least to most); largest errors\n")
    print_markdown(head, lines)


def print_paper(rows: Sequence[Row]) -> None:
    """Print the medians of the paper's schemes, first / for good."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for each in rows:
        groups.setdefault(place(each), []).append(each)
    labels = [*SETTINGS, *(f"{name} 1.6" for name in RELAXED)]
    lines = []
    for init, graph in product(INITS, GRAPHS):
        cells = [f"{init}, {graph}"]
        for label in labels:
            own = groups[init, graph, label]
            count = " / ".join(told(middle(own, k)) for k in ("first", "for_good"))
            cells.append(f"{count} ({own[0]['eta0']:g})")
        lines.append(cells)
    print("\nmedian: first / for good (eta0)\n")
    print_markdown(("start, graph", *labels), lines)


def main() -> None:
    chosen = arguments(__doc__, "the authors' .mat file instead of drawn samples")
    problem = "dppca-authors" if chosen.data else "dppca"
    starts = chosen.starts or (2 if chosen.quick else 20)
    out = chosen.out or OUT / problem
    data = str(chosen.data.resolve()) if chosen.data else ""
    work = partial(outcome, data=data)
    folder, jobs = out / "runs", chosen.jobs
    rows = run_all(auto_trials(problem, starts), work, folder, jobs)
    print_auto(rows)
    ends = run_all(
        whole_trials(problem, starts), partial(whole, data=data), out / "whole", jobs
    )
    print_whole(ends)
    write_rows(ends, out / f"{problem}-whole.csv")
    if not chosen.data:
        found = run_all(searches(problem), search, folder, jobs)
        for start in range(FIRST + 1, FIRST + starts):
            rows += run_all(again(found, start), work, folder, jobs)
        rows += found
        print_paper([r for r in rows if r["scheme"] != "auto"])
    write_rows(rows, out / f"{problem}.csv")
    say(f"rows in {out}")


if __name__ == "__main__":
    main()
