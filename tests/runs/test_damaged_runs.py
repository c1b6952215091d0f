"""Damaged and foreign run folders: one sentence that names the file, no traceback."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest

from dadmm import run
from dadmm.core.errors import DadmmError
from dadmm.runs.stored import POSITIVE, StoredRun
from dadmm.timing.trace import Trace

FILES = ("config.toml", "summary.json", "history.csv", "edges.csv", "result.npz")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run, which says that it ran under MPI: others never waited."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    size = ["--nodes", "4", "--n-samples", "40", "--dimension", "5"]
    more = ["--tolerance", "0", "--max-iter", "6", "--record-edges"]
    more += ["--n-components", "2", "--topology", "ring", "--quiet", "--out"]
    assert run.main([*size, *more, str(folder)]) == 0
    edit(folder / "summary.json", mpi_library="MPICH")
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def edit(file, **entries):
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def cell(file, column, value):
    head, *lines = file.read_text().splitlines()
    words = lines[5].split(",")
    words[head.split(",").index(column)] = value
    lines[5] = ",".join(words)
    file.write_text("\n".join([head, *lines]) + "\n")


def setting(file, line):
    name = line.partition(" =")[0]
    kept = [k for k in file.read_text().splitlines() if not k.startswith(f"{name} =")]
    file.write_text("\n".join([*kept, line]) + "\n")


def edges(file, change):
    with np.load(file) as found:
        np.savez(file, **(dict(found) | {"edges": change(found["edges"])}))


def instead(file, make):
    file.unlink()
    make(file)


def cut(file):
    """Keep half of a file; half of a TOML file may be valid, so it ends at a =."""
    data = file.read_bytes()
    end = len(data) // 2
    if file.suffix == ".toml":
        end = data.rindex(b"=", 0, end) + 1
    file.write_bytes(data[:end])


def claim_a_lot(file):
    """Write an array whose header promises terabytes."""
    buffer = io.BytesIO()
    head = {"descr": "<f8", "fortran_order": False, "shape": (10**12, 2)}
    np.lib.format.write_array_header_1_0(buffer, head)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("edges.npy", buffer.getvalue())


ANY_FILE = {
    "empty": lambda f: f.write_bytes(b""),
    "cut short": cut,
    "bytes": lambda f: f.write_bytes(np.random.default_rng(0).bytes(500)),
    "a folder": lambda f: instead(f, lambda g: g.mkdir()),
    "a named pipe": lambda f: instead(f, os.mkfifo),
    "a device": lambda f: instead(f, lambda g: g.symlink_to("/dev/zero")),
}
OWN = {
    "config.toml": {
        "deep": lambda f: f.write_text("a = " + "[" * 10**5),
        "digits": lambda f: setting(f, "seed = " + "9" * 5000),
        "other nodes": lambda f: setting(f, "nodes = 5"),
        "foreign": lambda f: f.write_text("[tool]\nx = 1\n"),
    },
    "summary.json": {
        "a list": lambda f: f.write_text("[]"),
        "absent": lambda f: f.unlink(),
        "no entries": lambda f: f.write_text("{}"),
        "no nodes": lambda f: edit(f, n_nodes=0),
        "other nodes": lambda f: edit(f, n_nodes=5),
        "too many nodes": lambda f: edit(f, n_nodes=2**60),
        "bytes": lambda f: edit(f, bytes="x"),
        "hosts": lambda f: edit(f, node_hosts=["a"]),
        "iterations": lambda f: edit(f, iterations="x"),
    },
    "history.csv": {
        "a word": lambda f: cell(f, "iteration", "x"),
        "NaN": lambda f: cell(f, "exchange_seconds", "nan"),
        "ages": lambda f: cell(f, "exchange_seconds", "1e308"),
        "no column": lambda f: f.write_text(f.read_text().replace("solve_", "x", 1)),
        "another node": lambda f: cell(f, "node", "9"),
        "other columns": lambda f: f.write_text("a,b,c\n" + "1,2,3\n" * 24),
        "fewer iterations": lambda f: f.write_text(f.read_text().partition("\n3,")[0]),
    },
    "edges.csv": {
        "infinite": lambda f: cell(f, "bytes", "inf"),
        "no penalty": lambda f: cell(f, "eta", "0"),
    },
    "result.npz": {
        "pickled": lambda f: edges(f, lambda e: e.astype(object)),
        "one way": lambda f: edges(f, lambda e: e[::2]),
        "far away": lambda f: edges(f, lambda e: e + 2**62),
        "a number": lambda f: edges(f, lambda e: np.array(3)),
        "terabytes": claim_a_lot,
    },
}  # fmt: skip
DAMAGES = [
    *((file, damage) for file in FILES for damage in ANY_FILE),
    *((file, damage) for file, own in OWN.items() for damage in own),
]


def damaged(folder, file, damage):
    (ANY_FILE.get(damage) or OWN[file][damage])(folder / file)


def read(folder):
    """Read all that plots, timing and the page read."""
    found = StoredRun.read(folder)
    assert found.config.nodes == 4
    assert found.edge_column("eta", POSITIVE).shape == (6, 8)
    assert found.column("objective").shape == (6, 4)
    assert Trace.of(found).n_nodes == 4


def test_a_whole_run_is_read(folder):
    read(folder)


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_a_damaged_file_is_refused_by_its_name(folder, file, damage):
    damaged(folder, file, damage)
    with pytest.raises(DadmmError) as caught:
        read(folder)

    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        *(("history.csv", damage) for damage in ANY_FILE),
        ("edges.csv", "cut short"),
        ("history.csv", "fewer iterations"),
        ("history.csv", "a word"),
        *(("config.toml", damage) for damage in (*ANY_FILE, *OWN["config.toml"])),
    ],
)  # fmt: skip
def test_a_damaged_run_is_not_resumed(folder, file, damage, capfd):
    damaged(folder, file, damage)

    assert run.main(["--resume", str(folder), "--max-iter", "9", "--quiet"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    if damage in ANY_FILE:
        assert str(folder / file if file == "config.toml" else folder) in line


@pytest.mark.parametrize(
    ("file", "damage"), [case for case in DAMAGES if case[1] not in [*ANY_FILE][1:]]
)
def test_a_damaged_run_has_a_page_or_one_sentence(
    folder, file, damage, capfd, tmp_path
):
    """A page needs few entries; a run without a summary is one that has not ended."""
    pytest.importorskip("plotly", reason="the extra `report` is not installed")
    from dadmm import report

    damaged(folder, file, damage)
    code = report.main([str(folder), "--out", str(tmp_path / "a.html")])

    said = capfd.readouterr().err.splitlines()
    assert (code, len(said)) in ((0, 0), (2, 1))
