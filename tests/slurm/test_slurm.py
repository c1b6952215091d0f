"""Batch jobs under a real Slurm: two nodes, arrays, time limits, cancelled jobs.

Without Slurm these tests are skipped, unless the variable CI is set: then they try to
install it.
"""

import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.slurm.cluster import Cluster, SlurmError, install, obstacle
from tests.support.processes import ROOT, find_mpiexec, python, variables
from tests.support.runs import SINCE_RESUME, assert_same_arrays

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "launch" / "slurm.sbatch"
PATIENCE = 120  # seconds to wait for a job, which takes a few
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}
# 0.25 s per iteration; four nodes need 207 of them, twenty 363
SLOW = ["--problem", "tests.slurm.slow:SlowPPCA"]
SLOW += ["--n-components", "5", "--topology", "ring"]
TWENTY = [*SLOW, "--tolerance", "3e-2"]


class Slurm:
    """The cluster of the tests, with a folder from which jobs are submitted."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.slow = folder / "slow"  # SlowPPCA is slow while it exists
        self.slow.touch()

    def variables(self, **more: str) -> dict[str, str]:
        """Return the variables of a user of the tests' environment."""
        kept = {k: self.cluster.variables[k] for k in ("PATH", "SLURM_CONF")}
        own = {"DADMM_ENVIRONMENT": sys.prefix, "DADMM_TEST_SLOW": str(self.slow)}
        return variables(**kept | own | more)

    def call(self, *command: object, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, command)], cwd=self.folder, env=self.variables(**more),
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip

    def submit(self, *options: object, job: list[str], **more: str) -> str:
        done = self.call("sbatch", "--parsable", *options, SCRIPT, *job, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def facts(self, job: str) -> dict[str, str]:
        shown = self.call("scontrol", "-o", "show", "job", job).stdout
        return dict(re.findall(r"(\w+)=(\S*)", shown))

    def said(self, job: str) -> str:
        file = self.folder / f"dadmm-{job}.out"
        return file.read_text() if file.exists() else ""

    def until(self, condition, job: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                facts, logs = self.facts(job), self.cluster.logs()
                pytest.fail(f"waited in vain: {facts}\n{self.said(job)}\n{logs}")
            time.sleep(0.1)

    def end(self, job: str) -> tuple[str, str, str]:
        """Wait for the end of a job; return its state, exit code and output."""
        self.until(lambda: self.facts(job)["JobState"] in ENDED, job)
        facts = self.facts(job)
        return facts["JobState"], facts["ExitCode"], self.said(job)

    def succeed(self, job: str) -> str:
        state, code, said = self.end(job)
        assert (state, code) == ("COMPLETED", "0:0"), said
        return said

    def started(self, job: str, run: str) -> None:
        """Wait until all four ranks of a job write rows."""
        parts = self.folder / run / "parts"
        self.until(lambda: len(list(parts.glob("history-*"))) == 4, job)

    def refuse(self, job: str) -> str:
        state, code, said = self.end(job)
        assert (state, code) == ("FAILED", "2:0"), said
        return said

    def processes(self, job: str) -> list[int]:
        mark = f"SLURM_JOB_ID={job}".encode()
        return [p for p in self.cluster.processes() if mark in strings(p, "environ")]

    def ranks(self, job: str) -> list[int]:
        python = os.path.join(sys.prefix, "bin", "python").encode()
        lines = {p: strings(p, "cmdline") for p in self.processes(job)}
        return [p for p, w in lines.items() if w[0] == python and b"dadmm.run" in w]


def strings(process: int, kind: str) -> list[bytes]:
    """Return the environment or the command line of a process; [b""] if it ended."""
    try:
        return Path(f"/proc/{process}/{kind}").read_bytes().split(b"\0")
    except OSError:
        return [b""]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """A Slurm with two nodes; skip where there can be none."""
    if find_mpiexec() is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    try:
        if obstacle() and os.environ.get("CI"):
            install()
        with Cluster() as cluster:
            yield Slurm(cluster, tmp_path_factory.mktemp("slurm"))
    except SlurmError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def limited(slurm):
    """Two slow jobs that reach their time limit while the other tests run.

    Slurm checks time limits every half minute, and the shortest limit is a minute.
    The warning, 20 seconds before, comes 10 to 40 seconds after the start.
    """
    options = ["-N2", "--time=1", "--signal=B:USR1@20"]
    twenty, four = [*TWENTY, "--out", "runs/twenty"], [*SLOW, "--out", "runs/four"]
    return {
        "twenty": slurm.submit(*options, "-n", 20, job=twenty),
        "four": slurm.submit(*options, "-n", 4, job=four, DADMM_REQUEUE="1"),
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """A function that returns the results of a run in one process."""
    folder = tmp_path_factory.mktemp("expected")

    def expected(n, *arguments):
        out = folder / f"{n}-{abs(hash(arguments))}"
        if not out.exists():
            job = python("-m", "dadmm.run", *arguments, "--nodes", n, "--out", out)
            assert job.end().code == 0
        return out / "result.npz"

    return expected


def test_mpiexec_spans_both_nodes(slurm, expected):
    arguments = ["--topology", "ring", "--scheme", "vp", "--max-iter", "50"]
    job = slurm.submit("-N2", "-n", 6, job=[*arguments, "--out", "runs/mpiexec"])
    said = slurm.succeed(job)
    assert "after 50 iterations; results in runs/mpiexec" in said.splitlines()[-1]
    second = (slurm.cluster.folder / "slurmd.n2.log").read_text()
    assert f"StepId={job}." in second
    result = slurm.folder / "runs/mpiexec/result.npz"
    assert_same_arrays(result, expected(6, *arguments))


def test_srun_starts_ranks_by_pmi(slurm, expected):
    said = subprocess.run([find_mpiexec(), "--version"], capture_output=True, text=True)
    if "Open" in said.stdout:
        pytest.skip("Open MPI needs PMIx, which this Slurm has not")
    arguments = ["--topology", "ring", "--max-iter", "50"]
    job = slurm.submit("-N2", "-n", 4, job=arguments, DADMM_LAUNCHER="srun")
    said = slurm.succeed(job)
    result = slurm.folder / f"runs/slurm-{job}/result.npz"
    assert_same_arrays(result, expected(4, *arguments))


def test_a_sweep_is_an_array(slurm):
    """Finished tasks are not submitted again, and the table has all tasks."""
    (slurm.folder / "grid.toml").write_text(
        "ranks = 2\n[base]\nmax_iter = 5\n"
        '[grid]\nscheme = ["snap", "vp"]\nseed = [0, 1]\n'
    )
    sweep = [ROOT / "launch" / "sweep"]
    run = [*sweep, "grid.toml", "--out", "runs/grid", "--at-most", 2]
    more = {"DADMM_PYTHON": sys.executable}
    first = slurm.call(*run, **more)
    job = re.search(r"job (\d+): 4 of 4 runs", first.stderr)[1]
    assert "ArrayTaskThrottle=2" in slurm.call("scontrol", "show", "job", job).stdout
    assert "are in the queue" in slurm.call(*run, **more).stderr
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job).stdout, job)
    done = slurm.call(*sweep, "runs/grid", **more)
    assert "4 runs: 4 not converged" in done.stderr, done

    shutil.rmtree(slurm.folder / "runs/grid/scheme=vp,seed=0")
    lacking = slurm.call(*sweep, "runs/grid", **more)
    assert lacking.stdout.split() == ["missing", "runs/grid/scheme=vp,seed=0"]
    again = slurm.call(*run, **more).stderr
    job = re.search(r"job (\d+): 1 of 4 runs", again)[1]
    slurm.until(lambda: not slurm.call("squeue", "-h", "-j", job).stdout, job)
    assert "4 runs: 4 not converged" in slurm.call(*run, **more).stderr
    with open(slurm.folder / "runs/grid/table.csv") as file:
        rows = list(csv.DictReader(file))
    tasks = [row["scheme"] + row["seed"] for row in rows]
    assert tasks == ["snap0", "snap1", "vp0", "vp1"]
    assert {row["iterations"] for row in rows} == {"5"}


def test_a_cancelled_job_leaves_no_process(slurm):
    job = slurm.submit("-N2", "-n", 4, job=[*SLOW, "--out", "runs/cancelled"])
    slurm.started(job, "runs/cancelled")
    slurm.call("scancel", job)

    assert slurm.end(job)[0] == "CANCELLED"
    slurm.until(lambda: not slurm.processes(job), job)


def test_an_invalid_setting_is_an_error_before_ranks_start(slurm):
    job = slurm.submit("-n", 4, job=["--topology", "rink", "--scheme", "vpp"])
    said = slurm.refuse(job)
    assert "vpp" in said
    assert len(said.splitlines()) == 1


def test_a_missing_project_is_an_error(slurm):
    """Slurm runs a copy of the script outside the project."""
    job = slurm.submit("-n", 1, job=[], DADMM_HOME="/nowhere")
    assert "/nowhere" in slurm.refuse(job)


def test_a_killed_job_is_resumed_from_its_checkpoint(slurm, expected):
    arguments = [*SLOW, "--checkpoint-every", "5", "--out", "runs/killed"]
    job = slurm.submit("-N2", "-n", 4, job=arguments)
    saved = slurm.folder / "runs/killed/checkpoints/00000005"
    slurm.until(lambda: len(list(saved.glob("node-*.npz"))) == 4, job)
    for rank in slurm.ranks(job):
        os.kill(rank, signal.SIGKILL)
    state, _, said = slurm.end(job)
    assert state == "FAILED"
    assert "the same command again to resume after iteration" in said.splitlines()[-1]
    assert not (slurm.folder / "runs/killed/summary.json").exists()

    job = slurm.submit("-N2", "-n", 4, job=arguments, DADMM_TEST_SLOW="")
    said = slurm.succeed(job)
    assert "dadmm: resuming runs/killed after iteration" in said
    assert_same_arrays(
        slurm.folder / "runs/killed/result.npz", expected(4, *SLOW), SINCE_RESUME
    )


def test_a_job_without_out_prints_the_command_that_resumes_it(slurm, expected):
    """As the next job has another number, and so another folder."""
    job = slurm.submit("-n", 4, job=SLOW)
    slurm.started(job, f"runs/slurm-{job}")
    slurm.call("scancel", "--batch", "--signal=USR1", job)
    said = slurm.succeed(job)
    command = re.search(r"; run (sbatch -n 4 .*) to resume$", said.splitlines()[-1])[1]

    done = slurm.call(*shlex.split(command), DADMM_TEST_SLOW="")
    said = slurm.succeed(done.stdout.split()[-1])
    assert f"dadmm: resuming runs/slurm-{job} after iteration" in said
    result = slurm.folder / f"runs/slurm-{job}/result.npz"
    assert_same_arrays(result, expected(4, *SLOW), SINCE_RESUME)


def test_a_job_is_resumed_after_its_time_limit(slurm, limited, expected):
    """The same command leads to the results of an uninterrupted run of 20 ranks."""
    said = slurm.succeed(limited["twenty"])
    assert "dadmm: stopped before the time limit after" in said
    assert "submit the same command again to resume" in said
    result = slurm.folder / "runs/twenty/result.npz"
    with np.load(result) as early, np.load(expected(20, *TWENTY)) as final:
        assert (early["W"] != final["W"]).any()

    again = [*TWENTY, "--out", "runs/twenty"]
    job = slurm.submit("-N2", "-n", 20, job=again, DADMM_TEST_SLOW="")
    said = slurm.succeed(job)
    assert "dadmm: resuming runs/twenty after iteration" in said
    assert "dadmm: stationary after" in said.splitlines()[-1]
    assert_same_arrays(result, expected(20, *TWENTY), SINCE_RESUME)


def test_a_job_may_be_requeued(slurm, limited, expected):
    job = limited["four"]
    slurm.until(lambda: "requeued as job" in slurm.said(job), job)
    slurm.slow.unlink(missing_ok=True)
    slurm.until(lambda: "dadmm: stationary after" in slurm.said(job), job)
    said = slurm.succeed(job)
    assert "dadmm: resuming runs/four after iteration" in said
    result = slurm.folder / "runs/four/result.npz"
    assert_same_arrays(result, expected(4, *SLOW), SINCE_RESUME)
