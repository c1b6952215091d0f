"""``dadmm sweep``: grids, runs on this machine, job arrays, and the table."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from dadmm.__main__ import main_of
from dadmm.cli import sweep
from dadmm.runs.attempt import read_progress
from dadmm.runs.folder import FAILURE, RunFolder
from tests.support.runs import contents, refused, rows_of, write_program

main = main_of("sweep")

GRID = """
ranks = 2
[base]
max_iter = 20
init = "shared"
strict = true
[grid]
scheme = ["snap", "vp"]
topology = ["complete", "ring,star"]
"""
RUN = ["grid.toml", "--out", "out"]
OUT = Path("out")


@pytest.fixture(autouse=True)
def grid(home):
    (home / "grid.toml").write_text(GRID)
    return home / "grid.toml"


REFUSED = {  # grids, and the culprit that is named
    "grd = 1": "grd", "grid = 3": "grid", "[grid": "TOML", "ranks = 0": "ranks",
    "[grid]\nseed = 3": "seed", "[grid]\nseed = []": "seed",
    "[base]\nseed = 1\n[grid]\nseed = [1]": "seed", "[base]\nout = 'x'": "out",
    "[base]\nmax_itre = 3": "max_iter", "[grid]\nscheme = ['vpp']": "vpp",
    "[base]\nproblem = 'theirs:Mean'": "--trust",
    f"[grid]\nseed = {[*range(400)]}\neta0 = {[*range(1, 400)]}": "100000",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_an_invalid_grid_is_an_error_before_any_run(grid, capsys, text):
    grid.write_text(text)

    assert REFUSED[text] in refused(capsys, *RUN, main=main)
    assert os.listdir() == ["grid.toml"]


def test_the_folder_of_a_run_is_inside_that_of_the_sweep(capsys):
    task = OUT / "tasks" / "0.toml"
    task.parent.mkdir(parents=True)
    task.write_text("out = 'a/'")
    assert list(sweep.Sweep(OUT).tasks) == ["a"]
    for out in ("../..", "logs", ".hidden"):
        task.write_text(f"out = '{out}'")
        assert "0.toml" in refused(capsys, "out", main=main)


def test_a_name_is_made_of_the_settings():
    assert sweep.name_of({"budget_trigger": float("inf")}) == "budget_trigger=inf"
    names = {sweep.name_of({"data": path}) for path in ("a/b", "a:b", "a_b", "x" * 300)}

    assert len(names) == 4
    assert all(len(name) < 255 and "/" not in name for name in names)


def test_a_sweep_runs_on_this_machine(grid, capsys):
    """One at a time in a folder, and only what is not finished."""
    OUT.mkdir()
    other = OUT / "thesis.tex"
    other.touch()
    refused(capsys, *RUN, main=main)
    other.unlink()
    lock = RunFolder(OUT)
    lock.lock(first=True)
    refused(capsys, *RUN, main=main)
    lock.release()
    assert "--at-most" in refused(capsys, *RUN, "--at-most", "0", main=main)
    assert main([*RUN, "--at-most", "2"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert "4 not converged" in said[-1]
    assert sum(" of 4 in " in line for line in said) == 4

    lost, failed = (OUT / f"scheme={name},topology=complete" for name in ("vp", "snap"))
    shutil.rmtree(lost)
    (failed / "summary.json").unlink()
    shutil.rmtree(failed / "checkpoints", ignore_errors=True)
    (failed / FAILURE).write_text("failed with code 1; see the log\n")
    assert main(["out"]) == 0
    assert "1 failed, 2 not converged, 1 missing" in capsys.readouterr().err
    rows = rows_of(OUT / "table.csv")
    assert (rows[0]["status"], rows[1]["topology"]) == ("failed", "ring,star")
    assert not [x for row in rows for x in row.values() if x.startswith("{")]
    assert main(RUN) == 0
    said = capsys.readouterr().err.splitlines()[:-1]
    assert {line.split(": ")[1] for line in said} == {lost.name, failed.name}

    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 20\nseed = 7"))
    before = contents(OUT / "tasks")
    assert main(RUN) == 2
    assert contents(OUT / "tasks") == before


@pytest.fixture
def slurm(home, monkeypatch):
    (home / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")

    def submit(*arguments, sbatch="echo 15", squeue="echo 2"):
        for name, script in {"sbatch": sbatch, "squeue": squeue}.items():
            write_program(home / "bin" / name, script)
        return main([*RUN, "--sbatch", "job.sh --mpi impi", *arguments])

    return submit


def test_the_settings_of_a_run_in_the_queue_are_not_changed(grid, slurm, capsys):
    assert slurm(sbatch="echo too large >&2; exit 1") == 2
    assert "too large" in capsys.readouterr().err
    assert not os.listdir(OUT / "tasks")
    assert slurm(squeue="") == 0
    assert "4 of 4" in capsys.readouterr().err
    grid.write_text(GRID.replace('"snap", "vp"', '"ap", "snap", "vp"'))
    job = 'echo "$@" >arguments; echo 15'
    assert slurm("--trust", "--", "--time=9", sbatch=job) == 0
    passed = Path("arguments").read_text().split()
    assert {"--array=4,5,0,1,3%4", "--time=9"} <= set(passed)
    assert passed[-4:] == ["impi", "--config", "out/tasks/%a.toml", "--trust"]
    assert "scheme=ap" in (OUT / "tasks" / "4.toml").read_text()
    grid.write_text(GRID.replace("max_iter = 20", "max_iter = 30"))

    assert slurm() == 2
    assert "out/scheme=vp,topology=complete" in capsys.readouterr().err


@pytest.mark.parametrize("when", ["before", "while"])
def test_a_signal_before_or_while_a_run_starts_stops_it(grid, monkeypatch, when):
    grid.write_text("ranks = 2\n")
    made = sweep.Sweep(OUT)
    made.plan("grid.toml", None)
    for folder in ("logs", "tasks"):
        (OUT / folder).mkdir(parents=True)
    ((name, text),) = made.tasks.items()
    (OUT / "tasks" / "0.toml").write_text(text)
    start = subprocess.Popen

    def start_and_signal(*_, **options):
        process = start(["sleep", "60"])
        made.stop(signal.SIGTERM, None)
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_signal)
    if when == "before":
        made.stop(signal.SIGTERM, None)
    code = 128 + signal.SIGINT if when == "before" else -signal.SIGUSR1

    assert made.run_here({name: 0}, 1) == [code]
    assert read_progress(OUT / name).status == "missing"
