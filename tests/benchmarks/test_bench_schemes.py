"""The comparison of schemes: its goals, its books, and some stored rows again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

import dadmm
from benchmarks import bench_dppca, bench_schemes, schemes_report
from benchmarks.shared import cases, experiment, trials
from benchmarks.shared.trials import Trial

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def trial_of(row: dict[str, str]) -> Trial:
    """Return the trial of a stored row."""
    kinds = {"n_nodes": int, "seed": int, "t_max": int, "cap": int}
    kinds |= {"relaxation": float, "eta0": float, "budget0": float}
    fields = asdict(Trial("", "", 0, 0, "", 0.0))
    return Trial(**{name: kinds.get(name, str)(row[name]) for name in fields})


@pytest.mark.parametrize(
    ("problem", "graph", "label", "eta0"),
    [
        ("quadratic-0.5", "ring", "auto", 1.0),
        ("quadratic-1", "complete", "edge_ratio 1.6", 0.1),
        ("logistic", "star", "auto", 1.0),
        ("lasso", "grid", "auto", 1.0),
        ("quadratic-0.5", "complete", "edge_balance", 100.0),
        ("logistic", "complete", "node_spectral", 10.0),
    ],
)
def test_stored_rows_can_be_had_again(problem, graph, label, eta0):
    """20 nodes, first seed; another BLAS may round otherwise."""
    wanted = {"problem": problem, "graph": graph, "label": label, "n_nodes": "20"}
    wanted |= {"seed": "0", "eta0": f"{eta0:g}", "init": "shared"}
    stored = experiment.read_rows(RESULTS / "schemes.csv")
    rows = [r for r in stored if all(r[k] == v for k, v in wanted.items())]
    (row,) = rows

    again = trials.Work()(trial_of(row))

    assert abs(again["iterations"] - int(row["iterations"])) <= 1


def test_the_stored_oracle_is_no_better_next_to_it():
    """Half a decade to either side of the best fixed penalty takes longer."""
    stored = schemes_report.load(RESULTS / "schemes.csv")
    case = {"problem": "quadratic-0.5", "graph": "complete", "n_nodes": 20, "seed": 0}
    case |= {"label": "oracle"}
    (row,) = [r for r in stored if all(r[k] == v for k, v in case.items())]
    best = trial_of({k: str(v) for k, v in row.items()})
    best = replace(best, scheme="fixed", cap=2 * row["iterations"])

    found = [
        trials.run(replace(best, eta0=best.eta0 * 10**power))[0]
        for power in (-0.5, 0.0, 0.5)
    ]

    assert abs(found[1] - row["iterations"]) <= 1
    assert all(n is None or n >= found[1] for n in found)


def test_the_slice_for_quick_looks_runs(tmp_path):
    """Rows, tables, and the curves of both kinds of problem."""
    command = [sys.executable, "-m", "benchmarks.bench_schemes", "--quick", "--out", tmp_path]
    ended = subprocess.run(
        command, timeout=120, capture_output=True, text=True, cwd=ROOT, check=False
    )

    assert ended.returncode == 0, ended.stderr
    rows = schemes_report.load(tmp_path / "schemes.csv")
    assert {row["label"] for row in rows} >= {*dadmm.penalty.SCHEMES, "oracle 1"}
    auto = [row for row in rows if row["scheme"] == "auto"]
    assert len(auto) == 2
    assert all(row["ended"] == "reached" for row in auto)
    assert "auto over oracle: median" in ended.stdout


@pytest.mark.parametrize("problem", ["quadratic-1", "dppca"])
def test_auto_is_the_same_for_every_eta0(problem):
    """So one run stands for all."""
    trial = Trial(problem, "complete", 10, 0, "auto", 1.6)

    found = [trials.run(replace(trial, eta0=eta0)) for eta0 in (0.1, 1000.0)]

    assert found[0] == found[1]
    assert found[0][1] == "reached"


@pytest.mark.parametrize("scheme", ["auto", "global_balance"])
def test_messages_are_those_that_the_exchange_counts(scheme):
    """Until the goal, with the first swap, and reductions apart."""
    trial = Trial("quadratic-0", "ring", 10, 0, scheme, 1.6, 30.0)
    row = trials.Work()(trial)

    result = dadmm.solve(
        cases.instance("quadratic-0", 10, 0).problems,
        dadmm.Topology.ring(10),
        scheme=scheme,
        relaxation=1.6,
        eta0=30.0,
        tolerance=0.0,
        max_iter=row["iterations"],
    )

    assert row["messages"] == result.traffic.messages
    assert row["bytes"] == result.traffic.edge_bytes.sum()
    assert row["collectives"] == result.traffic.collectives


def test_the_pooled_logistic_optimum_is_scipys():
    """Newton by hand against a quasi-Newton method of others."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), (rng.random(60) < 0.6).astype(float)

    def loss(theta):
        logits = X @ theta[:3] + theta[3]
        value = np.logaddexp(0, logits) - y * logits
        return value.sum() + 0.5 * 2.0 * theta[:3] @ theta[:3]

    theirs = minimize(loss, np.zeros(4), tol=1e-12).x

    np.testing.assert_allclose(cases.logistic_optimum(X, y, 2.0), theirs, atol=1e-5)


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
        common | {"scheme": name, "label": name, "iterations": n}
        for name, n in counts.items()
    ]

    of = schemes_report.table(rows)

    found = {name: schemes_report.ratios(of, name).tolist() for name in counts}
    assert found == {"auto": [2.0], "vp": [np.inf], "nap": [1.0], "oracle": [0.5]}


def test_a_third_start_is_left_out_only_where_it_decides_nothing():
    """Two of three that fail make the median a failure."""
    first = [t for t in bench_dppca.paper_trials("dppca") if t.scheme == "fixed"][:2]
    counts = {(0, 1): None, (0, 2): None, (1, 1): None, (1, 2): 30}
    rows = [
        asdict(replace(first[k], seed=seed)) | {"iterations": n}
        for (k, seed), n in counts.items()
    ]

    assert bench_dppca.again(rows, 3) == [replace(first[1], seed=3)]
    assert bench_dppca.middle(rows[:2], 3) == np.inf


def test_the_best_setting_on_the_first_start_is_chosen():
    """And the default where none gets there."""
    every = [t for t in bench_dppca.paper_trials("dppca") if t.scheme == "vp"]
    counts = dict(zip(bench_dppca.T_MAX, (50, 40, None, 45, None), strict=True))
    rows = [asdict(t) | {"iterations": counts[t.t_max]} for t in every[:5]]
    rows += [asdict(t) | {"iterations": None} for t in every[5:10]]

    found = bench_dppca.tuned(rows).values()

    assert [row["t_max"] for row in found] == [20, 50]
