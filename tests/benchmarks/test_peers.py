"""dadmm beside its peers: the common problem, dadmm's part, and the stored rows."""

from __future__ import annotations

import csv
import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.peers import compare, dadmm_ring, problem, rows, tuning
from tests.support.processes import mpiexec

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "results"


def stored(name: str = "peers") -> list[dict[str, str]]:
    """Return the rows of a measured run."""
    with open(STORED / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def on_twenty(method: str) -> dict[str, str]:
    """Return the row of a method on 20 ranks, of a quiet machine if there is one."""
    found = [*stored(), *stored("peers_busy")]
    return next(r for r in found if r["method"] == method and "20" in r["where"])


def entry(program: str, method: str) -> compare.Entry:
    """Return what is compared under this name."""
    return next(e for e in compare.ENTRIES if e[:2] == (program, method))


@pytest.mark.parametrize("scheme", ["fixed", "snap"])
def test_dadmm_solves_the_ring(scheme):
    """With the stored number of iterations, and every one of them counted."""
    row = dadmm_ring.run(scheme, entry("dadmm", scheme).setting, 150, count=True)
    found = rows.first(row["errors"], 1e-6)

    assert row["iterations"] == len(row["errors"]) == 150
    page = (ROOT / "benchmarks" / "peers" / "README.md").read_text("utf-8")
    (line,) = [x for x in page.splitlines() if x.startswith("| to an error of 1e-6")][
        :1
    ]
    told = line.split(" | ")[3 if scheme == "fixed" else 4]
    assert abs(found - int(told.strip(" |"))) <= 1
    assert row["bytes"] > row["messages"] * 8 * problem.UNKNOWNS
    block = {"seconds": 1.0, "iterations": 150, "others_share": 0.0}
    kept = rows.row_of("here", [block], row, None)
    assert kept.keys() == stored()[0].keys()


@pytest.mark.mpi
def test_ranks_and_one_process_print_the_same_errors():
    words = ("-m", "benchmarks.peers.turns", "--count", "dadmm:snap::12")
    ended = mpiexec(3, "-m", "mpi4py", *words, cwd=ROOT, timeout=60)

    assert ended.code == 0, ended.err
    row = json.loads(ended.out)
    alone = dadmm_ring.run("snap", iterations=12, nodes=3, count=True)
    for name in ("errors", "messages", "bytes", "iterations"):
        assert row[name] == alone[name], name


@pytest.mark.parametrize(
    ("program", "method", "model"),
    [
        ("disropt", "admm", tuning.admm),
        ("disropt", "tracking", tuning.tracking),
        ("mpi-sppy", "ph", tuning.hedging),
    ],
)
def test_peers_have_their_best_settings(program, method, model):
    """In a model that has the stored errors of the program itself."""
    best = entry(program, method).setting
    found = [tuning.iterations(model, best * factor) for factor in (0.5, 1.0, 2.0)]
    assert all(n is None or n > found[1] for n in (found[0], found[2]))

    row = on_twenty(method)
    assert found[1] == int(row["iterations_to_1e-06"])
    *_, last = islice(model(float(row["setting"])), rows.ITERATIONS)
    error = float(row[f"error_after_{rows.ITERATIONS}_iterations"])
    off = problem.error(last, problem.optimum())
    assert_allclose(off, error, rtol=1e-3, atol=1e-12)


def test_stored_rows_are_whole():
    """Every program and method, medians of repeats; dadmm sends less than disropt."""
    found, more = stored(), stored("peers_busy")

    assert tuple(found[0]) == tuple(more[0])
    methods = {row["method"] for row in found + more}
    assert methods >= {entry.method for entry in compare.ENTRIES} - {"snap"}
    for row in found + more:
        times = rows.numbers(row["all_ms"])
        assert float(row["ms_per_iteration"]) == pytest.approx(np.median(times), 1e-3)
    for name in ("bytes_per_iteration", "wire_bytes_per_iteration", "bytes_to_1e-06"):
        of = {r["method"]: float(r[name]) for r in found if "20 ranks" in r["where"]}
        assert of["fixed"] < min(of["admm"], of["tracking"]), name


@pytest.mark.parametrize(
    ("name", "head"), [("peers", "| setting, the best"), ("peers_busy", "| setting |")]
)
def test_the_page_has_the_stored_times(name, head):
    """Of each program on 20 ranks, to two or three digits; `snap` was not timed."""
    page = (ROOT / "benchmarks" / "peers" / "README.md").read_text()
    table = page[page.index(head) :].split("\n\n")[0].splitlines()
    told = {line.split(" | ")[0].strip("| "): line.split("|")[2:-1] for line in table}
    found = [r for r in stored(name) if "20 ranks" in r["where"]]

    for row, cell in zip(found, told["ms per iteration"], strict=False):
        assert float(cell) == pytest.approx(float(row["ms_per_iteration"]), rel=0.02)
    ratios = told["over dadmm `fixed`, by rounds"]
    for row, cell in zip(found, ratios, strict=False):
        if row["program"] != "dadmm":
            assert int(cell) == round(float(row["over_fixed"]))
