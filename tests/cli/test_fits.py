"""Problems on the command line: coefficients, scores, errors and bounds of a run."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.data import datasets
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


@pytest.mark.parametrize("more", [(), ("--max-iter", 3)])
def test_stated_bounds_hold(more):
    summary = summary_of(run_job("--problem", "ridge", *SMALL, *more))
    X, y, _ = datasets.regression(80, 5)
    rows, penalty = np.column_stack([X, np.ones(80)]), np.diag([1.0] * 5 + [0.0])
    best = np.linalg.solve(rows.T @ rows + penalty, rows.T @ y)
    least = 0.5 * ((rows @ best - y) ** 2).sum() + 0.5 * best @ penalty @ best

    found, bounds = summary["coefficients"], summary["certificate"]
    assert 0 <= summary["objective"] - least <= bounds["gap"]
    assert (
        [*bounds["coefficients"]]
        == [*found]
        == [*(f"x{k}" for k in range(5)), "intercept"]
    )
    off = np.abs(np.subtract([*found.values()], best))
    assert (off <= [*bounds["coefficients"].values()]).all()
    assert (summary["status"] == "certified") == (not more)


def test_agreement_is_by_coefficient():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [1e-6, 1e6]
    np.save("units.npy", np.column_stack([X, X @ [1e6, 1e-6] + rng.normal(size=60)]))
    words = "--problem least_squares --data units.npy --nodes 6 --no-summaries "
    words += "--max-iter 5 --no-fit-intercept"
    folder = run_job(*words.split())

    consensus, coef = summary_of(folder)["consensus"], arrays_of(folder)["coef"]
    apart = np.abs(coef - coef.mean(axis=0)).max(axis=0)
    ratio = apart / np.abs(coef).max(axis=0)
    assert consensus["error"] == pytest.approx(ratio.max())
    assert ratio.max() > 0.01
    assert consensus["where"] == f"x{ratio.argmax()}"


@pytest.mark.parametrize("problem", ["logistic", "poisson"])
def test_coefficients_errors_and_scores_do_not_depend_on_units(problem):
    rng, head = np.random.default_rng(5), "age,size,ward,weight,y\n"
    for k, wards in enumerate(("AB", "BC", "AC")):
        own = zip(rng.uniform(20, 90, 40), rng.normal(0, 1e3, 40),
                  rng.choice([*wards], 40), rng.integers(1, 4, 40),
                  rng.integers(0, 2, 40), strict=True)  # fmt: skip
        rows = [",".join(map(str, row)) + "\n" for row in own]
        Path(f"part-{k}.csv").write_text("".join([head, *rows]))
    words = f"--problem {problem} --weight weight --data part-{{rank}}.csv --nodes 3 "
    words += "--tolerance 1e-10 --max-iter 3000 --alpha 0"
    plain = summary_of(run_job(*words.split()))
    scaled = summary_of(run_job(*words.split(), "--standardise", out="scaled"))

    for name in ("coefficients", "standard_errors", "scores"):
        assert [*plain[name]] == [*scaled[name]]
        values = [*plain[name].values()], [*scaled[name].values()]
        assert_allclose(*values, rtol=1e-5, atol=1e-8)
    names = ["age", "size", "ward=B", "ward=C", "intercept"]
    assert [*plain["standard_errors"]] == names
