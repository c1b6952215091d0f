"""The comparison of schemes: its goals, its books, and some stored rows again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import bench_schemes, schemes_report
from benchmarks.shared import cases, experiment, trials
from tests.support.processes import ROOT

RESULTS = ROOT / "benchmarks" / "results"


@pytest.mark.parametrize(
    ("stretches", "first", "for_good", "seen"),
    [
        ([(10, 400)], 10, 10, 110),
        ([(10, 20), (30, 400)], 10, 30, 130),
        ([(150, 400)], 150, 150, 300),  # as long again as it took
        ([(10, 109), (120, 400)], 10, 120, 240),  # left in the last iteration
        ([(10, 20), (190, 210)], 10, None, 210),  # inside at the cap, then outside
        ([(10, 20), (201, 400)], 10, None, 200),
        ([(201, 400)], None, None, 200),
    ],
)
def test_nodes_that_leave_again_have_not_arrived(stretches, first, for_good, seen):
    """Within the goal in half-open stretches of iterations, with a cap of 200."""
    arrival = trials.Arrival(200)

    for t in range(1, 500):
        if arrival.known(t, any(start <= t < stop for start, stop in stretches)):
            break

    assert (arrival.first, arrival.for_good) == (first, for_good)
    assert t == seen <= arrival.longest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "graph", "label"),
    [
        ("quadratic-0.5", "ring", "snap"),
        ("logistic", "star", "snap"),
        ("lasso", "grid", "snap"),
        ("quadratic-0", "star", "nap 1.6 auto"),
    ],
)
def test_stored_rows_can_be_had_again(problem, graph, label):
    """Another BLAS may round otherwise."""
    wanted = {"problem": problem, "graph": graph, "label": label, "n_nodes": "20"}
    stored = experiment.read_rows(RESULTS / "schemes.csv")
    rows = [r for r in stored if (wanted | {"seed": "0"}).items() <= r.items()]
    row = min(rows, key=lambda row: int(row["for_good"] or 10**6))
    again = trials.outcome(trials.trial_of(row))

    for column in ("first", "for_good"):
        assert abs(again[column] - int(row[column])) <= 1, column


@pytest.mark.parametrize("coordinates", ["units", "raw"])
def test_whole_runs_can_be_had_again(coordinates):
    wanted = {"scheme": "snap", "coordinates": coordinates, "relaxation": "1.6"}
    wanted |= {"graph": "complete", "init": "independent", "seed": "3"}
    stored = experiment.read_rows(RESULTS / "lead.csv")
    (row,) = [r for r in stored if wanted.items() <= r.items()]
    again = trials.whole(trials.trial_of(row))

    assert again["status"] == row["status"] == "stationary"
    assert again["true"] == int(row["true"]) == 1
    for column in ("first", "for_good", "iterations"):
        assert abs(again[column] - int(row[column])) <= 1 + again[column] // 50, column


@pytest.mark.slow
def test_the_stored_oracle_is_no_better_next_to_it():
    """Half a decade to either side of the best fixed penalty takes longer."""
    case = {"problem": "quadratic-0.5", "graph": "complete", "n_nodes": "20"}
    case |= {"seed": "0", "label": "oracle"}
    stored = experiment.read_rows(RESULTS / "schemes.csv")
    (row,) = [r for r in stored if all(r[k] == v for k, v in case.items())]
    took = int(row["for_good"])
    best = replace(trials.trial_of(row), scheme="fixed", cap=2 * took)
    trios = [replace(best, eta0=best.eta0 * 10**p) for p in (0.0, -0.5, 0.5)]
    found, *others = [trials.run(trial).for_good for trial in trios]

    assert abs(found - took) <= 1
    assert all(n is None or n >= found for n in others)


@pytest.mark.slow
def test_the_pooled_lasso_optimum_meets_its_conditions():
    """The gradient is alpha where an entry is not zero, and no more elsewhere."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 6)), rng.standard_normal(60)

    theta = cases.lasso_optimum(X, y, 8.0)

    gradient, inside = X.T @ (y - X @ theta), theta != 0
    assert 0 < inside.sum() < 6
    expected = 8.0 * np.sign(theta[inside])
    np.testing.assert_allclose(gradient[inside], expected, rtol=1e-10)
    assert (np.abs(gradient[~inside]) < 8.0).all()


def test_the_tables_of_the_page_are_those_of_the_rows(capsys):
    """Of convex problems, and of whole runs of D-PPCA."""
    page = (ROOT / "benchmarks" / "SCHEMES.md").read_text("utf-8").splitlines()
    rows = schemes_report.load(RESULTS / "schemes.csv")
    schemes_report.print_schemes(rows)
    schemes_report.print_where(rows)
    schemes_report.print_lead(schemes_report.load(RESULTS / "lead.csv"))

    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if line.startswith("|")]

    assert len(tables) > 50
    assert [line for line in tables if line not in page] == []


def test_whole_runs_are_those_of_the_plan_and_none_is_false():
    rows = schemes_report.load(RESULTS / "lead.csv")
    places = [(r["scheme"], r["coordinates"], r["relaxation"], r["eta0"]) for r in rows]

    assert list(dict.fromkeys(places)) == bench_schemes.LEAD
    count = len(rows) // len(bench_schemes.LEAD) // 6
    assert count >= bench_schemes.STARTS
    assert len(rows) == len(bench_schemes.lead(count))
    assert not [r for r in rows if r["status"] == "stationary" and not r["true"]]
