"""Batch jobs without a batch system, whose mpiexec is a script."""

import os
import shutil
import sys

import pytest

from dadmm.core.documents import to_toml
from dadmm.runs.attempt import read_progress
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import FAILURE
from launch import batch
from launch.batch import Allocation
from launch.console import UsageError
from launch.mpi import Runtime
from tests.support.processes import ROOT, Job, variables
from tests.support.runs import copy_launch, write_program

IN_SLURM = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "2"}


@pytest.mark.parametrize(("text", "here"), [("12,8", 12), ("4", 4), ("10(x2),3", 10)])
def test_the_variables_of_a_job_are_read(text, here, tmp_path):
    given = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "20", "SLURM_CPUS_ON_NODE": "16"}
    given |= {"SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2"}
    found = batch.slurm(given | {"SLURM_TASKS_PER_NODE": text})
    assert found == ("slurm", "15_2", 20, 16, here, "")
    file = tmp_path / "hosts"
    file.write_text("a\na\nb\n")
    given = {"PBS_NODEFILE": str(file), "PBS_JOBID": "12.server", "NCPUS": "2"}
    assert batch.pbs(given) == ("pbs", "12", 3, 2, 2, str(file))


def test_ranks_are_pinned_to_cores_of_their_job():
    """Two jobs must not pin ranks to the same cores."""
    for cores, ranks_here, allowed, choice, pin in (
        (16, 16, 16, "auto", True),  # the job may use only its own cores
        (16, 20, 16, "auto", False),  # more ranks than cores
        (16, 16, 64, "auto", False),  # it may use the cores of other jobs
        (None, 4, 64, "auto", False),  # its cores are unknown
        (16, 16, 64, "yes", True),
        (16, 16, 16, "no", False),
    ):
        allocation = Allocation("slurm", "1", 20, cores, ranks_here)
        assert batch.is_pinned(allocation, allowed, choice) is pin


@pytest.fixture
def begin(tmp_path):
    """A function that returns how a job with an mpiexec of this version starts."""

    def begin(system, version="HYDRA build", pin=True, launcher="mpiexec"):
        (tmp_path / "hosts").write_text("b\na\nb\n")
        write_program(tmp_path / "mpiexec", f"echo '{version}'")
        chosen = {"DADMM_LAUNCHER": launcher}
        runtime = Runtime("python", str(tmp_path / "mpiexec"), chosen)
        hosts = str(tmp_path / "hosts") if system == "pbs" else ""
        allocation = Allocation(system, "1", 3, 2, 2, hosts)
        with batch.start(allocation, runtime, pin, ["job"]) as started:
            return started

    return begin


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
def test_ranks_are_started_by_mpiexec_or_srun(begin, version, pin, options):
    command, chosen = begin("pbs", version, pin)
    assert command[1 : 1 + len(options)] == options
    assert command[-3:] == ["-n", "3", "job"]
    assert chosen.get("I_MPI_PIN") == ("1" if "Intel" in version else None)
    command, chosen = begin("slurm", version, pin, "srun")
    assert command[:3] == ["srun", "-n", "3"]
    assert command[4:] == [*["--cpu-bind=cores"] * pin, "job"]
    assert chosen["SLURM_MPI_TYPE"] == ("pmix" if "Open" in version else "pmi2")


def test_what_is_not_a_job_is_refused(begin):
    for culprit, make, *given in (
        ("sbatch", batch.slurm, {}),
        ("sbatch", batch.slurm, {"SLURM_JOB_ID": "1"}),
        ("PBS_NODEFILE", batch.pbs, {}),
        ("srun", begin, "pbs", "", True, "srun"),
        ("prun", begin, "slurm", "", True, "prun"),
    ):
        with pytest.raises(UsageError, match=culprit):
            make(*given)


def stopped(reason, code=0):
    """Return a script for ranks that end after the fifth iteration."""
    saved = "$run/checkpoints/00000005"
    return f"""
run=runs/wanted
while test $# -gt 0; do
    case $1 in --out | --resume) run=$2 ;; esac
    shift
done
mkdir -p {saved}
touch {saved}/node-00000.npz {saved}/node-00001.npz
echo '{{"reason": "{reason}", "iterations": 5}}' >$run/summary.json
cp begun.toml $run/config.toml
exit {code}"""


BROKEN, SIGNAL, LIMIT = "exit 9", stopped("signal"), stopped("max_iter", 3)
LINE = "--out run --max-iter 5 --strict"
OWN = "run sbatch -n 2 ./launch/slurm.sbatch --resume runs/slurm-1 to resume"
SAME = "submit the same command again to resume"
AFTER_5 = "resuming runs/slurm-1 after iteration 5"
TWICE, THRICE = {"SLURM_RESTART_COUNT": "1"}, {"SLURM_RESTART_COUNT": "2"}
# what ranks do, arguments, variables; the exit code, and words of first and last line
SESSIONS = {
    "the next start removes a failure": [
        (BROKEN, "--out run", {}, 9, "code 9", "code 9"),
        (stopped("max_iter"), "--out run", {}, 0, "", "after 5 iterations"),
    ],
    "a run without --out is named after its job": [
        (SIGNAL, "", {}, 0, "", OWN),  # the next job has another name
        (SIGNAL, "", TWICE, 0, AFTER_5, OWN),
        (SIGNAL, "--resume runs/slurm-1", {"SLURM_JOB_ID": "2"}, 0, AFTER_5, SAME),
        (SIGNAL, "--config own.toml", {"SLURM_JOB_ID": "2"}, 0, AFTER_5, SAME),
        (SIGNAL, "--out run --overwrite", {}, 0, "", "--resume run to resume"),
        (SIGNAL, "--out run --overwrite", TWICE, 0, "resuming run after", "to resume"),
        # the code of an MPI says nothing after results
        (stopped("signal", 9), "", THRICE, 1, AFTER_5, f"{OWN} after iteration 5"),
    ],
    "a run that is done is not started": [  # resumed, it would be an error of the ranks
        (LIMIT, LINE, {}, 3, "after 5", "after 5"),
        (BROKEN, LINE, {}, 3, "", "nothing left"),
        (BROKEN, f"--resume {LINE[6:]}", {}, 3, "", "nothing left"),
        (stopped("converged"), f"{LINE} --overwrite", {}, 0, "", "after 5"),
        (BROKEN, LINE, {}, 0, "", "nothing left"),
    ],
}


@pytest.mark.parametrize("name", SESSIONS)
def test_jobs_in_a_row(name, tmp_path):
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    copy_launch(tmp_path)
    config = RunConfig(nodes=2)
    config.settle(2)
    (tmp_path / "begun.toml").write_text(to_toml(config.applied()))
    (tmp_path / "own.toml").write_text('out = "runs/slurm-1"\n')
    usual = {"DADMM_ENVIRONMENT": str(programs.parent)} | IN_SLURM
    usual["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    for script, line, more, code, first, last in SESSIONS[name]:
        test = "test $1 = --version && exit\n"
        write_program(programs / "mpiexec", test + script)
        command = [sys.executable, str(tmp_path / "launch"), "slurm", *line.split()]
        ended = Job(command, tmp_path, variables(**usual | more)).end()
        assert ended.code == code, ended
        assert first in ended.said[0]
        assert last in ended.said[-1]
        failed = script == BROKEN and code == 9
        assert (tmp_path / "run" / FAILURE).exists() is failed
        assert not failed or read_progress(tmp_path / "run").status == "failed"
    if "job" in name:
        assert os.listdir(tmp_path / "runs") == ["slurm-1"]


def test_a_job_of_pbs_is_resumed_by_a_variable(monkeypatch):
    """As qsub passes no arguments."""
    monkeypatch.chdir(ROOT)
    command = batch.submission(Allocation("pbs", "7", 4, None, 4), ["--resume", "a"])
    assert command == "DADMM_ARGS='--resume a' qsub -V ./launch/pbs.sh"


@pytest.mark.parametrize("name", ["slurm.sbatch", "pbs.sh"])
def test_a_script_needs_only_the_environment_of_the_user(tmp_path, name):
    """The only Python on PATH is too old; arguments under PBS may be quoted."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in ("dirname", "head", "sed", "timeout"):
        (programs / program).symlink_to(shutil.which(program))
    write_program(programs / "python3", "exit 1")
    (tmp_path / "hosts").write_text("here\nhere\n")
    (tmp_path / "x1").touch()
    copy_launch(tmp_path)
    words = ["--dry-run", "--topology", "ring,star", "--data", "x*", "--out", "my run"]

    def submit(*arguments, **more):
        usual = IN_SLURM | {
            "SLURM_SUBMIT_DIR": str(tmp_path), "PBS_NODEFILE": str(tmp_path / "hosts"),
            "DADMM_ENVIRONMENT": sys.prefix, "DADMM_PYTHON": "", "DADMM_MPIEXEC": "",
            "PATH": str(programs),
        }  # fmt: skip
        command = ["/bin/sh", str(tmp_path / "launch" / name), *arguments]
        return Job(command, tmp_path, variables(**usual | more)).end()

    quoted = {"DADMM_ARGS": "--dry-run --topology ring,star --data x* --out 'my run'"}
    ended = submit(*words) if "slurm" in name else submit(**quoted)
    assert ended.code == 0, ended
    for line in ('topology = "ring,star"', 'data = "x*"', 'out = "my run"'):
        assert line in ended.out.splitlines()
    if name == "pbs.sh":
        assert submit(DADMM_ARGS="--out 'runs").code == 2
    absent = submit(DADMM_ENVIRONMENT="", DADMM_PYTHON=sys.executable)
    assert absent.code == 2  # none is created, as there may be no network
    assert f"{tmp_path}/.venv" in absent.err
    assert not (tmp_path / ".venv").exists()
