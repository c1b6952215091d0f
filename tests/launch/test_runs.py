"""Whether a run is started, resumed or done, and the note of a failure."""

import json
import os

import pytest

from dadmm.runs.config import CommandLine, RunConfig
from dadmm.runs.folder import RunFolder
from launch import runs
from launch.console import UsageError
from launch.runs import FAILURE, State, as_flags, plan, read_state
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
        return plan(given, ["--out", "x"], self.folder, 2, requeued)


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
    """A problem class is repeated, as the config.toml of a run must not name code."""
    run.start(problem="mine:Mean", data="a.npy").save(40)
    changed = {"max_iter": 500, "quiet": True, "strict": False, "data": "b.npy"}
    arguments = run.plan(problem="mine:Mean", **changed)

    assert arguments[2:4] == ["--problem", "mine:Mean"]
    assert {"--max-iter=500", "--quiet", "--no-strict", "--data=b.npy"} <= {*arguments}
    again = RunConfig.from_argv(arguments)
    assert (again.config.max_iter, again.resume) == (500, run.folder)


def test_a_run_that_is_done_is_not_started(run):
    assert run.start().end("converged", 80).plan() is None
    assert run.end("max_iter", 80).plan(max_iter=80) is None


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

    with pytest.raises(UsageError, match=next(iter(other))):
        run.plan()


def test_one_job_at_a_time_uses_a_folder(run):
    run.start()
    lock = RunFolder(run.folder)
    lock.lock(first=True)
    with pytest.raises(UsageError, match="another job"):
        run.plan()
    lock.release()
    assert run.plan()


@pytest.mark.parametrize("text", ['out = "run"\n', "out = [", None])
def test_the_folder_is_read_from_a_file_of_settings(tmp_path, text):
    """A file that cannot be read is left to the run, and a pipe is not waited for."""
    file = tmp_path / "a.toml"
    os.mkfifo(file) if text is None else file.write_text(text)
    found = runs.read_arguments(["--config", str(file)])

    assert (found and found.config.out) == ("run" if text == 'out = "run"\n' else None)


@pytest.mark.parametrize("damage", ["rank,node\n0,0\n", "\xff", None])
def test_ranks_may_be_unknown(tmp_path, damage):
    file = tmp_path / "ranks.csv"
    os.mkfifo(file) if damage is None else file.write_text(damage, "latin-1")

    assert runs.read_ranks(tmp_path) == []
    assert runs.read_ranks(None) == []


def test_flags_give_the_same_settings():
    settings = {"alpha": 1e-7, "quiet": True, "strict": False, "target": "-a b"}

    found = RunConfig.from_argv(as_flags({"problem": "lasso", **settings})).config
    assert {name: getattr(found, name) for name in settings} == settings


def test_only_a_note_of_a_launch_command_is_replaced(run):
    """Neither a file of the user's nor a folder with other files is touched."""
    runs.write_failure(run.folder, "failed with code 9")
    assert read_state(run.folder).status == "failed"
    assert run.plan() == ["--out", "x"]
    assert not (run.folder / FAILURE).exists()
    (run.folder / FAILURE).write_text("mine")
    runs.write_failure(run.folder, "failed with code 9")
    run.plan()
    assert (run.folder / FAILURE).read_text() == "mine"
    (run.folder / FAILURE).rename(run.folder / "thesis.tex")
    runs.write_failure(run.folder, "failed with code 9")
    assert os.listdir(run.folder) == ["thesis.tex"]
