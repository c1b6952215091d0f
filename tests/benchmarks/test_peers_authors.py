"""dadmm beside the authors' program: what is sent to it, read from it, and refused."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
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


def test_the_same_parameters_are_not_apart(monkeypatch, work):
    """Arrays of Octave have the nodes last."""
    same = authors.ours(work, RING, "nap", tolerance=0.0, max_iter=authors.ITERATIONS)
    W, mu, a = same.layout.views(same.theta)
    found = {"W": W.transpose(1, 2, 0), "mu": mu.T, "a": a[None], "octave": ["0"]}
    found["seconds"] = np.array([[2.0]])
    monkeypatch.setattr(authors, "theirs", lambda *_: found)
    block = authors.block(Path(), work, RING, "nap")

    assert block["apart"] == 0.0
    assert block["authors"] == 2000.0 / authors.ITERATIONS
    assert authors.timed([block], "dadmm")["over_dadmm"] == 1.0


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


@pytest.mark.skipif(OCTAVE is None, reason="no octave-cli on PATH")
def test_what_octave_lacks():
    """`structure` names its arguments; `rms` is of columns, or of a row."""
    folder = authors.DRIVER.parent
    code = (
        "one = 1; two = {2}; s = structure(one, two);"
        "printf('%d %d %g %g', s.one, s.two{1}, rms([3 4; 3 4])(2), rms([1 7]))"
    )
    ended = subprocess.run(
        ["octave-cli", "--norc", "--quiet", "--path", str(folder), "--eval", code],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert ended.stdout == "1 2 4 5"


@pytest.mark.skipif(
    OCTAVE is None or not CHECKOUT,
    reason="needs octave-cli, and DADMM_AUTHORS: a checkout of the authors' program",
)
@pytest.mark.parametrize("scheme", authors.NAMES)
def test_the_program_itself_agrees(work, scheme):
    block = authors.block(authors.checked(Path(CHECKOUT)), work, RING, scheme)

    assert block["apart"] < 1e-10
