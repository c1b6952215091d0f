"""Which scheme is fastest, over problems, graphs and starting penalties?

    python -m benchmarks.bench_schemes [--quick | --again FILE] [--caltech DIR]
                                       [--out DIR]

Runs every scheme until all nodes are, for good, as near the known solution as `cases`
says, and searches the best fixed penalty of each case (the oracle). The default is a
balanced sample, see `sample`. --again runs the rows of a schemes.csv once more; the
oracle then searches around its stored penalty.
Writes schemes.csv and, with matplotlib, performance profiles.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.schemes_report import case_of, draw_profiles, print_tables
from benchmarks.shared.cases import CONVEX, NETWORKS
from benchmarks.shared.commands import OUT, parser_of, say
from benchmarks.shared.experiment import read_rows, run_all, write_rows
from benchmarks.shared.schemes import SCHEMES
from benchmarks.shared.trials import Trial, outcome, trial_of

ETAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
FEW_ETAS = (1.0, 100.0)
# Of D-PPCA. With 0, numpy would draw the shared start from the very stream that drew
# the samples' true subspace: default_rng([0, 0]) is default_rng(0).
START = 1
OBJECTS = ("001", "002", "003", "004", "005")
EDGE = [
    (name, alpha) for name in ("edge_balance", "edge_ratio") for alpha in (1.0, 1.6)
]
ALL = [
    *((name, kind.RELAXATION) for name, kind in SCHEMES.items() if name != "auto"),
    *((name, 1.6) for name in ("fixed", "nap", "edge_balance", "edge_ratio")),
]
# A run that is this many times slower than the oracle is given up.
PATIENCE, LEAST_CAP = 5, 100
Case = dict[str, Any]  # the fields of a Trial that say on what schemes are compared


class Plan(NamedTuple):
    """Cases, and which schemes to run on each besides `auto` and the oracle."""

    cases: list[Case]
    schemes: list[tuple[str, float]] = []  # noqa: RUF012 with their relaxation
    etas: Sequence[float] = ()


def cases_of(
    problems: Iterable[str],
    graphs: Iterable[str],
    sizes: Iterable[int],
    seeds: Iterable[int],
    init: str = "shared",
) -> list[Case]:
    """Return every combination."""
    names = ("problem", "graph", "n_nodes", "seed")
    every = product(problems, graphs, sizes, seeds)
    return [dict(zip(names, one, strict=True), init=init) for one in every]


def quick() -> list[Plan]:
    """Return a slice that takes less than a minute."""
    return [
        Plan(cases_of(["quadratic-0.5"], ["complete"], [10], [0]), ALL, FEW_ETAS),
        Plan(cases_of(["dppca"], ["complete"], [10], [START]), ALL, FEW_ETAS),
    ]


def sample() -> list[Plan]:
    """Return the default: a balanced part of the grid.

    With 20 nodes and one seed, every scheme on every problem and graph; each convex
    case has one of the five eta0, in turn, so that each is used equally often. The
    edge schemes have all, to see how much they depend on it. More seeds and other sizes
    are for `auto` against the oracle.
    """
    convex = cases_of(CONVEX, NETWORKS, [20], [0])
    some = ("ring", "grid", "random-geometric")
    turns = [Plan([case], ALL, [ETAS[k % 5]]) for k, case in enumerate(convex)]
    random.Random(0).shuffle(turns)
    return [
        *turns,
        Plan(cases_of(CONVEX, NETWORKS, [20], [1])),
        Plan(cases_of(["quadratic-0.5", "logistic"], some, [10, 50], [0])),
        Plan(cases_of(["quadratic-0.5"], some[1:], [100], [0])),
        Plan(cases_of(["dppca"], some, [10, 50], [START])),
        Plan(cases_of(["dppca"], NETWORKS, [20], [START]), ALL, (1.0, 10.0, 100.0)),
        Plan(cases_of(["dppca"], NETWORKS, [20], [START], "independent"), ALL, [10.0]),
        Plan(convex, EDGE, ETAS),
    ]


def caltech() -> Plan:
    """Return structure from motion by five cameras."""
    objects = [f"caltech-{name}" for name in OBJECTS]
    return Plan(cases_of(objects, ["ring", "complete"], [5], [0]), ALL, [10.0])


def searches(cases: Sequence[Case], found: Sequence[dict] = ()) -> list[Trial]:
    """Return the oracle's searches.

    First those with relaxation 1.6, of the first seed of each place; given what they
    found, those of the other seeds, and without relaxation, start from there.
    """
    start = {place(row): row["eta0"] for row in found}
    seeds = {place(case): case["seed"] for case in reversed(cases)}
    every = []
    for case in cases:
        first = seeds[place(case)] == case["seed"]
        if first or found:
            alpha = 1.0 if first and found else 1.6
            eta0 = start.get(place(case), 0.0)
            every.append(Trial(**case, scheme="oracle", relaxation=alpha, eta0=eta0))
    return every


def place(row: Case) -> tuple[Any, ...]:
    """Return a case but for its seed."""
    return tuple(row[k] for k in ("problem", "graph", "n_nodes", "init"))


def trials(plans: Sequence[Plan], found: Sequence[dict]) -> list[Trial]:
    """Return the runs of all schemes; `auto` once a case, for it ignores eta0."""
    best = {case_of(row): row["for_good"] for row in found if row["relaxation"] == 1.6}
    every: dict[Trial, None] = {}
    for plan in plans:
        group = [
            Trial(**case, scheme="auto", relaxation=SCHEMES["auto"].RELAXATION)
            for case in plan.cases
        ]
        group += [
            Trial(**case, scheme=scheme, relaxation=relaxation, eta0=eta0,
                  cap=cap_of(case, best[case_of(case)]))
            for case, (scheme, relaxation), eta0 in product(*plan)
        ]  # fmt: skip
        random.Random(0).shuffle(group)  # so that the time left is told well
        every |= dict.fromkeys(group)
    return list(every)


def cap_of(case: Case, oracle: int | None) -> int:
    """Return after how many iterations a run is given up."""
    most = 2000 if case["problem"] in CONVEX else 600
    return min(most, max(LEAST_CAP, PATIENCE * oracle)) if oracle else most


def benchmark(
    plans: Sequence[Plan], out: Path, jobs: int, data: str
) -> list[dict[str, Any]]:
    """Return the rows of all runs, case by case."""
    work = partial(outcome, data=data)
    cases = list({case_of(c): c for plan in plans for c in plan.cases}.values())
    found = run_all(searches(cases), work, out / "runs", jobs)
    found += run_all(searches(cases, found), work, out / "runs", jobs)
    rows = found + run_all(trials(plans, found), work, out / "runs", jobs)
    order = {case_of(row): k for k, row in reversed([*enumerate(found)])}
    return sorted(
        rows, key=lambda row: (order[case_of(row)], row["label"], row["eta0"])
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="a small slice")
    parser.add_argument("--again", type=Path, help="a schemes.csv to run once more")
    parser.add_argument("--caltech", type=Path, help="folder of 001.mat to 005.mat")
    parser.add_argument("--out", type=Path, help="folder of outcomes and figures")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    chosen = parser.parse_args()
    plans = quick() if chosen.quick else sample()
    if chosen.caltech:
        plans.append(caltech())
    out = chosen.out or OUT / "schemes"
    data = str(chosen.caltech.resolve()) if chosen.caltech else ""
    if chosen.again:
        stored = [trial_of(row) for row in read_rows(chosen.again)]
        rows = run_all(stored, partial(outcome, data=data), out / "runs", chosen.jobs)
    else:
        rows = benchmark(plans, out, chosen.jobs, data)
    write_rows(rows, out / "schemes.csv")
    print_tables(rows)
    draw_profiles(rows, out)
    say(f"rows and figures in {out}")


if __name__ == "__main__":
    main()
