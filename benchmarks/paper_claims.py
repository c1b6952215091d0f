"""The numbers behind PAPER.md, from the stored rows and a few runs of a second.

    python -m benchmarks.paper_claims [--results DIR]

DIR holds synthetic.csv, caltech.csv and hopkins.csv, the rows.csv of the experiments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dadmm
from benchmarks.paper_hopkins import print_readings
from benchmarks.shared.experiment import SCHEMES, SETTINGS, read_rows, report
from benchmarks.shared.report import middle, print_table
from dadmm.data.shard import split
from dadmm.problems import PPCA

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[k] == str(v) for k, v in wanted.items())]


def print_ratio(
    title: str, rows: list[Row], column: str, groups: dict[str, dict[str, Any]]
) -> None:
    """Print, for each group of rows, each scheme's median over that of `fixed`."""
    print(f"\n{title}: median {column}, and its ratio to fixed")
    for name, wanted in groups.items():
        cells = []
        base = middle(select(rows, scheme="fixed", **wanted), column)
        for scheme in SCHEMES:
            value = middle(select(rows, scheme=scheme, **wanted), column)
            ratio = value / base if np.isfinite([value, base]).all() else np.nan
            cells.append(f"{value:.0f} ({ratio:.2f})")
        print(f"{name:28}" + "".join(f"{cell:>15}" for cell in cells))


def recorded(scheme: str, **settings: Any) -> dadmm.Result:
    """Return a run on the synthetic data with the penalties of every iteration."""
    problems = [PPCA(rows, 5) for rows in split(dadmm.datasets.synthetic()[0], 20)]
    return dadmm.solve(
        problems,
        dadmm.Topology.complete(20),
        scheme=scheme,
        tolerance=0.0,
        max_iter=150,
        record_edges=True,
        **{"coupling": "own", "init": "independent"} | settings,
    )


def penalties() -> None:
    """Print how far penalties and budgets really move."""
    for scheme in ("ap", "nap"):
        edges = recorded(scheme).history.edges
        assert edges is not None
        eta = edges["eta"]
        for name, values in (("eta0", eta / 10.0), ("eta(t)", eta[1:] / eta[:-1])):
            low, high = values.min(), values.max()
            print(f"{scheme}: eta(t+1) / {name} within [{low:.2f}, {high:.2f}]")
    for trigger in (0.1, 0.0):
        edges = recorded("nap", budget0=0.5, budget_trigger=trigger).history.edges
        assert edges is not None
        largest = edges["budget"].max()
        print(f"nap, T = 0.5, alpha = 0.5, beta = {trigger}: largest budget {largest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    penalties()
    for name in ("synthetic", "synthetic-authors"):
        rows = read_rows(folder / f"{name}.csv")
        print(f"\n== {name} ==")
        for setting in SETTINGS:
            print_table(rows, setting)
        graphs = {
            f"{g} {n}": {"setting": s, "graph": g, "n_nodes": n}
            for s in ("printed",)
            for g, n in (
                ("complete", 12),
                ("complete", 16),
                ("complete", 20),
                ("ring", 20),
                ("cluster", 20),
            )
        }
        for column in ("iterations", "both_rules", "first_truth_10", "first_truth_5"):
            print_ratio("as printed", rows, column, graphs)
        print_share(rows, graphs, lambda row: float(row["angle_truth"]) > 10)
        print_left(rows, {"truth": (10, 5), "centralised": (1,)})
    rows = read_rows(folder / "caltech.csv")
    print("\n== caltech ==")
    for setting in SETTINGS:
        networks = {
            f"{setting}, {graph}, t_max {t}": {
                "setting": setting,
                "graph": graph,
                "t_max": t,
            }
            for graph, t in (("ring", 50), ("complete", 50), ("complete", 5))
        }
        for column in ("iterations", "both_rules", "first_centralised_5"):
            print_ratio("all objects", rows, column, networks)
        print_share(rows, networks, lambda row: float(row["angle_centralised"]) > 15)
    print_left(rows, {"centralised": (10, 5, 1)})
    rows = read_rows(folder / "hopkins.csv")
    print("\n== hopkins ==")
    for setting in SETTINGS:
        for graph in ("ring", "complete"):
            own = select(rows, setting=setting, graph=graph)
            print_readings(own, setting, graph)
            print_readings(own, f"{setting}, both rules", graph, "both_rules")
    print_left(rows, {"centralised": (10, 5, 1)})


def print_left(rows: list[Row], levels: dict[str, tuple[int, ...]]) -> None:
    """Print how many runs that were once below an angle are above it at their end."""
    print("\nof the runs that were below an angle, those above it at their end")
    for setting in SETTINGS:
        for target, degrees in levels.items():
            for level in degrees:
                own = select(rows, setting=setting)
                own = [row for row in own if row[f"first_{target}_{level}"]]
                cells = []
                for group in (own, *(select(own, scheme=name) for name in SCHEMES)):
                    ends = [float(row[f"angle_{target}_last"]) for row in group]
                    left = sum(end >= level for end in ends)
                    cells.append(f"{left} of {len(ends)}")
                name = f"{setting}, {level} of {target}"
                print(f"{name:28}" + "".join(f"{cell:>15}" for cell in cells))


def print_share(
    rows: list[Row], groups: dict[str, dict[str, Any]], test: Callable[[Row], bool]
) -> None:
    """Print which share of the runs stopped far from the solution."""
    print("\nshare of runs that stopped far from the solution")
    for name, wanted in groups.items():
        cells = []
        for scheme in SCHEMES:
            own = select(rows, scheme=scheme, **wanted)
            cells.append(f"{100 * np.mean([test(row) for row in own]):.0f} %")
        print(f"{name:28}" + "".join(f"{cell:>15}" for cell in cells))


if __name__ == "__main__":
    sys.exit(report(main))
