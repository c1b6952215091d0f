"""A few cases of the fault campaign.

All cases: ``python -m tests.campaigns.faults --cases 200 --out FOLDER``.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launch.mpi import version_text
from tests.campaigns.faults import jobs, judge
from tests.campaigns.faults.cases import draw
from tests.campaigns.faults.table import CLEAR, MISSED, SKIPPED, SURVIVED, read
from tests.support import openmpi
from tests.support.processes import ROOT, find_mpiexec, variables

# A case of each kind, most of them only for `./launch/test --all`
SLICE = {"kill": 8, "full_disk": 11}
SLOW = {
    "signal": 1, "corrupt": 5, "loss": 7, "freeze": 10, "slow_disk": 4, "delay": 6,
}  # fmt: skip


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
@pytest.mark.parametrize(
    ("kind", "seed"),
    [*SLICE.items(), *(pytest.param(*c, marks=pytest.mark.slow) for c in SLOW.items())],
)
def test_a_run_with_a_fault_succeeds_or_fails_clearly(tmp_path, kind, seed):
    """A correct result, or a clear error and a usable checkpoint; never a hang."""
    case, more = f"{kind}:{seed}", {"DADMM_FAULTS_LIMIT": "60"}
    if kind == "loss":
        more["DADMM_OPENMPI"] = str(Path(openmpi.find()).parents[1])
    command = [sys.executable, "-m", "tests.campaigns.faults", "--only", case]
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


def test_the_judge_notices_all_differences_but_times(tmp_path):
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
