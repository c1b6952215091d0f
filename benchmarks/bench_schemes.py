"""Which scheme is fastest, over problems, graphs and starting penalties?

    python benchmarks/bench_schemes.py [--quick | --all] [--caltech DIR] [--out DIR]

Runs every scheme until all nodes are as near the known solution as `cases` says, and
searches the best fixed penalty of each case (the oracle). The default is a balanced
sample: all problems on all graphs with 20 nodes, some with 10, 50 and 100; --all is the
whole grid, which takes days. Writes schemes.csv and, with matplotlib, profiles.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from cases import CONVEX
from experiment import run_all, say, write_rows
from schemes_report import draw_profiles, print_tables
from trials import Trial, Work

from dadmm.penalty import SCHEMES

RELAXED = ("fixed", "nap", "edge_balance", "edge_ratio")  # also with 1.6
GRAPHS = ("ring", "chain", "star", "grid", "cluster", "random-geometric", "complete")
SIZES = (10, 20, 50, 100)
ETAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
FEW_ETAS = (1.0, 100.0)
OBJECTS = ("001", "002", "003", "004", "005")
# A run that is this many times slower than the oracle is given up.
PATIENCE, LEAST_CAP = 10, 200
Case = dict[str, Any]  # the fields of a Trial that say on what schemes are compared


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


def quick() -> list[tuple[list[Case], Sequence[float]]]:
    """Return a slice that takes less than a minute."""
    return [(cases_of(["quadratic-0.5", "dppca"], ["complete"], [10], [0]), FEW_ETAS)]


def sample() -> list[tuple[list[Case], Sequence[float]]]:
    """Return the default: groups of cases, each with its eta0, the first first."""
    some = ("ring", "grid", "random-geometric")
    return [
        (cases_of(CONVEX, GRAPHS, [20], [0]), ETAS),
        (cases_of(["dppca"], GRAPHS, [20], [0]), ETAS),
        (cases_of(["dppca"], GRAPHS, [20], [0], "independent"), FEW_ETAS),
        (cases_of(["quadratic-0.5", "logistic", "dppca"], some, [10, 50], [0]),
         FEW_ETAS),
        (cases_of(["quadratic-0.5", "dppca"], some[1:], [100], [0]), FEW_ETAS),
        (cases_of(CONVEX, GRAPHS, [20], [1]), FEW_ETAS),
    ]  # fmt: skip


def whole() -> list[tuple[list[Case], Sequence[float]]]:
    """Return the whole grid."""
    convex = cases_of(CONVEX, GRAPHS, SIZES, range(5))
    return [(convex, ETAS)] + [
        (cases_of(["dppca"], GRAPHS, SIZES, range(5), init), ETAS)
        for init in ("shared", "independent")
    ]


def caltech(etas: Sequence[float]) -> list[tuple[list[Case], Sequence[float]]]:
    """Return structure from motion by five cameras."""
    objects = [f"caltech-{name}" for name in OBJECTS]
    return [(cases_of(objects, ["ring", "complete"], [5], [0]), etas)]


def first_searches(cases: Sequence[Case]) -> list[Trial]:
    """Return the oracle's searches with relaxation 1.6, of the first seed."""
    common = {"scheme": "oracle", "relaxation": 1.6, "eta0": 0.0}
    return [Trial(**case, **common) for case in cases if case["seed"] == 0]


def more_searches(cases: Sequence[Case], found: Sequence[dict]) -> list[Trial]:
    """Return those of other seeds, and without relaxation, from where the first led."""
    start = {key(row | {"seed": 0}): row["eta0"] for row in found}
    return [
        Trial(
            **case,
            scheme="oracle",
            relaxation=1.6 if case["seed"] else 1.0,
            eta0=start[key(case | {"seed": 0})],
        )
        for case in cases
    ]


def trials(
    groups: list[tuple[list[Case], Sequence[float]]], found: list[dict[str, Any]]
) -> list[Trial]:
    """Return the runs of all schemes; `auto` once a case, for it ignores eta0."""
    best = {key(row): row["iterations"] for row in found if row["relaxation"] == 1.6}
    every = []
    for cases, etas in groups:
        group = [
            Trial(**case, scheme="auto", relaxation=SCHEMES["auto"].RELAXATION)
            for case in cases
        ]
        for case, (scheme, relaxation), eta0 in product(cases, contenders(), etas):
            oracle = best[key(case)]
            limit = 600 if key(case)[0] not in CONVEX else 2000
            cap = min(limit, max(LEAST_CAP, PATIENCE * oracle)) if oracle else limit
            one = Trial(
                **case, scheme=scheme, relaxation=relaxation, eta0=eta0, cap=cap
            )
            group.append(one)
        random.Random(0).shuffle(group)  # so that the time left is told well
        every += group
    return every


def contenders() -> list[tuple[str, float]]:
    """Return every scheme but `auto` at its relaxation, and some with 1.6."""
    own = [(name, kind.RELAXATION) for name, kind in SCHEMES.items() if name != "auto"]
    return own + [(name, 1.6) for name in RELAXED]


def key(row: Case) -> tuple[Any, ...]:
    """Return what identifies a case."""
    return tuple(row[k] for k in ("problem", "graph", "n_nodes", "seed", "init"))


def benchmark(
    groups: list[tuple[list[Case], Sequence[float]]], out: Path, jobs: int, data: str
) -> list[dict[str, Any]]:
    """Return the rows of all runs, case by case."""
    work = Work(data)
    cases = [case for group, _ in groups for case in group]
    found = run_all(first_searches(cases), work, out / "runs", jobs)
    found += run_all(more_searches(cases, found), work, out / "runs", jobs)
    rows = found + run_all(trials(groups, found), work, out / "runs", jobs)
    order = {key(row): k for k, row in reversed([*enumerate(found)])}
    return sorted(rows, key=lambda row: (order[key(row)], row["label"], row["eta0"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small slice")
    parser.add_argument("--all", action="store_true", help="the whole grid")
    parser.add_argument("--caltech", type=Path, help="folder of 001.mat to 005.mat")
    parser.add_argument("--out", type=Path, help="folder of outcomes and figures")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    chosen = parser.parse_args()
    groups = quick() if chosen.quick else whole() if chosen.all else sample()
    if chosen.caltech:
        groups += caltech(FEW_ETAS if chosen.quick else ETAS)
    out = chosen.out or Path(__file__).parent / "out" / "schemes"
    data = str(chosen.caltech.resolve()) if chosen.caltech else ""
    rows = benchmark(groups, out, chosen.jobs, data)
    write_rows(rows, out / "schemes.csv")
    print_tables(rows)
    draw_profiles(rows, out)
    say(f"rows and figures in {out}")


if __name__ == "__main__":
    main()
