"""The folder of a run: never another's, filled in parts, finished at a stroke."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core import files
from dadmm.core.errors import OutputError
from dadmm.core.interfaces import PenaltyState
from dadmm.results.directory import create
from dadmm.results.finish import write_results
from dadmm.results.lock import RunLock
from dadmm.results.manifest import PARTS, names_of_run
from dadmm.results.row_files import RowFiles
from dadmm.results.writing import write_text


def names(folder):
    """Return what is in a folder, hidden files included."""
    return sorted(os.listdir(folder))


NAMES = names_of_run(3, ranks=3, edges=True, over_mpi=False, saves=True)


# Folders


def test_a_folder_that_was_asked_for_is_made(tmp_path):
    """With those above it, and a place for parts."""
    folder, _ = create(str(tmp_path / "a" / "b"), "name", overwrite=False)

    assert folder == tmp_path / "a" / "b"
    assert names(folder) == [".lock", "manifest.json", PARTS]


def test_an_empty_folder_will_do(tmp_path):
    """A user may have made it beforehand, or a batch job."""
    (tmp_path / ".job").touch()
    assert create(str(tmp_path), "name", overwrite=False)[0] == tmp_path


def test_a_folder_with_anything_in_it_is_refused(tmp_path):
    """And left as it is; it holds no run that --overwrite could replace."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"is not empty; choose another --out$"):
        create(str(tmp_path), "name", overwrite=False)

    assert names(tmp_path) == ["thesis.tex"]


def test_folders_by_default_are_new_ones(tmp_path, monkeypatch):
    """Even for runs that start in the same second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    made = [create(None, "ppca-ring", overwrite=True)[0] for _ in range(3)]

    assert [str(folder) for folder in made] == [
        "runs/ppca-ring-now", "runs/ppca-ring-now-2", "runs/ppca-ring-now-3",
    ]  # fmt: skip
    assert all((folder / PARTS).is_dir() for folder in made)


def test_a_folder_in_which_a_run_is_at_work_is_refused(tmp_path):
    """And nothing in it is touched. All of its processes must have ended."""
    _, first = create(str(tmp_path), "name", False, NAMES)
    other = RunLock(tmp_path, first=False)
    rows = tmp_path / PARTS / "history-00000.csv"
    rows.write_text("1,0,0\n")
    sentence = re.escape(
        f"another run is at work in {tmp_path} (process {os.getpid()} on "
        f"{os.uname().nodename}); wait for its end, or end it"
    )

    for lock in (first, other):
        with pytest.raises(OutputError, match=sentence):
            create(str(tmp_path), "name", True, NAMES)
        with pytest.raises(OutputError, match=sentence):
            RunLock(tmp_path, first=True)
        assert rows.read_text() == "1,0,0\n"
        lock.release()
    create(str(tmp_path), "name", True, NAMES)
    assert not rows.exists()


@pytest.mark.timeout(60)
def test_a_claim_ends_with_its_process(tmp_path):
    """However that ends."""
    code = "from dadmm.results.lock import RunLock; import pathlib, sys; "
    code += "c = RunLock(pathlib.Path(sys.argv[1]), first=True); "
    code += "print('mine', flush=True); input()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdout.readline() == b"mine\n"
        with pytest.raises(OutputError, match=f"process {process.pid} on "):
            RunLock(tmp_path, first=True)
        process.kill()
        process.wait()
    RunLock(tmp_path, first=True)


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    """A file in the way, a file above, and a runs that is a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file is not a folder; choose another --out"):
        create(str(tmp_path / "file"), "name", overwrite=True)
    with pytest.raises(OutputError, match=r"cannot write to .*/sub: Not a directory"):
        create(str(tmp_path / "file" / "sub"), "name", overwrite=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("")
    with pytest.raises(OutputError, match="cannot write to runs: "):
        create(None, "name", overwrite=False)


def test_a_folder_that_other_ranks_do_not_see_is_named(tmp_path):
    """Rank 0 made it on a disk of its own."""
    with pytest.raises(OutputError, match="must lie on a file system that all ranks"):
        RowFiles(tmp_path / "elsewhere", 3, [(3,)], None, {})


# Parts


def node(i, t, degree=1):
    """Return what is recorded of a node."""
    eta = np.full(degree, float(t))
    return SimpleNamespace(
        objective=100.0 * t + i, primal=1.0, dual=1.0, eta_mean=1.0,
        disagreement=1.0, residual=1.0, verdict=(1.0, 1.0, 1.0),
        accord=SimpleNamespace(quiet_count=0.0), seconds=[0.0] * 4,
        links=SimpleNamespace(lengths=np.full(degree, 8)), theta=np.array([t + i / 8]),
        penalty=PenaltyState(eta, eta, eta, eta),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return create(str(tmp_path / "run"), "name", False, NAMES)[0]


def record(folder, n_iterations, by_edge=True):
    """Record a chain of three nodes: two on one rank, one on another."""
    observe = {"first": lambda theta: theta[0]}
    ranks = [
        RowFiles(
            folder, 0, [(0,), (1,)], [(0, 1), (1, 0), (1, 2)] if by_edge else None,
            observe,
        ),
        RowFiles(folder, 1, [(2,)], [(2, 1)] if by_edge else None, observe),
    ]  # fmt: skip
    for t in range(1, n_iterations + 1):
        assert ranks[0](t, [node(0, t), node(1, t, degree=2)]) is None
        assert ranks[1](t, [node(2, t)]) is None
    return ranks


def test_parts_become_one_table(folder):
    """A row per node and iteration, one per edge and iteration; the parts go."""
    ranks = record(folder, 4)
    for parts in ranks:
        parts.close()
    arrays = {"W": np.arange(6.0), "eta": np.ones(4)}
    write_results({"converged": True}, arrays, ranks[0])

    left = ["edges.csv", "history.csv", "manifest.json", "result.npz", "summary.json"]
    assert names(folder) == [".lock", *left]
    header, *lines = (folder / "history.csv").read_text().splitlines()
    assert header.startswith("iteration,node,objective,primal,dual,disagreement,")
    assert header.endswith(",first")
    rows = np.array([line.split(",") for line in lines], dtype=float)
    assert_array_equal(rows[:, 0], np.repeat([1, 2, 3, 4], 3))
    assert_array_equal(rows[:, 1], np.tile([0, 1, 2], 4))
    assert_array_equal(rows[:, 2], 100 * rows[:, 0] + rows[:, 1])
    assert_array_equal(rows[:, -1], rows[:, 0] + rows[:, 1] / 8)
    header, *lines = (folder / "edges.csv").read_text().splitlines()
    assert header == "iteration,i,j,eta,spent,budget,bytes"
    keys = [line.split(",")[:3] for line in lines]
    assert keys[:5] == [list(key) for key in ("101", "110", "112", "121", "201")]
    assert json.loads((folder / "summary.json").read_text()) == {"converged": True}
    with np.load(folder / "result.npz", allow_pickle=False) as found:
        assert_array_equal(found["W"], np.arange(6.0))


@pytest.fixture
def full(monkeypatch):
    """Let files of rows lie on a device that is full."""
    device = lambda path, root: os.open("/dev/full", os.O_RDWR)  # noqa: E731
    monkeypatch.setattr(files, "create", device)


def test_a_failure_to_write_ends_the_run_in_good_order(folder, full):
    """The callback asks all to stop, and the error is raised when it is closed."""
    parts = RowFiles(folder, 0, [(0,)], None, {})
    said = [parts(t, [node(0, t)]) for t in range(1, 5001)]

    assert said[0] is None
    assert set(said[4097:]) == {"output"}  # from when the first block is full
    with pytest.raises(OutputError, match=r"run: No space left on device; choose"):
        parts.close()


def test_a_failure_to_write_the_last_rows_is_told(folder, full):
    """Most runs are so short that nothing is written before."""
    parts = RowFiles(folder, 0, [(0,)], None, {})
    assert parts(1, [node(0, 1)]) is None

    with pytest.raises(OutputError, match="No space left on device"):
        parts.close()


# At a stroke


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    """No draft stays, and the old content does."""
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


def test_an_error_of_ours_leaves_no_draft_either(folder):
    """Such as a summary that JSON cannot hold."""
    parts = RowFiles(folder, 0, [(0,)], None, {})
    parts.close()
    with pytest.raises(TypeError):
        write_results({"converged": {1, 2}}, {}, parts)

    assert "summary.json" not in names(folder)
    assert not [name for name in names(folder) if name.endswith(".draft")]


def test_the_summary_comes_last(folder, monkeypatch):
    """A folder that has one is complete."""
    ranks = record(folder, 2)
    for parts in ranks:
        parts.close()
    order = []
    replace = os.replace

    def note(old, new, **folders):
        order.append(new)
        replace(old, new, **folders)

    monkeypatch.setattr(os, "replace", note)
    write_results({}, {}, ranks[0])

    assert order == ["history.csv", "edges.csv", "result.npz", "summary.json"]
