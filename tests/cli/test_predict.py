"""``dadmm predict``: what it writes; sessions have what it prints and refuses."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.cli import predict, progress
from dadmm.data.encoding import Encoding
from dadmm.models.model import Model, Origin
from dadmm.predict import main

ORIGIN = Origin("certified", "", 12, 1e-3, 90)
ROWS = np.random.default_rng(0).standard_normal((11, 2))


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_many_rows_are_predicted_in_blocks_with_all_digits(kind, monkeypatch, capsys):
    """They show progress: in a log, if a minute has passed at each block."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    encoding = Encoding({"x0": (), "x1": ()}, "y", ("no", "yes"))
    fit = {"coef": np.array([1.0, 2.0]), "intercept": np.array(0.1)}
    model = Model("logistic", encoding, fit, ORIGIN)
    model.save("model.json")
    np.save("rows.npy", ROWS)
    form = {"delimiter": ",", "header": "x0,x1", "comments": "", "fmt": "%.17g"}
    np.savetxt("rows.csv", ROWS, **form)
    minutes = count(step=60)
    monkeypatch.setattr(predict, "BLOCK", 4)
    monkeypatch.setattr(progress, "monotonic", lambda: next(minutes))
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)

    assert main(["model.json", f"rows.{kind}", "--out", "out.csv"]) == 0
    header, *lines = Path("out.csv").read_text().splitlines()
    assert header == "prediction,p(no),p(yes)"
    cells = [line.split(",") for line in lines]
    named = dict(zip(("x0", "x1"), ROWS.T, strict=True))
    odds = np.array([row[1:] for row in cells], float)
    assert_array_equal(odds, model.predict_proba(named))
    assert [row[0] == "yes" for row in cells] == (odds[:, 1] > 0.5).tolist()
    said = capsys.readouterr().err.splitlines()
    assert kind == "csv" or [line.split()[1] for line in said] == ["4/11", "8/11"]
