"""The comparison of schemes: its goals, its books, and some stored rows again."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import dadmm
from benchmarks import bench_dppca, schemes_report
from benchmarks.shared import cases, experiment, trials
from benchmarks.shared.schemes import SCHEMES
from benchmarks.shared.trials import Trial
from tests.support.processes import ROOT, python
from tests.support.solving import solve

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
    ("file", "problem", "graph", "label", "init", "seed"),
    [
        ("schemes", "quadratic-0.5", "ring", "auto", "shared", 0),
        ("schemes", "logistic", "star", "auto", "shared", 0),
        ("schemes", "lasso", "grid", "auto", "shared", 0),
        ("schemes", "quadratic-0.5", "complete", "edge_balance", "shared", 0),
        ("schemes", "logistic", "complete", "node_spectral", "shared", 0),
        ("dppca", "dppca", "cluster", "auto", "independent", 2),
        ("dppca", "dppca", "complete", "vp", "shared", 2),
        ("dppca", "dppca", "cluster", "nap 1.6", "shared", 3),
    ],
)
def test_stored_rows_can_be_had_again(file, problem, graph, label, init, seed):
    """Also of schemes that leave their goal; another BLAS may round otherwise."""
    wanted = {"problem": problem, "graph": graph, "label": label, "n_nodes": "20"}
    wanted |= {"seed": str(seed), "init": init}
    stored = experiment.read_rows(RESULTS / f"{file}.csv")
    rows = [r for r in stored if all(r[k] == v for k, v in wanted.items())]
    row = min(rows, key=lambda row: int(row["for_good"] or 10**6))
    again = trials.outcome(trials.trial_of(row))

    for column in ("first", "for_good"):
        assert abs(again[column] - int(row[column])) <= 1, column


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
def test_the_slice_for_quick_looks_runs(tmp_path):
    bench = ("-m", "benchmarks.bench_schemes", "--quick", "--out", tmp_path)
    ended = python(*bench, cwd=ROOT).end(120)

    assert ended.code == 0, ended.err
    rows = schemes_report.load(tmp_path / "schemes.csv")
    assert {row["label"] for row in rows} >= {*SCHEMES, "oracle 1"}
    auto = [row for row in rows if row["scheme"] == "auto"]
    assert [row["ended"] for row in auto] == ["stayed", "stayed"]
    assert "auto over oracle, for_good: median" in ended.out


@pytest.mark.parametrize("problem", ["quadratic-1", "dppca"])
def test_auto_is_the_same_for_every_eta0(problem):
    """So one run stands for all."""
    trial = Trial(problem, "complete", 10, 0, "auto", 1.6)

    found = [trials.run(replace(trial, eta0=eta0)) for eta0 in (0.1, 1000.0)]

    assert found[0] == found[1]
    assert found[0].ended == "stayed"


@pytest.mark.parametrize("scheme", ["auto", "global_balance"])
def test_messages_are_those_that_the_exchange_counts(scheme):
    """Until the goal for good, with the first swap, and reductions apart."""
    trial = Trial("quadratic-0", "ring", 10, 0, scheme, 1.6, 30.0)
    row = trials.outcome(trial)

    problems = cases.instance("quadratic-0", 10, 0).problems
    result = solve(
        problems, dadmm.Topology.ring(10), scheme=scheme, relaxation=1.6, eta0=30.0,
        tolerance=0.0, max_iter=row["for_good"],
    )  # fmt: skip

    assert row["messages"] == result.traffic.messages
    assert row["bytes"] == result.traffic.edge_bytes.sum()
    assert row["collectives"] == result.traffic.collectives


def test_the_pooled_logistic_optimum_is_scipys():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), (rng.random(60) < 0.6).astype(float)

    def loss(theta):
        logits = X @ theta[:3] + theta[3]
        value = np.logaddexp(0, logits) - y * logits
        return value.sum() + 0.5 * 2.0 * theta[:3] @ theta[:3]

    theirs = minimize(loss, np.zeros(4), tol=1e-12).x

    np.testing.assert_allclose(cases.logistic_optimum(X, y, 2.0), theirs, atol=1e-5)


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


def test_a_scheme_that_never_gets_there_counts_in_its_ratios():
    """Infinite, not missing; the oracle is no rival for the best."""
    common = {"problem": "lasso", "graph": "ring", "n_nodes": 10, "seed": 0}
    common |= {"init": "shared", "eta0": 1.0}
    counts = {"auto": 20, "vp": None, "nap": 10, "oracle": 5}
    rows = [
        common | {"scheme": name, "label": name, "for_good": n}
        for name, n in counts.items()
    ]

    of = schemes_report.table(rows)

    found = {name: schemes_report.ratios(of, name).tolist() for name in counts}
    assert found == {"auto": [2.0], "vp": [np.inf], "nap": [1.0], "oracle": [0.5]}


def test_the_tables_of_the_page_are_those_of_the_rows(capsys):
    """Those of all schemes: how often they arrive, and what they send."""
    page = (ROOT / "benchmarks" / "SCHEMES.md").read_text("utf-8").splitlines()
    groups = schemes_report.kinds(schemes_report.load(RESULTS / "schemes.csv"))
    for title, rows in groups.items():
        schemes_report.print_schemes(rows, title)
    schemes_report.print_traffic(groups["convex"])

    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if line.startswith("|")]

    assert len(tables) > 30
    assert [line for line in tables if line not in page] == []


def whole_rows(name):
    """Return the stored whole runs."""
    kinds = {"iterations": int, "angle": float, "length_error": float}
    rows = experiment.read_rows(RESULTS / f"{name}-whole.csv")
    return [row | {key: kind(row[key]) for key, kind in kinds.items()} for row in rows]


def test_the_tables_of_dppca_are_those_of_the_rows(capsys):
    """Of the drawn samples; the paper's schemes without their eta0."""
    page = (ROOT / "benchmarks" / "SCHEMES.md").read_text("utf-8")
    rows = schemes_report.load(RESULTS / "dppca.csv")
    bench_dppca.print_auto(rows)
    bench_dppca.print_whole(whole_rows("dppca"))
    found = [row for row in capsys.readouterr().out.splitlines() if row[:1] == "|"]
    assert len(found) == 2 + 6 + 2 + 9
    assert [row for row in found if row not in page.splitlines()] == []

    bench_dppca.print_paper([row for row in rows if row["scheme"] != "auto"])
    found = re.sub(r" \(\d+\)", "", capsys.readouterr().out).splitlines()[-6:]
    for line in found:
        start, *cells = line.strip("| ").split(" | ")
        init, graph = start.split(", ")
        auto = [r for r in rows if bench_dppca.place(r) == (init, graph, "auto")]
        auto = [r for r in auto if r["eta0"] == 1.0]
        own = " / ".join(
            bench_dppca.told(bench_dppca.middle(auto, k)) for k in ("first", "for_good")
        )
        assert f"| {start} | {own} | {' | '.join(cells)} |\n" in page


def test_the_medians_on_the_authors_samples_are_those_of_the_rows(capsys):
    page = (ROOT / "benchmarks" / "SCHEMES.md").read_text("utf-8")
    words = " ".join(page.split())
    bench_dppca.print_auto(schemes_report.load(RESULTS / "dppca-authors.csv"))
    lines = capsys.readouterr().out.splitlines()[-6:]
    good = [line.split(" | ")[3].split(" (")[0] for line in lines]
    assert f"medians for good of {listed(good)}." in words
    ends = whole_rows("dppca-authors")
    bench_dppca.print_whole(ends)
    lines = capsys.readouterr().out.splitlines()[-9:]
    cells = [line.split(" | ")[2].split(" (")[0] for line in lines]
    merged, shared, independent = (listed(cells[k : k + 3]) for k in (0, 3, 6))
    assert f"merged {merged} iterations; shared {shared}; independent" in words
    assert f"independent {independent}. All 120 random starts are stationary" in words
    assert {row["status"] for row in ends} == {"stationary"}
    drawn = [row for row in ends if row["init"] != "merged"]
    assert len(drawn) == 120
    angle = max(row["angle"] for row in drawn)
    off = max(row["length_error"] for row in drawn)
    assert f"within {angle:.3f} degrees, and W W' within {100 * off:.2f} %" in words


def listed(numbers):
    """Return numbers as a sentence lists them."""
    return f"{', '.join(numbers[:-1])} and {numbers[-1]}"


def test_the_search_takes_the_setting_that_is_soonest_there_for_good(monkeypatch):
    """Not the one that is there first; later runs are given up at the best so far."""
    outcomes = {(10.0, 10): (9, 80), (10.0, 50): (30, 60), (100.0, 20): (5, None)}
    caps = []

    def run(trial):
        first, for_good = outcomes.get((trial.eta0, trial.t_max), (None, None))
        caps.append(trial.cap)
        return trials.Outcome(first, for_good, "")

    monkeypatch.setattr(bench_dppca, "run", run)
    (todo, *_) = [t for t in bench_dppca.searches("dppca") if t.scheme == "vp"]

    row = bench_dppca.search(todo)

    assert (row["eta0"], row["t_max"], row["cap"]) == (10.0, 50, 600)
    assert (row["first"], row["for_good"]) == (30, 60)
    assert caps == [None, 80, 80, 80] + 11 * [60]
    (again,) = bench_dppca.again([row], 2)
    assert (again.seed, again.eta0, again.t_max) == (2, 10.0, 50)
    assert bench_dppca.again([row | {"first": None}], 2) == []
    rows = [{"n": 5}, {"n": None}, {"n": None}]  # two have not arrived
    assert bench_dppca.middle(rows, "n") == np.inf
