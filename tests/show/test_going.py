"""The page of a run that has not finished: half-written files, and what it says."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("plotly", reason="the extra `report` is not installed")

from dadmm import report
from dadmm.runs.folder import RunFolder
from dadmm.runs.stored import read_run as read
from tests.support.pages import Parsed, make_run, unfinish
from tests.support.runs import refused

sentence = partial(refused, main=report.main)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run with rows of nodes, angles and edges."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return make_run(folder, "--record-edges", "--record-angle")


@pytest.fixture
def going(whole, tmp_path):
    """The same run after 7 iterations; the eighth is incomplete."""
    folder = tmp_path / "going"
    shutil.copytree(whole, folder)
    unfinish(folder, 6, 7, edges=True)
    return folder


def page_of(folder: Path) -> Parsed:
    assert report.main([str(folder)]) == 0
    return Parsed((folder / "report.html").read_text("utf-8"))


def test_rows_are_those_of_complete_iterations(whole, going):
    ended, run = read(whole), read(going)
    assert run.is_going
    assert run.n_iterations == 7
    assert run.topology == ended.topology
    assert list(run.history) == list(ended.history)
    for name, rows in run.history.items():
        np.testing.assert_array_equal(rows, ended.history[name][:7])
    for name, rows in run.edge_history.items():
        np.testing.assert_array_equal(rows, ended.edge_history[name][:7])


def test_an_iteration_without_all_of_its_rows_is_left_out(going):
    """Of the nodes there are two more iterations than of the edges."""
    lines = (going / "parts" / "edges-00000.csv").read_text().splitlines(keepends=True)
    kept = [line for line in lines if int(line.partition(",")[0]) <= 5]
    (going / "parts" / "edges-00000.csv").write_text("".join(kept[:-1]))
    run = read(going)
    assert run.n_iterations == 4
    assert len(run.column("objective")) == len(run.eta) == 4


def test_rows_of_several_processes_are_joined(going):
    """Each has one node, and they are not at the same iteration."""
    file = going / "parts" / "history-00000.csv"
    lines = file.read_text().splitlines(keepends=True)[:-1]
    for node in range(6):
        own = [line for line in lines if line.split(",")[1] == str(node)]
        text = "".join(own if node != 3 else own[:-2])
        (going / "parts" / f"history-{node:05d}.csv").write_text(text)
    run = read(going)
    assert run.n_iterations == 5
    assert run.column("objective").shape == (5, 6)


def test_a_run_at_work_is_said_to_be_going(going):
    assert RunFolder.is_live(going) is False
    lock = RunFolder(going)
    lock.lock(first=True)
    try:
        assert RunFolder.is_live(going) is True
        page = page_of(going)
    finally:
        lock.release()
    assert re.search(r"The run is still going \(as of \d{4}-\d\d-\d\d ", page.words)
    assert "7 of at most 12 iterations have been written" in page.words
    assert page.data["network"]["frames"] == list(range(1, 8))
    assert "report.html" in RunFolder.open(going).names


def test_a_run_that_no_process_works_on_is_said_to_be_interrupted(going):
    page = page_of(going)
    assert "The run was interrupted, and no process is at work" in page.words
    (going / ".lock").unlink()
    assert "The run has not finished (as of" in page_of(going).words


def test_a_page_of_before_the_end_is_replaced_after_it(whole, going):
    """Although the end of the run has dropped it from the manifest."""
    page_of(going)
    for path in whole.iterdir():
        if path.is_file():
            shutil.copy(path, going)
    shutil.rmtree(going / "parts")
    assert "report.html" not in RunFolder.open(going).names

    assert "NOT converged" in page_of(going).words
    assert "report.html" in RunFolder.open(going).names


def test_a_graph_that_cannot_be_built_again_is_one_sentence(tmp_path, capsys):
    edges = tmp_path / "own.edges"
    edges.write_text("0 1\n1 2\n")
    words = ("--topology", str(edges), "--nodes", "3", "--no-record-edges")
    folder = make_run(tmp_path / "a", *words)
    unfinish(folder, 3, 4, edges=False)
    assert read(folder).n_iterations == 4
    edges.unlink()
    assert "its graph cannot be built again" in sentence(capsys, folder)


def test_a_resumed_run_has_the_rows_of_before(whole, going):
    """Rows up to the resume are in history.csv, later ones in part files."""
    for kind, keys in (("history", 6), ("edges", 14)):
        part = going / "parts" / f"{kind}-00000.csv"
        lines = part.read_text().splitlines(keepends=True)
        rows = [f"{line.rpartition(',')[0]}\n" for line in lines]
        head = (whole / f"{kind}.csv").read_text().splitlines(keepends=True)[0]
        (going / f"{kind}.csv").write_text(head + "".join(rows[: 4 * keys]))
        part.write_text("".join(lines[4 * keys :]))
    run = read(going)
    assert run.n_iterations == 7
    np.testing.assert_array_equal(run.eta, read(whole).eta[:7])
    assert set(run.history) == set(read(whole).history)
