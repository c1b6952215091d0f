"""The numbers of PAPER.md, from the stored rows and a few runs of a second.

    python -m benchmarks.paper_claims [--results DIR]

DIR holds synthetic-authors.csv, synthetic.csv, caltech.csv, hopkins.csv and
variants.csv, the rows.csv of the experiments. First come the page's tables, then what
the claims cite, by graph and setting.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import dadmm
from benchmarks.paper_synthetic import NETWORKS as GRAPHS
from benchmarks.paper_tracks import NETWORKS as TRACKS
from benchmarks.paper_variants import STAGES
from benchmarks.shared.commands import RESULTS, parser_of, print_markdown
from benchmarks.shared.experiment import SCHEMES, SETTINGS, read_rows, report
from benchmarks.shared.report import (
    Cell,
    Row,
    Rows,
    grouped,
    middle,
    print_groups,
    select,
    whole,
)
from dadmm.data.shard import split
from dadmm.problems import PPCA

NAMES = {"printed": "as printed", "dadmm": "dadmm"}  # of the settings
TURNTABLE = {"Standing, complete": "004", "BoxStuff, complete": "002",
             "BoxStuff, ring": "002"}  # fmt: skip
GOALS = {"synthetic": "truth", "caltech": "centralised", "hopkins": "centralised"}
LIMIT = 15.0  # degrees: the paper leaves out objects of Hopkins 155 above it
Run = dict[str, Row]  # rows of all schemes, on one object from one start


def medians(*columns: str, form: str = "", join: str = ", ", never: str = "-") -> Any:
    """Return a cell of medians, whole ones unless a format is given."""

    def cell(own: Rows) -> str:
        found = [middle(own, name) for name in columns]
        return join.join(format(n, form) if form else whole(n, never) for n in found)

    return cell


def left_again(rows: Rows, target: str) -> str:
    """Return how many runs that were once below an angle are above it at the end."""
    own = [row for row in rows if row[f"first_{target}"]]
    goal, level = target.split("_")
    above = sum(float(row[f"angle_{goal}_last"]) >= float(level) for row in own)
    return f"{above} of {len(own)}"


def print_left(data: Mapping[str, Rows]) -> None:
    lines = []
    for name, rows in data.items():
        goal = GOALS[name.lower()]
        for setting in SETTINGS:
            own = select(rows, setting=setting)
            targets = (f"{goal}_10", f"{goal}_5", "centralised_1")
            cells = (left_again(own, target) for target in targets)
            lines.append((f"{name}, {NAMES[setting]}", *cells))
    head = "above the angle at the end, of the runs once below it"
    print_markdown((head, "10 degrees", "5 degrees", "1 degree"), lines)


def print_synthetic(rows: Rows) -> None:
    def printed(own: Rows) -> str:
        ends = [whole(middle(own, name)) for name in ("iterations", "both_rules")]
        return "{} ({}), {}".format(*ends, whole(middle(own, "first_truth_5"), "never"))

    usual = medians("iterations", "first_truth_5")
    for setting, cell in (("printed", printed), ("dadmm", usual)):
        groups = by_graph(select(rows, setting=setting))
        print_groups(NAMES[setting], groups, cell)


def by_graph(rows: Rows) -> dict[str, list[Row]]:
    return {f"{g} {n}": select(rows, graph=g, n_nodes=n) for g, n, _ in GRAPHS}


def print_caltech(rows: Rows) -> None:
    printed = {
        f"{graph}, t_max {t_max}":
            select(rows, setting="printed", graph=graph, t_max=t_max)
        for graph, _, t_max in TRACKS["caltech"]
    }  # fmt: skip
    passages = [f"first_centralised_{k}" for k in (10, 5, 1)]
    print_groups(NAMES["printed"], printed, medians(*passages, join=" / "))
    usual = {
        f"{name}, t_max 50": select(rows, setting="dadmm", data=data, t_max=50,
                                    graph=name.split(", ")[1])
        for name, data in TURNTABLE.items()
    }  # fmt: skip
    print_groups(NAMES["dadmm"], usual, medians("iterations", "first_centralised_5"))


def readings(rows: Rows, column: str) -> dict[str, dict[str, float]]:
    """Return the speed-up of each scheme over `fixed`, in per cent, by reading.

    ``column`` says by which rule runs end: "iterations", or "both_rules".
    """
    angle = "angle_centralised" + ("_both_rules" if column == "both_rules" else "")
    by_case: dict[tuple[str, str], Run] = {}
    for row in rows:
        by_case.setdefault((row["data"], row["start"]), {})[row["scheme"]] = row

    def average(scheme: str, needed: Iterable[str]) -> float:
        """Return the mean over the runs in which the needed schemes are below."""
        kept = [run for run in by_case.values()
                if all(float(run[s][angle]) <= LIMIT for s in needed)]  # fmt: skip
        values = [float(run[scheme][column]) for run in kept]
        return statistics.mean(values) if values else math.nan

    # the schemes that must be below, for the mean of a scheme, compared with a rival
    filters: dict[str, Callable[[str, str], Iterable[str]]] = {
        "no filter": lambda scheme, rival: (),
        "each scheme's own runs below 15 degrees": lambda scheme, rival: (scheme,),
        "runs where the scheme and ADMM are below": lambda _, rival: (rival, "fixed"),
        "runs where all six are below": lambda scheme, rival: SCHEMES,
    }
    found: dict[str, dict[str, float]] = {}
    for (name, needed), rival in product(filters.items(), SCHEMES[1:]):
        plain, own = (average(s, needed(s, rival)) for s in ("fixed", rival))
        found.setdefault(name, {})[rival] = 100.0 * (plain - own) / plain
    return found


def print_hopkins(rows: Rows) -> None:
    def speedups(setting: str, graph: str, column: str) -> dict[str, list[str]]:
        found = readings(select(rows, setting=setting, graph=graph), column)
        return {
            k: ["0" if abs(x) < 0.5 else f"{x:.0f}" for x in v.values()]
            for k, v in found.items()
        }

    title = "complete, both rules (the paper's text: VP 40.2, VP + AP 37.3)"
    of = speedups("printed", "complete", "both_rules")
    print()
    print_markdown((title, *SCHEMES[1:]), ((k, *cells) for k, cells in of.items()))
    others = {
        "ring, both rules": ("printed", "ring", "both_rules"),
        "complete, the paper's rule alone": ("printed", "complete", "iterations"),
        "ring, the paper's rule alone": ("printed", "ring", "iterations"),
        "complete, dadmm": ("dadmm", "complete", "iterations"),
        "ring, dadmm (at most 300 iterations)": ("dadmm", "ring", "iterations"),
    }
    title, reading = "other rules, runs where all six are below", [*of][-1]
    print()
    print_markdown(
        (title, *SCHEMES[1:]),
        ((name, *speedups(*which)[reading]) for name, which in others.items()),
    )


def print_variants(rows: Rows) -> None:
    """Print what the paper says in words: rejected rules, stages and settings."""

    def swings(own: Rows) -> str:
        columns = ("swing_likelihood", "swing_angle", "angle_last")
        return "{:.0f}, {:.1f}, {:.1f}".format(*(middle(own, name) for name in columns))

    def ends(own: Rows) -> str:
        first = whole(middle(own, "first_truth_5"))
        return f"{first}, {middle(own, 'angle_last'):.1f}"

    groups = by_graph(rows)
    kept = ("fixed", "vp", "vp_kept", "vp, one penalty per edge",
            "vp_kept, one penalty per edge")  # fmt: skip
    title = "swing of (14), swing of the angle, angle at the end"
    print_groups(title, groups, swings, kept, "variant")
    stops = ("iterations", "first_truth_5", "first_centralised_1")
    mixed = ("fixed", "vp", "vp_ap", "vp_tau")
    cell = medians(*stops, join=" / ")
    print_groups("stop / 5 degrees / 1 degree", groups, cell, mixed, "variant")
    heights = medians(*(f"eta_{t}" for t in STAGES), form=".3g", join=" / ")
    title = f"mean penalty over eta0, t = {' / '.join(map(str, STAGES))}"
    print_groups(title, groups, heights, ("vp", "vp_tau"), "variant")
    print_stages(groups)
    variants = dict.fromkeys(row["variant"] for row in rows)
    changed = {
        name: [select(own, variant=name) for own in groups.values()]
        for name in sorted(variants, key=lambda name: name.partition(",")[0])
        if name in ("fixed", "vp", "ap", "nap") or " = " in name
    }
    print()
    print_markdown(
        ("first below 5 degrees, angle at the end", *groups),
        ((name, *(ends(own) if own else "" for own in each))
         for name, each in changed.items()),
    )  # fmt: skip


def print_stages(groups: Mapping[str, Rows]) -> None:
    """Print penalties, misfit and disagreement of `ap` over those of `fixed`."""

    def ratio(own: Rows, column: str) -> str:
        ap, fixed = (middle(select(own, variant=v), column) for v in ("ap", "fixed"))
        return f"{ap / fixed:.2f}"

    parts = ("eta", "likelihood", "consensus")
    print()
    print_markdown(
        ("`ap` over `fixed`: eta / (14) / consensus error",
         *(f"t = {t}" for t in STAGES)),
        ((name, *(" / ".join(ratio(own, f"{what}_{t}") for what in parts)
                  for t in STAGES)) for name, own in groups.items() if own),
    )  # fmt: skip


def recorded(scheme: str, **settings: Any) -> Any:
    problems = [PPCA(rows, 5) for rows in split(dadmm.datasets.synthetic()[0], 20)]
    return dadmm.solve(
        problems, dadmm.Topology.complete(20),
        scheme=dadmm.penalty.build(scheme, eta0=10.0, coupling="own", **settings),
        stopping=dadmm.Stopping(tolerance=0.0, max_iter=150), init="independent",
        coordinates="raw", record=dadmm.Record(edges=True),
    ).history.edges  # fmt: skip


def print_penalties() -> None:
    print()
    for scheme in ("ap", "nap"):
        eta = recorded(scheme)["eta"]
        for name, values in (("eta0", eta / 10.0), ("eta(t)", eta[1:] / eta[:-1])):
            low, high = values.min(), values.max()
            print(f"{scheme}: eta(t+1) / {name} within [{low:.2f}, {high:.2f}]")
    for trigger in (0.1, 0.0):
        largest = recorded("nap", budget0=0.5, budget_trigger=trigger)["budget"].max()
        print(f"nap, T = 0.5, alpha = 0.5, beta = {trigger}: largest budget {largest}")


def print_claims(name: str, rows: Rows) -> None:
    goal = GOALS[name.partition("-")[0]]
    firsts = (f"first_{goal}_10", f"first_{goal}_5", "first_centralised_1")
    rules = ("iterations", "both_rules")
    limit = 10 if goal == "truth" else 15

    def mean(column: str) -> Cell:
        return lambda own: f"{np.mean([float(row[column]) for row in own]):.1f}"

    def share(column: str) -> Cell:
        return lambda own: f"{np.mean([float(row[column]) > limit for row in own]):.0%}"

    for setting in SETTINGS:
        groups = grouped(rows, setting)
        print(f"\n== {name}, {setting}: medians, shares and runs that left again ==")
        for column in (*rules, *firsts):
            print_groups(column, groups, medians(column))
        for column in rules:
            print_groups(f"mean of {column}", groups, mean(column))
        for column in (f"angle_{goal}", f"angle_{goal}_last"):
            print_groups(column, groups, medians(column, form=".3g"))
        for column in (f"angle_{goal}", f"angle_{goal}_both_rules"):
            print_groups(f"{column} above {limit}", groups, share(column))
        for column in firsts:
            target = column.removeprefix("first_")
            print_groups(
                f"left {target}", groups, lambda own, t=target: left_again(own, t)
            )


def print_page(data: Mapping[str, Rows]) -> None:
    names = {"synthetic": "synthetic-authors", "Caltech": "caltech"}
    names["Hopkins"] = "hopkins"
    print_left({name: data[file] for name, file in names.items()})
    print_synthetic(data["synthetic-authors"])
    print_caltech(data["caltech"])
    print_hopkins(data["hopkins"])
    print_variants(data["variants"])


def read_all(folder: Path = RESULTS) -> dict[str, Sequence[Row]]:
    names = ("synthetic", "synthetic-authors", "caltech", "hopkins", "variants")
    return {name: read_rows(folder / f"{name}.csv") for name in names}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    data = read_all(parser.parse_args().results)
    print_page(data)
    print_penalties()
    del data["variants"]
    for name, rows in data.items():
        print_claims(name, rows)


if __name__ == "__main__":
    report(main)
