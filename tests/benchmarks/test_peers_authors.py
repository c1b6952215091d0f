"""dadmm beside the authors' program: what is sent to it, read from it, and refused."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path

import pytest

from benchmarks.peers import authors
from dadmm.graphs.topology import GRAPHS

OCTAVE = shutil.which("octave-cli")
CHECKOUT = os.environ.get("DADMM_AUTHORS", "")
RING = GRAPHS["ring"](authors.NODES, 0)


@pytest.fixture(scope="module")
def work():
    return authors.Work()


def test_a_folder_without_the_program_is_refused(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda _: "octave-cli")
    with pytest.raises(SystemExit):
        authors.main(["--authors", str(tmp_path)])

    assert authors.NEEDED[0] in capsys.readouterr().err


def test_stored_rows_agree_with_the_program():
    """Parameters to rounding; every scheme on every graph, from both programs."""
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "peers_authors.csv"
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))

    assert tuple(rows[0]) == authors.COLUMNS
    timed = [row for row in rows if row["scheme"] in authors.NAMES]
    assert len(timed) == 2 * len(authors.NAMES) * len(authors.NETWORKS)
    assert max(float(row["apart"]) for row in timed) < 1e-10
    assert all(int(row["stop"]) > 0 for row in rows)


@pytest.mark.slow
def test_stored_rows_of_snap_can_be_had_again(work):
    """And they are those of the page; another BLAS may round otherwise."""
    folder = Path(__file__).parents[2] / "benchmarks"
    with open(folder / "results" / "peers_authors.csv", newline="") as file:
        rows = {(row["graph"], row["scheme"]): row for row in csv.DictReader(file)}
    page = (folder / "peers" / "README.md").read_text("utf-8")
    again = [row for name in authors.NETWORKS for row in authors.snap_rows(work, name)]
    told = {}
    for row in again:
        old = rows[row["graph"], row["scheme"]]
        assert abs(row["stop"] - int(old["stop"])) <= 0.02 * row["stop"]
        words = f"{old['stop']} ({float(old['stop_angle']):.1g})"
        told.setdefault(row["scheme"], []).append(words)

    for cells in told.values():
        assert f" | {' | '.join(cells)} |\n" in page


@pytest.mark.skipif(
    OCTAVE is None or not CHECKOUT,
    reason="needs octave-cli, and DADMM_AUTHORS: a checkout of the authors' program",
)
@pytest.mark.parametrize("scheme", authors.NAMES)
def test_the_program_itself_agrees(work, scheme):
    block = authors.block(authors.checked(Path(CHECKOUT)), work, RING, scheme)

    assert block["apart"] < 1e-10
