"""The folder of a run: never another's, filled in parts, finished at a stroke."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from dadmm import Topology
from dadmm.cli.job import check_unseen
from dadmm.core import files
from dadmm.core.documents import write_text
from dadmm.core.errors import OutputError
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import RunFolder, names_of_run
from dadmm.runs.row_files import PARTS, RowFiles
from tests.support.problems import quadratics
from tests.support.runs import run_of


def names(folder):
    return sorted(os.listdir(folder))


def lock(folder, first=False):
    found = RunFolder(folder)
    found.lock(first)
    return found


NAMES = names_of_run(3, ranks=3, edges=True, over_mpi=False, saves=True)


def test_an_empty_folder_will_do(tmp_path):
    (tmp_path / ".lock").touch()
    assert RunFolder.create(str(tmp_path), "name", overwrite=False).path == tmp_path


def test_a_folder_with_anything_in_it_is_refused(tmp_path):
    """And left as it is; it holds no run that --overwrite could replace."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"is not empty; choose another --out$"):
        RunFolder.create(str(tmp_path), "name", overwrite=False)

    assert names(tmp_path) == ["thesis.tex"]


def test_folders_by_default_are_new_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    made = [RunFolder.create(None, "ppca-ring", True).path for _ in range(3)]

    assert [str(folder) for folder in made] == [
        "runs/ppca-ring-now", "runs/ppca-ring-now-2", "runs/ppca-ring-now-3",
    ]  # fmt: skip
    assert all((folder / PARTS).is_dir() for folder in made)


def test_a_folder_in_which_a_run_is_at_work_is_refused(tmp_path):
    first, other = RunFolder.create(str(tmp_path), "name", False, NAMES), lock(tmp_path)
    rows = tmp_path / PARTS / "history-00000.csv"
    rows.write_text("1,0,0\n")
    sentence = re.escape(
        f"another run is at work in {tmp_path} (process {os.getpid()} on "
        f"{os.uname().nodename}); wait for its end, or end it"
    )

    for held in (first, other):
        with pytest.raises(OutputError, match=sentence):
            RunFolder.create(str(tmp_path), "name", True, NAMES)
        with pytest.raises(OutputError, match=sentence):
            lock(tmp_path, first=True)
        assert rows.read_text() == "1,0,0\n"
        held.release()
    RunFolder.create(str(tmp_path), "name", True, NAMES)
    assert not rows.exists()


@pytest.mark.timeout(60)
def test_a_claim_ends_with_its_process(tmp_path):
    code = "from dadmm.runs.folder import RunFolder; import pathlib, sys; "
    code += "c = RunFolder(pathlib.Path(sys.argv[1])); c.lock(first=True); "
    code += "print('mine', flush=True); input()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdout.readline() == b"mine\n"
        with pytest.raises(OutputError, match=f"process {process.pid} on "):
            lock(tmp_path, first=True)
        process.kill()
        process.wait()
    lock(tmp_path, first=True)


def test_a_rank_that_does_not_see_the_folder_writes_no_rows(tmp_path):
    """On another machine; settings for which it would write are an error."""
    folder, silent = tmp_path / "elsewhere", RunConfig(record=False, checkpoint=False)
    with pytest.raises(OutputError, match="share, or use --no-record --no-checkpoint "):
        check_unseen(RunConfig(), folder, 4)
    with pytest.raises(OutputError, match="share, or use --on-failure abort "):
        check_unseen(replace(silent, on_failure="continue"), folder, 4)
    check_unseen(silent, folder, 4)
    RowFiles(RunFolder(folder), 3, [], None, {}).close()
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(OutputError, match="is not that of this run; remove it there"):
        check_unseen(silent, folder, 4)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(str(tmp_path / "run"), "name", False, NAMES).path


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    write_text(tmp_path / "config.toml", "é = 1\n")
    assert (tmp_path / "config.toml").read_bytes() == "é = 1\n".encode()

    def refuse(old, new, **folders):
        assert (tmp_path / ".config.toml.draft").read_text() == "new"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError, match="No space left"):
        write_text(tmp_path / "config.toml", "new")
    assert (tmp_path / "config.toml").read_text("utf-8") == "é = 1\n"
    assert names(tmp_path) == ["config.toml"]


@pytest.mark.parametrize("iterations", [1, 5000])
def test_a_failure_to_write_ends_the_run_in_good_order(folder, monkeypatch, iterations):
    """The callback asks all to stop when a block is full; closing raises the error."""
    device = lambda path, root: os.open("/dev/full", os.O_RDWR)  # noqa: E731
    monkeypatch.setattr(files, "create", device)
    parts = RowFiles(RunFolder(folder), 0, [(0,)], None, {})
    run = run_of(quadratics(1), Topology.complete(1), max_iter=1)
    said = [parts(t, run) for t in range(1, iterations + 1)]

    assert said[0] is None
    assert set(said[4097:]) <= {"output"}
    assert said[-1] == (None if iterations == 1 else "output")
    with pytest.raises(OutputError, match=r"run: No space left on device; choose"):
        parts.close()
    assert all(part._file.closed for part in parts._files)  # else it fails at exit


def test_results_come_before_rows_and_the_summary_last_of_them(folder, monkeypatch):
    """A folder with a summary has all results; a failure leaves no draft."""
    parts = RowFiles(RunFolder(folder), 0, [(0,)], [(0, 1)], {})
    order, replace = [], os.replace
    parts.close()

    def note(old, new, **folders):
        order.append(new)
        replace(old, new, **folders)

    monkeypatch.setattr(os, "replace", note)
    with pytest.raises(TypeError):
        RunFolder.open(folder).finish(parts, {"converged": {1, 2}}, {})
    assert order == ["result.npz"]
    assert not [name for name in names(folder) if name.endswith(".draft")]
    assert "summary.json" not in names(folder)
    RunFolder.open(folder).finish(parts, {"converged": True}, {})
    assert order[1:5] == ["result.npz", "summary.json", "history.csv", "edges.csv"]
