"""``dadmm compare``: what it counts, that it resumes, and that ranks find the same."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import dadmm
from dadmm.__main__ import main
from dadmm.cli.trials import STAY, Arrival, find_best
from tests.support.processes import mpiexec

SMALL = (
    "--problem", "least_squares", "--dimension", "4", "--n-samples", "80",
    "--seeds", "2", "--max-iter", "600", "--network", "lan",
)  # fmt: skip
OWN = """
import dadmm


class Doubled(dadmm.penalty.Scheme):
    def update(self, state, obs):
        return state | {"eta": 2 * state["eta"]} if obs.t == 3 else state


class Descent(dadmm.baselines.Algorithm):
    def update(self, mixed):
        self.x = mixed - self.length * self.run.gradient(self.x)
"""


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def compare(*words, out="found", nodes=4) -> list[dict[str, str]]:
    given = [*SMALL, *map(str, words), "--out", out, "--nodes", str(nodes)]
    assert main(["compare", *given]) == 0
    return read(Path(out) / "runs.csv")


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_is_counted_is_what_a_run_sends(capsys):
    """As many iterations again, by `dadmm.solve`, have these messages and bytes."""
    rows = compare(
        "--method", "snap", "--payload", "quantised:4", "--payload", "float64"
    )
    shown = capsys.readouterr().out

    assert [row["payload"] for row in rows] == ["quantised:4", "float64"] * 2
    for row in rows:
        seed, until = int(row["seed"]), int(row["for_good"])
        X, y, _ = dadmm.datasets.regression(80, 4, 0.2, seed)
        parts = zip(dadmm.shard.split(X, 4), dadmm.shard.split(y, 4), strict=True)
        result = dadmm.solve(
            [dadmm.problems.LeastSquares(*part) for part in parts],
            dadmm.Topology.ring(4), sending=row["payload"],
            stopping=dadmm.Stopping(tolerance=0.0, max_iter=until),
        )  # fmt: skip
        tree, ends = result.traffic.tree_bytes.sum() / 4, ("setup_bytes", "end_bytes")
        assert float(row["bytes"]) == round(result.traffic.bytes / 4)
        assert sum(float(row[name]) for name in ends) == pytest.approx(tree, abs=1)
        best = np.linalg.lstsq(np.column_stack([X, np.ones(80)]), y)[0]
        off = np.column_stack([X, np.ones(80)]) @ (result.theta - best).T
        size = np.linalg.norm(np.column_stack([X, np.ones(80)]) @ best)
        assert np.linalg.norm(off, axis=0).max() <= 1.001e-6 * size
        assert int(row["first"]) <= until
    median = np.median([int(row["for_good"]) for row in rows[::2]])
    line = next(line for line in shown.splitlines() if "quantised:4" in line)
    assert line.split("|")[5].split()[0] == f"{median:.0f}"
    curves = read(Path("found/curves.csv"))
    assert {row["seed"] for row in curves} == {"1", "2"}
    assert Path("found/error-bytes.png").exists()


def test_finished_runs_are_not_repeated():
    first = compare("--method", "extra", "--method", "fixed:eta0=best", "--seeds", 1)
    kept = Path("found/cells.jsonl").read_text()
    torn = next(line for line in kept.splitlines() if line)[:40]
    Path("found/cells.jsonl").write_text(kept + torn)  # the job was ended here
    more = compare("--method", "extra", "--method", "fixed:eta0=best", "--seeds", 2)

    assert more[: len(first)] == first
    lines = filter(None, Path("found/cells.jsonl").read_text().splitlines())
    assert len([*lines]) == len([*filter(None, kept.splitlines())]) + 1 + 2
    tuned = {row["tuned"] for row in more if row["method"] != "extra"}
    assert len(tuned) == 1
    assert next(iter(tuned)).startswith("eta0=")


def test_a_page_is_made_again_from_the_folder(capsys):
    pytest.importorskip("plotly", reason="plotly is not installed")
    compare("--method", "snap", "--method", "extra", "--report")
    page = Path("found/report.html").read_bytes()

    assert main(["report", "found"]) == 0
    assert Path("found/report.html").read_bytes() == page
    Path("found/curves.csv").write_text("method,error\nsnap,1\n")
    assert main(["report", "found"]) == 2
    assert "curves.csv" in capsys.readouterr().err


def test_own_classes_and_the_built_in_ones_are_in_one_table():
    Path("mine.py").write_text(OWN)
    rows = compare(
        "--method", "mine:Doubled", "--method", "mine:Descent:step=0.5", "--method",
        "allreduce", "--method", "one_sum", "--seeds", 1, "--max-iter", 100,
    )  # fmt: skip

    ended = {row["method"]: row["ended"] for row in rows}
    assert ended == {
        "mine:Doubled": "arrived", "mine:Descent:step=0.5": "too far",
        "allreduce": "arrived", "one_sum": "arrived",
    }  # fmt: skip
    assert [row["for_good"] for row in rows if row["method"] == "one_sum"] == ["1"]


def test_the_angle_of_a_subspace_is_compared():
    rows = compare(
        "--problem", "ppca", "--n-components", 2, "--method", "snap", "--method", "vp",
        "--topology", "ring", "--topology", "complete", "--seeds", 1, "--to", 0.1,
    )  # fmt: skip

    assert [row["ended"] for row in rows] == ["arrived"] * 4


@pytest.mark.mpi
def test_ranks_find_the_same(tmp_path):
    words = [
        *SMALL, "--method", "snap", "--method", "diging", "--method", "allreduce",
        "--method", "extra:step=best", "--payload", "float64",
    ]  # fmt: skip
    ended = mpiexec(4, "-m", "dadmm", "compare", *words, "--out", "ranks", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert main(["compare", *words, "--nodes", "4", "--out", "alone"]) == 0

    for name in ("runs.csv", "curves.csv", "table.md"):
        assert Path("ranks", name).read_text() == Path("alone", name).read_text()


@pytest.mark.parametrize(
    ("culprit", "words"),
    [
        ("snapp", ["--method", "snapp"]),
        ("mine", ["--method", "mine:Class"]),
        ("eta9", ["--method", "fixed:eta9=1"]),
        ("relaxation", ["--method", "fixed:relaxation=best"]),
        ("quantised:99", ["--payload", "quantised:99"]),
        ("--drop-probability", ["--payload", "float64,drop_probability=0.1"]),
        ("AllReduce", ["--method", "allreduce", "--payload", "float32"]),
        ("PPCA", ["--method", "extra", "--problem", "ppca", "--n-components", "2"]),
        ("DIGing", ["--method", "diging", "--problem", "lasso"]),
        ("--method", ["--scheme", "nap"]),
        ("--seeds", ["--seed", "3"]),
        ("seeds", ["--seeds", "0"]),
        ("nowhere", ["--network", "nowhere"]),
        ("1e-15", ["--to", "1e-15"]),
        ("lan.toml", ["--out", "lan.toml/below"]),
    ],
)
def test_bad_input_is_one_sentence(culprit, words, capsys):
    Path("lan.toml").write_text("")
    assert main(["compare", *SMALL, *words, "--nodes", "4"]) == 2
    said = capsys.readouterr().err

    assert culprit in said
    assert said.count("\n") == 1
    if Path("compare/cells.jsonl").exists():
        assert not Path("compare/cells.jsonl").read_text().strip()


def test_nodes_must_stay_within_the_goal():
    errors = [1.0] * 9 + [0.1] * 20 + [1.0] * 4 + [0.1] * 500
    arrival = Arrival(0.5, 400)
    until = next(t for t, error in enumerate(errors, 1) if arrival.known(t, error))

    assert (arrival.first, arrival.for_good, arrival.ended) == (10, 34, "arrived")
    assert until == 34 + STAY
    for errors, ended in (([1.0] * 400, "too far"), ([0.1, 1e13], "diverged")):
        arrival = Arrival(0.5, 400)
        assert [arrival.known(t, e) for t, e in enumerate(errors, 1)][-1]
        assert arrival.ended == ended


@pytest.mark.parametrize("best", [1e-3, 0.4, 1.0, 200.0])
def test_the_search_finds_the_least(best):
    """Of a function with one minimum, to a sixteenth of a decade."""

    def attempt(value, cap):
        found = 50 + int(200 * np.log10(value / best) ** 2)
        return found if found <= cap else None

    found = find_best(attempt, 1.0, 10_000)
    assert abs(np.log10(found / best)) <= 1 / 16 + 1e-9
    assert find_best(lambda value, cap: None, 1.0, 100) is None
