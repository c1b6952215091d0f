"""The model and the scores of a run, against scikit-learn and over MPI."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm.data import datasets
from dadmm.predict import main as predict
from dadmm.run import main
from tests.support.processes import mpiexec
from tests.support.runs import summary_of

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
decomposition = pytest.importorskip("sklearn.decomposition")
linear = pytest.importorskip("sklearn.linear_model")
metrics = pytest.importorskip("sklearn.metrics")

SMALL = ("--nodes", "3", "--n-samples", "90", "--dimension", "4", "--topology", "chain")
TIGHT = ("--tolerance", "1e-10", "--max-iter", "3000")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words, out="run"):
    """Run the main job in silence; return its summary and its model."""
    assert main([*words, "--out", out, "--quiet"]) == 0
    return summary_of(out), dadmm.load_model(out)


def logistic(C=np.inf):
    return linear.LogisticRegression(C=C, tol=1e-12, max_iter=10_000)


def errors_of(hessian, variance=1.0):
    return np.sqrt(variance * np.diag(np.linalg.inv(hessian)))


def test_logistic_regression_predicts_as_scikit_learn_on_the_pooled_rows():
    summary, model = run("--problem", "logistic", "--alpha", "0", *SMALL, *TIGHT)
    X, y, _ = datasets.classification(90, 4)
    rows, peer = np.column_stack([X, np.ones(90)]), logistic().fit(X, y)

    odds = model.predict_proba(X)
    assert_allclose(odds, peer.predict_proba(X), atol=1e-6)
    assert_array_equal(model.predict(X), (peer.predict(X) > 0).astype(float))
    found = summary["scores"]
    assert_allclose(found["accuracy"], peer.score(X, y))
    assert_allclose(found["log_loss"], metrics.log_loss(y, odds[:, 1]), rtol=1e-6)
    area = metrics.roc_auc_score(y, odds[:, 1])
    assert abs(found["auc"] - area) <= found["auc_error"] + 1e-12
    hessian = (rows * (odds[:, 0] * odds[:, 1])[:, None]).T @ rows
    errors = [*summary["standard_errors"].values()]
    assert_allclose(errors, errors_of(hessian), rtol=1e-6)
    assert (model.origin.n_rows, model.origin.status) == (90, "certified")
    assert model.settings == {"alpha": 0.0, "fit_intercept": True}
    assert model.origin.tolerance == 1e-10


def test_scores_of_a_subspace_are_those_of_pca():
    words = ("--n-components", "2", "--tolerance", "1e-9", "--max-iter", "5000")
    summary, model = run(*SMALL, *words)
    X, _ = datasets.synthetic(90, 4, 2, 0.2, 0)
    peer = decomposition.PCA(2).fit(X)

    assert_allclose(np.abs(model.transform(X)), np.abs(peer.transform(X)), atol=1e-5)
    share = peer.explained_variance_ratio_.sum()
    assert_allclose(summary["scores"]["explained_variance"], share, rtol=1e-6)


def test_a_penalty_has_no_standard_errors():
    """Nor has a run that has not converged; without summaries there are no scores."""
    words = ("--problem", "logistic", *SMALL)

    assert run(*words)[0]["standard_errors"] == {}
    summary, _ = run(*words, "--alpha", "0", "--overwrite", "--max-iter", "2")
    assert summary["standard_errors"] == {}
    assert summary["scores"]["accuracy"] > 0.5
    summary, model = run(*words, "--no-summaries", "--overwrite")
    assert not {"scores", "standard_errors", "rows_by_node"} & set(summary)
    assert model.origin.n_rows is None


def test_a_new_run_replaces_the_model():
    """Also by none: structure from motion has rows and no model."""
    words = ("--out", "run", "--quiet", "--overwrite")
    assert main(["--problem", "ridge", *SMALL, *words]) == 0
    assert "model.json" in json.loads(Path("run", "manifest.json").read_text())["files"]

    assert main(["--problem", "sfm", "--max-iter", "2", *words]) == 0
    assert sum(summary_of("run")["rows_by_node"].values()) > 0
    with pytest.raises(dadmm.ConfigError, match=r"model\.json"):
        dadmm.load_model("run")


def hospitals(n=40):
    """Write a table for each of three nodes, whose categories differ, and one of all.

    Return X (with columns age, size, ward=B, ward=C) and the columns y, sick, kind and
    weight.
    """
    rng = np.random.default_rng(5)
    wards = np.concatenate([rng.choice(list(own), n) for own in ("AB", "BC", "AC")])
    age, size = rng.uniform(20, 90, 3 * n), rng.standard_normal(3 * n)
    X = np.column_stack([age, 1e3 * size, wards == "B", wards == "C"]).astype(float)
    fit = X @ [0.03, 1e-3, -1.0, 0.5] - 2.0
    found = {
        "y": fit + rng.standard_normal(3 * n),
        "sick": np.where(rng.random(3 * n) < 1 / (1 + np.exp(-fit)), "yes", "no"),
        "kind": rng.choice(["red", "green", "blue"], 3 * n),
        "weight": rng.integers(1, 4, 3 * n),
        "count": rng.poisson(np.exp(0.5 * fit)),
    }
    columns = {"age": age, "size": 1e3 * size, "ward": wards} | found
    rows = [",".join(columns)]
    rows += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    Path("all.csv").write_text("\n".join(rows) + "\n")
    for k in range(3):
        own = [rows[0], *rows[1 + k * n : 1 + (k + 1) * n]]
        Path(f"part-{k}.csv").write_text("\n".join(own) + "\n")
    return X, found


TABLE = (
    "--data", "part-{rank}.csv", "--nodes", "3", "--features", "age,size,ward", *TIGHT
)  # fmt: skip
NAMES = ["age", "size", "ward=B", "ward=C", "intercept"]


def predicted(*words):
    """Predict the table of all rows by the command; return the columns by name."""
    assert predict(["run", "all.csv", "--out", "out.csv", "--force", *words]) == 0
    with open("out.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_tables_are_fitted_and_predicted_as_by_scikit_learn():
    """Logistic regression with a penalty, on standardised columns."""
    X, found = hospitals()
    words = ("--problem", "logistic", "--target", "sick", "--standardise")
    summary, _ = run(*words, *TABLE)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    rows, peer = (X - mean) / scale, logistic(C=1.0)
    peer.fit(rows, found["sick"])
    coef = peer.coef_[0] / scale

    assert [*summary["coefficients"]] == NAMES
    expected = [*coef, peer.intercept_[0] - coef @ mean]
    assert_allclose([*summary["coefficients"].values()], expected, rtol=1e-6)
    columns = predicted()
    assert columns["prediction"] == peer.predict(rows).tolist()
    odds = np.array([columns["p(no)"], columns["p(yes)"]], float).T
    assert_allclose(odds, peer.predict_proba(rows), atol=1e-6)
    stated = summary["certificate"]["coefficients"]
    for name, value in zip(NAMES, expected, strict=True):
        assert abs(summary["coefficients"][name] - value) < stated[name] + 1e-6
        assert 0.0 < stated[name] < 1e-2


@pytest.mark.parametrize(
    ("problem", "target"), [("least_squares", "y"), ("poisson", "count")]
)
def test_coefficients_and_errors_do_not_depend_on_units(problem, target):
    """Without a penalty, standardised or not, with weights."""
    hospitals()
    words = ("--problem", problem, "--target", target, "--weight", "weight", *TABLE)
    words += () if problem == "least_squares" else ("--alpha", "0")
    plain, _ = run(*words)
    scaled, model = run(*words, "--standardise", out="scaled")

    assert model.encoding.scales is not None
    for name in ("coefficients", "standard_errors", "scores"):
        assert [*plain[name]] == [*scaled[name]]
        values = [*plain[name].values()], [*scaled[name].values()]
        assert_allclose(*values, rtol=1e-5, atol=1e-8)
    assert [*plain["standard_errors"]] == NAMES


def test_weighted_least_squares_has_the_errors_of_the_pooled_rows():
    """As those of statsmodels' WLS: sum of w r^2 / (N - p), times (X'WX)^-1."""
    X, found = hospitals()
    words = ("--problem", "least_squares", "--target", "y", "--weight", "weight")
    summary, _ = run(*words, *TABLE)
    rows, weight = np.column_stack([X, np.ones(120)]), found["weight"]
    hessian = (rows * weight[:, None]).T @ rows
    theta = np.linalg.solve(hessian, rows.T @ (weight * found["y"]))
    squares = weight * (found["y"] - rows @ theta) ** 2
    mean = np.average(found["y"], weights=weight)
    total = (weight * (found["y"] - mean) ** 2).sum()

    assert_allclose([*summary["coefficients"].values()], theta, rtol=1e-6)
    errors = [*summary["standard_errors"].values()]
    assert_allclose(errors, errors_of(hessian, squares.sum() / (120 - 5)), rtol=1e-6)
    scores = summary["scores"]
    assert_allclose(scores["r2"], 1.0 - squares.sum() / total, rtol=1e-8)
    assert_allclose(scores["rmse"] ** 2, squares.sum() / weight.sum(), rtol=1e-8)


def test_several_classes_have_names_and_errors_by_class():
    X, found = hospitals()
    words = ("--problem", "multinomial", "--target", "kind", "--alpha", "0")
    summary, _ = run(*words, *TABLE)
    rows, peer = X / X.std(axis=0), logistic()
    odds = peer.fit(rows, found["kind"]).predict_proba(rows)

    columns = predicted()
    assert columns["prediction"] == peer.predict(rows).tolist()
    own = np.array([columns[f"p({name})"] for name in peer.classes_], float).T
    assert_allclose(own, odds, atol=1e-6)
    names = [f"{kind}: {name}" for kind in peer.classes_ for name in NAMES]
    assert [*summary["coefficients"]] == names == [*summary["standard_errors"]]
    assert min(summary["standard_errors"].values()) > 0.0
    assert summary["consensus"]["where"] in names


@pytest.mark.mpi
@pytest.mark.parametrize(
    "words",
    [
        ("--problem", "least_squares", *SMALL[2:]),
        ("--problem", "ppca", "--n-components", "2", "--missing-fraction", "0.1",
         *SMALL[2:]),
        ("--problem", "poisson", "--alpha", "0", "--target", "count", "--weight",
         "weight", "--standardise", "--data", "part-{rank}.csv", "--features",
         "age,size,ward"),
    ],
    ids=lambda words: words[1],
)  # fmt: skip
def test_models_over_mpi_are_bitwise_those_of_one_process(folder, words):
    """Also of tables with categories, weights and standardised columns."""
    hospitals()
    job = ("-m", "dadmm.run", *words, "--out", "ranks", "--quiet")
    ended = mpiexec(3, *job, cwd=folder)
    assert ended.code == 0, ended.err
    summary, model = run(*words, "--nodes", "3")

    other = summary_of("ranks")
    for name in ("scores", "standard_errors", "rows_by_node", "certificate"):
        assert summary[name] == other[name]
    assert summary.get("coefficients") == other.get("coefficients")
    assert Path("ranks", "model.json").read_bytes() == model.to_json().encode()
