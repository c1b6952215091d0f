"""Whether a run is started, resumed or done, and the lock on its folder."""

from __future__ import annotations

import json
import os

import pytest

from launch.base import toml
from launch.base.messages import UsageError
from launch.base.run_folder import State, job_lock, last_checkpoint, read_state
from launch.base.run_plan import RunSettings, plan
from tests.support.run_folders import write_checkpoint

WANTED = {
    "problem": "ppca", "topology": "ring", "max_iter": 100, "overwrite": False,
    "seed": 0,
}  # fmt: skip
RESUMABLE = frozenset({"max_iter", "quiet", "strict", "wait", "data", "nodes"})


class Run:
    """The folder of a run of two nodes in any state."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, **settings):
        self.folder.mkdir(exist_ok=True)
        table = {**WANTED, "nodes": 2, **settings}
        (self.folder / "config.toml").write_text(toml.dumps(table))
        return self

    def save(self, iteration, nodes=2):
        write_checkpoint(self.folder, iteration, range(nodes))
        return self

    def end(self, reason, iterations):
        summary = {"reason": reason, "iterations": iterations}
        (self.folder / "summary.json").write_text(json.dumps(summary))
        return self

    def plan(self, requeued=False, **settings):
        wanted = RunSettings(WANTED | settings, RESUMABLE)
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
    assert last_checkpoint(run.folder) == 40
    assert read_state(run.folder) == State("unfinished", 40)
    resumed = ["--resume", str(run.folder)]
    assert run.plan()[:2] == resumed
    run.end("signal", 40)
    assert run.plan()[:2] == resumed
    assert read_state(run.folder).status == "stopped"
    assert run.end("max_iter", 40).plan()[:2] == resumed


def test_a_resumed_run_gets_the_settings_that_may_change(run):
    """dadmm says which ones; a problem class is not in the config.toml of a run."""
    run.start(problem="mine:Mean", data="a.npy").save(40)
    changed = {"max_iter": 500, "quiet": True, "strict": False, "data": "b.npy"}
    arguments = run.plan(problem="mine:Mean", **changed, wait=None)

    wanted = "--problem mine:Mean --max-iter 500 --quiet --no-strict --data b.npy"
    assert " ".join(arguments[2:]) == wanted


@pytest.mark.parametrize(("reason", "max_iter"), [("converged", 100), ("max_iter", 80)])
def test_a_run_that_is_done_is_not_started(run, reason, max_iter):
    assert run.start().end(reason, 80).plan(max_iter=max_iter) is None


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


def test_one_job_at_a_time_uses_a_folder(tmp_path):
    folder = tmp_path / "run"
    with job_lock(folder), pytest.raises(UsageError, match="another job is running in"):
        job_lock(folder).__enter__()
    assert os.listdir(folder) == []
    with job_lock(folder):
        pass
