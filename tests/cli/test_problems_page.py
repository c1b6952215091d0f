"""docs/problems.md: its commands run, and find what scikit-learn finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import linear_model

from dadmm.run import main
from tests.support.runs import summary_of

PAGE = (Path(__file__).parents[2] / "docs" / "problems.md").read_text()
TIGHT = ("--tolerance", "1e-6")
N = 200


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """Write the files that the page names; return X, prices and diagnoses."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = rng.normal([1.0, 3.0, -1.0], [1.0, 0.5, 2.0], size=(N, 3))
    price = X @ [3.0, -2.0, 0.0] + 10.0 + rng.standard_t(3, size=N)
    ill = (X @ [1.0, -1.0, 0.5] + 2.0 + rng.logistic(size=N) > 0).astype(float)
    rows = [",".join(map(repr, row)) for row in np.column_stack([X, price]).tolist()]
    head = '"size, m2",rooms,age,price'
    Path("houses.csv").write_text("\n".join([head, *rows]) + "\n")
    np.savez("patients.npz", X=X, y=ill)
    for rank in range(10):
        np.savez(f"hospital-{rank}.npz", X=X[rank::10], y=ill[rank::10])
    return X, price, ill


def fit(*words):
    """Run the main job; return the coefficients in order, the intercept last."""
    assert main([*map(str, words), *TIGHT, "--quiet", "--out", "run"]) == 0
    summary = summary_of("run")
    assert summary["status"] == "certified"
    assert summary["certificate"]["gap"] < 1e-6 * max(summary["objective"], 1.0)
    return [*summary["coefficients"].values()]


def agree(found, model):
    theirs = np.append(model.coef_, model.intercept_)
    assert_allclose(found, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("row", "model", "words"),
    [
        ("| `LinearRegression()` | `--problem least_squares` |",
         linear_model.LinearRegression(), []),
        ("| `Ridge(a)` | `--problem ridge --alpha` a |",
         linear_model.Ridge(7.0), ["--alpha", 7.0]),
        ("| `Lasso(a)` | `--problem lasso --alpha` n a |",
         linear_model.Lasso(0.3, tol=1e-12), ["--alpha", N * 0.3]),
        ("| `ElasticNet(a, l1_ratio=r)` | `--problem elastic_net --alpha` n a "
         "`--l1-ratio` r |",
         linear_model.ElasticNet(0.3, l1_ratio=0.7, tol=1e-12),
         ["--alpha", N * 0.3, "--l1-ratio", 0.7]),
        ("| `LogisticRegression(C=c)` | `--problem logistic --alpha` 1/c |",
         linear_model.LogisticRegression(C=0.2, tol=1e-10), ["--alpha", 1 / 0.2]),
        ("| `PoissonRegressor(alpha=a)` | `--problem poisson --alpha` n a |",
         linear_model.PoissonRegressor(alpha=0.1, tol=1e-10), ["--alpha", N * 0.1]),
        ("| `HuberRegressor(epsilon=e, alpha=a)` that found `scale_` s | `--problem "
         "huber --delta` e s `--alpha` a s |",
         linear_model.HuberRegressor(epsilon=1.5, alpha=2.0, tol=1e-9), None),
    ],
)  # fmt: skip
def test_the_table_of_the_page_is_true(data, row, model, words):
    """At scikit-learn's defaults, but for its tolerance."""
    X, price, ill = data
    assert row in PAGE.splitlines()
    problem = row.partition("--problem ")[2].partition(" ")[0].strip("`")
    binary = problem in ("logistic", "poisson")
    model.fit(X, ill if binary else price)
    if words is None:
        s = model.scale_
        words = ["--delta", model.epsilon * s, "--alpha", model.alpha * s]
    source = "patients.npz" if binary else "houses.csv"

    found = fit("--nodes", 4, "--problem", problem, "--data", source, *words)

    agree(found, model)
