"""Problems on the command line: built from rows and settings, solved and reported."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import linear_model

from dadmm.data import datasets
from dadmm.run import main
from dadmm.runs.summary import at_most, with_bound
from tests.support.runs import arrays_of, summary_of

SMALL = ("--nodes", 4, "--n-samples", 80, "--dimension", 5, "--topology", "ring")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


N = 200
SAME = {  # the table of docs/problems.md: scikit-learn's model, and flags of a run
    "least_squares": (linear_model.LinearRegression(), {}),
    "ridge": (linear_model.Ridge(7.0), {"alpha": 7.0}),
    "lasso": (linear_model.Lasso(0.3, tol=1e-12), {"alpha": N * 0.3}),
    "elastic_net": (
        linear_model.ElasticNet(0.3, l1_ratio=0.7, tol=1e-12),
        {"alpha": N * 0.3, "l1-ratio": 0.7},
    ),
    "logistic": (linear_model.LogisticRegression(C=0.2, tol=1e-10), {"alpha": 5.0}),
    "poisson": (linear_model.PoissonRegressor(alpha=0.1, tol=1e-10), {"alpha": N / 10}),
    "huber": (linear_model.HuberRegressor(epsilon=1.5, alpha=2.0, tol=1e-9), {}),
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
    words += ["--data", "rows.npz", "--nodes", "4", "--tolerance", "1e-6", "--quiet"]
    assert main(["--problem", name, *words, "--out", "run"]) == 0

    summary = summary_of("run")
    found, theirs = [*summary["coefficients"].values()], np.ravel(model.coef_)
    assert summary["status"] == "certified"
    assert_allclose(found, [*theirs, *np.ravel(model.intercept_)], rtol=1e-4, atol=1e-6)


def printed(capsys, *words):
    """Return the report of a run, and its summary."""
    assert main([*map(str, words), "--out", "run"]) == 0
    return capsys.readouterr().out, summary_of("run")


@pytest.mark.parametrize("more", [[], ["--max-iter", 3]])
def test_printed_bounds_hold(more, capsys):
    """Also those of a run that has not converged."""
    out, summary = printed(capsys, "--problem", "ridge", *SMALL, *more)
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
        assert "of the computation" in out
    assert (summary["status"] == "certified") == (not more)


def test_directions_that_the_data_leave_open_have_no_bound(capsys):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, size=(40, 2)).astype(float)
    y = X @ [1.0, 2.0] + rng.normal(size=40)
    np.save("twice.npy", np.column_stack([X, X[:, 0], y]))  # x0 and x2 are the same
    words = ("--problem", "least_squares", "--data", "twice.npy", "--nodes", 4)
    _, summary = printed(capsys, *words)
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
    words = ("--problem", "least_squares", "--data", "units.npy", "--nodes", 6)
    few = ("--no-summaries", "--max-iter", 5, "--no-fit-intercept")
    out, summary = printed(capsys, *words, *few)

    coef = arrays_of("run")["coef"]
    apart = np.abs(coef - coef.mean(axis=0)).max(axis=0)
    ratio = apart / np.abs(coef).max(axis=0)
    assert summary["consensus"]["error"] == pytest.approx(ratio.max())
    assert ratio.max() > 0.01
    assert summary["consensus"]["where"] == f"x{ratio.argmax()}"
    assert at_most(summary["consensus"]["error"]) in out


def test_numbers_are_rounded_up():
    """And the bound of a rounded value contains its rounding."""
    rng = np.random.default_rng(0)
    for size, share in 10.0 ** rng.uniform([-20, -16], [20, 1], size=(500, 2)):
        value, bound = rng.normal() * size, share * size
        assert bound <= float(at_most(bound)) <= 1.11 * bound
        text, most = with_bound(value, bound)
        assert abs(float(text) - value) + bound <= float(most)
    assert at_most(0.0) == "0.0e+00"
