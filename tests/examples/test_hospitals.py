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
NUMBERS, CATEGORIES = ("age", "pressure"), ("sex", "ward", "smoker")
FEATURES = ("age", "sex", "ward", "pressure", "smoker")
TARGETS = {
    "logistic": "readmitted",
    "multinomial": "outcome",
    "poisson": "days",
    "ridge": "cost",
}
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


def encoded(rows: list[dict[str, str]], words: dict[str, list[str]]) -> np.ndarray:
    """Return rows as numbers: a column per category but the first; NaN for gaps."""
    columns = []
    for name in FEATURES:
        cells = [row[name] for row in rows]
        if name in NUMBERS:
            columns.append([float(cell or "nan") for cell in cells])
        for word in words.get(name, [])[1:]:
            columns.append([float(cell == word) if cell else np.nan for cell in cells])
    return np.array(columns).T


def pooled() -> tuple[np.ndarray, np.ndarray, list[dict[str, str]], list[str]]:
    """Return X and new X with gaps filled, the pooled rows, and names of columns."""
    rows = [row for i in range(3) for row in read(f"site-{i}.csv")]
    words = {name: sorted({row[name] for row in rows} - {""}) for name in CATEGORIES}
    X, new = encoded(rows, words), encoded(read("new.csv"), words)
    means = np.nanmean(X, axis=0)
    names = []
    for name in FEATURES:
        names += [f"{name}={word}" for word in words.get(name, [])[1:]] or [name]
    filled = [np.where(np.isnan(table), means, table) for table in (X, new)]
    return filled[0], filled[1], rows, names


def peer(problem: str, n: int):
    if problem == "poisson":
        return linear.PoissonRegressor(
            alpha=1.0 / n, solver="newton-cholesky", tol=1e-12, max_iter=1000
        )
    if problem == "ridge":
        return linear.Ridge(1.0)
    return linear.LogisticRegression(
        C=1.0, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )


def check(problem: str, run: str) -> None:
    """Compare coefficients and predictions of a run with those of scikit-learn."""
    X, new, rows, names = pooled()
    y = np.array([row[TARGETS[problem]] for row in rows])
    y = y if problem in ("logistic", "multinomial") else y.astype(float)
    model = peer(problem, len(y)).fit(X, y)
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


def predictions(run: str) -> None:
    """Run the page's command of predictions, for the model in this folder."""
    (words,) = [words for words in commands() if "predict" in words]
    assert words[:3] == [".venv/bin/dadmm", "predict", "runs/hospitals"]
    assert predict([run, *words[3:]]) == 0


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
    predictions("run")

    check(problem, "run")
