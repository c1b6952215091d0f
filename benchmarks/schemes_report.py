"""Tables of `bench_schemes.py`, from its rows.

python -m benchmarks.schemes_report benchmarks/results/schemes.csv
python -m benchmarks.schemes_report benchmarks/results/lead.csv
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.cases import CONVEX, NETWORKS
from benchmarks.shared.commands import parser_of, print_markdown
from benchmarks.shared.experiment import read_rows, report
from benchmarks.shared.trials import number_of
from dadmm.core.errors import ConfigError
from dadmm.penalty import SCHEMES

Row = Mapping[str, Any]
CASE = ("problem", "graph", "n_nodes", "seed")
NUMBERS = (
    "n_nodes", "seed", "first", "for_good", "cap", "iterations", "true",
)  # fmt: skip
WHOLE = ("first", "for_good", "iterations")  # numbers of a whole run
Table = dict[tuple[Any, ...], dict[str, float]]  # iterations by case, then by label


def load(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, numbers as numbers and None where there is none."""
    rows: list[dict[str, Any]] = [dict(row) for row in read_rows(path)]
    try:
        for row in rows:
            for name in NUMBERS:
                if name in row:
                    row[name] = int(row[name]) if row[name] else None
            row["eta0"] = number_of(row["eta0"])
            row["relaxation"] = float(row["relaxation"])
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{path} is not made by bench_schemes.py: {error}") from None
    return rows


def case_of(row: Row) -> tuple[Any, ...]:
    """Return what schemes are compared on."""
    return tuple(row[name] for name in CASE)


def value(row: Row, column: str = "for_good") -> float:
    """Return a number of a row, infinite where its goal was not reached."""
    found = row.get(column)
    return float("inf") if found is None else float(found)


def without_eta0(rows: Sequence[Row], column: str = "for_good") -> Table:
    """Return a column of the schemes with their own first penalties, by case."""
    found: Table = {}
    for row in rows:
        if has_none(row):
            found.setdefault(case_of(row), {})[row["label"]] = value(row, column)
    return found


def has_none(row: Row) -> bool:
    """Return whether a row stands for every eta0."""
    return row["eta0"] == "auto" or row["scheme"] == "oracle"


def table(rows: Sequence[Row], column: str = "for_good") -> Table:
    """Return a column by case and eta0, then by scheme.

    Rows without an eta0 hold for each.
    """
    free, tied = without_eta0(rows, column), {}
    for row in rows:
        if not has_none(row):
            case = (*case_of(row), row["eta0"])
            tied.setdefault(case, {})[row["label"]] = value(row, column)
    return {case: each | free[case[:-1]] for case, each in tied.items()}


def full(of: Table) -> Table:
    """Return the cases that all schemes took part in."""
    return {case: each for case, each in of.items() if "fixed" in each}


def ratios(of: Table, label: str, to: str | None = None) -> np.ndarray:
    """Return a scheme's iterations over those of another, or of the best scheme."""
    found = []
    for each in of.values():
        rivals = [n for name, n in each.items() if not name.startswith("oracle")]
        base = each.get(to, np.inf) if to else min(rivals)
        if label in each and base < np.inf:
            found.append(each[label] / base)
    return np.array(found)


def spreads(of: Table, label: str) -> np.ndarray:
    """Return the slowest over the fastest eta0 of each case that has five."""
    found = []
    for _, group in groupby(sorted(of, key=str), key=lambda name: name[:-1]):
        each = [of[name][label] for name in group if label in of[name]]
        if len(each) >= 5 and min(each) < np.inf:
            found.append(max(each) / min(each))
    return np.array(found)


def labels(of: Table) -> list[str]:
    """Return all schemes: `snap`, in the order of `dadmm.penalty`, the oracles."""
    every = {name for each in of.values() for name in each}
    order = ["snap", *SCHEMES, "oracle"]
    return sorted(every, key=lambda name: (order.index(name.split()[0]), name))


def graphs_of(cases: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the graphs of some cases, in the order of the tables."""
    return sorted({name[1] for name in cases}, key=NETWORKS.index)


def number(value: float) -> str:
    return f"{value:.2f}" if value < np.inf else "-"


def middle(values: np.ndarray, level: float = 0.5) -> str:
    """Return a quantile in words; infinite ones are dashes."""
    if not len(values):
        return ""
    if level == 0.5:
        return number(float(np.median(values)))
    return number(float(np.quantile(values, level, method="higher")))


def print_schemes(rows: Sequence[Row]) -> None:
    """Print how each scheme compares with the oracle, the best, and itself."""
    every = table(rows)
    of = full(every)
    if not of:
        return
    lines = []
    for label in labels(of):
        all_of = np.array([each[label] for each in of.values() if label in each])
        best, oracle = ratios(of, label), ratios(of, label, "oracle")
        free = label == "snap" or label.endswith("auto") or label[:6] == "oracle"
        own = np.array([]) if free else spreads(every, label)
        shares = (np.isfinite(all_of).mean(), *((best <= k).mean() for k in (1.2, 2.0)))
        reached, near, twice = (f"{share:.0%}" for share in shares)
        cells = (label, reached, middle(oracle), middle(oracle, 0.9), near, twice)
        lines.append((*cells, middle(own), middle(own, 1.0)))
    cases = len({name[:-1] for name in of})
    print(f"\nall schemes on {cases} cases, {len(of)} with their eta0\n")
    head = ["scheme", "arrived", "median / oracle", "90 % / oracle"]
    head += ["within 1.2 of the best", "within 2"]
    if any(line[-1] for line in lines):
        head += ["slowest / fastest eta0, median", "worst"]
    print_markdown(head, (line[: len(head)] for line in lines))


def print_headline(rows: Sequence[Row]) -> None:
    """Print `snap` over the oracle, without eta0, and who left the goal again."""
    for label in ("snap", "oracle"):
        own = [row for row in rows if row["label"] == label and row["first"]]
        left = sum(row["first"] != row["for_good"] for row in own)
        print(f"\n{label}: {left} of {len(own)} runs left the goal again")
    for oracle, column in product(("oracle", "oracle 1"), ("for_good", "first")):
        each = without_eta0(rows, column).values()
        ratio = np.array([e["snap"] / e[oracle] for e in each
                          if e.get(oracle, np.inf) < np.inf])  # fmt: skip
        if len(ratio):
            print(f"\nsnap over {oracle}, {column}: median {middle(ratio)}, 90 % "
                  f"{middle(ratio, 0.9)}, worst {middle(ratio, 1.0)}, at most 1.2 in "
                  f"{(ratio <= 1.2).mean():.0%} of {len(ratio)} cases")  # fmt: skip


def print_where(rows: Sequence[Row]) -> None:
    """Print `snap` over the oracle by problem and graph, and its worst cases."""
    cases = without_eta0(rows)
    ratio = {
        name: each["snap"] / each["oracle"]
        for name, each in cases.items()
        if each["oracle"] < np.inf
    }
    for n_nodes in sorted({name[2] for name in ratio}):
        own = {name: r for name, r in ratio.items() if name[2] == n_nodes}
        graphs = graphs_of(own)
        lines = []
        for problem in sorted({name[0] for name in own}, key=[*CONVEX].index):
            of = {g: [own[name] for name in own if name[:2] == (problem, g)]
                  for g in graphs}  # fmt: skip
            lines.append([problem, *(middle(np.array(of[g])) for g in graphs)])
        print(f"\nsnap over the oracle, {n_nodes} nodes, median over seeds\n")
        print_markdown(("", *graphs), lines)
    print("\nthe cases in which snap is furthest from the oracle\n")
    first, lines = without_eta0(rows, "first"), []
    for name in sorted(ratio, key=lambda name: -ratio[name])[:10]:
        each, (problem, graph, n, seed) = cases[name], name
        words = f"{problem}, {graph} {n}, seed {seed}"
        cells = [f"{each[k]:g} ({first[name][k]:g})" for k in ("snap", "oracle")]
        lines.append([words, *cells, number(ratio[name])])
    print_markdown(("case", "snap (first)", "oracle (first)", "ratio"), lines)


def print_tables(rows: Sequence[Row]) -> None:
    """Print all tables, as Markdown."""
    print_schemes(rows)
    print_headline(rows)
    print_where(rows)


def print_lead(rows: Sequence[Row]) -> None:
    """Print whole runs by scheme, coordinates, relaxation and first penalty.

    A cell has the medians of first, for good and whole run, and how many runs end
    stationary and true.
    """
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for row in rows:
        place = tuple(row[k] for k in ("scheme", "coordinates", "relaxation", "eta0"))
        groups.setdefault(place, {}).setdefault(row["graph"], []).append(row)
    lines, graphs = [], list(dict.fromkeys(row["graph"] for row in rows))
    for (scheme, coordinates, relaxation, eta0), own in groups.items():
        first = eta0 if eta0 == "auto" else f"{eta0:g}"
        cells = [scheme, coordinates, f"{relaxation:g}", first]
        lines.append([*cells, *(lead_cell(own[graph]) for graph in graphs)])
    print()
    head = ("scheme", "coordinates", "relaxation", "first penalty", *graphs)
    print_markdown(head, lines)
    false = [r for r in rows if r["status"] == "stationary" and not r["true"]]
    print(f"\n{len(rows)} runs; stationary, but not true: {len(false)}")


def lead_cell(rows: Sequence[Row]) -> str:
    """Return the medians of some whole runs, and how many end well."""
    counts = [np.median([value(row, name) for row in rows]) for name in WHOLE]
    told = ["-" if n == np.inf else f"{n:g}" for n in counts]
    well = sum(row["status"] == "stationary" and bool(row["true"]) for row in rows)
    return f"{'; '.join(told)}; {well}/{len(rows)}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path, help="schemes.csv or lead.csv")
    rows = load(parser.parse_args().rows)
    if "status" in rows[0]:
        print_lead(rows)
    else:
        print_tables(rows)


if __name__ == "__main__":
    sys.exit(report(main))
