"""examples/hospitals: its commands find what scikit-learn finds in the pooled table."""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.cli.predict import main as predict
from dadmm.run import main
from tests.support.processes import mpiexec
from tests.support.runs import summary_of

ROOT = Path(__file__).parents[2]
FOLDER = Path("examples", "hospitals")
NUMBERS = ("age", "pressure")
FEATURES = ("age", "sex", "ward", "pressure", "smoker")
TARGETS = {
    "logistic": "readmitted", "multinomial": "outcome", "poisson": "days",
    "ridge": "cost",
}  # fmt: skip
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
linear = pytest.importorskip("sklearn.linear_model")


def commands() -> list[list[str]]:
    """Return the words of each command of the page."""
    page = (ROOT / FOLDER / "README.md").read_text("utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```\n(.*?)^```", page, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    starts = ("./launch/", ".venv/bin/dadmm ")
    return [shlex.split(s, comments=True) for s in lines if s.startswith(starts)]


def fits() -> dict[str, list[str]]:
    """Return the settings of the page's fits, by problem."""
    runs = [words[3:] for words in commands() if words[0] == "./launch/local"]
    found = [words for words in runs if "--dry-run" not in words]
    return {words[words.index("--problem") + 1]: words for words in found}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(name: str) -> list[dict[str, str]]:
    with open(FOLDER / name, newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def pooled() -> tuple[np.ndarray, np.ndarray, list[dict[str, str]], list[str]]:
    """Return X and new X with gaps filled, the pooled rows, and names of columns.

    A category has a column, except the first of its kind.
    """
    rows = [row for i in range(3) for row in read(f"site-{i}.csv")]
    columns = {}
    for name in FEATURES:
        cells = [row[name] for row in (*rows, *read("new.csv"))]
        if name in NUMBERS:
            columns[name] = [float(cell or "nan") for cell in cells]
            continue
        for word in sorted({row[name] for row in rows} - {""})[1:]:
            found = [float(cell == word) if cell else np.nan for cell in cells]
            columns[f"{name}={word}"] = found
    table = np.array([*columns.values()]).T
    means = np.nanmean(table[: len(rows)], axis=0)
    table = np.where(np.isnan(table), means, table)
    return table[: len(rows)], table[len(rows) :], rows, [*columns]


EXACT = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
PEERS = {
    "logistic": linear.LogisticRegression(C=1.0, **EXACT),
    "multinomial": linear.LogisticRegression(C=1.0, **EXACT),
    "poisson": linear.PoissonRegressor(alpha=1.0 / 140, **EXACT),  # 140 rows
    "ridge": linear.Ridge(1.0),
}


def check(problem: str, run: str) -> None:
    """Compare coefficients and predictions of a run with those of scikit-learn."""
    X, new, rows, names = pooled()
    y = np.array([row[TARGETS[problem]] for row in rows])
    y = y if problem in ("logistic", "multinomial") else y.astype(float)
    model = PEERS[problem].fit(X, y)
    coef, intercept = np.atleast_2d(model.coef_), np.ravel(model.intercept_)
    names = [*names, "intercept"]
    if problem == "multinomial":
        intercept = intercept - intercept.mean()
        names = [f"{k}: {name}" for k in model.classes_ for name in names]
    expected = np.column_stack([coef, intercept]).ravel()

    found = summary_of(run)
    assert found["status"] == "certified"
    assert [*found["coefficients"]] == names
    assert_allclose([*found["coefficients"].values()], expected, rtol=1e-6, atol=1e-6)
    assert found["rows_by_node"] == {"0": 60, "1": 45, "2": 35}
    assert [node for node, *_ in found["gaps"]["nodes"]] == [1, 2]
    with open("predictions.csv", newline="", encoding="utf-8") as file:
        told = [*csv.DictReader(file)]
    values = [line["prediction"] for line in told]
    if problem in ("poisson", "ridge"):
        assert_allclose(np.array(values, float), model.predict(new), rtol=1e-6)
        return
    assert values == model.predict(new).tolist()
    odds = np.array([[float(line[f"p({k})"]) for k in model.classes_] for line in told])
    assert_allclose(odds, model.predict_proba(new), atol=1e-6)


TIGHT = ("--tolerance", "1e-9", "--quiet", "--out", "run")
OVER_MPI = pytest.param("logistic", 3, marks=pytest.mark.mpi)


@pytest.mark.parametrize(
    ("problem", "ranks"), [*((name, 1) for name in TARGETS), OVER_MPI]
)
def test_the_fits_equal_scikit_learn(problem, ranks, folder):
    if ranks == 1:
        assert main(["--nodes", "3", *fits()[problem], *TIGHT]) == 0
    else:
        ended = mpiexec(3, "-m", "dadmm.run", *fits()[problem], *TIGHT, cwd=folder)
        assert ended.code == 0, ended.err
    (words,) = [words for words in commands() if "predict" in words]
    assert words[:3] == [".venv/bin/dadmm", "predict", "runs/hospitals"]
    assert predict(["run", *words[3:]]) == 0

    check(problem, "run")
