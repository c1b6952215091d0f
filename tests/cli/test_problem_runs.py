"""Problems on the command line: built from rows and settings, solved and reported."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import dadmm
from dadmm import problems
from dadmm.data import datasets, shard
from dadmm.data.encoding import Rows
from dadmm.problems import builder
from dadmm.run import main
from dadmm.runs.summary import at_most, with_bound
from tests.support.processes import mpiexec
from tests.support.runs import arrays_of, refused, summary_of
from tests.support.solving import solve

REGRESSIONS = ["least_squares", "ridge", "lasso", "elastic_net", "huber"]
SUPERVISED = [*REGRESSIONS, "logistic"]
NAMES = [f"x{k}" for k in range(5)]
SMALL = ("--nodes", 4, "--n-samples", 80, "--dimension", 5, "--topology", "ring")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words, out="run"):
    """Run the main job in silence; return its arrays and its summary."""
    assert main([*map(str, words), "--out", out, "--quiet"]) == 0
    return arrays_of(out), summary_of(out)


@pytest.mark.parametrize(
    ("name", "flags", "settings"),
    [
        ("least_squares", {}, {}),
        ("ridge", {}, {"alpha": 1.0}),
        ("ridge", {"alpha": 3.0}, {"alpha": 3.0}),
        ("ridge", {"no_fit_intercept": None}, {"alpha": 1.0, "fit_intercept": False}),
        ("lasso", {"alpha": 8.0}, {"alpha": 8.0}),
        ("elastic_net", {"alpha": 8.0}, {"alpha": 8.0, "l1_ratio": 0.5}),
        ("elastic_net", {"l1_ratio": 0.2}, {"alpha": 1.0, "l1_ratio": 0.2}),
        ("elastic_net", {}, {"alpha": 1.0, "l1_ratio": 0.5}),
        ("huber", {"delta": 0.3, "alpha": 2.0}, {"delta": 0.3, "alpha": 2.0}),
        ("huber", {}, {"delta": 1.35, "alpha": 0.0}),
        ("logistic", {"alpha": 0.5}, {"alpha": 0.5}),
    ],
)  # fmt: skip
def test_a_run_does_what_solve_does(name, flags, settings):
    pairs = [(f"--{k.replace('_', '-')}", v) for k, v in flags.items()]
    words = [word for pair in pairs for word in pair if word is not None]
    found, _ = run("--problem", name, *SMALL, *words)

    draw = datasets.classification if name == "logistic" else datasets.regression
    X, y, _ = draw(80, 5)
    rows = zip(shard.split(X, 4), np.array_split(y, 4), strict=True)
    own = settings | ({"alpha": settings["alpha"] / 4} if "alpha" in settings else {})
    made = [problems.PROBLEMS[name](*block, **own) for block in rows]
    result = solve(made, dadmm.Topology.ring(4))
    for part, values in result.layout.views(result.theta)._asdict().items():
        assert_array_equal(found[part], values)


def pooled(alpha=1.0):
    """Return the ridge solution of all rows, intercept last, and its objective."""
    X, y, _ = datasets.regression(80, 5)
    rows = np.column_stack([X, np.ones(len(X))])
    penalty = alpha * np.diag([1.0] * 5 + [0.0])
    best = np.linalg.solve(rows.T @ rows + penalty, rows.T @ y)
    least = 0.5 * ((rows @ best - y) ** 2).sum() + 0.5 * best @ penalty @ best
    return best, least


def printed(capsys, *words, code=0):
    """Return the lines of the report of a run."""
    assert main([*map(str, words), "--out", "run", "--overwrite"]) == code
    return capsys.readouterr().out.splitlines()


def test_a_certified_run_prints_bounds_that_hold(capsys):
    lines = printed(capsys, "--problem", "ridge", *SMALL, "--no-record-edges")
    best, least = pooled()

    assert lines[0].startswith("ridge by snap in the metric on ring, 4 nodes; ")
    assert re.match(r"certified \(tolerance 0\.001\) after \d+ iterations, ", lines[1])
    assert re.match(r"nodes agree to \S+ in every coefficient, relative to", lines[5])
    said = re.fullmatch(r"objective (\S+), at most (\S+) above the minimum", lines[6])
    above, gap = float(said[1]) - least, float(said[2])
    assert -0.01 * gap < above <= gap < 1e-3
    assert lines[7] == "80 rows (20 at each node)"
    assert re.fullmatch(r"on these rows: R\^2 0\.\d+, RMSE 0\.\d+", lines[8])
    assert lines[9] == "coefficients (+- the bound on the error):"
    words = [line.split() for line in lines[10:16]]
    assert [word[0] for word in words] == [*NAMES, "intercept"]
    for (_, value, sign, bound), true in zip(words, best, strict=True):
        assert sign == "+-"
        assert abs(float(value) - true) <= float(bound) < 1e-2
    assert lines[16:] == ["results in run"]
    assert not [line for line in lines if "converged" in line or "angle" in line]
    summary = summary_of("run")
    found = summary["certificate"]
    assert (summary["status"], summary["why"]) == ("certified", "")
    assert (summary["coordinates"], summary["converged"]) == ("metric", True)
    assert 0 <= summary["objective"] - least <= found["gap"]
    assert list(found["coefficients"]) == [*NAMES, "intercept"]
    assert found["open_directions"] == 0 < found["radius"]
    assert found["assumed"] == []


@pytest.mark.parametrize("flag", [["--no-summaries"], ["--coordinates", "raw"]])
def test_a_run_in_raw_coordinates_bounds_nothing(flag, capsys):
    lines = printed(capsys, "--problem", "ridge", *flag, *SMALL)
    found = summary_of("run")

    assert (found["status"], found["coordinates"]) == ("stopped", "raw")
    assert found["converged"]
    assert lines[2] == f"not certified: {found['why']}"
    assert f"objective {found['objective']:.6g}" in lines
    assert "coefficients (mean over the nodes):" in lines
    assert found["certificate"] is None
    assert 'coordinates = "raw"' in Path("run/config.toml").read_text()


def test_a_run_that_has_not_converged_says_so_and_what_it_knows(capsys):
    far = ("--problem", "least_squares", *SMALL, "--max-iter", 3)
    lines = printed(capsys, *far, "--strict", code=3)
    least = pooled(0.0)[1]

    said = "NOT converged (rule optimality, tolerance 0.001): max_iter reached after 3 "
    assert lines[1].startswith(said)
    said = re.fullmatch(r"objective (\S+), at most (\S+) above the minimum", lines[6])
    assert 0 < float(said[1]) - least <= float(said[2])
    assert summary_of("run")["status"] == "not converged"


@pytest.mark.parametrize("more", [["--scheme", "vp"], []])
def test_strict_is_content_with_every_other_status(more, capsys):
    printed(capsys, "--problem", "ridge", *SMALL, "--strict", *more)
    printed(capsys, *SMALL, "--n-components", 2, "--tolerance", 0.1, "--strict")
    assert summary_of("run")["status"] == "stationary"


def test_classes_that_can_be_separated_have_no_minimum(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) * [1.0, 1e4]
    np.save("apart.npy", np.column_stack([X, X @ [1.0, 1e-4] > 0]))
    words = ("--problem", "logistic", "--data", "apart.npy", "--nodes", 4)
    lines = printed(capsys, *words, "--alpha", 0, "--strict", code=3)

    assert "): the objective has no minimum; stopped after" in lines[1]
    assert lines[2] == (
        "the classes can be separated; larger coefficients then always fit better"
    )
    assert lines[-1].startswith("use alpha > 0")
    assert not [line for line in lines if "resume" in line]
    assert summary_of("run")["reason"] == "no_minimum"
    assert not Path("run/checkpoints").exists()
    said = refused(capsys, "--resume", "run", "--max-iter", 2000)
    assert "has ended (no minimum)" in said
    assert printed(capsys, *words, "--alpha", 1)[1].startswith("certified")


def test_directions_that_the_data_leave_open_are_named(capsys):
    rng = np.random.default_rng(0)
    X = rng.integers(-9, 9, size=(40, 2)).astype(float)
    twice = np.column_stack([X, X[:, 0]])  # a and c are the same column
    text = "\n".join(",".join(map(str, row)) for row in [*twice.tolist()])
    y = X @ [1.0, 2.0] + rng.normal(size=40)
    rows = zip(text.splitlines(), y.tolist(), strict=True)
    table = "a,b,c,y\n" + "\n".join(f"{row},{value}" for row, value in rows)
    Path("twice.csv").write_text(table + "\n")
    words = ("--problem", "least_squares", "--data", "twice.csv", "--nodes", 4)
    lines = printed(capsys, *words)

    assert lines[1].startswith("certified")
    assert lines[7] == (
        "the data leave 1 direction open; coefficients in it have no bound"
    )
    assert lines[8].startswith("assumed: directions along which")
    ends = [line.split()[-1] for line in lines[12:16]]
    assert ends[0] == ends[2] == "(open)"
    errors = summary_of("run")["standard_errors"]
    assert errors["a"] is errors["c"] is None
    assert ends[1] == f"{errors['b']:.3g}"
    assert ends[3] == f"{errors['intercept']:.3g}"
    found = summary_of("run")["certificate"]
    assert found["open_directions"] == 1
    assert found["coefficients"]["a"] is found["coefficients"]["c"] is None
    best = np.linalg.lstsq(np.column_stack([X, np.ones(40)]), y)[0]
    known = summary_of("run")["coefficients"]
    assert known["a"] + known["c"] == pytest.approx(best[0], abs=1e-2)
    assert abs(known["b"] - best[1]) <= found["coefficients"]["b"]


def test_agreement_is_by_coefficient(capsys):
    """Nodes that differ in the coefficient of a large column are not said to agree."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) * [1e-6, 1e6]
    np.save("units.npy", np.column_stack([X, X @ [1e6, 1e-6] + rng.normal(size=60)]))
    words = ("--problem", "least_squares", "--data", "units.npy", "--nodes", 6)
    few = ("--no-summaries", "--max-iter", 5, "--no-fit-intercept")
    lines = printed(capsys, *words, *few)

    arrays, summary = arrays_of("run"), summary_of("run")
    apart = np.abs(arrays["coef"] - arrays["coef"].mean(axis=0)).max(axis=0)
    worst = (apart / np.abs(arrays["coef"]).max(axis=0)).max()
    assert summary["consensus"]["error"] == pytest.approx(worst)
    assert worst > 0.01
    assert f"(worst: {summary['consensus']['where']})" in lines[5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--coordinates", "metric", "--no-summaries"], "coordinates metric need the"),
        (["--coordinates", "metric"], "is not possible: the problem PPCA"),
        (["--coordinates", "units", "--problem", "ridge"], "is not possible: they are"),
    ],
)
def test_coordinates_that_are_not_possible_are_one_sentence(words, said, capsys):
    assert said in refused(capsys, *words, "--nodes", 2)


def test_a_resumed_run_keeps_its_coordinates(capsys):
    printed(capsys, "--problem", "ridge", *SMALL, "--max-iter", 3)
    said = refused(capsys, "--resume", "run", "--max-iter", 99, "--no-summaries")

    assert "coordinates is 'raw' but was 'auto' when the run in run began" in said


def test_numbers_are_rounded_up():
    """And the bound of a rounded value contains its rounding."""
    rng = np.random.default_rng(0)
    for size, share in 10.0 ** rng.uniform([-20, -16], [20, 1], size=(500, 2)):
        value, bound = rng.normal() * size, share * size
        assert bound <= float(at_most(bound)) <= 1.11 * bound
        text, most = with_bound(value, bound)
        assert abs(float(text) - value) + bound <= float(most)
    assert at_most(0.0) == "0.0e+00"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--problem", "rigde"], "unknown problem 'rigde'; choose one of ppca, sfm, "),
        (["--alpha", 1], "alpha cannot"),
        (["--fit-intercept"], "fit_intercept cannot"),
        (["--problem", "ridge", "--delta", 1], "delta cannot"),
        (["--problem", "sfm", "--target", 1], "target cannot"),
        (["--problem", "ridge", "--record-angle"], "record_angle cannot"),
        (["--problem", "lasso", "--compare-centralised"], "compare_centralised cannot"),
        (["--problem", "ridge", "--alpha=-1"], "alpha must be"),
        (["--problem", "lasso", "--alpha", "much"], "must be a number, got 'much'"),
        (["--problem", "huber", "--delta", 0], "delta must be above 0"),
        (["--problem", "logistic", "--data", "y.npy"], "has 40 classes (1, 3, 5, 7, 9"),
        (["--problem", "ridge", "--data", "y.npy", "--target", 9], "no column '9' for"),
        (["--problem", "ridge", "--data", "nan.npy"], "column 'x1' has no entry in"),
    ],
)
def test_a_mistake_is_one_sentence(words, said, capsys):
    np.save("y.npy", np.arange(80.0).reshape(40, 2))
    np.save("nan.npy", np.where(np.arange(80).reshape(40, 2) == 7, np.nan, 1.0))

    assert said in refused(capsys, *words, "--nodes", 2)


def test_other_columns_on_one_node_are_a_mistake(capsys):
    for i in range(2):
        np.save(f"part-{i}.npy", np.ones((5, 3 + i)))
    words = ("--problem", "ridge", "--data", "part-{rank}.npy", "--nodes", 2)

    assert (
        "node 1 has 4 columns but node 0 has 3; all nodes must have the same columns"
    ) in refused(capsys, *words)


def test_settings_win_over_flags():
    problem = builder.build(
        "ridge", Rows(np.ones((3, 2)), np.ones(3)), {"alpha": 1.0}, {"alpha": 5.0}
    )

    assert problem.alpha == 5.0


HOUSES = '"size, m2",rooms,price\n'


def write_houses(path, head=HOUSES, *, seed=0, n=30):
    """Write rows whose price is 3 size - 2 rooms + 10, to a tenth."""
    rng = np.random.default_rng(seed)
    X = rng.normal([1.0, 3.0], 1.0, size=(n, 2))
    y = X @ [3.0, -2.0] + 10.0 + 0.1 * rng.normal(size=n)
    rows = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
    Path(path).write_text(head + "\n".join(rows) + "\n")


def test_coefficients_have_the_names_of_their_columns(capsys):
    write_houses("houses.csv")
    words = ("--problem", "least_squares", "--data", "houses.csv", "--nodes", 3)
    assert main([*map(str, words), "--target", "rooms", "--out", "rooms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found, summary = run(*words, "--target", "price")

    mean = {
        "size, m2": found["coef"][:, 0].mean(),
        "rooms": found["coef"][:, 1].mean(),
        "intercept": found["intercept"].mean(),
    }
    assert summary["coefficients"] == pytest.approx(mean, rel=1e-12)
    assert_allclose([*summary["coefficients"].values()], [3, -2, 10], atol=0.2)
    assert found["feature_names"].tolist() == ["size, m2", "rooms"]
    start = next(k for k, line in enumerate(lines) if line.startswith("coefficients"))
    assert [line.split("  ")[1] for line in lines[start + 1 : start + 4]] == [
        "size, m2", "price", "intercept",
    ]  # fmt: skip


def test_of_many_coefficients_the_largest_are_shown(capsys):
    lines = printed(capsys, "--problem", "ridge", "--nodes", 2, "--dimension", 30)
    summary = summary_of("run")

    start = next(k for k, line in enumerate(lines) if "coefficients" in line)
    assert lines[start].startswith("the largest of 31 coefficients (+- the bound on ")
    assert lines[start].endswith("all are in summary.json):")
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    best = sorted(summary["coefficients"].items(), key=lambda pair: -abs(pair[1]))
    assert {name for name, _ in best[:8]} | {"intercept"} == set(shown)


@pytest.mark.parametrize(("alpha", "zeros"), [(300, False), (1e6, True)])
def test_of_many_coefficients_zeros_are_shown_only_if_there_is_nothing_else(
    alpha, zeros, capsys
):
    words = ("--problem", "lasso", "--nodes", 2, "--dimension", 30, "--alpha", alpha)
    lines = printed(capsys, *words, "--no-fit-intercept")
    known = summary_of("run")["coefficients"]

    shown = [line.split()[0] for line in lines if line.startswith("  x")]
    assert 0 < len(shown) <= 8
    assert all((known[name] == 0) == zeros for name in shown)


def test_a_problem_without_coefficients_keeps_the_names():
    write_houses("houses.csv")
    found, summary = run("--data", "houses.csv", "--n-components", 1, "--nodes", 2)

    assert "coefficients" not in summary
    assert found["feature_names"].tolist() == ["size, m2", "rooms", "price"]


@pytest.mark.parametrize(
    ("head", "target", "said"),
    [
        (HOUSES, "prise", "no column 'prise' for the target; its columns are called "
         "'size, m2', 'rooms', 'price'"),
        (",a,price\n", "price", "column 0 has no name in the header; name it, or rem"),
        ("a,intercept,y\n", "y", "a column is called 'intercept', which is also"),
        ("a,b,y\n1,,3\n", "y", "column 'b' has no entry in 1 of 31 rows, first in row"),
        ('a,"b,y\n', "y", "houses.csv is not a valid .csv file: unexpected end of"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_table_is_one_sentence(head, target, said, capsys):
    write_houses("houses.csv", head)
    words = ("--problem", "ridge", "--data", "houses.csv", "--nodes", 2)

    assert said in refused(capsys, *words, "--target", target)


def test_a_column_with_the_name_of_a_score_is_refused(capsys):
    write_houses("houses.csv", "size,score0,price\n")
    words = ("--data", "houses.csv", "--nodes", 2, "--n-components", 1)

    assert "a column is called 'score0', which is also" in refused(capsys, *words)


def test_empty_cells_are_gaps_where_a_problem_allows_them():
    write_houses("houses.csv", HOUSES + "1.5,,3\n")
    _, summary = run("--data", "houses.csv", "--n-components", 1, "--nodes", 2)

    assert_allclose(summary["metrics"]["missing"], 1 / 93)


def test_other_names_on_one_node_are_a_mistake(capsys):
    write_houses("part-0.csv")
    write_houses("part-1.csv", "rooms,size,price\n")
    words = ("--data", "part-{rank}.csv", "--nodes", 2)

    for more in ((), ("--problem", "ridge")):
        assert (
            "node 1 has no column 'size, m2', which node 0 has; give all files the "
            "same columns, or choose with --features"
        ) in refused(capsys, *words, *more)


@pytest.mark.mpi
def test_names_over_mpi(tmp_path):
    """Rank 0 reads and shares those of one file; those of several must agree."""
    write_houses("houses.csv")
    for i in range(3):
        write_houses(f"part-{i}.csv", HOUSES if i < 2 else "size,rooms,price\n")
    words = ("-m", "dadmm.run", "--problem", "ridge", "--data")
    whole = mpiexec(3, *words, "houses.csv", "--out", "whole", cwd=tmp_path)
    parts = mpiexec(3, *words, "part-{rank}.csv", "--out", "parts", cwd=tmp_path)

    assert whole.code == 0, whole.err
    alone, _ = run("--problem", "ridge", "--data", "houses.csv", "--nodes", 3)
    with np.load("whole/result.npz") as arrays:
        assert arrays["feature_names"].tolist() == ["size, m2", "rooms"]
        assert_array_equal(arrays["coef"], alone["coef"])
    assert parts.code == 2
    (said,) = parts.said
    assert "node 2 has no column 'size, m2', which node 0 has; give all files" in said
