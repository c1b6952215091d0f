"""Whether a run is started, resumed or done, and the note of a failure."""

from __future__ import annotations

import json
import os

import pytest

from dadmm.core.errors import ConfigError
from dadmm.runs.attempt import (
    FAILURE,
    Progress,
    plan_attempt,
    read_progress,
    write_failure,
)
from dadmm.runs.config import CommandLine, RunConfig
from dadmm.runs.folder import RunFolder
from tests.support.run_folders import write_checkpoint

WANTED = {"problem": "ppca", "topology": "ring", "max_iter": 100, "seed": 0}


class Run:
    """The folder of a run of two nodes in any state."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, **settings):
        self.folder.mkdir(exist_ok=True)
        config = RunConfig(**WANTED | {"nodes": 2} | settings)
        config.settle(2)
        (self.folder / "config.toml").write_text(config.to_toml())
        return self

    def save(self, iteration, nodes=2):
        write_checkpoint(self.folder, iteration, range(nodes))
        return self

    def end(self, reason, iterations):
        summary = {"reason": reason, "iterations": iterations}
        (self.folder / "summary.json").write_text(json.dumps(summary))
        return self

    def plan(self, requeued=False, **settings):
        config = RunConfig(**WANTED | settings)
        config.settle(2)
        given = CommandLine(config, False, None)
        return plan_attempt(given, ["--out", "x"], self.folder, 2, requeued)


@pytest.fixture
def run(tmp_path):
    """A folder that does not exist yet."""
    return Run(tmp_path / "run")


def test_a_run_with_a_checkpoint_is_resumed(run):
    """Whether it was stopped or killed, or ended at a smaller max_iter."""
    assert run.plan() == ["--out", "x"]
    assert read_progress(run.folder).status == "missing"
    assert run.start().plan() == ["--out", "x", "--overwrite"]
    run.save(40).save(80, nodes=1)  # killed while it wrote
    assert read_progress(run.folder) == Progress("unfinished", 40)
    resumed = ["--resume", str(run.folder)]
    for ended in (run, run.end("signal", 40), run.end("max_iter", 40)):
        assert ended.plan()[:2] == resumed
    assert run.plan(max_iter=40) is None
    assert run.end("converged", 80).plan() is None


def test_a_resumed_run_gets_the_settings_that_may_change(run):
    """A problem class is repeated, as the config.toml of a run must not name code."""
    run.start(problem="mine:Mean", data="a.npy").save(40)
    changed = {"max_iter": 500, "quiet": True, "strict": False, "data": "b.npy"}
    arguments = run.plan(problem="mine:Mean", **changed)

    assert arguments[2:4] == ["--problem", "mine:Mean"]
    assert {"--max-iter=500", "--quiet", "--no-strict", "--data=b.npy"} <= {*arguments}
    again = RunConfig.from_argv(arguments)
    assert (again.config.max_iter, again.resume) == (500, run.folder)


@pytest.mark.parametrize(
    ("status", "reason", "label"),
    [
        ("max_iter", "max_iter", "max_iter"),  # it was asked for so many
        ("not converged", "max_iter", "not converged"),
        ("not converged", "no_minimum", "no minimum"),
    ],
)
def test_a_run_with_tolerance_0_did_what_it_was_asked_to_do(status, reason, label):
    found = Progress(reason, 5, {"status": status})

    assert found.as_asked == (status == "max_iter")
    assert found.label == label


def test_overwrite_is_applied_once(run):
    """A requeued job has applied it already."""
    run.start(seed=5).save(40)
    assert run.plan(overwrite=True) == ["--out", "x"]
    run.start()
    assert run.plan(overwrite=True, requeued=True)[0] == "--resume"


@pytest.mark.parametrize("other", [{"topology": "star"}, {"nodes": 5}, {"seed": 7}])
def test_a_run_with_other_settings_is_not_resumed(run, other):
    """Even if it has converged, its results are not the requested ones."""
    run.start(**other).end("converged", 80)

    with pytest.raises(ConfigError, match=next(iter(other))):
        run.plan()


def test_one_job_at_a_time_uses_a_folder(run):
    run.start()
    lock = RunFolder(run.folder)
    lock.lock(first=True)
    with pytest.raises(ConfigError):
        run.plan()
    lock.release()
    assert run.plan()


def test_only_a_note_of_a_launch_command_is_replaced(run):
    """Neither a file of the user's nor a folder with other files is touched."""
    write_failure(run.folder, 9, "")
    assert read_progress(run.folder).status == "failed"
    assert run.plan() == ["--out", "x"]
    assert not (run.folder / FAILURE).exists()
    (run.folder / FAILURE).write_text("mine")
    write_failure(run.folder, 9, "")
    run.plan()
    assert (run.folder / FAILURE).read_text() == "mine"
    (run.folder / FAILURE).rename(run.folder / "thesis.tex")
    write_failure(run.folder, 9, "")
    assert os.listdir(run.folder) == ["thesis.tex"]
