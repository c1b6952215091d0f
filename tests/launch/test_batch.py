"""Batch jobs without a batch system: what is asked, resumed, pinned, swept, told."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.base import run_folder
from launch.batch import batch_job, local_pool, schedulers, sweep, tasks
from launch.mpi.commands import Launcher, UsageError
from tests.support.processes import ROOT, Job, variables

GIVEN = {
    "problem": "ppca", "topology": "ring", "max_iter": 100, "overwrite": False,
    "seed": 0,
}  # fmt: skip


# What an allocation is


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("4", [4]), ("10(x2),3", [10, 10, 3]), ("2,1(x3)", [2, 1, 1, 1])],
)
def test_slurms_short_form_is_read(text, numbers):
    """Ranks per node, repeated as often as it says."""
    assert schedulers.counts(text) == numbers


def test_slurm_tells_ranks_and_cores():
    """A job of an array is named by array and task."""
    told = {
        "SLURM_JOB_ID": "17",
        "SLURM_ARRAY_JOB_ID": "15",
        "SLURM_ARRAY_TASK_ID": "2",
        "SLURM_NTASKS": "20",
        "SLURM_TASKS_PER_NODE": "12,8",
        "SLURM_CPUS_ON_NODE": "16",
    }

    assert schedulers.slurm(told) == ("slurm", "15_2", 20, 16, 12, "")


def test_pbs_tells_ranks_by_a_file(tmp_path):
    """One line per rank."""
    file = tmp_path / "hosts"
    file.write_text("a\na\nb\n")
    told = {"PBS_NODEFILE": str(file), "PBS_JOBID": "12.server", "NCPUS": "2"}

    assert schedulers.pbs(told) == ("pbs", "12", 3, 2, 2, str(file))


@pytest.mark.parametrize(
    ("system", "told", "words"),
    [
        ("slurm", {}, "not inside a Slurm job; submit: sbatch -n 20"),
        ("slurm", {"SLURM_JOB_ID": "1"}, "the job has no number of ranks"),
        ("pbs", {}, "not inside a PBS job"),
    ],
)
def test_outside_of_a_job_there_is_nothing_to_run(system, told, words):
    """And what to do is said."""
    with pytest.raises(UsageError, match=words):
        schedulers.SYSTEMS[system](told)


def copy_launchers(folder):
    """Copy what runs without an environment."""
    shutil.copytree(ROOT / "launch", folder / "launch")
    (folder / "dadmm" / "core").mkdir(parents=True)
    shutil.copy(ROOT / "dadmm" / "core" / "files.py", folder / "dadmm" / "core")


# Pinning


@pytest.mark.parametrize(
    ("cores", "ranks_here", "allowed", "wish", "pin"),
    [
        (16, 16, 16, "auto", True),  # a host, or a part of it, of one's own
        (16, 20, 16, "auto", False),  # more ranks than cores
        (16, 16, 64, "auto", False),  # others are there who are not kept apart
        (None, 4, 64, "auto", False),  # nobody says what is ours
        (16, 16, 64, "yes", True),
        (16, 16, 16, "no", False),
    ],
)
def test_ranks_are_pinned_to_cores_of_their_own(cores, ranks_here, allowed, wish, pin):
    """Never where two jobs could be pinned to the same cores."""
    allocation = schedulers.Allocation("slurm", "1", 20, cores, ranks_here)

    assert schedulers.pinned(allocation, allowed, wish) is pin


@pytest.mark.parametrize(
    ("banner", "options", "names"),
    [
        ("HYDRA build details", ["-bind-to", "core"], {}),
        ("mpiexec (Open MPI) 5.0.11", ["--bind-to", "core"], {}),
        ("Intel(R) MPI Library", [], {"I_MPI_PIN": "1"}),
    ],
)
def test_every_mpi_pins_in_its_own_way(banner, options, names):
    """As tried with each of them."""
    assert schedulers.binding(banner, pin=True) == (options, names)


# How ranks are started


@pytest.fixture
def launcher(tmp_path):
    """An mpiexec that says it is MPICH's."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text("#!/bin/sh\necho HYDRA build details:\n")
    mpiexec.chmod(0o755)
    return Launcher("python", str(mpiexec), {})


def test_mpiexec_is_given_the_hosts_of_pbs(launcher, tmp_path):
    """Which MPICH from pip does not ask for by itself; each of them once."""
    (tmp_path / "hosts").write_text("b\na\nb\n")  # two chunks on one host
    allocation = schedulers.Allocation("pbs", "1", 3, 2, 2, str(tmp_path / "hosts"))
    with schedulers.start(allocation, launcher, True, ["job"]) as (command, _):
        start = [launcher.mpiexec, "-bind-to", "core", "-machinefile", command[4]]

        assert command == [*start, "-n", "3", "job"]
        assert Path(command[4]).read_text() == "b:2\na:1\n"


def test_open_mpi_is_told_what_to_hand_on_under_pbs(launcher, tmp_path):
    """By ssh it hands on nothing."""
    Path(launcher.mpiexec).write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.11'\n")
    (tmp_path / "hosts").write_text("b\na\nb\n")
    allocation = schedulers.Allocation("pbs", "1", 3, None, 2, str(tmp_path / "hosts"))
    given = launcher._replace(variables={"PYTHONPATH": "x"})
    with schedulers.start(allocation, given, False, ["job"]) as (command, _):
        assert command[1:3] == ["--bind-to", "none"]
        assert command[-5:] == ["-x", "PYTHONPATH", "-n", "3", "job"]
        assert Path(command[4]).read_text() == "b\nb\na\n"


def test_srun_speaks_the_pmi_of_mpich(launcher):
    """Unless the user knows better."""
    allocation = schedulers.Allocation("slurm", "1", 3, None, 2)
    chosen = launcher._replace(variables={"DADMM_LAUNCHER": "srun"})
    with schedulers.start(allocation, chosen, True, ["job"]) as (command, names):
        assert command[:3] == ["srun", "-n", "3"]
        assert command[-2:] == ["--cpu-bind=cores", "job"]
        assert names["SLURM_MPI_TYPE"] == "pmi2"


@pytest.mark.parametrize(("system", "name"), [("pbs", "srun"), ("slurm", "prun")])
def test_a_launcher_must_be_known(launcher, system, name):
    """The error says which are."""
    allocation = schedulers.Allocation(system, "1", 3, None, 2)
    chosen = launcher._replace(variables={"DADMM_LAUNCHER": name})

    held = schedulers.start(allocation, chosen, False, ["job"])
    with pytest.raises(UsageError, match="DADMM_LAUNCHER must be mpiexec, or srun"):
        held.__enter__()


@pytest.mark.parametrize(("image", "found"), [("", "mpiexec"), ("dadmm.sif", "")])
def test_an_image_does_not_get_the_mpi_of_its_host(
    launcher, tmp_path, monkeypatch, image, found
):
    """Another MPI's library would not even load in it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DADMM_IMAGE", image)
    monkeypatch.setenv("DADMM_MPIEXEC", "")
    chosen = batch_job.own_launcher(ROOT / "launch" / "container")

    assert Path(chosen.mpiexec).name == found


# Whether a run is begun, resumed or done


class Run:
    """The folder of a run as it may be found."""

    def __init__(self, folder):
        self.folder = folder

    def begun(self, **settings):
        self.folder.mkdir(exist_ok=True)
        table = {**GIVEN, "nodes": 2, **settings}
        (self.folder / "config.toml").write_text(tasks.toml(table))
        return self

    def saved(self, iteration, nodes=2):
        folder = self.folder / "checkpoints" / f"{iteration:08d}"
        folder.mkdir(parents=True)
        for node in range(nodes):
            (folder / f"node-{node:05d}.npz").touch()
        return self

    def ended(self, reason, iterations):
        summary = {"reason": reason, "iterations": iterations}
        (self.folder / "summary.json").write_text(json.dumps(summary))
        return self

    def plan(self, argv=("--out", "x"), again=False):
        return run_folder.plan("python", list(argv), self.folder, 2, again)


@pytest.fixture
def asked(monkeypatch):
    """The settings that a command line is found to have."""
    given = dict(GIVEN)
    monkeypatch.setattr(run_folder, "settings", lambda python, lines: [given])
    return given


@pytest.fixture
def run(tmp_path, asked):
    """A folder that does not exist yet."""
    return Run(tmp_path / "run")


def test_a_new_run_is_begun(run):
    """With the arguments as they are."""
    assert run.plan() == ["--out", "x"]
    assert run_folder.look(run.folder).word == "new"


def test_a_run_with_a_checkpoint_is_resumed(run):
    """Whether it was stopped in good order or killed."""
    run.begun().saved(40)
    assert run.plan()[:2] == ["--resume", str(run.folder)]
    assert run_folder.look(run.folder) == ("unfinished", 40, {})
    run.ended("signal", 40)
    assert run.plan()[:2] == ["--resume", str(run.folder)]
    assert run_folder.look(run.folder).word == "stopped"


def test_a_resumed_run_may_go_further(run, asked):
    """Limits and what concerns the person only are passed on, and nothing else."""
    asked |= {"max_iter": 500, "quiet": True, "strict": False, "wait": "poll"}
    words = run.begun().saved(40).plan()

    wanted = "--max-iter 500 --quiet --no-strict --wait poll"
    assert " ".join(words[2:]) == wanted


def test_a_checkpoint_that_lacks_a_node_does_not_count(run):
    """The job was killed while it wrote."""
    run.begun().saved(40).saved(80, nodes=1)
    assert run_folder.last_checkpoint(run.folder) == 40


def test_a_run_that_was_killed_early_starts_again(run):
    """There is nothing in its folder that could be lost."""
    assert run.begun().plan() == ["--out", "x", "--overwrite"]


@pytest.mark.parametrize(("reason", "max_iter"), [("converged", 100), ("max_iter", 80)])
def test_a_run_that_is_done_is_left_alone(run, asked, reason, max_iter):
    """Submitting too often does no harm."""
    asked["max_iter"] = max_iter
    assert run.begun().ended(reason, 80).plan() is None


def test_more_iterations_take_a_run_further(run):
    """Than those at which it ended before."""
    run.begun().saved(80).ended("max_iter", 80)
    assert run.plan()[:2] == ["--resume", str(run.folder)]


def test_overwrite_starts_anew_but_once(run, asked):
    """A job that was requeued has done it already."""
    asked["overwrite"] = True
    run.begun(seed=5).saved(40)
    assert run.plan() == ["--out", "x"]
    run.begun()
    assert run.plan(again=True)[0] == "--resume"


@pytest.mark.parametrize(
    ("begun", "words"),
    [
        ({"topology": "star"}, "with topology = 'star', and this one has 'ring'"),
        ({"nodes": 5}, "a run of 5 ranks, and this one has 2"),
        ({"alpha": 1.0}, "with alpha = 1.0, and this one has None"),
    ],
)
def test_another_run_is_not_resumed(run, begun, words):
    """Even if it has converged: its results are not those that were asked for."""
    run.begun(**begun).ended("converged", 80)

    with pytest.raises(UsageError, match=words):
        run.plan()


def test_one_job_at_a_time_in_a_folder(tmp_path):
    """Two that write the same files would spoil them."""
    run, refused = tmp_path / "run", "another job is at work in"
    with run_folder.only_job(run), pytest.raises(UsageError, match=refused):
        run_folder.only_job(run).__enter__()
    assert os.listdir(tmp_path / "run") == []
    with run_folder.only_job(tmp_path / "run"):
        pass


# A batch job with an mpiexec that is a script


class Batch:
    """A project whose environment has no MPI but a script."""

    def __init__(self, folder):
        self.folder, self.prefix = folder, folder / "env"
        (self.prefix / "bin").mkdir(parents=True)
        (self.prefix / "bin" / "python").symlink_to(sys.executable)
        self.script = ROOT / "launch"

    def start(self, script, *arguments, system="slurm", **more):
        mpiexec = self.prefix / "bin" / "mpiexec"
        mpiexec.write_text(f"#!/bin/sh\ntest $1 = --version && exit\n{script}\n")
        mpiexec.chmod(0o755)
        told = {
            "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": "2",
            "DADMM_ENVIRONMENT": str(self.prefix),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        command = [sys.executable, str(self.script), system]
        known = variables(**told | more)
        return Job([*command, *arguments], self.folder, known)


@pytest.fixture
def job(tmp_path):
    """A batch job to be started."""
    return Batch(tmp_path)


SUMMARY = """
mkdir -p run && echo 'nodes = 2' >run/config.toml
echo '{"reason": "REASON", "iterations": 70}' >run/summary.json
"""
# as ranks do that are stopped after the fifth iteration
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


def test_the_end_is_one_line(job):
    """That says what happened and where."""
    ended = job.start(SUMMARY.replace("REASON", "converged"), "--out", "run").end()

    assert ended.code == 0
    assert ended.said == ["dadmm: converged after 70 iterations; results in run"]


def test_a_failure_is_noted_in_the_folder(job):
    """For those who collect, and the next start removes it."""
    ended = job.start("exit 9", "--out", "run").end()

    assert ended.code == 9
    assert "failed with code 9; no checkpoint" in ended.said[-1]
    assert run_folder.look(job.folder / "run").word == "failed"
    again = job.start(SUMMARY.replace("REASON", "max_iter"), "--out", "run").end()
    assert "ended at max_iter, not converged, after 70 iterations" in again.said[-1]
    assert not (job.folder / "run" / run_folder.FAILURE).exists()


def test_a_folder_of_somebody_else_is_left_alone(job):
    """A note about a failure would be the first step to a mess."""
    (job.folder / "run").mkdir()
    (job.folder / "run" / "thesis.tex").touch()
    ended = job.start("exit 2", "--out", "run").end()

    assert ended.code == 2
    assert os.listdir(job.folder / "run") == ["thesis.tex"]


def test_slurms_warning_reaches_the_ranks(job):
    """As USR1, and the line at the end says how to go on."""
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
        "has no checkpoint, so the same command starts again"
    )


RESUMED = "sbatch -n 2 ./launch/slurm.sbatch --resume runs/slurm-1"


@pytest.fixture
def project(job):
    """A batch job that is submitted in the folder of its project."""
    copy_launchers(job.folder)
    job.script = job.folder / "launch"
    return job


def test_a_run_without_out_is_named_after_its_job(project):
    """The next job has another name, so the line says which command goes on."""
    ended = project.start(STOPPED).end()

    assert ended.code == 0, ended
    assert ended.said == [
        "dadmm: stopped after 5 iterations; results in runs/slurm-1; "
        f"run {RESUMED} to go on"
    ]
    again = project.start(STOPPED, *RESUMED.split()[4:], SLURM_JOB_ID="2").end()
    assert again.said[0] == "dadmm: going on in runs/slurm-1 after iteration 5"
    assert again.said[1].endswith("submit the same command again to go on")
    assert os.listdir(project.folder / "runs") == ["slurm-1"]


def test_a_requeued_job_goes_on_without_out(project):
    """It keeps its number."""
    assert project.start(STOPPED).end().code == 0
    again = project.start(STOPPED, SLURM_RESTART_COUNT="1").end()

    assert again.said[0] == "dadmm: going on in runs/slurm-1 after iteration 5"


def test_a_failed_run_without_out_goes_on_by_the_command_that_is_said(project):
    """And those who collect read the same in a note."""
    ended = project.start(STOPPED + "exit 9").end()

    assert ended.code == 9
    assert ended.said[-1] == (
        f"dadmm: failed with code 9; run {RESUMED} to go on after iteration 5; "
        "runs/slurm-1"
    )


def test_under_pbs_the_arguments_go_on_in_a_variable(monkeypatch):
    """With the MPI that the run had."""
    monkeypatch.chdir(ROOT)
    allocation = schedulers.Allocation("pbs", "7", 4, None, 4)
    folder = batch_job.default_folder(allocation)

    assert batch_job.way_on(GIVEN, folder, allocation, "impi") == (
        "run DADMM_ARGS='--mpi impi --resume runs/pbs-7' qsub -V ./launch/pbs.sh"
    )


def test_the_same_command_with_overwrite_does_not_go_on(project):
    """It would begin anew, wherever the results are."""
    ended = project.start(STOPPED, "--out", "run", "--overwrite").end()

    assert ended.said[-1].endswith(
        "; run sbatch -n 2 ./launch/slurm.sbatch --resume run to go on"
    )


def test_the_folder_may_be_named_in_a_file_of_settings(project):
    """As on the command line: the same command goes on."""
    (project.folder / "settings.toml").write_text('out = "runs/wanted"\n')
    line = (STOPPED, "--config", "settings.toml")
    ended = project.start(*line).end()

    assert ended.said[-1].endswith("submit the same command again to go on"), ended
    assert os.listdir(project.folder / "runs") == ["wanted"]
    again = project.start(*line, SLURM_JOB_ID="2").end()
    assert again.said[0] == "dadmm: going on in runs/wanted after iteration 5"


@pytest.mark.parametrize("reason", ["converged", "max_iter"])
def test_a_run_that_is_done_is_not_resumed(job, reason):
    """That would be a mistake to the ranks, and leave a note of failure."""
    assert job.start(SUMMARY.replace("REASON", reason), "--out", "run").end().code == 0
    again = job.start("exit 2", "--resume", "run", "--max-iter", "70").end()

    assert again.code == 0
    assert again.said[-1].startswith("dadmm: nothing left to do")
    assert not (job.folder / "run" / run_folder.FAILURE).exists()


@pytest.mark.parametrize("reason", ["max_iter", "signal"])
def test_not_to_converge_under_strict_is_no_failure_of_the_run(job, reason):
    """It has results; the code is what was asked for."""
    script = SUMMARY.replace("REASON", reason) + "exit 3"
    ended = job.start(script, "--out", "run", "--strict").end()

    assert ended.code == 3
    assert "after 70 iterations; results in run" in ended.said[-1]
    assert run_folder.look(job.folder / "run").iterations == 70


@pytest.mark.parametrize(
    ("reason", "flag", "code"),
    [
        ("max_iter", "--strict", 3),
        ("max_iter", "--quiet", 0),
        ("converged", "--strict", 0),
    ],
)
def test_a_run_that_is_done_is_judged_again(job, reason, flag, code):
    """By the same rule as when it ended."""
    line = ("--out", "run", "--max-iter", "5", flag)
    assert job.start(STOPPED.replace("signal", reason), *line).end().code == 0
    again = job.start("exit 9", *line).end()

    assert again.code == code, again
    assert again.said[-1].startswith("dadmm: nothing left to do")


@pytest.mark.parametrize(
    ("flag", "words"), [("--dry-run", 'topology = "ring"'), ("--help", "usage:")]
)
def test_what_is_only_shown_needs_no_ranks(job, flag, words):
    """Nor a folder, and nothing has failed."""
    ended = job.start("exit 9", "--topology", "ring", flag).end()

    assert (ended.code, ended.said) == (0, [])
    assert words in ended.out
    assert not (job.folder / "runs").exists()


# The scripts, where the only Python on PATH is too old


class Script:
    """A project in which no environment was made, but the user has one."""

    def __init__(self, folder):
        self.folder, self.programs = folder, folder / "programs"
        self.programs.mkdir()
        for name in ("dirname", "head", "sed", "timeout"):
            (self.programs / name).symlink_to(shutil.which(name))
        (self.programs / "python3").write_text("#!/bin/sh\nexit 1\n")
        (self.programs / "python3").chmod(0o755)
        (folder / "hosts").write_text("here\nhere\n")
        copy_launchers(folder)

    def start(self, name, *arguments, **more):
        told = {
            "SLURM_JOB_ID": "1",
            "SLURM_NTASKS": "2",
            "SLURM_SUBMIT_DIR": str(self.folder),
            "PBS_NODEFILE": str(self.folder / "hosts"),
            "DADMM_ENVIRONMENT": sys.prefix,
            "DADMM_PYTHON": "",
            "DADMM_MPIEXEC": "",
            "PATH": str(self.programs),
        }
        command = ["/bin/sh", str(self.folder / "launch" / name), *arguments]
        return Job(command, self.folder, variables(**told | more)).end()


@pytest.fixture
def scripts(tmp_path):
    """The batch scripts as a batch system runs them."""
    return Script(tmp_path)


@pytest.mark.parametrize("name", ["slurm.sbatch", "pbs.sh"])
def test_the_users_environment_is_enough(scripts, name):
    """Its Python runs the script, too."""
    ended = scripts.start(name, "--dry-run")

    assert ended.code == 0, ended
    assert 'topology = "complete"' in ended.out


@pytest.mark.parametrize("name", ["slurm.sbatch", "pbs.sh"])
def test_the_python_of_an_image_does_not_run_the_script(scripts, name):
    """In the image there is neither srun nor scontrol."""
    ended = scripts.start(name, "--dry-run", DADMM_IMAGE="dadmm.sif")

    assert ended.code == 1
    assert "needs Python 3.11 or newer and found none on PATH" in ended.err


def test_arguments_under_pbs_may_be_quoted(scripts):
    """They are no file names, and commas are as good as any other letter."""
    (scripts.folder / "x1").touch()
    given = "--dry-run --topology ring,star --data x* --out 'runs/my run'"
    ended = scripts.start("pbs.sh", DADMM_ARGS=given)

    assert ended.code == 0, ended
    for line in ('topology = "ring,star"', 'data = "x*"', 'out = "runs/my run"'):
        assert line in ended.out.splitlines()
    open_ended = scripts.start("pbs.sh", DADMM_ARGS="--out 'runs")
    assert open_ended.code == 2
    assert "DADMM_ARGS must be arguments as in a shell" in open_ended.err


# Sweeps

GRID = """
ranks = 2
[base]
max_iter = 20
[grid]
scheme = ["auto", "vp"]
topology = ["complete", "ring,star"]
"""


@pytest.fixture
def grid(tmp_path):
    """A grid of four runs."""
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def test_a_grid_is_all_combinations(grid):
    """Names tell the settings, and are fit for folders."""
    ranks, found, varied = tasks.read_grid(grid)

    assert (ranks, len(found), varied) == (2, 4, ["scheme", "topology"])
    assert "scheme=auto,topology=complete" in found
    assert found["scheme=vp,topology=ring,star"]["max_iter"] == 20


def test_names_of_other_values_do_not_collide():
    """What a folder's name cannot say, a hash tells apart."""
    names = {tasks.name_of({"data": path}) for path in ("a/b", "a:b", "a_b", "x" * 300)}

    assert len(names) == 4
    assert all("/" not in name and len(name) < 255 for name in names)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grd = 1", "has 'grd'; it may have ranks, [base] and [grid]"),
        ("[grid]\nseed = 3", "seed in [grid] must be a list of values, got 3"),
        ("[grid]\nseed = []", "seed in [grid] must be a list of values, got []"),
        ("[base]\nseed = 1\n[grid]\nseed = [1]", "seed must be in one of"),
        ("[base]\nout = 'x'", "out must be in one of"),
        ("ranks = 0", "ranks must be a positive number of processes, got 0"),
        ("[grid", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_grid_is_one_sentence(tmp_path, text, words):
    """It names the setting, the rule and the value."""
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(UsageError) as raised:
        tasks.read_grid(tmp_path / "grid.toml")

    assert words in str(raised.value)


def test_tasks_keep_their_numbers_when_a_grid_grows(grid, tmp_path):
    """Jobs that wait in the queue know them by number."""
    before = tasks.Sweep(tmp_path / "out")
    before.adopt(tasks.read_grid(grid))
    grid.write_text(GRID.replace('"auto", "vp"', '"ap", "auto", "vp"'))
    after = tasks.Sweep(tmp_path / "out")
    after.adopt(tasks.read_grid(grid))

    assert after.names[:4] == before.names
    assert len(after.names) == 6


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([0], "0"), ([0, 1, 2], "0-2"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8")],
)
def test_numbers_are_written_as_sbatch_reads_them(numbers, text):
    """Short, since command lines are."""
    assert sweep.ranges(numbers) == text


def test_a_task_of_an_array_finds_its_arguments(grid, tmp_path):
    """By its number."""
    made = tasks.Sweep(tmp_path / "out")
    made.adopt(tasks.read_grid(grid))
    line = ["--sweep", str(tmp_path / "out"), "--mpi", "impi"]
    found = tasks.arguments_of_task(line, {"SLURM_ARRAY_TASK_ID": "1"})

    name = "scheme=auto,topology=ring,star"
    assert found == [
        *["--config", f"{tmp_path}/out/settings/{name}.toml"],
        *["--out", f"{tmp_path}/out/{name}", "--mpi", "impi"],
    ]
    with pytest.raises(UsageError, match="needs a job array with tasks 0 to 3"):
        tasks.arguments_of_task(line, {"SLURM_ARRAY_TASK_ID": "4"})


def begin_sweep(folder, *arguments, **more):
    """Start ./launch/sweep with the environment of the tests, or another."""
    usual = {"DADMM_PYTHON": sys.executable, "DADMM_ENVIRONMENT": sys.prefix}
    command = [str(ROOT / "launch" / "sweep"), *map(str, arguments)]
    return Job(command, folder, variables(**usual | more))


def start_sweep(folder, *arguments, **more):
    """Run ./launch/sweep to its end."""
    return begin_sweep(folder, *arguments, **more).end()


def test_a_sweep_runs_on_this_machine(grid, tmp_path):
    """Only what is not finished, and the table says what is missing or failed."""
    run = [grid, "--out", "out", "--local", "--at-most", 2]
    first = start_sweep(tmp_path, *run)
    assert first.code == 0, first
    assert first.said[-1] == "dadmm: 4 runs: 4 not converged; table in out/table.csv"

    lost = tmp_path / "out" / "scheme=vp,topology=complete"
    shutil.rmtree(lost)
    failed = tmp_path / "out" / "scheme=auto,topology=complete"
    (failed / "summary.json").unlink()
    shutil.rmtree(failed / "checkpoints", ignore_errors=True)
    (failed / run_folder.FAILURE).write_text("failed with code 1; see the log\n")
    told = start_sweep(tmp_path, "collect", "out")
    assert told.said == [
        "dadmm: 4 runs: 1 failed, 2 not converged, 1 missing; table in out/table.csv"
    ]
    with open(tmp_path / "out" / "table.csv") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["status"], rows[1]["topology"]) == ("failed", "ring,star")
    again = start_sweep(tmp_path, *run)
    assert again.code == 0
    ran = {line.partition(": ")[2].partition(": ")[0] for line in again.said[:-1]}
    assert ran == {lost.name, failed.name}
    assert again.said[-1] == first.said[-1]


def test_a_wrong_setting_in_a_grid_is_said_before_anything_runs(grid, tmp_path):
    """In one sentence, with exit code 2, and no task is left that nobody wants."""
    grid.write_text(GRID.replace("vp", "vpp"))
    ended = start_sweep(tmp_path, grid, "--out", "out", "--local")

    assert ended.code == 2
    assert ended.said == [ended.err.strip()]
    assert "unknown scheme 'vpp'; choose one of" in ended.err
    assert not (tmp_path / "out").exists()


def test_a_wrong_name_in_a_grid_is_said_without_a_path(grid, tmp_path):
    """The file in which it was found is gone by then."""
    grid.write_text(GRID.replace("max_iter", "max_itre"))
    ended = start_sweep(tmp_path, grid, "--out", "out", "--local")

    assert ended.err == (
        "dadmm: scheme=auto,topology=complete.toml: unknown setting 'max_itre'; "
        "did you mean max_iter?\n"
    )


def written(folder):
    """Return what a sweep has in its files."""
    files = [folder / "sweep.json", *folder.glob("settings/*")]
    return {path.name: path.read_text() for path in files}


def test_a_refused_sweep_is_as_it_was(grid, tmp_path):
    """Tasks that have not started yet would read other settings."""
    made = tasks.Sweep(tmp_path / "out")
    made.adopt(tasks.read_grid(grid))
    before = written(made.folder)
    Run(made.folder / made.names[0]).begun(topology="star")
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 20\nseed = 7"))
    ended = start_sweep(tmp_path, grid, "--out", "out", "--local")

    assert ended.code == 2
    assert "choose another --out" in ended.err
    assert written(made.folder) == before


@pytest.fixture
def queue(tmp_path):
    """Variables with which Slurm takes all jobs and keeps task 2 in its queue."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, answer in {"sbatch": "15", "squeue": "2"}.items():
        (folder / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (folder / name).chmod(0o755)
    return {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}


def test_the_settings_of_a_task_in_the_queue_are_not_changed(grid, queue, tmp_path):
    """Not even those that may change when a run goes on."""
    run = [grid, "--out", "out"]
    assert "job 15: 4 of 4 runs" in start_sweep(tmp_path, *run, **queue).err
    before = written(tmp_path / "out")
    assert "job 15: 3 of 4 runs" in start_sweep(tmp_path, *run, **queue).err
    before["sweep.json"] = written(tmp_path / "out")["sweep.json"]
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 30"))
    ended = start_sweep(tmp_path, *run, **queue)

    assert ended.code == 2
    assert ended.said == [
        "dadmm: out/scheme=vp,topology=complete is in the queue with max_iter = 20, "
        "and this one has 30; wait for it or cancel it, or choose another --out"
    ]
    assert written(tmp_path / "out") == before


def test_tasks_that_slurm_does_not_take_are_not_missed(grid, queue, tmp_path):
    """The array was too large, say, and the next grid is smaller."""
    sbatch = tmp_path / "slurm" / "sbatch"
    taking = sbatch.read_text()
    sbatch.write_text("#!/bin/sh\necho too large >&2\nexit 1\n")
    ended = start_sweep(tmp_path, grid, "--out", "out", **queue)
    assert ended.said == ["dadmm: Slurm did not take the array: too large"]
    sbatch.write_text(taking)
    grid.write_text(GRID.replace('"auto", ', ""))

    assert "job 15: 2 of 2" in start_sweep(tmp_path, grid, "--out", "out", **queue).err
    assert len(tasks.Sweep(tmp_path / "out").names) == 2


def test_a_sweep_at_work_keeps_others_out(grid, tmp_path):
    """Its tasks wait in its process, and read their settings when they start."""
    with run_folder.only_job(tmp_path / "out"):
        ended = start_sweep(tmp_path, grid, "--out", "out", "--local")

    assert ended.code == 2
    assert ended.said == ["dadmm: another job is at work in out; wait for it"]
    assert os.listdir(tmp_path / "out") == []


def test_a_sweep_of_batch_jobs_makes_no_environment(grid, tmp_path):
    """Other jobs may be running from the one that a new one would replace."""
    copy_launchers(tmp_path)
    command = [str(tmp_path / "launch" / "sweep"), str(grid), "--out", "out"]
    own = {"DADMM_PYTHON": sys.executable, "DADMM_ENVIRONMENT": "", "DADMM_MPIEXEC": ""}
    ended = Job(command, tmp_path, variables(**own)).end()

    assert ended.code == 2
    assert f"there is no environment {tmp_path}/.venv; make it before" in ended.err
    assert not list(tmp_path.glob(".venv*"))


SLOW_TO_PLAN = """#!/bin/sh
case "$*" in *settings.py*)  # asked by the sweep as a whole, then by its run
    if test -e checked; then touch planning; sleep 2; fi
    touch checked
esac
exec PYTHON "$@"
"""


@pytest.mark.parametrize("everybody", [True, False])
def test_a_signal_while_a_run_is_planned_stops_the_sweep(tmp_path, everybody):
    """Sent by a terminal, whose Ctrl-C is for all in the group, or to us alone."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(SLOW_TO_PLAN.replace("PYTHON", sys.executable))
    python.chmod(0o755)
    (tmp_path / "grid.toml").write_text("ranks = 2\n[base]\nmax_iter = 20\n")
    own = {"DADMM_ENVIRONMENT": str(tmp_path / "env")}
    job = begin_sweep(tmp_path, "grid.toml", "--out", "out", "--local", **own)
    job.wait_until((tmp_path / "planning").exists)
    if everybody:
        os.killpg(job.process.pid, signal.SIGINT)
    else:
        job.signal(signal.SIGTERM)
    ended = job.end()

    assert ended.code == 1
    assert ended.err == "dadmm: 1 runs: 1 missing; table in out/table.csv\n"


def test_a_run_that_starts_while_a_signal_comes_is_told(tmp_path, monkeypatch):
    """And to end by it, too early to stop in good order, is no failure."""
    made = tasks.Sweep(tmp_path)
    made.adopt(tasks.Grid(2, {"run": {}}, []))
    runner = local_pool.Here(made, Launcher("python", "", {}))
    start = subprocess.Popen

    def start_and_signal(*_, **options):
        process = start(["sleep", "60"])
        runner.stop(signal.SIGTERM, None)
        return process

    monkeypatch.setattr(local_pool, "plan", lambda *_: [])
    monkeypatch.setattr(subprocess, "Popen", start_and_signal)

    assert runner("run") == -signal.SIGUSR1
    assert run_folder.look(tmp_path / "run").word == "new"
