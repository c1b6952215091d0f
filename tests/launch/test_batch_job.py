"""Batch jobs without a batch system, whose mpiexec is a script."""

import os
import shutil
import signal
import sys

import pytest

from launch.base.run_folder import FAILURE, read_state
from tests.support.processes import ROOT, Job, variables
from tests.support.run_folders import copy_launch

IN_SLURM = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}


class Batch:
    """A job in an environment whose mpiexec is a script."""

    def __init__(self, folder):
        self.folder, self.prefix = folder, folder / "env"
        (self.prefix / "bin").mkdir(parents=True)
        (self.prefix / "bin" / "python").symlink_to(sys.executable)
        self.script = ROOT / "launch"

    def start(self, script, *arguments, **more):
        mpiexec = self.prefix / "bin" / "mpiexec"
        mpiexec.write_text(f"#!/bin/sh\ntest $1 = --version && exit\n{script}\n")
        mpiexec.chmod(0o755)
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        more = {"DADMM_ENVIRONMENT": str(self.prefix), "PYTHONPATH": path} | more
        command = [sys.executable, str(self.script), "slurm", *arguments]
        return Job(command, self.folder, variables(**IN_SLURM | more))


@pytest.fixture
def job(tmp_path):
    return Batch(tmp_path)


SUMMARY = """
mkdir -p run && echo 'nodes = 2' >run/config.toml
echo '{"reason": "REASON", "iterations": 70}' >run/summary.json
"""
# what ranks write that are stopped after the fifth iteration
STOPPED = """
run=runs/wanted
while test $# -gt 0; do
    case $1 in --out | --resume) run=$2 ;; esac
    shift
done
mkdir -p $run/checkpoints/00000005
touch $run/checkpoints/00000005/node-00000.npz $run/checkpoints/00000005/node-00001.npz
echo '{"reason": "signal", "iterations": 5}' >$run/summary.json
cd $run && "PYTHON" -P -m dadmm.run --nodes 2 --dry-run >config.toml
""".replace("PYTHON", sys.executable)


def test_a_failure_is_written_to_the_folder(job):
    """For `launch/sweep collect`; the next start removes it."""
    ended = job.start("exit 9", "--out", "run").end()

    assert ended.code == 9
    assert "failed with code 9; there is no checkpoint" in ended.said[-1]
    assert read_state(job.folder / "run").status == "failed"
    again = job.start(SUMMARY.replace("REASON", "max_iter"), "--out", "run").end()
    assert "ended at max_iter, not converged, after 70 iterations" in again.said[-1]
    assert not (job.folder / "run" / FAILURE).exists()


def test_a_folder_with_other_files_is_left_alone(job):
    (job.folder / "run").mkdir()
    (job.folder / "run" / "thesis.tex").touch()
    ended = job.start("exit 2", "--out", "run").end()

    assert ended.code == 2
    assert os.listdir(job.folder / "run") == ["thesis.tex"]


def test_the_warning_of_slurm_reaches_the_ranks(job):
    stopped = SUMMARY.replace("REASON", "signal")
    script = f"stopped() {{ {stopped}\nexit 0; }}\ntrap stopped USR1\n"
    script += "touch ready; for i in $(seq 600); do sleep 0.1; done"
    running = job.start(script, "--out", "run")
    running.wait_until((job.folder / "ready").exists)
    running.signal(signal.SIGUSR1)
    ended = running.end()

    assert ended.code == 0
    assert ended.said[-1] == (
        "dadmm: stopped before the time limit after 70 iterations; results in run; it "
        "has no checkpoint, so the same command starts it again"
    )


RESUMED = "sbatch -n 2 ./launch/slurm.sbatch --resume runs/slurm-1"


@pytest.fixture
def project(job):
    """A batch job that is submitted from the folder of its project."""
    copy_launch(job.folder)
    job.script = job.folder / "launch"
    return job


def test_a_run_without_out_is_named_after_its_job(project):
    """The next job has another name, so the line has the command that resumes."""
    ended = project.start(STOPPED).end()
    assert (ended.code, ended.said) == (
        0,
        [
            "dadmm: interrupted after 5 iterations; results in runs/slurm-1; "
            f"run {RESUMED} to resume"
        ],
    )
    requeued = project.start(STOPPED, SLURM_RESTART_COUNT="1").end()
    assert requeued.said[0] == "dadmm: resuming runs/slurm-1 after iteration 5"
    again = project.start(STOPPED, *RESUMED.split()[4:], SLURM_JOB_ID="2").end()
    assert again.said[0] == requeued.said[0]
    assert again.said[1].endswith("submit the same command again to resume")
    assert os.listdir(project.folder / "runs") == ["slurm-1"]
    ended = project.start(STOPPED, "--out", "run", "--overwrite").end()
    assert ended.said[-1].endswith(  # the same command would start again
        "; run sbatch -n 2 ./launch/slurm.sbatch --resume run to resume"
    )
    failed = project.start(STOPPED + "exit 9", SLURM_RESTART_COUNT="2").end()
    assert failed.code == 9
    assert failed.said[-1] == (
        f"dadmm: failed with code 9; run {RESUMED} to resume after iteration 5; "
        "see runs/slurm-1"
    )


def test_the_folder_may_be_named_in_a_file_of_settings(project):
    (project.folder / "settings.toml").write_text('out = "runs/wanted"\n')
    line = (STOPPED, "--config", "settings.toml")
    ended = project.start(*line).end()

    assert ended.said[-1].endswith("submit the same command again to resume"), ended
    assert os.listdir(project.folder / "runs") == ["wanted"]
    again = project.start(*line, SLURM_JOB_ID="2").end()
    assert again.said[0] == "dadmm: resuming runs/wanted after iteration 5"


@pytest.mark.parametrize(
    ("reason", "flag", "code", "words"),
    [
        ('max_iter", "status": "max_iter', "--strict", 0, "ended at max_iter,"),
        ("max_iter", "--strict", 3, "ended at max_iter, not converged,"),
        ("max_iter", "--quiet", 0, "ended at max_iter, not converged,"),
        ("converged", "--strict", 0, "converged"),
        ("no_minimum", "--strict", 3, "no minimum"),
    ],
)
def test_a_run_that_is_done_is_not_started(job, reason, flag, code, words):
    """It has the same exit code again; resumed, it would be an error of the ranks."""
    line = ("--out", "run", "--max-iter", "5", flag)
    first = job.start(STOPPED.replace("signal", reason) + f"exit {code}", *line).end()
    assert first.code == code
    assert first.said == [f"dadmm: {words} after 5 iterations; results in run"]
    again = job.start("exit 9", *line).end()
    resumed = job.start("exit 9", "--resume", "run", "--max-iter", "5", flag).end()

    for ended in (again, resumed):
        assert ended.code == code, ended
        assert ended.said[-1].startswith("dadmm: nothing left to do")
    assert not (job.folder / "run" / FAILURE).exists()


def test_information_needs_no_ranks(job):
    ended = job.start("exit 9", "--topology", "ring", "--help").end()

    assert (ended.code, ended.said) == (0, [])
    assert "usage:" in ended.out
    assert not (job.folder / "runs").exists()


# The scripts slurm.sbatch and pbs.sh, where the only Python on PATH is too old


class Script:
    """A project without an environment, for a user who has one."""

    def __init__(self, folder):
        self.folder, self.programs = folder, folder / "programs"
        self.programs.mkdir()
        for name in ("dirname", "head", "sed", "timeout"):
            (self.programs / name).symlink_to(shutil.which(name))
        (self.programs / "python3").write_text("#!/bin/sh\nexit 1\n")
        (self.programs / "python3").chmod(0o755)
        (folder / "hosts").write_text("here\nhere\n")
        copy_launch(folder)

    def start(self, name, *arguments, **more):
        defaults = IN_SLURM | {
            "SLURM_SUBMIT_DIR": str(self.folder),
            "PBS_NODEFILE": str(self.folder / "hosts"),
            "DADMM_ENVIRONMENT": sys.prefix,
            "DADMM_PYTHON": "",
            "DADMM_MPIEXEC": "",
            "PATH": str(self.programs),
        }
        command = ["/bin/sh", str(self.folder / "launch" / name), *arguments]
        return Job(command, self.folder, variables(**defaults | more)).end()


@pytest.fixture
def scripts(tmp_path):
    return Script(tmp_path)


@pytest.mark.parametrize("name", ["slurm.sbatch", "pbs.sh"])
def test_the_environment_of_the_user_is_sufficient(scripts, name):
    ended = scripts.start(name, "--dry-run")

    assert ended.code == 0, ended
    assert 'topology = "cluster"' in ended.out
    ended = scripts.start(name, "--dry-run", DADMM_IMAGE="dadmm.sif")
    assert ended.code == 1  # the Python of an image has neither srun nor scontrol
    assert "needs Python 3.11 or newer and found none on PATH" in ended.err
    absent = {"DADMM_ENVIRONMENT": "", "DADMM_PYTHON": sys.executable}
    ended = scripts.start(name, **absent)
    assert ended.code == 2  # none is created, as there may be no network
    folder = scripts.folder / ".venv"
    assert f"there is no environment {folder}; create it before the job" in ended.err
    assert not folder.exists()


def test_arguments_under_pbs_may_be_quoted(scripts):
    (scripts.folder / "x1").touch()
    given = "--dry-run --topology ring,star --data x* --out 'runs/my run'"
    ended = scripts.start("pbs.sh", DADMM_ARGS=given)

    assert ended.code == 0, ended
    for line in ('topology = "ring,star"', 'data = "x*"', 'out = "runs/my run"'):
        assert line in ended.out.splitlines()
    open_ended = scripts.start("pbs.sh", DADMM_ARGS="--out 'runs")
    assert open_ended.code == 2
    assert "DADMM_ARGS must be arguments as in a shell" in open_ended.err
