"""Whether a run is started, resumed or done, and the note of a failure."""

import json
import os

import pytest

from dadmm.core.documents import to_toml
from dadmm.core.errors import ConfigError
from dadmm.runs import attempt
from dadmm.runs.attempt import Progress, read_progress, write_failure
from dadmm.runs.config import CommandLine, RunConfig
from dadmm.runs.folder import FAILURE, RunFolder
from tests.support.runs import write_checkpoint

WANTED = {"problem": "ppca", "topology": "ring", "max_iter": 100, "seed": 0}
NEW = ["--out", "x"]


@pytest.fixture
def folder(tmp_path):
    """A folder that does not exist yet."""
    return tmp_path / "run"


def start(folder, **settings):
    folder.mkdir(exist_ok=True)
    config = RunConfig(**WANTED | {"nodes": 2} | settings)
    config.settle(2)
    (folder / "config.toml").write_text(to_toml(config.applied()))


def end(folder, reason, iterations):
    summary = {"reason": reason, "iterations": iterations}
    (folder / "summary.json").write_text(json.dumps(summary))


def plan(folder, requeued=False, **settings):
    config = RunConfig(**WANTED | settings)
    config.settle(2)
    return attempt.plan_attempt(
        CommandLine(config, False, None), NEW, folder, 2, requeued
    )


def test_a_run_with_a_checkpoint_is_resumed(folder):
    """Whether it was stopped or killed, or ended at a smaller max_iter."""
    assert (plan(folder), read_progress(folder).status) == (NEW, "missing")
    start(folder)
    assert plan(folder) == [*NEW, "--overwrite"]
    write_checkpoint(folder, 40, range(2))
    write_checkpoint(folder, 80, range(1))  # killed while it wrote
    assert read_progress(folder) == Progress("unfinished", 40)
    for reason in (None, "signal", "max_iter"):
        if reason:
            end(folder, reason, 40)
        assert plan(folder)[:2] == ["--resume", str(folder)]
    assert plan(folder, max_iter=40) is None
    end(folder, "converged", 80)
    assert plan(folder) is None


def test_a_resumed_run_gets_the_settings_that_may_change(folder):
    """Classes of yours are repeated, as a run's config.toml must not name code."""
    mine = {"problem": "mine:Mean", "scheme": "mine:Slow"}
    start(folder, **mine, data="a.npy")
    write_checkpoint(folder, 40, range(2))
    changed = {"max_iter": 500, "quiet": True, "strict": False, "data": "b.npy"}
    arguments = plan(folder, **mine, **changed)

    assert {"--max-iter=500", "--quiet", "--no-strict", "--data=b.npy"} <= {*arguments}
    again = RunConfig.from_argv(arguments)
    assert (again.config.max_iter, again.resume) == (500, folder)
    assert (again.config.problem, again.config.scheme) == (*mine.values(),)


@pytest.mark.parametrize(
    ("status", "reason", "label"),
    [
        ("max_iter", "max_iter", "max_iter"),  # tolerance 0 asks for so many
        ("not converged", "max_iter", "not converged"),
        ("not converged", "no_minimum", "no minimum"),
    ],
)
def test_a_run_with_tolerance_0_did_what_it_was_asked_to_do(status, reason, label):
    found = Progress(reason, 5, {"status": status})

    assert (found.as_asked, found.label) == (status == "max_iter", label)


@pytest.mark.parametrize("other", [{"topology": "star"}, {"nodes": 5}, {"seed": 7}])
def test_a_run_with_other_settings_is_not_resumed(folder, other):
    """Even if it has converged, its results are not the requested ones."""
    start(folder, **other)
    end(folder, "converged", 80)

    (name,) = other
    for resume in (
        lambda: plan(folder),
        lambda: RunConfig.from_argv(
            ["--resume", str(folder), f"--{name}={WANTED.get(name, 2)}"]
        ),
    ):
        with pytest.raises(ConfigError, match=name):
            resume()


def test_a_folder_that_cannot_be_looked_into_has_no_run(folder):
    folder.symlink_to(folder)
    assert read_progress(folder).status == "missing"
    with pytest.raises(ConfigError, match=folder.name):
        RunConfig.from_argv(["--resume", str(folder)])


def test_one_job_at_a_time_uses_a_folder(folder):
    start(folder)
    lock = RunFolder(folder)
    lock.lock(first=True)
    with pytest.raises(ConfigError):
        plan(folder)
    lock.release()
    assert plan(folder)


def test_only_a_note_of_a_launch_command_is_replaced(folder):
    """Neither a file of the user's nor a folder with other files is touched."""
    note = folder / FAILURE
    write_failure(folder, 9, "")
    assert read_progress(folder).status == "failed"
    assert plan(folder) == NEW
    assert not note.exists()
    note.write_text("mine")
    write_failure(folder, 9, "")
    plan(folder)
    assert note.read_text() == "mine"
    note.rename(folder / "thesis.tex")
    write_failure(folder, 9, "")
    assert os.listdir(folder) == ["thesis.tex"]
