"""Whether a run is started, resumed or done, and the lock on its folder."""

import datetime
import json
import math
import os
import tomllib

import pytest

from launch.base import run_folder
from launch.base.arguments import run_setting, trust_flags
from launch.base.messages import UsageError
from launch.base.run_folder import RunSettings, State, job_lock, plan, read_state
from launch.base.textfiles import to_toml
from tests.support.run_folders import write_checkpoint

WANTED = {"problem": "ppca", "topology": "ring", "max_iter": 100, "seed": 0}
RESUMABLE = frozenset({"max_iter", "quiet", "strict", "wait", "data", "nodes"})


class Run:
    """The folder of a run of two nodes in any state."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, **settings):
        self.folder.mkdir(exist_ok=True)
        table = {**WANTED, "nodes": 2, **settings}
        (self.folder / "config.toml").write_text(to_toml(table))
        return self

    def save(self, iteration, nodes=2):
        write_checkpoint(self.folder, iteration, range(nodes))
        return self

    def end(self, reason, iterations):
        summary = {"reason": reason, "iterations": iterations}
        (self.folder / "summary.json").write_text(json.dumps(summary))
        return self

    def plan(self, requeued=False, **settings):
        wanted = RunSettings(WANTED | {"overwrite": False} | settings, RESUMABLE)
        return plan(wanted, ["--out", "x"], self.folder, 2, requeued)


@pytest.fixture
def run(tmp_path):
    """A folder that does not exist yet."""
    return Run(tmp_path / "run")


def test_a_run_with_a_checkpoint_is_resumed(run):
    """Whether it was stopped or killed, or ended at a smaller max_iter."""
    assert run.plan() == ["--out", "x"]
    assert read_state(run.folder).status == "new"
    assert run.start().plan() == ["--out", "x", "--overwrite"]
    run.save(40).save(80, nodes=1)  # killed while it wrote
    assert read_state(run.folder) == State("unfinished", 40)
    resumed = ["--resume", str(run.folder)]
    assert run.plan()[:2] == resumed
    run.end("signal", 40)
    assert run.plan()[:2] == resumed
    assert read_state(run.folder).status == "interrupted"
    assert run.end("max_iter", 40).plan()[:2] == resumed


def test_a_resumed_run_gets_the_settings_that_may_change(run):
    """dadmm says which ones; a problem class is not in the config.toml of a run."""
    run.start(problem="mine:Mean", data="a.npy").save(40)
    changed = {"max_iter": 500, "quiet": True, "strict": False, "data": "b.npy"}
    arguments = run.plan(problem="mine:Mean", **changed, wait=None)

    wanted = "--problem mine:Mean --max-iter 500 --quiet --no-strict --data b.npy"
    assert " ".join(arguments[2:]) == wanted


def test_a_run_that_is_done_is_not_started(run):
    assert run.start().end("converged", 80).plan() is None
    assert run.end("max_iter", 80).plan(max_iter=80) is None


def test_overwrite_is_applied_once(run):
    """A requeued job has applied it already."""
    run.start(seed=5).save(40)
    assert run.plan(overwrite=True) == ["--out", "x"]
    run.start()
    assert run.plan(overwrite=True, requeued=True)[0] == "--resume"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"topology": "star"}, "with topology = 'star', and this one has 'ring'"),
        ({"nodes": 5}, "a run of 5 ranks, and this one has 2"),
        ({"alpha": 1.0}, "with alpha = 1.0, and this one has None"),
    ],
)
def test_a_run_with_other_settings_is_not_resumed(run, settings, sentence):
    """Even if it has converged, its results are not the requested ones."""
    run.start(**settings).end("converged", 80)

    with pytest.raises(UsageError, match=sentence):
        run.plan()


def test_one_job_at_a_time_uses_a_folder(tmp_path, monkeypatch):
    """A job may remove the lock file just before another one opens it."""
    folder = tmp_path / "run"
    with job_lock(folder), pytest.raises(UsageError, match="another job is running in"):
        job_lock(folder).__enter__()
    assert os.listdir(folder) == []
    create, calls = run_folder.files.create, []

    def create_late(file):
        calls.append(file)
        if len(calls) == 1:
            raise FileExistsError
        return create(file)

    monkeypatch.setattr(run_folder.files, "create", create_late)
    with job_lock(folder):
        assert os.listdir(folder) == [".job"]
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("given", "repeated"),
    [
        ("--problem lasso --seed 3", ""),
        ("--problem mine:Mean --seed 3", "--problem mine:Mean"),
        ("--problem=mine:Mean --trust", "--problem mine:Mean"),
        ("--config a.toml --trust", "--trust"),
    ],
)
def test_the_problem_class_is_repeated_on_resuming(given, repeated):
    """The config.toml of a run must not name code."""
    assert trust_flags(given.split()) == repeated.split()


@pytest.mark.parametrize("text", ['out = "run"\n', "out = [", None])
def test_a_setting_is_read_from_the_file(tmp_path, text):
    """A file that cannot be read is left to the run, and a pipe is not waited for."""
    file = tmp_path / "a.toml"
    os.mkfifo(file) if text is None else file.write_text(text)
    found = run_setting(["--config", str(file)], "out")

    assert found == ("run" if text == 'out = "run"\n' else "")


@pytest.mark.parametrize(
    "value",
    [
        'a "b" \\ \n\t\x00\x1f\x7f',
        "\N{GREEK SMALL LETTER ETA} \N{GRINNING FACE}",
        [True, -3, 1e-07, 1e22, math.inf, -math.inf],
        [1, 2.5, "x", [True]],
    ],
)
def test_a_value_is_read_as_it_was_written(value):
    """Neither Infinity nor surrogate escapes are valid TOML."""
    assert tomllib.loads(to_toml({"name": value})) == {"name": value}


def test_other_keys_and_tables_are_written_too():
    """A table becomes JSON, as dadmm.run reads problem_settings; a date is an error."""
    table = {"a b": 1, "": 2, "a.b": 3, "max_iter": 4}
    assert tomllib.loads(to_toml(table)) == table
    assert math.isnan(tomllib.loads(to_toml({"name": math.nan}))["name"])
    table = {"alpha": math.inf, "name": "\N{GRINNING FACE}"}
    text = tomllib.loads(to_toml({"problem_settings": table}))["problem_settings"]
    assert json.loads(text) == table
    with pytest.raises(UsageError, match="got 2020-01-01"):
        to_toml({"name": datetime.date(2020, 1, 1)})
