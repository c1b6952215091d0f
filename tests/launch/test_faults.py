"""A few cases of the fault campaign, and tests of its judge.

All cases: ``python -m tests.faults.campaign --cases 200 --out FOLDER``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.mpi.mpiexec import version_text
from tests.faults import jobs, judge
from tests.faults.cases import draw
from tests.faults.table import CLEAR, LOST, MISSED, SKIPPED, SURVIVED, read, table
from tests.support import openmpi
from tests.support.processes import ROOT, find_mpiexec, variables

# Cases that take seconds each, some only for `./launch/test --all`
SLICE = {"kill": 8, "signal": 1, "full_disk": 11, "corrupt": 5, "loss": 7}
if os.environ.get("DADMM_ALL"):
    SLICE |= {"freeze": 10, "slow_disk": 4, "delay": 6}


def the_mpi() -> str:
    """Return the name of the MPI that these tests run with."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    version = version_text(mpiexec)
    found = [name for name, words in jobs.BANNERS.items() if words in version]
    if not found:
        pytest.skip(f"{mpiexec} is none of {', '.join(jobs.BANNERS)}")
    return found[0]


@pytest.mark.timeout(280)
@pytest.mark.parametrize("kind", SLICE)
def test_a_run_with_a_fault_succeeds_or_fails_clearly(tmp_path, kind):
    """A correct result, or a clear error and a usable checkpoint; never a hang."""
    case, more = f"{kind}:{SLICE[kind]}", {"DADMM_FAULTS_LIMIT": "60"}
    if kind == "loss":
        more["DADMM_OPENMPI"] = str(Path(openmpi.find()).parents[1])
    command = [sys.executable, "-m", "tests.faults.campaign", "--only", case]
    command += ["--pace", "0.005"]
    done = subprocess.run(
        [*map(str, command), "--mpi", the_mpi(), "--out", tmp_path / "out"],
        env=variables(**more), cwd=ROOT,
        capture_output=True, text=True, timeout=270, check=False,
    )  # fmt: skip
    (row,) = read(tmp_path / "out" / "results.csv")

    if row["outcome"] == SKIPPED:
        pytest.skip(row["story"])
    if row["outcome"] == MISSED:
        pytest.skip(f"the run was over before the fault came: {row['story']}")
    assert row["outcome"] in (SURVIVED, CLEAR), row["story"]
    assert done.returncode == 0, done.stderr
    assert int(row["struck"]) > 0


# The judge


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of a small run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    judge.reference(draw("kill", 0), folder)
    return folder


@pytest.fixture
def again(whole, tmp_path):
    """A copy of these results."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_results_with_other_times_are_equal(whole, again):
    """Only times may differ."""
    lines = (again / "history.csv").read_text().splitlines()
    column = lines[0].split(",").index("solve_seconds")
    row = lines[3].split(",")
    row[column] = "7.0"
    lines[3] = ",".join(row)
    (again / "history.csv").write_text("\n".join(lines) + "\n")

    assert judge.differences(whole, again) == []


def test_one_bit_of_a_result_is_noticed(whole, again):
    """With the array that it is in."""
    with np.load(again / "result.npz") as file:
        arrays = dict(file)
    arrays["eta"].view(np.uint64)[0] ^= 1
    np.savez(again / "result.npz", **arrays)

    assert judge.differences(whole, again) == ["result.npz:eta"]


def test_a_lost_row_and_a_lost_file_are_noticed(whole, again):
    """Although the result is right."""
    lines = (again / "history.csv").read_text().splitlines(keepends=True)
    (again / "history.csv").write_text("".join(lines[:-1]))
    (again / "summary.json").unlink()

    assert judge.differences(whole, again) == ["history.csv", "summary.json (missing)"]


def test_a_checkpoint_that_disappears_is_noticed(tmp_path):
    """After it was complete."""
    case = draw("kill", 0)
    play = judge.Play(case, jobs.MPI("none", "none", {}), tmp_path, "none")
    saved = play.run / "checkpoints" / "00000010"
    saved.mkdir(parents=True)
    for node in range(case.ranks):
        (saved / f"node-{node:05d}.npz").write_bytes(b"")
    play._nothing_lost(None)
    (saved / "node-00001.npz").unlink()

    with pytest.raises(judge.Fall) as fall:
        play._nothing_lost(None)
    assert fall.value.args[0] == LOST


def test_an_unknown_error_is_not_clear(tmp_path):
    """Only sentences with a remedy count as clear."""
    case = draw("kill", 0)
    play = judge.Play(case, jobs.MPI("none", "none", {}), tmp_path, "none")
    play.run.mkdir(parents=True)
    odd = jobs.Ended(2, "dadmm: error: something is odd\n", False, 0)
    trace = jobs.Ended(1, "Traceback (most recent call last):\n", False, 0)
    mute = jobs.Ended(1, "", False, 0)

    for ended in (odd, trace, mute):
        with pytest.raises(judge.Fall) as fall:
            play._after(ended, judge.Fault("no fault"), hit=False, resumed=True)
        assert fall.value.args[0] == "unclear error"


@pytest.mark.timeout(120)
def test_a_run_that_does_not_end_is_a_hang_and_leaves_nothing(tmp_path, monkeypatch):
    """All its processes are found by a variable, and ended."""
    mpi = jobs.find_mpi(the_mpi())
    assert mpi is not None
    monkeypatch.setattr(jobs, "LIMIT", 6.0)
    forever = ["--tolerance", "0", "--max-iter", "100000000", "--quiet"]
    job = jobs.Job(mpi, 3, forever, tmp_path, f"test-{os.getpid()}")
    ended = job.end()

    assert ended.hung
    assert jobs.marked(job.mark) == {}


def test_cases_without_a_fault_are_not_counted():
    """Missed and skipped cases are listed apart."""
    outcomes = ["survived", "survived", "hang", "missed", "skipped"]
    rows = [{"mpi": "mpich", "kind": "full_disk", "outcome": word} for word in outcomes]

    text = table(rows)

    assert "| mpich | full disk | 3 | 2 | 0 | 0 | 1 | 0 | 0 |" in text
    assert text.endswith("Not counted: 1 missed, 1 skipped.")


def test_a_seed_repeats_a_case():
    """Except for times."""
    for kind in SLICE:
        first, second = (judge.draw_faults(draw(kind, 5)) for _ in range(2))
        assert draw(kind, 5) == draw(kind, 5)
        assert [f.words for f in first] == [f.words for f in second]
        assert [f.plan for f in first] == [f.plan for f in second]
