"""The page of a run that has not finished: half-written files, and what it says."""

from __future__ import annotations

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


def assert_begins(run, ended, count):
    """Assert that a run has the rows of another one up to an iteration."""
    assert run.n_iterations == count
    assert run.topology == ended.topology
    for name in ("history", "edge_history"):
        found, wanted = getattr(run, name), getattr(ended, name)
        assert set(found) == set(wanted)
        for column, rows in found.items():
            np.testing.assert_array_equal(rows, wanted[column][:count])


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines(keepends=True)


def test_rows_are_those_of_complete_iterations(whole, going):
    assert read(going).is_going
    assert_begins(read(going), read(whole), 7)
    edges = (
        going / "parts" / "edges-00000.csv"
    )  # two iterations fewer than of the nodes
    kept = [line for line in lines_of(edges) if int(line.partition(",")[0]) <= 5]
    edges.write_text("".join(kept[:-1]))
    assert_begins(read(going), read(whole), 4)


def test_rows_of_several_processes_are_joined(whole, going):
    """Each has one node, and they are not at the same iteration."""
    lines = lines_of(going / "parts" / "history-00000.csv")[:-1]
    for node in range(6):
        own = [line for line in lines if line.split(",")[1] == str(node)]
        text = "".join(own if node != 3 else own[:-2])
        (going / "parts" / f"history-{node:05d}.csv").write_text(text)
    assert_begins(read(going), read(whole), 5)


def test_a_resumed_run_has_the_rows_of_before(whole, going):
    """Rows up to the resume are in history.csv, later ones in part files."""
    for kind, keys in (("history", 6), ("edges", 14)):
        part = going / "parts" / f"{kind}-00000.csv"
        lines = lines_of(part)
        rows = [f"{line.rpartition(',')[0]}\n" for line in lines]
        head = lines_of(whole / f"{kind}.csv")[0]
        (going / f"{kind}.csv").write_text(head + "".join(rows[: 4 * keys]))
        part.write_text("".join(lines[4 * keys :]))
    assert_begins(read(going), read(whole), 7)


def test_a_page_says_whether_the_run_is_going(whole, going):
    """And the page of before the end is replaced after it."""

    def page() -> Parsed:
        assert report.main([str(going)]) == 0
        assert "report.html" in RunFolder.open(going).names
        return Parsed((going / "report.html").read_text("utf-8"))

    lock = RunFolder(going)
    lock.lock(first=True)
    try:
        found = page()
    finally:
        lock.release()
    assert "The run is still going (as of 2" in found.words
    assert "7 of at most 12 iterations have been written" in found.words
    assert found.data["network"]["frames"] == list(range(1, 8))
    assert "The run is interrupted" in page().words
    (going / ".lock").unlink()
    assert "The run is not finished (as of" in page().words
    for path in whole.iterdir():
        if path.is_file():
            shutil.copy(path, going)
    shutil.rmtree(going / "parts")
    assert "NOT converged" in page().words


def test_a_graph_that_cannot_be_built_again_is_one_sentence(tmp_path, capsys):
    edges = tmp_path / "own.edges"
    edges.write_text("0 1\n1 2\n")
    words = ("--topology", str(edges), "--nodes", "3", "--no-record-edges")
    folder = make_run(tmp_path / "a", *words)
    unfinish(folder, 3, 4, edges=False)
    assert read(folder).n_iterations == 4
    edges.unlink()
    assert "graph" in sentence(capsys, folder)
