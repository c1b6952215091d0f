"""The numbers behind PAPER.md, from the stored rows and a few runs of a second.

    python -m benchmarks.paper_claims [--results DIR]

DIR holds synthetic.csv, caltech.csv and hopkins.csv, the rows.csv of the experiments.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import dadmm
from benchmarks import paper_caltech, paper_synthetic
from benchmarks.paper_hopkins import print_readings
from benchmarks.shared.commands import RESULTS, parser_of
from benchmarks.shared.experiment import SCHEMES, SETTINGS, read_rows, report
from benchmarks.shared.report import middle, print_table
from dadmm.data.shard import split
from dadmm.problems import PPCA

Row = dict[str, Any]
Groups = dict[str, dict[str, Any]]  # by title, what its rows have


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[k] == str(v) for k, v in wanted.items())]


def print_cells(name: str, cells: Iterable[str]) -> None:
    print(f"{name:28}" + "".join(f"{cell:>15}" for cell in cells))


def print_ratios(
    title: str, rows: list[Row], columns: Sequence[str], groups: Groups
) -> None:
    """Print, for each group of rows, each scheme's median over that of `fixed`."""
    for column in columns:
        print(f"\n{title}: median {column}, and its ratio to fixed")
        for name, wanted in groups.items():
            of = {s: middle(select(rows, scheme=s, **wanted), column) for s in SCHEMES}
            base = of["fixed"]
            print_cells(
                name,
                (f"{n:.0f} ({n / base if np.isfinite([n, base]).all() else np.nan:.2f})"
                 for n in of.values()),
            )  # fmt: skip


def print_share(rows: list[Row], groups: Groups, column: str, degrees: float) -> None:
    """Print which share of the runs stopped far from the solution."""
    print("\nshare of runs that stopped far from the solution")
    for name, wanted in groups.items():
        cells = []
        for scheme in SCHEMES:
            own = select(rows, scheme=scheme, **wanted)
            share = np.mean([float(row[column]) > degrees for row in own])
            cells.append(f"{100 * share:.0f} %")
        print_cells(name, cells)


def print_left(rows: list[Row], levels: dict[str, tuple[int, ...]]) -> None:
    """Print how many runs that were once below an angle are above it at their end."""
    print("\nof the runs that were below an angle, those above it at their end")
    targets = [(target, level) for target in levels for level in levels[target]]
    for setting, (target, level) in product(SETTINGS, targets):
        own = select(rows, setting=setting)
        own = [row for row in own if row[f"first_{target}_{level}"]]
        cells = []
        for group in (own, *(select(own, scheme=name) for name in SCHEMES)):
            left = sum(float(row[f"angle_{target}_last"]) >= level for row in group)
            cells.append(f"{left} of {len(group)}")
        print_cells(f"{setting}, {level} of {target}", cells)


def recorded(scheme: str, **settings: Any) -> Any:
    """Return what a run on the synthetic data recorded of its edges."""
    problems = [PPCA(rows, 5) for rows in split(dadmm.datasets.synthetic()[0], 20)]
    return dadmm.solve(
        problems,
        dadmm.Topology.complete(20),
        scheme=dadmm.penalty.build(scheme, coupling="own", **settings),
        stopping=dadmm.Stopping(tolerance=0.0, max_iter=150),
        init="independent",
        record=dadmm.Record(edges=True),
    ).history.edges


def print_penalties() -> None:
    """Print how far penalties and budgets really move."""
    for scheme in ("ap", "nap"):
        eta = recorded(scheme)["eta"]
        for name, values in (("eta0", eta / 10.0), ("eta(t)", eta[1:] / eta[:-1])):
            low, high = values.min(), values.max()
            print(f"{scheme}: eta(t+1) / {name} within [{low:.2f}, {high:.2f}]")
    for trigger in (0.1, 0.0):
        largest = recorded("nap", budget0=0.5, budget_trigger=trigger)["budget"].max()
        print(f"nap, T = 0.5, alpha = 0.5, beta = {trigger}: largest budget {largest}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    print_penalties()
    for name in ("synthetic", "synthetic-authors"):
        rows = read_rows(folder / f"{name}.csv")
        print(f"\n== {name} ==")
        for setting in SETTINGS:
            print_table(rows, setting)
        graphs: Groups = {
            f"{graph} {n}": {"setting": "printed", "graph": graph, "n_nodes": n}
            for graph, n, _ in paper_synthetic.NETWORKS
        }
        columns = ("iterations", "both_rules", "first_truth_10", "first_truth_5")
        print_ratios("as printed", rows, columns, graphs)
        print_share(rows, graphs, "angle_truth", 10)
        print_left(rows, {"truth": (10, 5), "centralised": (1,)})
    rows = read_rows(folder / "caltech.csv")
    print("\n== caltech ==")
    for setting in SETTINGS:
        networks: Groups = {
            f"{setting}, {g}, t_max {t}": {"setting": setting, "graph": g, "t_max": t}
            for g, _, t in paper_caltech.NETWORKS
        }
        columns = ("iterations", "both_rules", "first_centralised_5")
        print_ratios("all objects", rows, columns, networks)
        print_share(rows, networks, "angle_centralised", 15)
    print_left(rows, {"centralised": (10, 5, 1)})
    rows = read_rows(folder / "hopkins.csv")
    print("\n== hopkins ==")
    for setting, graph in product(SETTINGS, ("ring", "complete")):
        own = select(rows, setting=setting, graph=graph)
        print_readings(own, setting, graph)
        print_readings(own, f"{setting}, both rules", graph, "both_rules")
    print_left(rows, {"centralised": (10, 5, 1)})


if __name__ == "__main__":
    sys.exit(report(main))
