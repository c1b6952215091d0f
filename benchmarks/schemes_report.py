"""Tables and performance profiles of `bench_schemes.py`, from its rows.

python -m benchmarks.schemes_report benchmarks/results/schemes.csv [--out DIR]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.cases import CONVEX, NETWORKS
from benchmarks.shared.commands import parser_of, print_markdown, say
from benchmarks.shared.experiment import read_rows, report
from benchmarks.shared.schemes import SCHEMES
from dadmm.core.errors import ConfigError

Row = Mapping[str, Any]
CASE = ("problem", "graph", "n_nodes", "seed", "init")
NUMBERS = (
    "n_nodes", "seed", "first", "for_good", "messages", "bytes", "collectives", "cap",
)  # fmt: skip
# Lines of the profiles, the oracle last; all schemes are in the tables.
SHOWN = ("auto", "edge_ratio 1.6", "edge_balance 1.6", "global_balance", "fixed",
         "vp", "nap", "oracle")  # fmt: skip
TITLES = {"dppca": "D-PPCA", "caltech": "Caltech"}
Table = dict[tuple[Any, ...], dict[str, float]]  # iterations by case, then by label


def load(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, numbers as numbers and None where there is none."""
    rows: list[dict[str, Any]] = [dict(row) for row in read_rows(path)]
    try:
        for row in rows:
            for name in NUMBERS:
                row[name] = int(row[name]) if row[name] else None
            row["eta0"] = float(row["eta0"])
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{path} is not made by bench_schemes.py: {error}") from None
    return rows


def case_of(row: Row) -> tuple[Any, ...]:
    """Return what schemes are compared on."""
    return tuple(row[name] for name in CASE)


def kinds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by kind of problem."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = row["problem"]
        kind = "convex" if name in CONVEX else name.partition("-")[0]
        groups.setdefault(TITLES.get(kind, kind), []).append(row)
    return groups


def value(row: Row, column: str = "for_good") -> float:
    """Return a number of a row, infinite where its goal was not reached."""
    found = row.get(column)
    return float("inf") if found is None else float(found)


def without_eta0(rows: Sequence[Row], column: str = "for_good") -> Table:
    """Return a column of `auto` and of the oracles by case."""
    found: Table = {}
    for row in rows:
        if row["scheme"] in ("auto", "oracle"):
            found.setdefault(case_of(row), {})[row["label"]] = value(row, column)
    return found


def table(rows: Sequence[Row], column: str = "for_good") -> Table:
    """Return a column by case and eta0, then by scheme.

    `auto` and the oracle have no eta0, so theirs holds for each.
    """
    free, tied = without_eta0(rows, column), {}
    for row in rows:
        if row["scheme"] not in ("auto", "oracle"):
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
    """Return all schemes: `auto`, in the order of `shared.schemes`, the oracles."""
    every = {name for each in of.values() for name in each}
    order = ["auto", *SCHEMES, "oracle"]
    return sorted(every, key=lambda name: (order.index(name.split()[0]), name))


def graphs_of(cases: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the graphs of some cases, in the order of the tables."""
    return sorted({name[1] for name in cases}, key=NETWORKS.index)


def place(named: tuple[str, str]) -> tuple[int, str, str]:
    """Return where a problem with its start is in a table: shared starts first."""
    problem, init = named
    known = [*CONVEX].index(problem) if problem in CONVEX else len(CONVEX)
    return known, "" if init == "shared" else init, problem


def number(value: float) -> str:
    return f"{value:.2f}" if value < np.inf else "-"


def middle(values: np.ndarray, level: float = 0.5) -> str:
    """Return a quantile in words; infinite ones are dashes."""
    if not len(values):
        return ""
    if level == 0.5:
        return number(float(np.median(values)))
    return number(float(np.quantile(values, level, method="higher")))


def print_schemes(rows: Sequence[Row], title: str) -> None:
    """Print how each scheme compares with the oracle, the best, and itself."""
    every = table(rows)
    of = full(every)
    if not of:
        return
    lines = []
    for label in labels(of):
        all_of = np.array([each[label] for each in of.values() if label in each])
        best, oracle = ratios(of, label), ratios(of, label, "oracle")
        own = np.array([]) if label[:6] == "oracle" else spreads(every, label)
        shares = (np.isfinite(all_of).mean(), *((best <= k).mean() for k in (1.2, 2.0)))
        reached, near, twice = (f"{share:.0%}" for share in shares)
        cells = (label, reached, middle(oracle), middle(oracle, 0.9), near, twice)
        lines.append((*cells, middle(own), middle(own, 1.0)))
    cases = len({name[:-1] for name in of})
    print(f"\n{title}: all schemes on {cases} cases, {len(of)} with their eta0\n")
    head = ["scheme", "arrived", "median / oracle", "90 % / oracle"]
    head += ["within 1.2 of the best", "within 2"]
    if any(line[-1] for line in lines):
        head += ["slowest / fastest eta0, median", "worst"]
    print_markdown(head, (line[: len(head)] for line in lines))


def print_headline(rows: Sequence[Row]) -> None:
    """Print what was asked of `auto`, over cases without their eta0."""
    for oracle, column in product(("oracle", "oracle 1"), ("for_good", "first")):
        each = without_eta0(rows, column).values()
        ratio = np.array([e["auto"] / e[oracle] for e in each
                          if e.get(oracle, np.inf) < np.inf])  # fmt: skip
        if len(ratio):
            print(f"\nauto over {oracle}, {column}: median {middle(ratio)}, 90 % "
                  f"{middle(ratio, 0.9)}, worst {middle(ratio, 1.0)}, at most 1.2 in "
                  f"{(ratio <= 1.2).mean():.0%} of {len(ratio)} cases")  # fmt: skip


def print_left(rows: Sequence[Row]) -> None:
    """Print how often the nodes left their goal again, and for how long."""
    lines = []
    for label in labels({(): {row["label"]: 0.0 for row in rows}}):
        own = [r for r in rows if r["label"] == label and r["first"]]
        left = [r for r in own if r["for_good"] != r["first"]]
        ratio = np.array([value(r) / r["first"] for r in own if r["for_good"]])
        never = sum(r["for_good"] is None for r in own)
        lines.append((label, len(own), len(left), never, middle(ratio, 1.0)))
    print()
    head = ("scheme", "reached the goal", "left it again")
    head += ("not for good before the cap", "for good / first, worst")
    print_markdown(head, lines)


def print_where(rows: Sequence[Row]) -> None:
    """Print `auto` over the oracle by problem and graph, and its worst cases."""
    cases = without_eta0(rows)
    ratio = {
        name: each["auto"] / each["oracle"]
        for name, each in cases.items()
        if each["oracle"] < np.inf
    }
    for n_nodes in sorted({name[2] for name in ratio}):
        own = {name: r for name, r in ratio.items() if name[2] == n_nodes}
        graphs = graphs_of(own)
        lines = []
        for problem, init in sorted({(name[0], name[4]) for name in own}, key=place):
            cells = [
                middle(np.array([r for name, r in own.items()
                                 if (name[0], name[4], name[1]) == (problem, init, g)]))
                for g in graphs
            ]  # fmt: skip
            start = ", independent" * (init == "independent")
            lines.append([f"{problem}{start}", *cells])
        print(f"\nauto over the oracle, {n_nodes} nodes, median over seeds\n")
        print_markdown(("", *graphs), lines)
    print("\nthe cases in which auto is furthest from the oracle\n")
    first, lines = without_eta0(rows, "first"), []
    for name in sorted(ratio, key=lambda name: -ratio[name])[:10]:
        each, (problem, graph, n, seed, init) = cases[name], name
        words = f"{problem}, {graph} {n}, seed {seed}, {init}"
        cells = [f"{each[k]:g} ({first[name][k]:g})" for k in ("auto", "oracle")]
        lines.append([words, *cells, number(ratio[name])])
    print_markdown(("case", "auto (first)", "oracle (first)", "ratio"), lines)


def typical(of: Table, graph: str, label: str) -> float:
    """Return the median of a scheme over the cases on a graph."""
    own = [each for name, each in of.items() if name[1] == graph]
    return float(np.median([each[label] for each in own if label in each]))


def print_traffic(rows: Sequence[Row]) -> None:
    """Print the median of what is sent until the goal for good, 20 nodes."""
    rows = [row for row in rows if row["n_nodes"] == 20]
    if not rows:
        return
    sent, size = (full(table(rows, column)) for column in ("messages", "bytes"))
    graphs, lines = graphs_of(sent), []
    for label in labels(sent):
        cells = [label]
        for graph in graphs:
            count, volume = typical(sent, graph, label), typical(size, graph, label)
            known = count < np.inf
            cells.append(f"{count:.0f} ({volume / 1e6:.2f})" if known else "-")
        lines.append(cells)
    print("\n20 nodes, median over problems and eta0 of messages (MB) until for good\n")
    print_markdown(("scheme", *graphs), lines)


def print_tables(rows: Sequence[Row]) -> None:
    """Print all tables, as Markdown."""
    groups = kinds(rows)
    for title, own in groups.items():
        print_schemes(own, title)
        print_headline(own)
        print_left(own)
        print_where(own)
    print_traffic(groups["convex"])


def draw_profiles(rows: Sequence[Row], out: Path) -> None:
    """Draw the profiles of convex problems and of D-PPCA, if matplotlib is there."""
    try:
        from benchmarks.shared.profiles import draw, save
    except ImportError:
        say("no figures: pip install 'dadmm[plot]'")
        return
    for kind, own in kinds(rows).items():
        if not (of := full(table(own))):
            continue
        figure = draw({name: np.sort(ratios(of, name)) for name in SHOWN})
        save(figure, out / f"schemes-{kind.lower()}")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path, help="schemes.csv")
    parser.add_argument("--out", type=Path, help="folder of figures")
    chosen = parser.parse_args()
    rows = load(chosen.rows)
    print_tables(rows)
    if chosen.out:
        draw_profiles(rows, chosen.out)


if __name__ == "__main__":
    sys.exit(report(main))
