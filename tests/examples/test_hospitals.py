"""examples/hospitals: its commands find what scikit-learn finds in the pooled table."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import linear_model as linear

from dadmm.__main__ import main_of
from dadmm.run import main
from tests.support.processes import ROOT
from tests.support.runs import rows_of, summary_of

FOLDER = Path("examples", "hospitals")
EXACT = {"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
PEERS = {  # the target of a problem, and scikit-learn's estimator; there are 140 rows
    "logistic": ("readmitted", linear.LogisticRegression(C=1.0, **EXACT)),
    "multinomial": ("outcome", linear.LogisticRegression(C=1.0, **EXACT)),
    "poisson": ("days", linear.PoissonRegressor(alpha=1.0 / 140, **EXACT)),
    "ridge": ("cost", linear.Ridge(1.0)),
}


def command(start: str, word: str) -> list[str]:
    """Return the words of a command of the page after its start."""
    page = (ROOT / FOLDER / "README.md").read_text("utf-8").replace("\\\n", " ")
    lines = re.findall(
        rf"^{re.escape(start)} (?!.*--dry-run)(.*\b{word}\b.*)$", page, re.M
    )
    (found,) = [shlex.split(line, comments=True) for line in lines]
    return found


def pooled() -> tuple[np.ndarray, list[dict[str, str]], list[str]]:
    """Return X of the pooled and the new rows, the pooled rows, and names of columns.

    Gaps are filled with means. A category has a column, except the first of its kind.
    """
    rows = [row for i in range(3) for row in rows_of(FOLDER / f"site-{i}.csv")]
    columns = {}
    for name in ("age", "sex", "ward", "pressure", "smoker"):
        cells = [row[name] for row in (*rows, *rows_of(FOLDER / "new.csv"))]
        if name in ("age", "pressure"):
            columns[name] = [float(cell or "nan") for cell in cells]
            continue
        for word in sorted({row[name] for row in rows} - {""})[1:]:
            found = [float(cell == word) if cell else np.nan for cell in cells]
            columns[f"{name}={word}"] = found
    table = np.array([*columns.values()]).T
    means = np.nanmean(table[: len(rows)], axis=0)
    return np.where(np.isnan(table), means, table), rows, [*columns, "intercept"]


@pytest.mark.parametrize("problem", PEERS)
def test_the_fits_equal_scikit_learn(problem, tmp_path, monkeypatch):
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    monkeypatch.chdir(tmp_path)
    fit = command("./launch/local -n 3", problem)
    fit += ["--tolerance", "1e-9", "--quiet", "--out", "run"]
    assert main(["--nodes", "3", *fit]) == 0
    words = command(".venv/bin/dadmm predict runs/hospitals", "new")
    assert main_of("predict")(["run", *words]) == 0

    (target, model), (X, rows, names) = PEERS[problem], pooled()
    y, new = [row[target] for row in rows], X[len(rows) :]
    has_classes = hasattr(model, "predict_proba")
    model.fit(X[: len(rows)], np.array(y) if has_classes else np.array(y, float))
    intercept = np.ravel(model.intercept_)
    if problem == "multinomial":
        intercept = intercept - intercept.mean()
        names = [f"{k}: {name}" for k in model.classes_ for name in names]
    expected = np.column_stack([np.atleast_2d(model.coef_), intercept]).ravel()
    found, told = summary_of("run"), rows_of("predictions.csv")
    assert found["status"] == "certified"
    assert [*found["coefficients"]] == names
    assert_allclose([*found["coefficients"].values()], expected, rtol=1e-6, atol=1e-6)
    assert found["rows_by_node"] == {"0": 60, "1": 45, "2": 35}
    assert [node for node, *_ in found["gaps"]["nodes"]] == [1, 2]
    values = [line["prediction"] for line in told]
    if not has_classes:
        assert_allclose(np.array(values, float), model.predict(new), rtol=1e-6)
        return
    assert values == model.predict(new).tolist()
    odds = [[float(line[f"p({k})"]) for k in model.classes_] for line in told]
    assert_allclose(odds, model.predict_proba(new), atol=1e-6)
