"""``dadmm compare``: what it counts, that it goes on, and that ranks find the same."""

from pathlib import Path

import numpy as np
import pytest

import dadmm
from dadmm.__main__ import main
from dadmm.cli.trials import STAY, Arrival, find_best
from tests.support.processes import mpiexec
from tests.support.runs import refused, rows_of

SMALL = (
    "compare", "--problem", "least_squares", "--dimension", "4", "--n-samples", "80",
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


def compare(words: str) -> list[dict[str, str]]:
    assert main([*SMALL, "--nodes", "4", *words.split(), "--out", "found"]) == 0
    return rows_of("found/runs.csv")


def test_what_is_counted_is_what_a_run_sends(capsys):
    """As many iterations again, by `dadmm.solve`, have these messages and bytes."""
    rows = compare("--method snap --payload quantised:4 --payload float64")
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
        saved = float(row["total_bytes"]) - float(row["broadcast_bytes"])
        assert 0.3 < saved / float(row["bytes"]) <= 0.5  # one of two edges, in the loop
        Z = np.column_stack([X, np.ones(80)])
        best = np.linalg.lstsq(Z, y)[0]
        off = np.linalg.norm(Z @ (result.theta - best).T, axis=0).max()
        assert off <= 1.001e-6 * np.linalg.norm(Z @ best)
        assert int(row["first"]) <= until
    median = np.median([int(row["for_good"]) for row in rows[::2]])
    line = next(line for line in shown.splitlines() if "quantised:4" in line)
    assert line.split("|")[5].split()[0] == f"{median:.0f}"
    assert {row["seed"] for row in rows_of("found/curves.csv")} == {"1", "2"}
    assert Path("found/error-bytes.png").exists()


def test_finished_runs_are_not_repeated_and_the_page_is_made_again(capsys):
    methods = "--method extra --method fixed:eta0=best --seeds"
    first, cells = compare(f"{methods} 1"), Path("found/cells.jsonl")
    kept = cells.read_text()
    cells.write_text(kept + kept.strip()[:40])  # the job was ended here
    more = compare(f"{methods} 2 --report")

    assert more[: len(first)] == first
    n_lines = [len([*filter(None, t.splitlines())]) for t in (kept, cells.read_text())]
    assert n_lines[1] == n_lines[0] + 1 + 2
    (tuned,) = {row["tuned"] for row in more if row["method"] != "extra"}
    assert tuned.startswith("eta0=")
    pytest.importorskip("plotly", reason="plotly is not installed")
    page = Path("found/report.html").read_bytes()
    assert main(["report", "found"]) == 0
    assert Path("found/report.html").read_bytes() == page
    Path("found/curves.csv").write_text("method,error\nsnap,1\n")
    assert "curves.csv" in refused(capsys, "report", "found", main=main)


def test_own_classes_and_the_built_in_ones_are_in_one_table():
    Path("mine.py").write_text(OWN)
    rows = compare(
        "--method mine:Doubled --method mine:Descent:step=0.5 --method allreduce "
        "--method one_sum --seeds 1 --max-iter 100"
    )

    assert {row["method"]: row["ended"] for row in rows} == {
        "mine:Doubled": "arrived", "mine:Descent:step=0.5": "too far",
        "allreduce": "arrived", "one_sum": "arrived",
    }  # fmt: skip
    assert [row["for_good"] for row in rows if row["method"] == "one_sum"] == ["1"]


def test_the_angle_of_a_subspace_is_compared():
    words = "--problem ppca --n-components 2 --method snap --method vp --seeds 1"
    rows = compare(f"{words} --to 0.1 --topology ring --topology complete")

    assert [row["ended"] for row in rows] == ["arrived"] * 4


@pytest.mark.mpi
def test_ranks_find_the_same(home):
    words = "--method snap --method allreduce --method extra:step=best --seeds 1"
    job = ("-m", "dadmm", *SMALL, *words.split(), "--payload", "float64")
    ended = mpiexec(4, *job, "--out", "ranks", cwd=home)
    assert ended.code == 0, ended.err
    compare(f"{words} --payload float64")

    for name in ("runs.csv", "curves.csv", "table.md"):
        assert Path("ranks", name).read_text() == Path("found", name).read_text()


def test_a_goal_that_is_too_near_is_refused(capsys):
    words = (*SMALL, "--nodes", 4, "--method", "one_sum", "--to=1e-15")
    assert "1e-15" in refused(capsys, *words, main=main)


@pytest.mark.parametrize(
    ("errors", "known"),
    [
        ([1.0] * 9 + [0.1] * 20 + [1.0] * 4 + [0.1] * (STAY + 1), (10, 34, "arrived")),
        ([1.0] * 400, (None, None, "too far")),
        ([0.1, 1e13], (1, None, "diverged")),
    ],
)
def test_nodes_must_stay_within_the_goal(errors, known):
    arrival = Arrival(0.5, 400)
    *before, last = [arrival.known(t, error) for t, error in enumerate(errors, 1)]

    assert last
    assert not any(before)
    assert (arrival.first, arrival.for_good, arrival.ended) == known


@pytest.mark.parametrize("best", [1e-3, 0.4, 200.0])
def test_the_search_finds_the_least(best):
    """Of a function with one minimum, to a sixteenth of a decade."""

    def attempt(value, cap):
        found = 50 + int(200 * np.log10(value / best) ** 2)
        return found if found <= cap else None

    found = find_best(attempt, 1.0, 10_000)
    assert abs(np.log10(found / best)) <= 1 / 16 + 1e-9
    assert find_best(lambda value, cap: None, 1.0, 100) is None
