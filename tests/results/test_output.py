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

from dadmm.core.errors import OutputError
from dadmm.core.interfaces import PenaltyState
from dadmm.results import output
from dadmm.results.lock import Claim


def names(folder):
    """Return what is in a folder, hidden files included."""
    return sorted(os.listdir(folder))


# Folders


def test_a_folder_that_was_asked_for_is_made(tmp_path):
    """With those above it, and a place for parts."""
    folder, _ = output.create(str(tmp_path / "a" / "b"), "name", overwrite=False)

    assert folder == tmp_path / "a" / "b"
    assert names(folder) == [".lock", output.PARTS]


def test_an_empty_folder_will_do(tmp_path):
    """A user may have made it beforehand, or a batch job."""
    (tmp_path / ".job").touch()
    assert output.create(str(tmp_path), "name", overwrite=False)[0] == tmp_path


def test_a_folder_with_anything_in_it_is_refused(tmp_path):
    """And left as it is; the sentence says both ways out."""
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match="is not empty; choose another --out, or --"):
        output.create(str(tmp_path), "name", overwrite=False)

    assert names(tmp_path) == ["thesis.tex"]


def test_overwriting_replaces_results_only(tmp_path):
    """The summary, which says that results are whole, goes first."""
    for name in ("summary.json", "result.npz", "thesis.tex"):
        (tmp_path / name).write_text("old")
    (tmp_path / output.PARTS).mkdir()
    (tmp_path / output.PARTS / "history-00007.csv").write_text("1,7,0\n")
    (tmp_path / "part-00003").mkdir()  # of a graph that had fallen apart
    (tmp_path / "part-00003" / "config.toml").touch()
    output.create(str(tmp_path), "name", overwrite=True)

    assert names(tmp_path) == [".lock", output.PARTS, "result.npz", "thesis.tex"]
    assert names(tmp_path / output.PARTS) == []


def test_folders_by_default_are_new_ones(tmp_path, monkeypatch):
    """Even for runs that start in the same second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    made = [output.create(None, "ppca-ring", overwrite=True)[0] for _ in range(3)]

    assert [str(folder) for folder in made] == [
        "runs/ppca-ring-now", "runs/ppca-ring-now-2", "runs/ppca-ring-now-3",
    ]  # fmt: skip
    assert all((folder / output.PARTS).is_dir() for folder in made)


def test_a_folder_in_which_a_run_is_at_work_is_refused(tmp_path):
    """And nothing in it is touched. All of its processes must have ended."""
    _, first = output.create(str(tmp_path), "name", overwrite=False)
    other = Claim(tmp_path, first=False)
    rows = tmp_path / output.PARTS / "history-00000.csv"
    rows.write_text("1,0,0\n")
    sentence = re.escape(
        f"another run is at work in {tmp_path} (process {os.getpid()} on "
        f"{os.uname().nodename}); wait for its end, or end it"
    )

    for claim in (first, other):
        with pytest.raises(OutputError, match=sentence):
            output.create(str(tmp_path), "name", overwrite=True)
        with pytest.raises(OutputError, match=sentence):
            Claim(tmp_path, first=True)
        assert rows.read_text() == "1,0,0\n"
        claim.give_up()
    output.create(str(tmp_path), "name", overwrite=True)
    assert not rows.exists()


@pytest.mark.timeout(60)
def test_a_claim_ends_with_its_process(tmp_path):
    """However that ends."""
    code = "import dadmm.results.lock, pathlib, sys; p = pathlib.Path(sys.argv[1]); "
    code += "c = dadmm.results.lock.Claim(p, first=True); print('mine', flush=True); input()"
    words = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as process:
        assert process.stdout.readline() == b"mine\n"
        with pytest.raises(OutputError, match=f"process {process.pid} on "):
            Claim(tmp_path, first=True)
        process.kill()
        process.wait()
    Claim(tmp_path, first=True)


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    """A file in the way, a file above, and a runs that is a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file is not a folder; choose another --out"):
        output.create(str(tmp_path / "file"), "name", overwrite=True)
    with pytest.raises(OutputError, match=r"cannot write to .*/sub: Not a directory"):
        output.create(str(tmp_path / "file" / "sub"), "name", overwrite=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("")
    with pytest.raises(OutputError, match="cannot write to runs: "):
        output.create(None, "name", overwrite=False)


def test_a_folder_that_other_ranks_do_not_see_is_named(tmp_path):
    """Rank 0 made it on a disk of its own."""
    with pytest.raises(OutputError, match="must lie on a file system that all ranks"):
        output.Parts(tmp_path / "elsewhere", 3, [(3,)], None, {})


# Parts


def node(i, t, degree=1):
    """Return what is recorded of a node."""
    eta = np.full(degree, float(t))
    return SimpleNamespace(
        objective=100.0 * t + i, primal=1.0, dual=1.0, eta_mean=1.0,
        disagreement=1.0, residual=1.0,
        accord=SimpleNamespace(quiet=0.0), seconds=[0.0] * 4,
        links=SimpleNamespace(lengths=np.full(degree, 8)), theta=np.array([t + i / 8]),
        penalty=PenaltyState(eta, eta, eta, eta),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    return output.create(str(tmp_path / "run"), "name", overwrite=False)[0]


def record(folder, n_iterations, by_edge=True):
    """Record a chain of three nodes: two on one rank, one on another."""
    observe = {"first": lambda theta: theta[0]}
    ranks = [
        output.Parts(
            folder, 0, [(0,), (1,)], [(0, 1), (1, 0), (1, 2)] if by_edge else None,
            observe,
        ),
        output.Parts(folder, 1, [(2,)], [(2, 1)] if by_edge else None, observe),
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
    output.finish({"converged": True}, arrays, ranks[0])

    files = [".lock", "edges.csv", "history.csv", "result.npz", "summary.json"]
    assert names(folder) == files
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


def test_edges_of_an_earlier_run_do_not_stay(folder):
    """What is in the folder belongs to one run."""
    (folder / "edges.csv").write_text("old")
    ranks = record(folder, 1, by_edge=False)
    for parts in ranks:
        parts.close()
    output.finish({}, {}, ranks[0])

    assert names(folder) == [".lock", "history.csv", "result.npz", "summary.json"]


def test_a_failure_to_write_ends_the_run_in_good_order(folder):
    """The watcher asks all to stop, and the error is raised when it is closed."""
    (folder / output.PARTS / "history-00000.csv").symlink_to("/dev/full")
    parts = output.Parts(folder, 0, [(0,)], None, {})
    said = [parts(t, [node(0, t)]) for t in range(1, 5001)]

    assert said[0] is None
    assert set(said[4097:]) == {"output"}  # from when the first block is full
    with pytest.raises(OutputError, match=r"run: No space left on device; choose"):
        parts.close()


def test_a_failure_to_write_the_last_rows_is_told(folder):
    """Most runs are so short that nothing is written before."""
    (folder / output.PARTS / "history-00000.csv").symlink_to("/dev/full")
    parts = output.Parts(folder, 0, [(0,)], None, {})
    assert parts(1, [node(0, 1)]) is None

    with pytest.raises(OutputError, match="No space left on device"):
        parts.close()


# At a stroke


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    """No draft stays, and the old content does."""
    output.write_text(tmp_path / "config.toml", "é = 1\n")
    assert (tmp_path / "config.toml").read_bytes() == "é = 1\n".encode()

    def refuse(old, new):
        assert (tmp_path / ".config.toml.draft").read_text() == "new"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError, match="No space left"):
        output.write_text(tmp_path / "config.toml", "new")
    assert (tmp_path / "config.toml").read_text("utf-8") == "é = 1\n"
    assert names(tmp_path) == ["config.toml"]


def test_an_error_of_ours_leaves_no_draft_either(tmp_path):
    """Such as a summary that JSON cannot hold."""
    (tmp_path / output.PARTS).mkdir()
    parts = output.Parts(tmp_path, 0, [(0,)], None, {})
    parts.close()
    with pytest.raises(TypeError):
        output.finish({"converged": {1, 2}}, {}, parts)

    assert "summary.json" not in names(tmp_path)
    assert not [name for name in names(tmp_path) if name.endswith(".draft")]


def test_the_summary_comes_last(folder, monkeypatch):
    """A folder that has one is complete."""
    ranks = record(folder, 2)
    for parts in ranks:
        parts.close()
    order = []
    replace = os.replace

    def note(old, new):
        order.append(os.path.basename(new))
        replace(old, new)

    monkeypatch.setattr(os, "replace", note)
    output.finish({}, {}, ranks[0])

    assert order == ["history.csv", "edges.csv", "result.npz", "summary.json"]
