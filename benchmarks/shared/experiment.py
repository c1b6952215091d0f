"""Many independent runs: side by side, resumable, as long-format rows.

A case is one run of `dadmm.solve`. Its outcome is a file of its own, which appears
whole or not at all, so an experiment that was interrupted goes on where it stopped.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import numpy as np

import dadmm
from benchmarks.shared.commands import OUT, parser_of, say
from benchmarks.shared.observers import (
    THRESHOLDS,
    Angles,
    Enough,
    PaperRule,
    SecondRule,
    consensus_error,
)
from dadmm.core import documents, files
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.linalg import one_blas_thread
from dadmm.graphs.topology import GRAPHS
from dadmm.problems import metrics
from dadmm.runs.config import PRESETS
from dadmm.solver.solve import grouped

SCHEMES = ("fixed", "vp", "ap", "nap", "vp_ap", "vp_nap")
# Of the authors: their program and the data that they prepared.
ARCHIVE = "https://github.com/changkyu/aaai2016_changkyu"
# The settings of the preset in which the two columns of PAPER.md differ.
COMPARED = ("coupling", "probe", "init", "stopping", "agreement", "coordinates",
            "eta0", "relaxation")  # fmt: skip
PRINTED = tomllib.loads(PRESETS["as-printed"].read_text("utf-8"))
# What the paper prints, and the paper's schemes as dadmm runs them.
SETTINGS: dict[str, dict[str, Any]] = {
    "printed": {name: PRINTED[name] for name in COMPARED},
    "dadmm": {
        "coupling": "symmetric",
        "probe": "midpoint",
        "init": "shared",
        "stopping": "optimality",
        "agreement": "neighbours",
        "coordinates": "auto",
        "eta0": None,
        "relaxation": None,
    },
}


@dataclass(frozen=True)
class Case:
    experiment: str
    data: str  # which data: a seed, a file's stem
    setting: str  # a key of SETTINGS
    graph: str
    n_nodes: int
    scheme: str
    t_max: int
    start: int  # seed of the starting parameters

    @property
    def name(self) -> str:
        """A file name that tells the case, and its settings by a hash."""
        words = (self.data, self.setting, f"{self.graph}{self.n_nodes}", self.scheme)
        words += (f"t{self.t_max}", f"s{self.start}")
        return file_name(words, asdict(self), self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        found = dict(SETTINGS[self.setting])
        if self.setting == "dadmm" and self.experiment in ("caltech", "hopkins"):
            found["stopping"] = "residuals"  # "optimality" is hardly ever met there
        return found


def case_of(row: Mapping[str, Any]) -> Case:
    return Case(**{f.name: int(row[f.name]) if f.type is int else row[f.name]
                   for f in fields(Case)})  # fmt: skip


def file_name(words: Iterable[str], *settings: Any) -> str:
    """Return words, and a hash of settings and version."""
    told = json.dumps([*settings, dadmm.__version__])
    return "-".join([*words, hashlib.sha256(told.encode()).hexdigest()[:8]])


def cases(
    experiment: str,
    data: Iterable[str],
    networks: Iterable[tuple[str, int, int]],
    starts: Mapping[str, int],
) -> list[Case]:
    """Return all runs: ``networks`` are graph, nodes and t_max, ``starts`` by setting.

    Every scheme runs on every combination.
    """
    return [
        Case(experiment, name, setting, graph, n_nodes, scheme, t_max, start)
        for name, setting, (graph, n_nodes, t_max), scheme in product(
            data, starts, networks, SCHEMES
        )
        for start in range(starts[setting])
    ]


def run_case(
    case: Case,
    problems: Sequence[Any],
    shards: Sequence[np.ndarray],
    targets: Mapping[str, np.ndarray],
    max_iter: int = 1000,
    patient: bool = True,
) -> dict[str, Any]:
    """Run one case and return its row, with the curves of its angles."""
    settings = case.settings
    angles, paper = Angles(problems[0].layout, targets), PaperRule()
    second = SecondRule(problems, paper)
    watched = case.setting == "printed"
    observers = [angles, paper, second, Enough(paper, angles, patient)]
    result = dadmm.solve(
        problems,
        GRAPHS[case.graph](case.n_nodes, 0),
        callbacks=observers if watched else [angles],
        **grouped(
            {"scheme": case.scheme, "t_max": case.t_max, "seed": case.start,
             "max_iter": max_iter, "tolerance": 0.0 if watched else 1e-3,
             "record": False, **settings}
        ),
    )  # fmt: skip
    iterations = (watched and paper.stop) or result.iterations
    row = asdict(case) | settings | {
        "iterations": iterations,
        "reason": "converged" if watched and paper.stop else result.reason,
        "both_rules": min(iterations, second.stop or iterations),
        "length": result.iterations,
    }  # fmt: skip
    for name, curve in angles.curves.items():
        row[f"angle_{name}"] = curve[row["iterations"] - 1]
        row[f"angle_{name}_both_rules"] = curve[row["both_rules"] - 1]
        row[f"angle_{name}_last"] = curve[-1]
        for level in THRESHOLDS:
            below = np.flatnonzero(np.array(curve) < level)
            row[f"first_{name}_{level:g}"] = int(below[0]) + 1 if len(below) else None
    row["consensus_error"] = consensus_error(result.theta)
    row["log_likelihood_gap"] = _gap(shards, problems[0], result)
    row["eta_span"] = float(result.eta.max() / result.eta.min())
    row |= {"dadmm": dadmm.__version__, "numpy": np.__version__}
    return row | {"curves": angles.curves}


def _gap(shards: Sequence[np.ndarray], problem: Any, result: dadmm.Result) -> float:
    """Return what the mean of all nodes lacks of the best log likelihood."""
    data = metrics.summarise(np.vstack(shards))
    best = metrics.ppca_reference(
        data, problem.n_components, zero_mean=problem.zero_mean
    )
    mean = result.layout.views(result.theta.mean(axis=0))
    reached = metrics.ppca_log_likelihood(data, *mean)
    return metrics.ppca_log_likelihood(data, *best) - reached


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows without their curves as CSV; numbers to six digits."""
    plain = [{k: v for k, v in row.items() if k != "curves"} for row in rows]
    columns = list(dict.fromkeys(name for row in plain for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: written(v) for k, v in row.items()} for row in plain)
    with files.replacing(path) as file:
        file.write(text.getvalue().encode())


def written(value: Any) -> str:
    """Return a value as a row has it; numbers to six digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def read_rows(path: Path) -> list[dict[str, str]]:
    with documents.reading(path), path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows or None in rows[-1].values():  # cells of a last row that are not there
        raise ConfigError(f"{path} has no rows, or was cut short")
    return rows


def report(main: Callable[[], None]) -> None:
    """Make a report; end the program if its rows are not as they should be."""
    try:
        main()
    except DadmmError as error:
        leave(f"error: {error}")
    except KeyError as error:
        leave(f"error: the rows have no column or case {error}; make them anew")


def arguments(
    description: str | None, data: str, names: Sequence[str] = ()
) -> argparse.Namespace:
    """Return the options that all experiments share; ``names`` are experiments."""
    parser = parser_of(description)
    if names:
        parser.add_argument("experiment", choices=names)
    parser.add_argument("--data", type=Path, help=data)
    parser.add_argument("--quick", action="store_true", help="a small slice")
    parser.add_argument("--starts", type=int, help="starts per case")
    parser.add_argument(
        "--every", type=int, default=1, metavar="K", help="only each K-th object"
    )
    parser.add_argument("--out", type=Path, help="folder of outcomes and figures")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument(
        "--setting", choices=[*SETTINGS], help="only the runs with this setting"
    )
    return parser.parse_args()


def conduct(
    chosen: argparse.Namespace, name: str, todo: Sequence[Any], work: Callable
) -> tuple[list[dict[str, Any]], Path]:
    """Run the cases that have no outcome yet, several at once, and write rows.csv.

    ``work`` returns the outcome of a case. Return the rows, and the folder for more.
    """
    out = chosen.out or OUT / name
    folder = out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    todo = [case for case in todo if chosen.setting in (None, case.setting)]
    left = [case for case in todo if not (folder / f"{case.name}.json").exists()]
    done, start = len(todo) - len(left), monotonic()
    if done:
        say(f"{done} of {len(todo)} runs were done before")
    with ProcessPoolExecutor(chosen.jobs, initializer=one_blas_thread) as pool:
        futures = [pool.submit(_outcome, work, case, folder) for case in left]
        for count, future in enumerate(as_completed(futures), 1):
            future.result()
            rate = (monotonic() - start) / count
            minutes = rate * (len(left) - count) / 60
            say(f"{done + count} of {len(todo)} runs, {minutes:.1f} min left", "\r")
    rows = [json.loads((folder / f"{case.name}.json").read_text()) for case in todo]
    write_rows(rows, out / "rows.csv")
    say(f"\nrows in {out}")
    return rows, out


def _outcome(work: Callable[[Any], dict], case: Any, folder: Path) -> None:
    with files.replacing(folder / f"{case.name}.json") as file:
        file.write(json.dumps(work(case)).encode())


def leave(sentence: str) -> NoReturn:
    sys.stderr.write(f"{sentence}\n")
    raise SystemExit(2)


def readable(advice: str, read: Callable[..., Any], *args: Any) -> Any:
    """Return ``read(*args)``; end the program with one sentence if data are bad."""
    try:
        return read(*args)
    except DadmmError as error:
        leave(f"{error}; {advice}")
