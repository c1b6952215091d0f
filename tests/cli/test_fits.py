"""Problems on the command line: coefficients, scores, errors and bounds of a run."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dadmm
from dadmm.data import datasets
from dadmm.predict import main as predict
from dadmm.run import main
from dadmm.runs.summary import at_most
from tests.support.runs import arrays_of, run_job, summary_of

linear = pytest.importorskip("sklearn.linear_model")
SMALL = ("--nodes", 4, "--n-samples", 80, "--dimension", 5, "--topology", "ring")
N = 200
SAME = {  # the table of docs/problems.md: scikit-learn's model, and flags of a run
    "least_squares": (linear.LinearRegression(), {}),
    "ridge": (linear.Ridge(7.0), {"alpha": 7.0}),
    "lasso": (linear.Lasso(0.3, tol=1e-12), {"alpha": N * 0.3}),
    "elastic_net": (
        linear.ElasticNet(0.3, l1_ratio=0.7, tol=1e-12),
        {"alpha": N * 0.3, "l1-ratio": 0.7},
    ),
    "logistic": (linear.LogisticRegression(C=0.2, tol=1e-10), {"alpha": 5.0}),
    "poisson": (linear.PoissonRegressor(alpha=0.1, tol=1e-10), {"alpha": N / 10}),
    "huber": (linear.HuberRegressor(epsilon=1.5, alpha=2.0, tol=1e-9), {}),
}


@pytest.mark.parametrize("name", SAME)
def test_flags_mean_what_the_table_of_the_page_says(name):
    """At scikit-learn's defaults, but for its tolerance."""
    rng, (model, flags) = np.random.default_rng(0), SAME[name]
    X = rng.normal([1.0, 3.0, -1.0], [1.0, 0.5, 2.0], size=(N, 3))
    y = X @ [3.0, -2.0, 0.0] + 10.0 + rng.standard_t(3, size=N)
    if name in ("logistic", "poisson"):
        y = (X @ [1.0, -1.0, 0.5] + 2.0 + rng.logistic(size=N) > 0).astype(float)
    np.savez("rows.npz", X=X, y=y)
    model.fit(X, y)
    if name == "huber":
        flags = {"delta": 1.5 * model.scale_, "alpha": 2.0 * model.scale_}
    words = [f"--{flag}={value}" for flag, value in flags.items()]
    words += ["--data", "rows.npz", "--nodes", 4, "--tolerance", 1e-6]
    summary = summary_of(run_job("--problem", name, *words))

    found, theirs = [*summary["coefficients"].values()], np.ravel(model.coef_)
    assert summary["status"] == "certified"
    assert_allclose(found, [*theirs, *np.ravel(model.intercept_)], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("more", [(), ("--max-iter", "3")])
def test_printed_bounds_hold(more, capsys):
    """Also those of a run that has not converged."""
    words = map(str, ("--problem", "ridge", *SMALL, *more, "--out", "run"))
    assert main([*words]) == 0
    out, summary = capsys.readouterr().out, summary_of("run")
    X, y, _ = datasets.regression(80, 5)
    rows, penalty = np.column_stack([X, np.ones(80)]), np.diag([1.0] * 5 + [0.0])
    best = np.linalg.solve(rows.T @ rows + penalty, rows.T @ y)
    least = 0.5 * ((rows @ best - y) ** 2).sum() + 0.5 * best @ penalty @ best

    said = re.search(r"objective +(\S+), at most (\S+) above the minimum", out)
    above, gap = float(said[1]) - least, float(said[2])
    assert -0.01 * gap < above <= gap
    assert 0 <= summary["objective"] - least <= summary["certificate"]["gap"]
    names = [*(f"x{k}" for k in range(5)), "intercept"]
    assert list(summary["certificate"]["coefficients"]) == names
    for name, true in zip(names, best, strict=True):
        value = float(re.search(rf"\n +{name} +(\S+)\n", out)[1])
        bound = summary["certificate"]["coefficients"][name]
        assert abs(value - true) <= 1.01 * bound  # it is rounded
    assert (summary["status"] == "certified") == (not more)


def test_directions_that_the_data_leave_open_have_no_bound():
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, size=(40, 2)).astype(float)
    y = X @ [1.0, 2.0] + rng.normal(size=40)
    np.save("twice.npy", np.column_stack([X, X[:, 0], y]))  # x0 and x2 are the same
    words = ("--problem", "least_squares", "--data", "twice.npy", "--nodes", 4)
    summary = summary_of(run_job(*words))
    best = np.linalg.lstsq(np.column_stack([X, np.ones(40)]), y)[0]
    bounds, errors = summary["certificate"]["coefficients"], summary["standard_errors"]

    assert summary["certificate"]["open_directions"] == 1
    assert bounds["x0"] is bounds["x2"] is errors["x0"] is errors["x2"] is None
    found = summary["coefficients"]
    assert found["x0"] + found["x2"] == pytest.approx(best[0], abs=1e-2)
    assert abs(found["x1"] - best[1]) <= bounds["x1"]


def test_agreement_is_by_coefficient(capsys):
    """Nodes that differ in the coefficient of a large column are not said to agree."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [1e-6, 1e6]
    np.save("units.npy", np.column_stack([X, X @ [1e6, 1e-6] + rng.normal(size=60)]))
    words = "--problem least_squares --data units.npy --nodes 6 --no-summaries "
    words += "--max-iter 5 --no-fit-intercept --out run"
    assert main(words.split()) == 0

    consensus, coef = summary_of("run")["consensus"], arrays_of("run")["coef"]
    apart = np.abs(coef - coef.mean(axis=0)).max(axis=0)
    ratio = apart / np.abs(coef).max(axis=0)
    assert consensus["error"] == pytest.approx(ratio.max())
    assert ratio.max() > 0.01
    assert consensus["where"] == f"x{ratio.argmax()}"
    assert at_most(consensus["error"]) in capsys.readouterr().out


def test_scores_and_errors_need_summaries_and_errors_no_penalty():
    """Nor has a run errors that has not converged."""
    words = ("--problem", "logistic", *SMALL)
    assert summary_of(run_job(*words))["standard_errors"] == {}
    few = ("--alpha", 0, "--max-iter", 2)
    summary = summary_of(run_job(*words, *few, out="few"))
    assert summary["standard_errors"] == {}
    assert summary["scores"]["accuracy"] > 0.5
    folder = run_job(*words, "--no-summaries", out="without")
    names = {"scores", "standard_errors", "rows_by_node"}
    assert not names & summary_of(folder).keys()
    assert dadmm.load_model(folder).origin.n_rows is None


TABLE = ("--data", "part-{rank}.csv", "--nodes", 3, "--features", "age,size,ward",
         "--tolerance", 1e-10, "--max-iter", 3000)  # fmt: skip
NAMES = ["age", "size", "ward=B", "ward=C", "intercept"]


@pytest.fixture
def tables(n=40):
    """Write a table for each of three nodes, whose categories differ, and one of all.

    Return X (with columns age, size, ward=B, ward=C) and the other columns by name.
    """
    rng = np.random.default_rng(5)
    wards = np.concatenate([rng.choice(list(own), n) for own in ("AB", "BC", "AC")])
    age, size = rng.uniform(20, 90, 3 * n), rng.standard_normal(3 * n)
    X = np.column_stack([age, 1e3 * size, wards == "B", wards == "C"]).astype(float)
    fit = X @ [0.03, 1e-3, -1.0, 0.5] - 2.0
    found = {
        "sick": np.where(rng.random(3 * n) < 1 / (1 + np.exp(-fit)), "yes", "no"),
        "kind": rng.choice(["red", "green", "blue"], 3 * n),
        "weight": rng.integers(1, 4, 3 * n),
        "count": rng.poisson(np.exp(0.5 * fit)),
    }
    columns = {"age": age, "size": 1e3 * size, "ward": wards} | found
    head, *rows = [",".join(map(str, row)) + "\n" for row in (
        columns, *zip(*columns.values(), strict=True)
    )]  # fmt: skip
    Path("all.csv").write_text("".join([head, *rows]))
    for k in range(3):
        own = rows[k * n : (k + 1) * n]
        Path(f"part-{k}.csv").write_text("".join([head, *own]))
    return X, found


def predicted(classes):
    """Predict the rows of all by the command; return labels and probabilities."""
    assert predict(["run", "all.csv", "--out", "out.csv"]) == 0
    with open("out.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    odds = [[float(row[f"p({name})"]) for name in classes] for row in rows]
    return [row["prediction"] for row in rows], odds


def test_tables_are_fitted_and_predicted_as_by_scikit_learn(tables):
    """Logistic regression with a penalty, on standardised columns."""
    X, found = tables
    mean, scale = X.mean(axis=0), X.std(axis=0)
    Z = (X - mean) / scale
    peer = linear.LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000)
    coef = peer.fit(Z, found["sick"]).coef_[0] / scale
    words = ("--problem", "logistic", "--target", "sick", "--standardise")
    summary = summary_of(run_job(*words, *TABLE))

    expected = [*coef, peer.intercept_[0] - coef @ mean]
    assert_allclose([*summary["coefficients"].values()], expected, rtol=1e-6)
    labels, odds = predicted(peer.classes_)
    assert labels == peer.predict(Z).tolist()
    assert_allclose(odds, peer.predict_proba(Z), atol=1e-6)
    origin = dadmm.load_model("run").origin
    assert (origin.n_rows, origin.status, origin.tolerance) == (120, "certified", 1e-10)
    assert_allclose(summary["scores"]["accuracy"], peer.score(Z, found["sick"]))
    stated = summary["certificate"]["coefficients"]
    for name, value in zip(NAMES, expected, strict=True):
        assert abs(summary["coefficients"][name] - value) < stated[name] + 1e-6
        assert 0.0 < stated[name] < 1e-2


@pytest.mark.parametrize(
    ("problem", "target"), [("logistic", "sick"), ("poisson", "count")]
)
def test_coefficients_and_errors_do_not_depend_on_units(problem, target, tables):
    """Without a penalty, standardised or not, with weights."""
    words = ("--problem", problem, "--target", target, "--weight", "weight", *TABLE)
    plain = summary_of(run_job(*words, "--alpha", 0))
    scaled = summary_of(run_job(*words, "--alpha", 0, "--standardise", out="scaled"))

    for name in ("coefficients", "standard_errors", "scores"):
        assert [*plain[name]] == [*scaled[name]]
        values = [*plain[name].values()], [*scaled[name].values()]
        assert_allclose(*values, rtol=1e-5, atol=1e-8)
    assert [*plain["standard_errors"]] == NAMES


def test_several_classes_have_names_and_errors_by_class(tables):
    X, found = tables
    words = ("--problem", "multinomial", "--target", "kind", "--alpha", 0)
    summary = summary_of(run_job(*words, *TABLE))
    Z = X / X.std(axis=0)
    peer = linear.LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
    peer.fit(Z, found["kind"])

    labels, odds = predicted(peer.classes_)
    assert labels == peer.predict(Z).tolist()
    assert_allclose(odds, peer.predict_proba(Z), atol=1e-6)
    names = [f"{kind}: {name}" for kind in peer.classes_ for name in NAMES]
    assert [*summary["coefficients"]] == names == [*summary["standard_errors"]]
    assert min(summary["standard_errors"].values()) > 0.0
    assert summary["consensus"]["where"] in names
