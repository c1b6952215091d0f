"""``python -m dadmm.predict``: the file it writes, and the files it refuses."""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.cli import predict, progress
from dadmm.data.encoding import Encoding
from dadmm.models.model import Model, Origin
from dadmm.predict import main
from tests.support.runs import contents, refused

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ORIGIN = Origin("certified", "", 12, 1e-3, 90)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of a run with a model of age and sex, and a table to predict."""
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    logistic().save("run/model.json")
    Path("new.csv").write_text("sex,age\nF,30\nM,61\nF,45\n")
    return tmp_path


def logistic(origin=ORIGIN, **more):
    columns = {"age": (), "sex": ("F", "M")}
    encoding = Encoding(columns, "sick", ("no", "yes, bad"), **more)
    fit = {"coef": np.array([0.05, -1.0]), "intercept": np.array(-2.0)}
    return Model("logistic", encoding, fit, origin)


def run(*words):
    assert main(["run", "new.csv", "--out", "out.csv", *map(str, words)]) == 0
    with open("out.csv", newline="") as file:
        return [*csv.reader(file)]


def test_labels_and_probabilities_are_written_with_all_digits(capsys):
    header, *rows = run()

    odds = logistic().predict_proba({"age": [30, 61, 45], "sex": ["F", "M", "F"]})
    assert header == ["prediction", "p(no)", "p(yes, bad)"]
    assert [row[0] for row in rows] == ["no", "yes, bad", "yes, bad"]
    assert_array_equal(np.array([row[1:] for row in rows], float), odds)
    assert capsys.readouterr().out == "3 rows predicted by logistic: out.csv\n"


def test_columns_of_the_table_are_kept(capsys):
    header, *rows = run("--keep", "sex,1")

    assert header[:3] == ["sex", "age", "prediction"]
    assert [row[:2] for row in rows] == [["F", "30"], ["M", "61"], ["F", "45"]]
    Path("odd.csv").write_text("age,sex,prediction\n30,F,1\n")
    words = ["run", "odd.csv", "--out", "b.csv", "--keep", "prediction"]
    assert main(words) == 2
    assert "'prediction'" in capsys.readouterr().err


def test_a_dropped_row_is_an_empty_line(capsys):
    """So the rows are those of the table."""
    logistic(on_missing="drop").save("run/model.json")
    Path("new.csv").write_text("age,sex\n30,F\n,M\n45,F\n")

    assert run()[2] == ["", "", ""]
    assert "3 rows predicted by logistic, 1 of them empty" in capsys.readouterr().out


@pytest.fixture
def many(monkeypatch):
    """A model of two columns without names, eleven rows, and blocks of four rows."""
    fit = {"coef": np.array([1.0, 2.0]), "intercept": np.array(0.1)}
    Model("ridge", Encoding.plain(2), fit, ORIGIN).save("run/model.json")
    rows = np.random.default_rng(0).standard_normal((11, 2))
    np.save("rows.npy", rows)
    np.savetxt(
        "rows.csv", rows, delimiter=",", header="x0,x1", comments="", fmt="%.17g"
    )
    monkeypatch.setattr(predict, "BLOCK", 4)
    return rows


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_many_rows_are_predicted_in_blocks(many, kind):
    """Values are written with all their digits."""
    assert main(["run", f"rows.{kind}", "--out", "out.csv"]) == 0

    header, *values = Path("out.csv").read_text().splitlines()
    assert header == "prediction"
    assert_array_equal(np.array(values, float), many @ [1.0, 2.0] + 0.1)


def test_a_file_is_replaced_only_by_force(capsys):
    Path("out.csv").write_text("mine")

    said = refused(capsys, "run", "new.csv", "--out", "out.csv", main=main)
    assert "--force" in said
    assert Path("out.csv").read_text() == "mine"
    assert len(run("--force")) == 4


@pytest.mark.parametrize("out", ["new.csv", "none/out.csv", "run", "link.csv", "a\0b"])
@pytest.mark.parametrize("force", [(), ("--force",)])
def test_an_output_that_cannot_be_written_is_refused(capsys, out, force):
    """Links are not followed, and neither folders nor the table are replaced."""
    os.symlink("new.csv", "link.csv")
    before = contents(".")

    refused(capsys, "run", "new.csv", "--out", out, *force, main=main)
    assert contents(".") == before


def test_separators_and_commas_can_be_said():
    Path("new.csv").write_bytes("sex;age;größe\nF;30,5;1\n".encode("latin-1"))

    (row,) = run("--separator", ";", "--decimal", ",", "--encoding", "latin-1")[1:]

    odds = logistic().predict_proba({"age": [30.5], "sex": ["F"]})
    assert_array_equal(np.array(row[1:], float), odds[0])


def test_a_model_that_has_not_converged_says_so(capsys):
    """Once the rows are predicted; an error is the only line."""
    origin = ORIGIN._replace(status="not converged", why="no bound")
    logistic(origin).save("run/model.json")

    run()
    assert "12 iterations" in capsys.readouterr().err
    Path("new.csv").write_text("other\n1\n")
    refused(capsys, "run", "new.csv", "--out", "other.csv", main=main)


def test_many_rows_show_progress(many, capsys, monkeypatch):
    """In a log, if a minute has passed at each block."""
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)
    minutes = count(step=60)
    monkeypatch.setattr(progress, "monotonic", lambda: next(minutes))

    assert main(["run", "rows.npy", "--out", "out.csv"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["4/11", "8/11"]


def test_labels_are_not_run_by_a_spreadsheet():
    model = logistic()
    encoding = replace(model.encoding, classes=("-1", "=HYPERLINK(1)"))
    replace(model, encoding=encoding).save("run/model.json")
    header, *rows = run()

    assert header == ["prediction", "p(-1)", "p(=HYPERLINK(1))"]
    assert [row[0] for row in rows] == ["-1", "'=HYPERLINK(1)", "'=HYPERLINK(1)"]
