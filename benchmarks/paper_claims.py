"""The numbers of PAPER.md, from the stored rows and a few runs of a second.

    python -m benchmarks.paper_claims [--results DIR]

DIR holds synthetic-authors.csv, synthetic.csv, caltech.csv, hopkins.csv and
variants.csv, the rows.csv of the experiments. First come the page's tables, then what
the claims cite.
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
from benchmarks.shared import paper_tables
from benchmarks.shared.commands import RESULTS, parser_of
from benchmarks.shared.experiment import SCHEMES, SETTINGS, read_rows, report
from benchmarks.shared.paper_tables import left_again, select
from benchmarks.shared.report import middle, print_table
from dadmm.data.shard import split
from dadmm.problems import PPCA

NETWORKS = {
    "synthetic": paper_synthetic.NETWORKS,
    "caltech": paper_caltech.NETWORKS,
    "hopkins": (("ring", 5, 50), ("complete", 5, 50)),
}
Row = dict[str, Any]
Groups = dict[str, dict[str, Any]]  # by title, what its rows have


def print_cells(name: str, cells: Iterable[str]) -> None:
    print(f"{name:28}" + "".join(f"{cell:>15}" for cell in cells))


def print_medians(rows: list[Row], columns: Sequence[str], groups: Groups) -> None:
    """Print, for each group of rows, each scheme's median and its ratio to `fixed`."""
    for column in columns:
        print(f"\nmedian {column}, and its ratio to fixed")
        for name, wanted in groups.items():
            of = {s: middle(select(rows, scheme=s, **wanted), column) for s in SCHEMES}
            base = of["fixed"]
            print_cells(
                name,
                (f"{n:.4g} ({n / base if np.isfinite([n, base]).all() else np.nan:.2f})"
                 for n in of.values()),
            )  # fmt: skip


def print_share(rows: list[Row], groups: Groups, column: str, degrees: float) -> None:
    """Print which share of the runs stopped far from the solution."""
    print(f"\nshare of runs with {column} above {degrees:g}")
    for name, wanted in groups.items():
        cells = []
        for scheme in SCHEMES:
            own = select(rows, scheme=scheme, **wanted)
            share = np.mean([float(row[column]) > degrees for row in own])
            cells.append(f"{100 * share:.0f} %")
        print_cells(name, cells)


def print_left(rows: list[Row], groups: Groups, targets: Iterable[str]) -> None:
    """Print how many runs that were once below an angle are above it at their end."""
    for target in targets:
        print(f"\nabove it at the end, of the runs that were below {target}")
        for name, wanted in groups.items():
            own = select(rows, **wanted)
            cells = (left_again(select(own, scheme=s), target) for s in SCHEMES)
            print_cells(name, cells)


def print_plateaus(rows: list[Row], degrees: float = 70.0) -> None:
    """Print which runs as printed the paper's rule stops near the start."""
    print(f"\nstopped above {degrees:g} degrees on the complete graph, as printed")
    for scheme in SCHEMES:
        own = select(rows, setting="printed", graph="complete", scheme=scheme)
        bad = [row for row in own if float(row["angle_centralised"]) > degrees]
        line = f"{scheme}: {len(bad)} of {len(own)}"
        if bad:
            times = [int(row["iterations"]) for row in bad]
            angles = [float(row["angle_centralised"]) for row in bad]
            line += f", after {min(times)} to {max(times)} iterations"
            line += f", at {min(angles):.0f} to {max(angles):.0f} degrees"
        print(line)


def recorded(scheme: str, **settings: Any) -> Any:
    """Return what a run on the synthetic data recorded of its edges."""
    problems = [PPCA(rows, 5) for rows in split(dadmm.datasets.synthetic()[0], 20)]
    return dadmm.solve(
        problems,
        dadmm.Topology.complete(20),
        scheme=dadmm.penalty.build(scheme, eta0=10.0, coupling="own", **settings),
        stopping=dadmm.Stopping(tolerance=0.0, max_iter=150),
        init="independent",
        coordinates="raw",
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


def print_claims(name: str, rows: list[Row]) -> None:
    """Print what the claims cite of an experiment, by graph and setting."""
    goal = "truth" if name.startswith("synthetic") else "centralised"
    networks = {
        "synthetic": paper_synthetic.NETWORKS,
        "caltech": paper_caltech.NETWORKS,
    }
    chosen = networks.get(
        name.partition("-")[0], (("complete", 5, 50), ("ring", 5, 50))
    )
    groups: Groups = {
        f"{setting}, {graph} {n}, {t_max}": {
            "setting": setting, "graph": graph, "n_nodes": n, "t_max": t_max,
        }
        for setting, (graph, n, t_max) in product(SETTINGS, chosen)
    }  # fmt: skip
    print(f"\n== {name} ==")
    firsts = [f"first_{goal}_10", f"first_{goal}_5", "first_centralised_1"]
    ends = [f"angle_{goal}", f"angle_{goal}_last"]
    print_medians(rows, ["iterations", "both_rules", *firsts, *ends], groups)
    limit = 10 if goal == "truth" else 15
    for column in (f"angle_{goal}", f"angle_{goal}_both_rules"):
        print_share(rows, groups, column, limit)
    targets = (f"{goal}_10", f"{goal}_5", "centralised_1")
    print_left(rows, groups, targets)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    folder = parser.parse_args().results
    names = ("synthetic", "synthetic-authors", "caltech", "hopkins")
    data = {name: read_rows(folder / f"{name}.csv") for name in names}
    paper_tables.print_all(data)
    paper_tables.print_variants(read_rows(folder / "variants.csv"))
    print_penalties()
    for name, rows in data.items():
        print_claims(name, rows)
    for name in ("caltech", "hopkins"):
        print_plateaus(data[name])
    print("\nCaltech by object")
    for object_, name in paper_caltech.OBJECTS.items():
        own = [
            row | {"graph": f"{row['graph']}, t_max {row['t_max']}"}
            for row in select(data["caltech"], data=object_)
        ]
        for setting in SETTINGS:
            print_table(own, setting, "centralised", f"{name}, {setting}")
    for setting, graph in product(SETTINGS, ("ring", "complete")):
        own = select(data["hopkins"], setting=setting, graph=graph)
        print_readings(own, setting, graph)
        if setting == "printed":
            print_readings(own, f"{setting}, both rules", graph, "both_rules")


if __name__ == "__main__":
    sys.exit(report(main))
