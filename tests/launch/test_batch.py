"""Batch jobs without a batch system, whose mpiexec is a script."""

import os
import shutil
import sys

import pytest

from dadmm.runs.attempt import FAILURE, read_progress
from dadmm.runs.config import RunConfig
from launch import batch
from launch.batch import Allocation
from launch.console import UsageError
from launch.mpi import Runtime
from tests.support.processes import ROOT, Job, variables
from tests.support.run_folders import copy_launch

IN_SLURM = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(("text", "here"), [("12,8", 12), ("4", 4), ("10(x2),3", 10)])
def test_the_variables_of_slurm_are_read(text, here):
    variables = {
        "SLURM_JOB_ID": "17", "SLURM_NTASKS": "20", "SLURM_CPUS_ON_NODE": "16",
        "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_TASKS_PER_NODE": text,
    }  # fmt: skip

    assert batch.slurm(variables) == ("slurm", "15_2", 20, 16, here, "")


def test_the_node_file_of_pbs_is_read(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("a\na\nb\n")
    variables = {"PBS_NODEFILE": str(file), "PBS_JOBID": "12.server", "NCPUS": "2"}

    assert batch.pbs(variables) == ("pbs", "12", 3, 2, 2, str(file))


@pytest.mark.parametrize(
    ("cores", "ranks_here", "allowed", "choice", "pin"),
    [
        (16, 16, 16, "auto", True),  # the job may use only its own cores
        (16, 20, 16, "auto", False),  # more ranks than cores
        (16, 16, 64, "auto", False),  # it may use the cores of other jobs
        (None, 4, 64, "auto", False),  # its cores are unknown
        (16, 16, 64, "yes", True),
        (16, 16, 16, "no", False),
    ],
)
def test_ranks_are_pinned_to_cores_of_their_job(
    cores, ranks_here, allowed, choice, pin
):
    """Two jobs must not pin ranks to the same cores."""
    allocation = Allocation("slurm", "1", 20, cores, ranks_here)

    assert batch.is_pinned(allocation, allowed, choice) is pin


@pytest.fixture
def runtime(tmp_path):
    """A function that returns a runtime whose mpiexec has this version."""

    def make(version="HYDRA build details:", **variables):
        mpiexec = tmp_path / "mpiexec"
        mpiexec.write_text(f"#!/bin/sh\necho '{version}'\n")
        mpiexec.chmod(0o755)
        return Runtime("python", str(mpiexec), variables)

    return make


@pytest.mark.parametrize(
    ("version", "pin", "options"),
    [
        ("HYDRA build", True, ["-bind-to", "core"]),
        ("HYDRA build", False, []),
        ("(Open MPI) 5.0.11", True, ["--bind-to", "core"]),
        ("(Open MPI) 5.0.11", False, ["--bind-to", "none"]),
        ("Intel(R) MPI Library", True, []),
    ],
)
def test_mpiexec_pins_ranks_on_the_hosts_of_pbs(
    runtime, tmp_path, version, pin, options
):
    (tmp_path / "hosts").write_text("b\na\nb\n")
    allocation = Allocation("pbs", "1", 3, 2, 2, str(tmp_path / "hosts"))
    with batch.start(allocation, runtime(version), pin, ["job"]) as started:
        command, variables = started

        assert command[1 : 1 + len(options)] == options
        assert command[-3:] == ["-n", "3", "job"]
        assert variables.get("I_MPI_PIN") == ("1" if "Intel" in version else None)


def test_srun_uses_the_pmi_of_mpich(runtime):
    allocation = Allocation("slurm", "1", 3, None, 2)
    made = runtime(DADMM_LAUNCHER="srun")
    with batch.start(allocation, made, True, ["job"]) as (command, variables):
        assert command[:3] == ["srun", "-n", "3"]
        assert command[-2:] == ["--cpu-bind=cores", "job"]
        assert variables["SLURM_MPI_TYPE"] == "pmi2"


@pytest.mark.parametrize(
    ("refused", "culprit"),
    [
        (lambda _: batch.slurm({}), "sbatch"),
        (lambda _: batch.slurm({"SLURM_JOB_ID": "1"}), "sbatch"),
        (lambda _: batch.pbs({}), "PBS_NODEFILE"),
        (lambda made: begin("pbs", made(DADMM_LAUNCHER="srun")), "srun"),
        (lambda made: begin("slurm", made(DADMM_LAUNCHER="prun")), "prun"),
    ],
)
def test_what_is_not_a_job_is_refused(runtime, refused, culprit):
    with pytest.raises(UsageError, match=culprit):
        refused(runtime)


def begin(system, made):
    batch.start(Allocation(system, "1", 3, None, 2), made, False, ["job"]).__enter__()


def test_under_pbs_a_run_is_resumed_by_a_variable(monkeypatch):
    """As qsub passes no arguments."""
    monkeypatch.chdir(ROOT)
    allocation = Allocation("pbs", "7", 4, None, 4)

    command = batch.submission(allocation, ["--resume", str(allocation.folder)])
    assert command == "DADMM_ARGS='--resume runs/pbs-7' qsub -V ./launch/pbs.sh"


class Batch:
    """A job in an environment whose mpiexec is a script."""

    def __init__(self, folder):
        self.folder, self.prefix = folder, folder / "env"
        (self.prefix / "bin").mkdir(parents=True)
        (self.prefix / "bin" / "python").symlink_to(sys.executable)
        copy_launch(folder)
        config = RunConfig(nodes=2)
        config.settle(2)
        (folder / "begun.toml").write_text(config.to_toml())

    def start(self, script, *arguments, **more):
        mpiexec = self.prefix / "bin" / "mpiexec"
        mpiexec.write_text(f"#!/bin/sh\ntest $1 = --version && exit\n{script}\n")
        mpiexec.chmod(0o755)
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        more = {"DADMM_ENVIRONMENT": str(self.prefix), "PYTHONPATH": path} | more
        command = [sys.executable, str(self.folder / "launch"), "slurm", *arguments]
        return Job(command, self.folder, variables(**IN_SLURM | more))


@pytest.fixture
def job(tmp_path):
    """A batch job that is submitted from the folder of its project."""
    return Batch(tmp_path)


# what ranks write that are stopped after the fifth iteration
STOPPED = """
run=runs/wanted
while test $# -gt 0; do
    case $1 in --out | --resume) run=$2 ;; esac
    shift
done
mkdir -p $run/checkpoints/00000005
touch $run/checkpoints/00000005/node-00000.npz $run/checkpoints/00000005/node-00001.npz
echo '{"reason": "REASON", "iterations": 5}' >$run/summary.json
cp begun.toml $run/config.toml
"""
INTERRUPTED = STOPPED.replace("REASON", "signal")


def test_a_failure_is_written_to_the_folder(job):
    """For the table of a sweep; the next start removes it."""
    ended = job.start("exit 9", "--out", "run").end()
    assert ended.code == 9
    assert "code 9" in ended.said[-1]
    assert read_progress(job.folder / "run").status == "failed"

    again = job.start(STOPPED.replace("REASON", "max_iter"), "--out", "run").end()
    assert "after 5 iterations" in again.said[-1]
    assert not (job.folder / "run" / FAILURE).exists()


RESUMED = "sbatch -n 2 ./launch/slurm.sbatch --resume runs/slurm-1"
SAME = "submit the same command again to resume"


def test_a_run_without_out_is_named_after_its_job(job):
    """The next job has another name, so the line has the command that resumes.

    Not so if a file of settings names the folder.
    """
    (job.folder / "settings.toml").write_text('out = "runs/slurm-1"\n')
    ended = job.start(INTERRUPTED).end()
    assert ended.code == 0, ended
    assert f"run {RESUMED} to resume" in ended.said[-1]
    requeued = job.start(INTERRUPTED, SLURM_RESTART_COUNT="1").end()
    assert "resuming runs/slurm-1 after iteration 5" in requeued.said[0]
    for words in (RESUMED.split()[4:], ["--config", "settings.toml"]):
        again = job.start(INTERRUPTED, *words, SLURM_JOB_ID="2").end()
        assert again.said[0] == requeued.said[0]
        assert again.said[1].endswith(SAME)
    assert os.listdir(job.folder / "runs") == ["slurm-1"]

    replaced = job.start(INTERRUPTED, "--out", "run", "--overwrite").end()
    assert "--resume run to resume" in replaced.said[-1]
    failed = job.start(INTERRUPTED + "exit 9", SLURM_RESTART_COUNT="2").end()
    assert failed.code == 1  # the code of an MPI says nothing after results
    assert f"run {RESUMED} to resume after iteration 5" in failed.said[-1]


@pytest.mark.parametrize(("reason", "code"), [("max_iter", 3), ("converged", 0)])
def test_a_run_that_is_done_is_not_started(job, reason, code):
    """It has the same exit code again; resumed, it would be an error of the ranks."""
    line = ("--out", "run", "--max-iter", "5", "--strict")
    script = STOPPED.replace("REASON", reason) + f"exit {code}"
    first = job.start(script, *line).end()
    assert (first.code, len(first.said)) == (code, 1), first
    for words in (line, ("--resume", "run", *line[2:])):
        again = job.start("exit 9", *words).end()
        assert again.code == code, again
        assert "nothing left" in again.said[-1]


# The scripts slurm.sbatch and pbs.sh, where the only Python on PATH is too old


@pytest.fixture
def submit(tmp_path):
    """A function that runs a script of a project without an environment."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("dirname", "head", "sed", "timeout"):
        (programs / name).symlink_to(shutil.which(name))
    (programs / "python3").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python3").chmod(0o755)
    (tmp_path / "hosts").write_text("here\nhere\n")
    copy_launch(tmp_path)

    def submit(name, *arguments, **more):
        defaults = IN_SLURM | {
            "SLURM_SUBMIT_DIR": str(tmp_path),
            "PBS_NODEFILE": str(tmp_path / "hosts"),
            "DADMM_ENVIRONMENT": sys.prefix,
            "DADMM_PYTHON": "",
            "DADMM_MPIEXEC": "",
            "PATH": str(programs),
        }
        command = ["/bin/sh", str(tmp_path / "launch" / name), *arguments]
        return Job(command, tmp_path, variables(**defaults | more)).end()

    return submit


@pytest.mark.parametrize("name", ["slurm.sbatch", "pbs.sh"])
def test_the_environment_of_the_user_is_sufficient(submit, tmp_path, name):
    ended = submit(name, "--dry-run")
    assert ended.code == 0, ended
    assert 'topology = "cluster"' in ended.out

    absent = {"DADMM_ENVIRONMENT": "", "DADMM_PYTHON": sys.executable}
    ended = submit(name, **absent)
    assert ended.code == 2  # none is created, as there may be no network
    assert f"{tmp_path}/.venv" in ended.err
    assert not (tmp_path / ".venv").exists()


def test_arguments_under_pbs_may_be_quoted(submit, tmp_path):
    (tmp_path / "x1").touch()
    given = "--dry-run --topology ring,star --data x* --out 'runs/my run'"
    ended = submit("pbs.sh", DADMM_ARGS=given)

    assert ended.code == 0, ended
    for line in ('topology = "ring,star"', 'data = "x*"', 'out = "runs/my run"'):
        assert line in ended.out.splitlines()
    assert submit("pbs.sh", DADMM_ARGS="--out 'runs").code == 2
