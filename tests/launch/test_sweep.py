"""Sweeps: grids, job arrays, runs on this machine, and the table."""

import csv
import os
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from launch.base.messages import UsageError
from launch.base.run_folder import FAILURE, job_lock, read_state
from launch.batch import sweep, tasks
from launch.mpi.runtime import Runtime
from tests.support.processes import ROOT, Job, variables
from tests.support.run_folders import copy_launch

GRID = """
ranks = 2
[base]
max_iter = 20
init = "shared"
[grid]
scheme = ["snap", "vp"]
topology = ["complete", "ring,star"]
"""


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("grd = 1", "has 'grd'; it may have ranks, [base] and [grid]"),
        ("[grid]\nseed = 3", "seed in [grid] must be a list of values, got 3"),
        ("[grid]\nseed = []", "seed in [grid] must be a list of values, got []"),
        ("[base]\nseed = 1\n[grid]\nseed = [1]", "seed must be in only one of"),
        ("[base]\nout = 'x'", "out must be in only one of"),
        ("ranks = 0", "ranks must be a positive number of processes, got 0"),
        ("ranks = 9999999999", "ranks must be a positive number of processes"),
        ("grid = 3", "grid must be a table, got 3"),
        (
            f"[grid]\nseed = {list(range(400))}\neta0 = {list(range(1, 400))}",
            "asks for more than 100000 runs",
        ),
        ("[grid", "is not valid TOML"),
        ("[grid]\nseed = [2020-01-01]", "must be a text, a number"),
    ],
)
def test_an_invalid_grid_is_an_error(tmp_path, text, words):
    (tmp_path / "grid.toml").write_text(text)
    with pytest.raises(UsageError) as raised:
        tasks.read_grid(tmp_path / "grid.toml")

    assert words in str(raised.value)


def test_tasks_keep_their_numbers_when_a_grid_grows(grid, tmp_path):
    """Jobs in the queue use the numbers."""
    ranks, found, varied = tasks.read_grid(grid)
    assert (ranks, len(found), varied) == (2, 4, ["scheme", "topology"])
    assert found["scheme=vp,topology=ring,star"]["max_iter"] == 20
    before = tasks.Sweep(tmp_path / "out")
    before.add(tasks.read_grid(grid))
    grid.write_text(GRID.replace('"snap", "vp"', '"ap", "snap", "vp"'))
    after = tasks.Sweep(tmp_path / "out")
    after.add(tasks.read_grid(grid))
    assert after.names[:4] == before.names
    assert len(after.names) == 6

    arguments = ["--sweep", str(tmp_path / "out"), "--mpi", "impi"]
    name = "scheme=snap,topology=ring,star"
    assert tasks.arguments_of_task(arguments, {"SLURM_ARRAY_TASK_ID": "1"}) == [
        *["--config", f"{tmp_path}/out/settings/{name}.toml"],
        *["--out", f"{tmp_path}/out/{name}", "--mpi", "impi"],
    ]
    with pytest.raises(UsageError, match="needs a job array with tasks 0 to 5"):
        tasks.arguments_of_task(arguments, {"SLURM_ARRAY_TASK_ID": "6"})
    assert after.settings(name)["topology"] == "ring,star"
    assert sweep.ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert tasks.name_of({"budget_trigger": float("inf")}) == "budget_trigger=inf"
    names = {tasks.name_of({"data": path}) for path in ("a/b", "a:b", "a_b", "x" * 300)}
    assert len(names) == 4
    assert all("/" not in name and len(name) < 255 for name in names)


def launch_sweep(folder, *arguments, **more):
    """Start ./launch/sweep with the environment of the tests, or another."""
    defaults = {"DADMM_PYTHON": sys.executable, "DADMM_ENVIRONMENT": sys.prefix}
    command = [str(ROOT / "launch" / "sweep"), *map(str, arguments)]
    return Job(command, folder, variables(**defaults | more))


def test_a_sweep_runs_on_this_machine(grid, tmp_path):
    """Only unfinished tasks are run, and the table has missing and failed ones.

    One sweep at a time uses a folder, as its tasks read their settings when they start.
    """
    run = [grid, "--out", "out", "--local", "--at-most", 2]
    with job_lock(tmp_path / "out"):
        second = launch_sweep(tmp_path, *run).end()
    assert (second.code, second.said) == (
        2,
        ["dadmm: another job is running in out; wait for it, or choose another --out"],
    )
    assert os.listdir(tmp_path / "out") == []
    first = launch_sweep(tmp_path, *run).end()
    assert first.code == 0, first
    assert first.said[-1] == "dadmm: 4 runs: 4 not converged; table in out/table.csv"
    for i in range(1, 5):
        (line,) = [line for line in first.said if f" ({i} of 4 in " in line]
        assert (" left)" in line) == (i < 4)

    lost = tmp_path / "out" / "scheme=vp,topology=complete"
    shutil.rmtree(lost)
    failed = tmp_path / "out" / "scheme=snap,topology=complete"
    (failed / "summary.json").unlink()
    shutil.rmtree(failed / "checkpoints", ignore_errors=True)
    (failed / FAILURE).write_text("failed with code 1; see the log\n")
    collected = launch_sweep(tmp_path, "collect", "out").end()
    assert collected.said == [
        "dadmm: 4 runs: 1 failed, 2 not converged, 1 missing; table in out/table.csv"
    ]
    with open(tmp_path / "out" / "table.csv") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["status"], rows[1]["topology"]) == ("failed", "ring,star")
    again = launch_sweep(tmp_path, *run).end()
    assert again.code == 0
    ran = {line.partition(": ")[2].partition(": ")[0] for line in again.said[:-1]}
    assert ran == {lost.name, failed.name}
    assert again.said[-1] == first.said[-1]


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("vp", "vpp", "unknown scheme 'vpp'; choose one of"),
        (
            "max_iter",
            "max_itre",
            "dadmm: scheme=snap,topology=complete.toml: unknown setting 'max_itre'; "
            "did you mean max_iter?\n",
        ),
    ],
)
def test_an_invalid_setting_is_an_error_before_any_run(
    grid, tmp_path, name, wrong, words
):
    """Without the path of a temporary file, and no folder is created."""
    grid.write_text(GRID.replace(name, wrong))
    ended = launch_sweep(tmp_path, grid, "--out", "out", "--local").end()

    assert ended.code == 2
    assert ended.said == [ended.err.strip()]
    assert words in ended.err
    assert not (tmp_path / "out").exists()


def written(folder):
    files = [folder / "sweep.json", *folder.glob("settings/*")]
    return {path.name: path.read_text() for path in files}


def test_an_error_leaves_a_sweep_unchanged(grid, tmp_path):
    """Tasks in the queue read their settings when they start."""
    made = tasks.Sweep(tmp_path / "out")
    made.add(tasks.read_grid(grid))
    before = written(made.folder)
    started = made.folder / made.names[0]
    started.mkdir()
    (started / "config.toml").write_text('nodes = 2\ntopology = "star"\n')
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 20\nseed = 7"))
    ended = launch_sweep(tmp_path, grid, "--out", "out", "--local").end()

    assert ended.code == 2
    assert "choose another --out" in ended.err
    assert written(made.folder) == before


@pytest.fixture
def queue(tmp_path):
    """Variables for a Slurm that accepts all jobs and keeps task 2 in its queue."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, answer in {"sbatch": "15", "squeue": "2"}.items():
        (folder / name).write_text(f"#!/bin/sh\necho {answer}\n")
        (folder / name).chmod(0o755)
    return {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}


def test_the_settings_of_a_task_in_the_queue_are_not_changed(grid, queue, tmp_path):
    """Not even those that may change when a run is resumed.

    Its job gets --trust, without which it would refuse a problem class of a file.
    """
    sbatch = '#!/bin/sh\necho "$@" >arguments\necho 15\n'
    (tmp_path / "slurm" / "sbatch").write_text(sbatch)
    run = [grid, "--out", "out", "--trust"]
    assert "job 15: 4 of 4 runs" in launch_sweep(tmp_path, *run, **queue).end().err
    before = written(tmp_path / "out")
    assert "job 15: 3 of 4 runs" in launch_sweep(tmp_path, *run, **queue).end().err
    passed = (tmp_path / "arguments").read_text().split()
    assert "--array=0-1,3%4" in passed
    assert passed[-3:] == ["--sweep", "out", "--trust"]
    before["sweep.json"] = written(tmp_path / "out")["sweep.json"]
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 30"))
    ended = launch_sweep(tmp_path, *run, **queue).end()

    assert ended.code == 2
    assert ended.said == [
        "dadmm: out/scheme=vp,topology=complete is in the queue with max_iter = 20, "
        "and this one has 30; wait for it or cancel it, or choose another --out"
    ]
    assert written(tmp_path / "out") == before


def test_tasks_that_slurm_refuses_are_removed(grid, queue, tmp_path):
    """The array may be too large, and the next grid smaller."""
    sbatch = tmp_path / "slurm" / "sbatch"
    accepting = sbatch.read_text()
    sbatch.write_text("#!/bin/sh\necho too large >&2\nexit 1\n")
    ended = launch_sweep(tmp_path, grid, "--out", "out", **queue).end()
    assert ended.said == ["dadmm: Slurm did not accept the array: too large"]
    sbatch.write_text(accepting)
    grid.write_text(GRID.replace('"snap", ', ""))

    ended = launch_sweep(tmp_path, grid, "--out", "out", **queue).end()
    assert "job 15: 2 of 2" in ended.err
    assert len(tasks.Sweep(tmp_path / "out").names) == 2


def test_a_sweep_of_batch_jobs_creates_no_environment(grid, tmp_path):
    """Other jobs may be running from the one that it would replace."""
    copy_launch(tmp_path)
    command = [str(tmp_path / "launch" / "sweep"), str(grid), "--out", "out"]
    own = {"DADMM_PYTHON": sys.executable, "DADMM_ENVIRONMENT": "", "DADMM_MPIEXEC": ""}
    ended = Job(command, tmp_path, variables(**own)).end()

    assert ended.code == 2
    assert f"there is no environment {tmp_path}/.venv; create it before" in ended.err
    assert not list(tmp_path.glob(".venv*"))


SLOW_TO_PLAN = """#!/bin/sh
case "$*" in *print_settings.py*)  # called by the sweep, then by its run
    if test -e checked; then touch planning; sleep 2; fi
    touch checked
esac
exec PYTHON "$@"
"""


@pytest.mark.parametrize("group", [True, False])
def test_a_signal_before_a_run_starts_stops_the_sweep(tmp_path, group):
    """Sent to the process group, as by a terminal, or to the sweep alone."""
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(SLOW_TO_PLAN.replace("PYTHON", shlex.quote(sys.executable)))
    python.chmod(0o755)
    (tmp_path / "grid.toml").write_text("ranks = 2\n[base]\nmax_iter = 20\n")
    own = {"DADMM_ENVIRONMENT": str(tmp_path / "env")}
    job = launch_sweep(tmp_path, "grid.toml", "--out", "out", "--local", **own)
    job.wait_until((tmp_path / "planning").exists)
    if group:
        os.killpg(job.process.pid, signal.SIGINT)
    else:
        job.signal(signal.SIGTERM)
    ended = job.end()

    assert ended.code == 1
    assert ended.err == "dadmm: 1 runs: 1 missing; table in out/table.csv\n"


def test_a_signal_while_a_run_starts_stops_it(tmp_path, monkeypatch):
    """It is no failure if the signal ends the run before it can stop."""
    made = tasks.Sweep(tmp_path)
    made.add(tasks.Grid(2, {"run": {}}, []))
    pool = sweep.LocalPool(made, Runtime("python", "", {}))
    start = subprocess.Popen

    def start_and_signal(*_, **options):
        process = start(["sleep", "60"])
        pool.stop(signal.SIGTERM, None)
        return process

    monkeypatch.setattr(pool, "_plan", lambda _: [])
    monkeypatch.setattr(subprocess, "Popen", start_and_signal)

    assert pool.run_task("run") == -signal.SIGUSR1
    assert read_state(tmp_path / "run").status == "new"
