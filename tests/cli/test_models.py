"""The model and the scores of a run, against scikit-learn and over MPI."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dadmm
from dadmm.predict import main as predict
from dadmm.run import main
from tests.support.processes import mpiexec
from tests.support.runs import summary_of

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
SMALL = ("--nodes", "3", "--n-samples", "90", "--dimension", "4", "--topology", "chain")
TIGHT = ("--tolerance", "1e-10", "--max-iter", "3000")
TABLE = (
    "--data", "part-{rank}.csv", "--nodes", "3", "--features", "age,size,ward", *TIGHT
)  # fmt: skip
NAMES = ["age", "size", "ward=B", "ward=C", "intercept"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tables(folder, n=40):
    """Write a table for each of three nodes, whose categories differ, and one of all.

    Return X (with columns age, size, ward=B, ward=C) and the other columns by name.
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


def run(*words, out="run"):
    """Run the main job in silence; return its summary and its model."""
    assert main([*words, "--out", out, "--quiet"]) == 0
    return summary_of(out), dadmm.load_model(out)


def predicted(*words):
    """Predict the table of all rows by the command; return the columns by name."""
    assert predict(["run", "all.csv", "--out", "out.csv", "--force", *words]) == 0
    with open("out.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_scores_and_errors_need_summaries_and_errors_no_penalty(capsys):
    """Nor has a run errors that has not converged."""
    words = ("--problem", "logistic", *SMALL)

    assert run(*words)[0]["standard_errors"] == {}
    summary, _ = run(*words, "--alpha", "0", "--overwrite", "--max-iter", "2")
    assert summary["standard_errors"] == {}
    assert summary["scores"]["accuracy"] > 0.5
    summary, model = run(*words, "--no-summaries", "--overwrite")
    assert not {"scores", "standard_errors", "rows_by_node"} & set(summary)
    assert model.origin.n_rows is None


def test_tables_are_fitted_and_predicted_as_by_scikit_learn(tables):
    """Logistic regression with a penalty, on standardised columns."""
    linear = pytest.importorskip("sklearn.linear_model")
    X, found = tables
    words = ("--problem", "logistic", "--target", "sick", "--standardise")
    summary, _ = run(*words, *TABLE)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    peer = linear.LogisticRegression(C=1.0, tol=1e-12, max_iter=10_000)
    peer.fit((X - mean) / scale, found["sick"])
    coef = peer.coef_[0] / scale

    expected = [*coef, peer.intercept_[0] - coef @ mean]
    assert_allclose([*summary["coefficients"].values()], expected, rtol=1e-6)
    columns = predicted()
    assert columns["prediction"] == peer.predict((X - mean) / scale).tolist()
    odds = np.array([columns["p(no)"], columns["p(yes)"]], float).T
    assert_allclose(odds, peer.predict_proba((X - mean) / scale), atol=1e-6)
    origin = dadmm.load_model("run").origin
    assert (origin.n_rows, origin.status, origin.tolerance) == (120, "certified", 1e-10)
    accuracy = peer.score((X - mean) / scale, found["sick"])
    assert_allclose(summary["scores"]["accuracy"], accuracy)
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
    plain, _ = run(*words, "--alpha", "0")
    scaled, model = run(*words, "--alpha", "0", "--standardise", out="scaled")

    assert model.encoding.scales is not None
    for name in ("coefficients", "standard_errors", "scores"):
        assert [*plain[name]] == [*scaled[name]]
        values = [*plain[name].values()], [*scaled[name].values()]
        assert_allclose(*values, rtol=1e-5, atol=1e-8)
    assert [*plain["standard_errors"]] == NAMES


def test_several_classes_have_names_and_errors_by_class(tables):
    linear = pytest.importorskip("sklearn.linear_model")
    X, found = tables
    words = ("--problem", "multinomial", "--target", "kind", "--alpha", "0")
    summary, _ = run(*words, *TABLE)
    unit = X.std(axis=0)
    peer = linear.LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000)
    odds = peer.fit(X / unit, found["kind"]).predict_proba(X / unit)

    columns = predicted()
    assert columns["prediction"] == peer.predict(X / unit).tolist()
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
        ("least_squares", *SMALL[2:]),
        ("ppca", "--n-components", "2", "--missing-fraction", "0.1", *SMALL[2:]),
        ("poisson", "--alpha", "0", "--target", "count", "--weight", "weight",
         "--standardise", *TABLE[:2], *TABLE[4:6]),
        ("logistic", "--target", "sick", "--data", "all.csv", *TABLE[4:6]),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_models_over_mpi_are_bitwise_those_of_one_process(folder, tables, words):
    """Also of tables with categories, weights and standardised columns."""
    words = ("--problem", *words)
    job = ("-m", "dadmm.run", *words, "--out", "ranks", "--quiet")
    ended = mpiexec(3, *job, cwd=folder)
    assert ended.code == 0, ended.err
    summary, model = run(*words, "--nodes", "3")

    other = summary_of("ranks")
    for name in ("scores", "standard_errors", "rows_by_node", "certificate"):
        assert summary[name] == other[name]
    assert Path("ranks", "model.json").read_bytes() == model.to_json().encode()
