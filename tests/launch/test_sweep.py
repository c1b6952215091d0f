"""Sweeps: grids, job arrays, runs on this machine, and the table."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from dadmm.core.errors import ConfigError
from dadmm.runs.folder import RunFolder
from launch import sweep
from launch.console import UsageError
from launch.mpi import Runtime
from launch.runs import FAILURE, read_state
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
OWN = '[base]\nproblem = "theirs:Mean"\n'


@pytest.fixture
def grid(tmp_path, monkeypatch):
    """A grid file in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("grd = 1", "grd"),
        ("[grid]\nseed = 3", "seed"),
        ("[grid]\nseed = []", "seed"),
        ("[base]\nseed = 1\n[grid]\nseed = [1]", "seed"),
        ("[base]\nout = 'x'", "out"),
        ("ranks = 0", "ranks"),
        ("ranks = 9999999999", "ranks"),
        ("grid = 3", "grid"),
        (f"[grid]\nseed = {[*range(400)]}\neta0 = {[*range(1, 400)]}", "100000"),
        ("[grid", "TOML"),
        ("[grid]\nseed = [2020-01-01]", "seed"),
        ("[base]\nmax_itre = 3", "max_iter"),
        ("[grid]\nscheme = ['vpp']", "vpp"),
        ("[base]\nresume = 'x'", "resume"),
        (OWN, "--trust"),
    ],
)
def test_an_invalid_grid_is_an_error_before_any_run(grid, text, word):
    grid.write_text(text)
    with pytest.raises((UsageError, ConfigError), match=word):
        sweep.run(["grid.toml", "--out", "out", "--local"], Runtime("", "", {}))

    assert os.listdir() == ["grid.toml"]


@pytest.mark.parametrize("record", ["", "3", "{}", '{"ranks": 4, "tasks": 3}'])
def test_a_damaged_sweep_is_an_error(tmp_path, record):
    (tmp_path / "sweep.json").write_text(record)
    with pytest.raises(ConfigError, match=r"sweep\.json"):
        sweep.Sweep.read(tmp_path)


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "logs"])
def test_the_name_of_a_task_is_that_of_a_folder(tmp_path, name):
    record = {"ranks": 2, "varied": [], "jobs": [], "tasks": {name: {}}}
    (tmp_path / "sweep.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="tasks"):
        sweep.Sweep.read(tmp_path)


def test_a_name_is_made_of_the_settings():
    assert sweep.name_of({"budget_trigger": float("inf")}) == "budget_trigger=inf"
    names = {sweep.name_of({"data": path}) for path in ("a/b", "a:b", "a_b", "x" * 300)}

    assert len(names) == 4
    assert all(sweep.NAME.fullmatch(name) and len(name) < 255 for name in names)


def test_a_job_of_the_array_runs_its_task(grid, tmp_path):
    """A class of the user's needs --trust there, too."""
    made = sweep.read_grid("grid.toml", "out")
    made.folder.mkdir()
    made.save()
    line, task = ["--sweep", "out", "--quiet"], {"SLURM_ARRAY_TASK_ID": "1"}
    assert sweep.arguments_of_task(line, task) == [
        *("--max-iter=20", "--init=shared", "--scheme=snap", "--topology=ring,star"),
        *("--out", "out/scheme=snap,topology=ring,star", "--quiet"),
    ]
    for wrong in ("4", ""):
        with pytest.raises(UsageError, match="0 to 3"):
            sweep.arguments_of_task(line, {"SLURM_ARRAY_TASK_ID": wrong})
    grid.write_text(OWN)
    own = sweep.read_grid("grid.toml", "out", trust=True)
    own.save()
    with pytest.raises(UsageError, match="--trust"):
        sweep.arguments_of_task(line, {"SLURM_ARRAY_TASK_ID": "0"})


def launch_sweep(folder, *arguments, **more):
    """Start ./launch/sweep with the environment of the tests, or another."""
    defaults = {"DADMM_PYTHON": sys.executable, "DADMM_ENVIRONMENT": sys.prefix}
    command = [str(ROOT / "launch" / "sweep"), *map(str, arguments)]
    return Job(command, folder, variables(**defaults | more)).end()


def test_a_sweep_runs_on_this_machine(grid, tmp_path):
    """Only unfinished tasks are run, and the table has missing and failed ones.

    One sweep at a time uses a folder, and a folder with other files is refused.
    """
    run, out = [grid, "--out", "out", "--local", "--at-most", 2], tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").touch()
    assert launch_sweep(tmp_path, *run).code == 2
    (out / "thesis.tex").unlink()
    lock = RunFolder(out)
    lock.lock(first=True)
    assert launch_sweep(tmp_path, *run).code == 2
    lock.release()
    assert os.listdir(out) == [".lock"]
    first = launch_sweep(tmp_path, *run)
    assert first.code == 0, first
    assert "4 not converged" in first.said[-1]
    assert sum(" of 4 in " in line for line in first.said) == 4

    lost = out / "scheme=vp,topology=complete"
    shutil.rmtree(lost)
    failed = out / "scheme=snap,topology=complete"
    (failed / "summary.json").unlink()
    shutil.rmtree(failed / "checkpoints", ignore_errors=True)
    (failed / FAILURE).write_text("failed with code 1; see the log\n")
    collected = launch_sweep(tmp_path, "collect", "out")
    assert "1 failed, 2 not converged, 1 missing" in collected.said[-1]
    with open(out / "table.csv") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["status"], rows[1]["topology"]) == ("failed", "ring,star")
    assert not [x for row in rows for x in row.values() if x.startswith("{")]
    again = launch_sweep(tmp_path, *run)
    assert again.code == 0
    ran = {line.partition(": ")[2].partition(": ")[0] for line in again.said[:-1]}
    assert ran == {lost.name, failed.name}


def test_a_run_with_other_settings_leaves_a_sweep_unchanged(grid, tmp_path):
    made = sweep.read_grid("grid.toml", "out")
    started = made.folder / next(iter(made.tasks))
    started.mkdir(parents=True)
    made.save()
    before = (made.folder / "sweep.json").read_text()
    (started / "config.toml").write_text('nodes = 2\ntopology = "star"\n')
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 20\nseed = 7"))

    assert launch_sweep(tmp_path, grid, "--out", "out", "--local").code == 2
    assert (made.folder / "sweep.json").read_text() == before


@pytest.fixture
def slurm(tmp_path):
    """A function that lets a Slurm of scripts answer, and submits the grid."""
    (tmp_path / "slurm").mkdir()

    def submit(*arguments, sbatch="echo 15", squeue="echo 2"):
        for name, script in {"sbatch": sbatch, "squeue": squeue}.items():
            (tmp_path / "slurm" / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / "slurm" / name).chmod(0o755)
        path = os.pathsep.join([str(tmp_path / "slurm"), os.environ["PATH"]])
        line = ("grid.toml", "--out", "out", *arguments)
        return launch_sweep(tmp_path, *line, PATH=path)

    return submit


def test_the_settings_of_a_task_in_the_queue_are_not_changed(grid, slurm, tmp_path):
    """Not even those that may change when a run is resumed; tasks keep their numbers.

    The jobs get --trust, without which they would refuse a class of the user's.
    """
    assert "4 of 4" in slurm().err
    grid.write_text(GRID.replace('"snap", "vp"', '"ap", "snap", "vp"'))
    record = tmp_path / "out" / "sweep.json"
    ended = slurm("--trust", sbatch='echo "$@" >arguments; echo 15')
    assert "5 of 6" in ended.err
    passed = (tmp_path / "arguments").read_text().split()
    assert "--array=0-1,3-5%4" in passed
    assert passed[-3:] == ["--sweep", "out", "--trust"]
    assert list(json.loads(record.read_text())["tasks"])[4].startswith("scheme=ap")
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 30"))
    before = record.read_text()
    ended = slurm()

    assert ended.code == 2
    assert "out/scheme=vp,topology=complete" in ended.said[-1]
    assert record.read_text() == before


def test_tasks_that_slurm_refuses_are_removed(grid, slurm, tmp_path):
    """The array may be too large, and the next grid smaller."""
    ended = slurm(sbatch="echo too large >&2; exit 1")
    assert (ended.code, len(ended.said)) == (2, 1)
    assert "too large" in ended.err
    grid.write_text(GRID.replace('"snap", ', ""))

    assert "2 of 2" in slurm().err
    assert len(sweep.Sweep.read(tmp_path / "out").tasks) == 2
    assert sweep.ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_signal_before_or_while_a_run_starts_stops_it(grid, monkeypatch, when):
    """It is no failure if the signal ends the run before it can stop."""
    grid.write_text("ranks = 2\n")
    made = sweep.read_grid("grid.toml", "out")
    (made.folder / "logs").mkdir(parents=True)
    pool, start = sweep.LocalPool(made, Runtime("python", "", {})), subprocess.Popen

    def start_and_signal(*_, **options):
        process = start(["sleep", "60"])
        pool.stop(signal.SIGTERM, None)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_signal)
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    if when == "before":
        pool.stop(signal.SIGTERM, None)
    (name,) = made.tasks
    codes = pool.run([name], 1)
    for signum, handler in before.items():
        signal.signal(signum, handler)

    assert codes == [128 + signal.SIGINT if when == "before" else -signal.SIGUSR1]
    assert read_state(made.folder / name).status == "new"


def test_a_sweep_of_batch_jobs_creates_no_environment(grid, tmp_path):
    """Other jobs may be running from the one that it would replace."""
    copy_launch(tmp_path)
    command = [str(tmp_path / "launch" / "sweep"), str(grid), "--out", "out"]
    own = {"DADMM_PYTHON": sys.executable, "DADMM_ENVIRONMENT": "", "DADMM_MPIEXEC": ""}
    ended = Job(command, tmp_path, variables(**own)).end()

    assert ended.code == 2
    assert f"{tmp_path}/.venv" in ended.err
    assert not list(tmp_path.glob(".venv*"))
