"""``dadmm predict``: the file it writes, and the files it refuses."""

from __future__ import annotations

import csv
import os
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
ROWS = np.random.default_rng(0).standard_normal((11, 2))


@pytest.fixture(autouse=True)
def model(home):
    """A model of age and sex in the folder of a run, and a table to predict."""
    Path("run").mkdir()
    Path("new.csv").write_text("sex,age\nF,30\nM,61\nF,45\n")
    return save_logistic()


def save_logistic(origin=ORIGIN, classes=("no", "yes, bad"), **more):
    encoding = Encoding({"age": (), "sex": ("F", "M")}, "sick", classes, **more)
    fit = {"coef": np.array([0.05, -1.0]), "intercept": np.array(-2.0)}
    made = Model("logistic", encoding, fit, origin)
    made.save("run/model.json")
    return made


def run(*words, table="new.csv"):
    assert main(["run", table, "--out", "out.csv", *words]) == 0
    with open("out.csv", newline="") as file:
        return [*csv.reader(file)]


def test_labels_and_probabilities_are_written_with_all_digits(model, capsys):
    header, *rows = run()

    odds = model.predict_proba({"age": [30, 61, 45], "sex": ["F", "M", "F"]})
    assert header == ["prediction", "p(no)", "p(yes, bad)"]
    assert [row[0] for row in rows] == ["no", "yes, bad", "yes, bad"]
    assert_array_equal(np.array([row[1:] for row in rows], float), odds)
    assert capsys.readouterr().out == "3 rows predicted by logistic: out.csv\n"


def test_columns_of_the_table_are_kept(capsys):
    header, *rows = run("--keep", "sex,1")

    assert header[:3] == ["sex", "age", "prediction"]
    assert [row[:2] for row in rows] == [["F", "30"], ["M", "61"], ["F", "45"]]
    Path("odd.csv").write_text("age,sex,prediction\n30,F,1\n")
    words = ("run", "odd.csv", "--out", "b.csv", "--keep", "prediction")
    assert "'prediction'" in refused(capsys, *words, main=main)


def test_a_dropped_row_is_an_empty_line(capsys):
    """So the rows are those of the table."""
    save_logistic(on_missing="drop")
    Path("new.csv").write_text("age,sex\n30,F\n,M\n45,F\n")

    assert run()[2] == ["", "", ""]
    assert "3 rows predicted by logistic, 1 of them empty" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_many_rows_are_predicted_in_blocks(kind, monkeypatch, capsys):
    """They show progress: in a log, if a minute has passed at each block."""
    fit = {"coef": np.array([1.0, 2.0]), "intercept": np.array(0.1)}
    Model("ridge", Encoding.plain(2), fit, ORIGIN).save("run/model.json")
    np.save("rows.npy", ROWS)
    form = {"delimiter": ",", "header": "x0,x1", "comments": "", "fmt": "%.17g"}
    np.savetxt("rows.csv", ROWS, **form)
    minutes = count(step=60)
    monkeypatch.setattr(predict, "BLOCK", 4)
    monkeypatch.setattr(progress, "monotonic", lambda: next(minutes))
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)

    header, *values = run(table=f"rows.{kind}")
    assert header == ["prediction"]
    assert_array_equal(np.array(values, float)[:, 0], ROWS @ [1.0, 2.0] + 0.1)
    lines = capsys.readouterr().err.splitlines()
    assert kind == "csv" or [line.split()[1] for line in lines] == ["4/11", "8/11"]


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


def test_separators_and_commas_can_be_said(model):
    Path("new.csv").write_bytes("sex;age;größe\nF;30,5;1\n".encode("latin-1"))

    (row,) = run("--separator", ";", "--decimal", ",", "--encoding", "latin-1")[1:]
    odds = model.predict_proba({"age": [30.5], "sex": ["F"]})
    assert_array_equal(np.array(row[1:], float), odds[0])


def test_a_model_that_has_not_converged_says_so(capsys):
    """Once the rows are predicted; an error is the only line."""
    save_logistic(ORIGIN._replace(status="not converged", why="no bound"))
    run()
    assert "12 iterations" in capsys.readouterr().err
    Path("new.csv").write_text("other\n1\n")
    refused(capsys, "run", "new.csv", "--out", "other.csv", main=main)


def test_labels_are_not_run_by_a_spreadsheet():
    save_logistic(classes=("-1", "=HYPERLINK(1)"))
    header, *rows = run()

    assert header == ["prediction", "p(-1)", "p(=HYPERLINK(1))"]
    assert [row[0] for row in rows] == ["-1", "'=HYPERLINK(1)", "'=HYPERLINK(1)"]
