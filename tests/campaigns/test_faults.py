"""A few cases of the campaigns, and that their judges find fault.

All cases: ``python -m tests.campaigns.faults [--inputs] --cases 3000 --jobs 2``.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.mpi import version_text
from tests.campaigns.faults import jobs, judge
from tests.campaigns.faults.__main__ import read
from tests.campaigns.faults.cases import draw
from tests.support import openmpi
from tests.support.processes import ROOT, find_mpiexec, variables

# A case of each kind, most of them only for `./launch/test --all`
CASES = ["kill:8", "full_disk:11"]
SLOW = ["signal:1", "corrupt:5", "loss:7", "freeze:10", "slow_disk:4", "delay:6"]
BROKEN = """
import os, sys
from pathlib import Path
from tests.campaigns.faults import fuzz

home = Path(sys.argv[1])
fuzz.SECONDS = 2

def wait():
    os.read(os.pipe()[0], 1)

def crash():
    os.kill(os.getpid(), 11)

def allocate():
    bytearray(2**33)

for start in (wait, crash, allocate, lambda: 2):
    print(fuzz.judge(fuzz.in_process(start, home), []))
"""


def campaign(*words, **more):
    return subprocess.run(
        [sys.executable, *map(str, words)], env=variables(**more), cwd=ROOT,
        capture_output=True, text=True, timeout=270, check=False,
    )  # fmt: skip


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_a_run_with_a_fault_succeeds_or_fails_clearly(tmp_path, case):
    """A correct result, or a clear error and a usable checkpoint; never a hang."""
    mpiexec, more = find_mpiexec(), {"DADMM_FAULTS_LIMIT": "60"}
    version = version_text(mpiexec or "")
    found = [name for name, words in jobs.BANNERS.items() if words in version]
    if not found:
        pytest.skip(f"{mpiexec} is none of {', '.join(jobs.BANNERS)}")
    if case.startswith("loss"):
        more["DADMM_OPENMPI"] = str(Path(openmpi.find()).parents[1])
    words = ("--only", case, "--pace", 0.005, "--mpi", found[0], "--out", tmp_path)
    done = campaign("-m", "tests.campaigns.faults", *words, **more)
    (row,) = read(tmp_path / "results.csv")

    if row["outcome"] in (judge.SKIPPED, judge.MISSED):
        pytest.skip(row["story"])
    assert row["outcome"] in (judge.SURVIVED, judge.CLEAR), row["story"]
    assert done.returncode == 0, done.stderr
    assert int(row["struck"]) > 0


def test_the_judge_of_runs_notices_all_differences_but_times(tmp_path):
    whole, again = tmp_path / "whole", tmp_path / "again"
    judge.reference(draw("kill", 0), whole)
    shutil.copytree(whole, again)
    names, *rows = (again / "history.csv").read_text().splitlines()
    timed = rows[3].split(",")
    timed[names.split(",").index("solve_seconds")] = "7.0"
    rows[3] = ",".join(timed)
    (again / "history.csv").write_text("\n".join([names, *rows, ""]))
    assert judge.differences(whole, again) == []

    (again / "history.csv").write_text("\n".join([names, *rows[:-1], ""]))
    with np.load(again / "result.npz") as file:
        arrays = dict(file)
    arrays["eta"].view(np.uint64)[0] ^= 1
    np.savez(again / "result.npz", **arrays)
    (again / "summary.json").unlink()
    found = ["history.csv", "result.npz:eta", "summary.json (missing)"]
    assert judge.differences(whole, again) == found


@pytest.mark.timeout(280)
def test_bad_inputs_get_one_sentence_and_touch_nothing(tmp_path):
    words = ("--inputs", "--cases", 160, "--out", tmp_path / "out")
    done = campaign("-m", "tests.campaigns.faults", *words)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(read(tmp_path / "out" / "results.csv")) == 160


@pytest.mark.timeout(280)
def test_hangs_crashes_and_tracebacks_are_noticed(tmp_path):
    done = campaign("-c", BROKEN, tmp_path)
    assert done.stdout.splitlines() == [
        "hangs", "wrong exit codes", "tracebacks", "unclear sentences",
    ], done.stderr  # fmt: skip


def test_the_judge_of_inputs_finds_fault():
    from tests.campaigns.faults import fuzz

    error = "dadmm: error: it is damaged\n"
    for code, err, touched, outcome in (
        (0, "", [], fuzz.ACCEPTED),
        (0, "dadmm: a note\n", [], fuzz.ACCEPTED),
        (2, error, [], fuzz.REFUSED),
        (2, error * 2, [], fuzz.UNCLEAR),
        (2, f"dadmm: a note\n{error}", [], fuzz.UNCLEAR),
        (0, error, [], fuzz.UNCLEAR),
        (0, "x.py:3: RuntimeWarning: overflow\n", [], fuzz.UNCLEAR),
        (2, error.replace("it", "it" * 1000), [], fuzz.UNCLEAR),
        (2, error, ["outside/kept.txt"], fuzz.TOUCHED),
        (1, error, [], fuzz.CODE),
        (-signal.SIGSEGV, "", [], fuzz.CODE),
        (1, "Traceback (most recent call last):\n", [], fuzz.TRACEBACK),
        (None, "", [], fuzz.HANG),
        (-signal.SIGXCPU, "", [], fuzz.HANG),
    ):
        assert fuzz.judge(fuzz.Ended(code, "", err), touched) == outcome
