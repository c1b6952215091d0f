"""A few cases of the campaigns.

All cases: ``python -m tests.campaigns.faults [--inputs] --cases 3000 --jobs 2``.
"""

from pathlib import Path

import pytest

from launch.mpi import version_text
from tests.campaigns.faults import cases, fuzz, jobs, judge
from tests.campaigns.faults.__main__ import SKIPPED
from tests.support.processes import ROOT, find_mpiexec, find_openmpi, python
from tests.support.programs import faulty_rank
from tests.support.runs import rows_of

# cases only for `./launch/test --all`
SLOW = ["full_disk:11", "signal:1", "corrupt:5", "loss:7", "slow_disk:4"]


@pytest.mark.timeout(280)
@pytest.mark.parametrize(
    "case", ["kill:8", *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_a_run_with_a_fault_succeeds_or_fails_clearly(tmp_path, case):
    mpiexec, more = find_mpiexec(), {"DADMM_FAULTS_LIMIT": "60"}
    version = version_text(mpiexec or "")
    found = [name for name, words in jobs.BANNERS.items() if words in version]
    if not found:
        pytest.skip(f"{mpiexec} is none of {', '.join(jobs.BANNERS)}")
    if case.startswith("loss"):
        more["DADMM_OPENMPI"] = str(Path(find_openmpi()).parents[1])
    words = ("--only", case, "--pace", 0.005, "--mpi", found[0], "--out", tmp_path)
    done = python("-m", "tests.campaigns.faults", *words, cwd=ROOT, **more).end()
    (row,) = rows_of(tmp_path / "results.csv")

    if row["outcome"] in (SKIPPED, judge.MISSED):
        pytest.skip(row["story"])
    assert row["outcome"] in (judge.SURVIVED, judge.CLEAR), row["story"]
    assert done.code == 0, done.err
    assert int(row["struck"]) > 0


@pytest.mark.timeout(280)
def test_bad_inputs_get_one_sentence_and_touch_nothing(tmp_path):
    words = ("--inputs", "--cases", len(fuzz.KINDS), "--out", tmp_path)
    done = python("-m", "tests.campaigns.faults", *words, cwd=ROOT).end()

    assert done.code == 0, done.out + done.err
    assert len(rows_of(tmp_path / "results.csv")) == len(fuzz.KINDS)


def test_faults_are_put_into_functions_that_exist():
    points = [name for names in cases.POINTS.values() for name in names]
    for name in (*points, cases.NUMBERS, faulty_rank.SWAP):
        assert callable(getattr(*faulty_rank.find(name))), name
