"""Which scheme is fastest, over problems, graphs and starting penalties?

    python -m benchmarks.bench_schemes [--quick | --lead] [--out DIR]

Runs every scheme on convex problems until all nodes are, for good, as near the known
solution as `cases` says, and searches the best fixed penalty of each case (the oracle).
The default is a balanced sample, see `sample`. Writes schemes.csv.

--lead takes D-PPCA on the paper's data, 20 nodes, whole runs: which part of the lead is
that of the scheme, of the coordinates, of the relaxation, of the first penalty? Writes
lead.csv.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.schemes_report import case_of, print_lead, print_tables
from benchmarks.shared.cases import CONVEX, NETWORKS
from benchmarks.shared.commands import OUT, parser_of, say
from benchmarks.shared.experiment import run_all, write_rows
from benchmarks.shared.trials import Trial, outcome, whole
from dadmm.penalty import SCHEMES

ETAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
FEW_ETAS = (1.0, 100.0)
PAPER = ("fixed", "vp", "ap", "nap", "vp_ap", "vp_nap")
ALL = [
    *((name, 1.0) for name in SCHEMES if name != "snap"),
    *((name, 1.6) for name in ("fixed", "nap")),
]
FREE = [(name, 1.6) for name in ("snap", *PAPER)]  # with their own first penalties
# Scheme, coordinates, relaxation and first penalty.
LEAD: list[tuple[str, str, float, float | str]] = [
    ("nap", "raw", 1.0, 10.0), ("nap", "raw", 1.6, "auto"),
    ("nap", "units", 1.0, 10.0), ("nap", "units", 1.0, "auto"),
    *((name, "units", 1.6, "auto") for name in PAPER),
    ("snap", "raw", 1.6, "auto"), ("snap", "units", 1.0, "auto"),
    ("snap", "units", 1.6, "auto"),
]  # fmt: skip
LEAD_GRAPHS, LEAD_INITS = ("complete", "cluster", "ring"), ("shared", "independent")
# With 0, numpy would draw the shared start from the very stream that drew the samples'
# true subspace: default_rng([0, 0]) is default_rng(0).
FIRST_START, STARTS = 1, 10
# A run that is this many times slower than the oracle is given up.
PATIENCE, LEAST_CAP, MOST = 5, 100, 2000
Case = dict[str, Any]  # the fields of a Trial that say on what schemes are compared


class Plan(NamedTuple):
    """Cases, and which schemes to run on each besides `snap` and the oracle."""

    cases: list[Case]
    free: list[tuple[str, float]] = FREE[:1]
    schemes: list[tuple[str, float]] = []  # noqa: RUF012 with their relaxation
    etas: Sequence[float] = ()


def cases_of(
    problems: Iterable[str],
    graphs: Iterable[str],
    sizes: Iterable[int],
    seeds: Iterable[int],
) -> list[Case]:
    """Return every combination."""
    names = ("problem", "graph", "n_nodes", "seed")
    every = product(problems, graphs, sizes, seeds)
    return [dict(zip(names, one, strict=True)) for one in every]


def quick() -> list[Plan]:
    """Return a slice that takes less than a minute."""
    case = cases_of(["quadratic-0.5"], ["complete"], [10], [0])
    return [Plan(case, FREE, ALL, FEW_ETAS)]


def sample() -> list[Plan]:
    """Return the default: a balanced part of the grid.

    With 20 nodes and one seed, every scheme on every problem and graph; each case has
    one of the five eta0, in turn, so that each is used equally often. `snap` has all,
    to see how much it depends on it. More seeds and other sizes are for
    `snap` against the oracle.
    """
    convex = cases_of(CONVEX, NETWORKS, [20], [0])
    some = ("ring", "grid", "random-geometric")
    turns = [Plan([case], FREE, ALL, [ETAS[k % 5]]) for k, case in enumerate(convex)]
    random.Random(0).shuffle(turns)
    return [
        *turns,
        Plan(cases_of(CONVEX, NETWORKS, [20], [1])),
        Plan(cases_of(["quadratic-0.5", "logistic"], some, [10, 50], [0])),
        Plan(cases_of(["quadratic-0.5"], some[1:], [100], [0])),
        Plan(convex, FREE[:1], [("snap", 1.6)], ETAS),
    ]


def lead(starts: int, every: Sequence[Any] = LEAD) -> list[Trial]:
    """Return the whole runs of D-PPCA, by so many shared and independent starts."""
    found = [
        Trial("dppca", graph, 20, start, scheme, relaxation, eta0, init, coordinates)
        for (scheme, coordinates, relaxation, eta0), graph, init, start in product(
            every, LEAD_GRAPHS, LEAD_INITS, range(FIRST_START, FIRST_START + starts)
        )
    ]
    random.Random(0).shuffle(found)  # so that the time left is told well
    return found


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
    return tuple(row[k] for k in ("problem", "graph", "n_nodes"))


def trials(plans: Sequence[Plan], found: Sequence[dict]) -> list[Trial]:
    """Return the runs of all schemes, with their own first penalties and with eta0."""
    best = {case_of(row): row["for_good"] for row in found if row["relaxation"] == 1.6}
    every: dict[Trial, None] = {}
    for plan in plans:
        group = []
        for case in plan.cases:
            cap = cap_of(best[case_of(case)])
            group += [
                Trial(**case, scheme=scheme, relaxation=alpha,
                      cap=None if scheme == "snap" else cap)
                for scheme, alpha in plan.free
            ]  # fmt: skip
            group += [
                Trial(**case, scheme=scheme, relaxation=alpha, eta0=eta0, cap=cap)
                for (scheme, alpha), eta0 in product(plan.schemes, plan.etas)
            ]
        random.Random(0).shuffle(group)  # so that the time left is told well
        every |= dict.fromkeys(group)
    return list(every)


def cap_of(oracle: int | None) -> int:
    """Return after how many iterations a run is given up."""
    return min(MOST, max(LEAST_CAP, PATIENCE * oracle)) if oracle else MOST


def benchmark(plans: Sequence[Plan], out: Path, jobs: int) -> list[dict[str, Any]]:
    """Return the rows of all runs, case by case."""
    cases = list({case_of(c): c for plan in plans for c in plan.cases}.values())
    found = run_all(searches(cases), outcome, out / "runs", jobs)
    found += run_all(searches(cases, found), outcome, out / "runs", jobs)
    rows = found + run_all(trials(plans, found), outcome, out / "runs", jobs)
    order = {case_of(row): k for k, row in reversed([*enumerate(found)])}
    return sorted(
        rows, key=lambda row: (order[case_of(row)], row["label"], str(row["eta0"]))
    )


def main() -> None:
    parser = parser_of(__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="a small slice")
    which.add_argument("--lead", action="store_true", help="whole runs of D-PPCA")
    parser.add_argument(
        "--starts", type=int, default=STARTS, help="of each kind, with --lead"
    )
    parser.add_argument("--out", type=Path, help="folder of outcomes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    chosen = parser.parse_args()
    out = chosen.out or OUT / ("lead" if chosen.lead else "schemes")
    if chosen.lead:
        rows = run_all(lead(chosen.starts), whole, out / "runs", chosen.jobs)
        order = {place: k for k, place in enumerate(LEAD)}
        rows.sort(key=lambda row: (
            order[row["scheme"], row["coordinates"], row["relaxation"], row["eta0"]],
            LEAD_GRAPHS.index(row["graph"]), LEAD_INITS.index(row["init"]), row["seed"],
        ))  # fmt: skip
        write_rows(rows, out / "lead.csv")
        print_lead(rows)
        say(f"rows in {out}")
        return
    rows = benchmark(quick() if chosen.quick else sample(), out, chosen.jobs)
    write_rows(rows, out / "schemes.csv")
    print_tables(rows)
    say(f"rows in {out}")


if __name__ == "__main__":
    main()
