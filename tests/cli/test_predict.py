"""``python -m dadmm.predict``: the file it writes, and the files it refuses."""

from __future__ import annotations

import csv
import os
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.cli import predict, progress
from dadmm.data.encoding import Column, Encoding
from dadmm.models.model import Model, Origin
from dadmm.predict import main
from tests.support.processes import python
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
    columns = (Column("age", "number"), Column("sex", "category", ("F", "M"), True))
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


def test_values_are_numbers_alone():
    fit = {"coef": np.array([1.0]), "intercept": np.array(0.1)}
    columns = (Column("age", "number"),)
    Model("ridge", Encoding(columns), fit, ORIGIN).save("run/model.json")

    assert run() == [["prediction"], [repr(30.1)], [repr(61.1)], [repr(45.1)]]


def test_a_dropped_row_is_an_empty_line(capsys):
    """So the rows are those of the table."""
    logistic(on_missing="drop").save("run/model.json")
    Path("new.csv").write_text("age,sex\n30,F\n,M\n45,F\n")

    assert run()[2] == ["", "", ""]
    assert "3 rows predicted by logistic, 1 of them empty" in capsys.readouterr().out


def test_filled_gaps_of_a_subspace_have_the_names_of_their_columns():
    rng = np.random.default_rng(0)
    fit = {"W": rng.standard_normal((2, 1)), "mu": np.ones(2), "a": np.array(9.0)}
    encoding = Encoding((Column("u", "number"), Column("v", "number")),
                        on_missing="keep")  # fmt: skip
    model = Model("ppca", encoding, fit, ORIGIN)
    model.save("run/model.json")
    Path("new.csv").write_text("v,u\n1,\n2,3\n")

    header, *rows = run()

    assert header == ["score0", "reconstruction_error", "u", "v"]
    filled = model.impute({"u": [np.nan, 3.0], "v": [1.0, 2.0]})
    assert_array_equal(np.array([row[2:] for row in rows], float), filled)


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_many_rows_are_predicted_in_blocks(monkeypatch, kind):
    """With the same file as a result."""
    fit = {"coef": np.array([1.0, 2.0]), "intercept": np.array(0.1)}
    Model("ridge", Encoding.plain(2), fit, ORIGIN).save("run/model.json")
    rows = np.random.default_rng(0).standard_normal((11, 2))
    np.save("rows.npy", rows)
    np.savetxt("rows.csv", rows, delimiter=",", header="x0,x1", comments="")
    whole = ["run", f"rows.{kind}", "--out"]
    assert main([*whole, "whole.csv"]) == 0
    monkeypatch.setattr(predict, "BLOCK", 4)

    assert main([*whole, "blocks.csv"]) == 0

    assert Path("blocks.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert len(Path("whole.csv").read_text().splitlines()) == 12


def test_many_rows_show_progress(capsys, monkeypatch):
    """In a log, if a minute has passed at each block."""
    fit = {"coef": np.array([1.0, 2.0]), "intercept": np.array(0.1)}
    Model("ridge", Encoding.plain(2), fit, ORIGIN).save("run/model.json")
    np.save("rows.npy", np.arange(22.0).reshape(11, 2))
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)
    monkeypatch.setattr(predict, "BLOCK", 4)
    minutes = count(step=60)
    monkeypatch.setattr(progress, "monotonic", lambda: next(minutes))

    assert main(["run", "rows.npy", "--out", "out.csv"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "row 4/11 36% in 2:00, 30.0 s each, about 3:30 left",
        "row 8/11 73% in 4:00, 30.0 s each, about 1:30 left",
    ]


def test_a_file_is_replaced_only_by_force(capsys):
    Path("out.csv").write_text("mine")

    said = refused(capsys, "run", "new.csv", "--out", "out.csv", main=main)
    assert said.endswith("out.csv exists; choose another --out, or use --force")
    assert Path("out.csv").read_text() == "mine"
    assert len(run("--force")) == 4


def test_nothing_else_is_written(capsys):
    """Neither by a prediction, nor by one that is refused, nor into the run."""
    before = contents(".")
    run()
    after = contents(".")

    assert after.pop("out.csv")
    assert after == before
    Path("new.csv").write_text("age,sex\n30,F\n30,X\n")
    before = contents(".")
    refused(capsys, "run", "new.csv", "--out", "other.csv", main=main)
    assert contents(".") == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "new.csv"), "the following arguments are required: --out"),
        (("none", "new.csv"), "there is no none; give the folder of a run, or a"),
        ((".", "new.csv"), ". has no model.json; only a finished run has one"),
        (("new.csv", "new.csv"), "new.csv is not valid JSON: "),
        (("run", "none.csv"), "none.csv"),
        (("run", "less.csv"), "the table has no column 'sex'; give it the columns"),
        (("run", "other.csv"), "'X', which was not in the fit"),
        (("run", "gap.csv"), "column 'age' has no entry in 1 of 1 rows"),
        (("run", "text.csv"), "age"),
        (("run", "empty.csv"), "empty.csv"),
        (("run", "new.csv", "--unknown", "maybe"), "invalid choice: 'maybe'"),
        (("run", "new.csv", "--decimal", "x"), "invalid choice: 'x'"),
        (("run", "new.csv", "--separator", "ab"), "new.csv is not a valid .csv file"),
        (("run", "new.csv", "--encoding", "uft"), "unknown encoding: uft"),
        (
            ("run", "new.csv", "--on-missing", "mean"),
            "the model has no means to fill in",
        ),
    ],
)
def test_bad_input_gets_one_sentence(capsys, words, said):
    """And leaves no file."""
    Path("less.csv").write_text("age\n1\n")
    Path("other.csv").write_text("age,sex\n1,X\n")
    Path("gap.csv").write_text("age,sex\n,F\n")
    Path("text.csv").write_text("age,sex\nold,F\nyoung,M\n")
    Path("empty.csv").write_text("age,sex\n")
    out = () if words == ("run", "new.csv") else ("--out", "out.csv")

    assert said in refused(capsys, *words, *out, main=main)
    assert not Path("out.csv").exists()
    assert not [name for name in os.listdir() if name.startswith(".")]


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("new.csv", "new.csv is the table itself; choose another --out"),
        ("none/out.csv", "cannot write to none/out.csv: No such file or directory"),
        ("run", "run exists; choose another --out"),
        ("link.csv", "link.csv exists; choose another --out"),
        ("a\0b", "NUL"),
    ],
)
def test_an_output_that_cannot_be_written_gets_one_sentence(capsys, out, said):
    os.symlink("new.csv", "link.csv")

    assert said in refused(capsys, "run", "new.csv", "--out", out, main=main)


def test_force_follows_no_link_and_replaces_no_folder(capsys):
    os.symlink("new.csv", "link.csv")
    for out in ("link.csv", "run"):
        words = ("run", "new.csv", "--force", "--out", out)
        assert "not a plain file" in refused(capsys, *words, main=main)
    assert Path("new.csv").read_text().startswith("sex,age")


def test_a_new_category_is_ignored_if_asked():
    Path("new.csv").write_text("sex,age\nX,30\n")

    (row,) = run("--unknown", "ignore")[1:]

    odds = logistic().predict_proba({"age": [30.0], "sex": ["F"]})
    assert_array_equal(np.array(row[1:], float), odds[0])


def test_separators_and_commas_can_be_said():
    Path("new.csv").write_bytes("sex;age;größe\nF;30,5;1\n".encode("latin-1"))

    (row,) = run("--separator", ";", "--decimal", ",", "--encoding", "latin-1")[1:]

    odds = logistic().predict_proba({"age": [30.5], "sex": ["F"]})
    assert_array_equal(np.array(row[1:], float), odds[0])


def test_a_model_that_has_not_converged_says_so(capsys):
    origin = ORIGIN._replace(status="not converged", why="no bound")
    logistic(origin).save("run/model.json")

    run()

    line = "dadmm: the run of this model ended without convergence, after 12 iterations"
    assert capsys.readouterr().err == f"{line}\n"


def test_an_error_is_the_only_line(capsys):
    origin = ORIGIN._replace(status="not converged", why="no bound")
    logistic(origin).save("run/model.json")
    Path("new.csv").write_text("other\n1\n")

    assert main(["run", "new.csv", "--out", "out.csv"]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dadmm: error: ")


def test_the_module_is_a_command(tmp_path):
    words = ("-m", "dadmm.predict", "run", "new.csv", "--out", "out.csv")
    ended = python(*words, cwd=tmp_path).end()

    assert ended.code == 0, ended.err
    assert ended.out.startswith("3 rows predicted")
