"""Damaged and foreign run folders: one sentence that names the file, no traceback."""

import copy
import io
import json
import os
import shutil
import zipfile
from functools import reduce

import numpy as np
import pytest

from dadmm import run
from dadmm.__main__ import main_of
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.runs.stored import POSITIVE, StoredRun, read_summary
from dadmm.show import document, outcome, panels
from dadmm.show.html import Page
from dadmm.timing.replay import Trace

FILES = ("config.toml", "summary.json", "history.csv", "edges.csv", "result.npz")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run, which says that it ran under MPI: others never waited."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    words = "--nodes 4 --n-samples 40 --dimension 5 --tolerance 0 --max-iter 6 --quiet "
    words += f"--record-edges --n-components 2 --topology ring --out {folder}"
    assert run.main(words.split()) == 0
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
    head = {"descr": "<i8", "fortran_order": False, "shape": (2**38, 2)}
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
        "digits": lambda f: f.write_text("seed = " + "9" * 5000),
        "other nodes": lambda f: f.write_text("nodes = 5"),
        "foreign": lambda f: f.write_text("[tool]\nx = 1\n"),
    },
    "summary.json": {
        "a list": lambda f: f.write_text("[]"),
        "absent": lambda f: f.unlink(),
        "no entries": lambda f: f.write_text("{}"),
        "other nodes": lambda f: edit(f, n_nodes=5),
        "too many nodes": lambda f: edit(f, n_nodes=2**60),
        "hosts": lambda f: edit(f, node_hosts=["a"]),
        "iterations": lambda f: edit(f, iterations=5),
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
DAMAGES = [(f, damage) for f in FILES for damage in (*ANY_FILE, *OWN[f])]
SETTINGS = [case for case in DAMAGES if case[0] == "config.toml"]
ROWS = [("history.csv", k) for k in (*ANY_FILE, "fewer iterations", "a word", "ages")]


def damaged(folder, file, damage):
    (ANY_FILE.get(damage) or OWN[file][damage])(folder / file)


def read(folder):
    """Read all that plots, timing and the page read."""
    found = StoredRun.read(folder)
    assert found.config.nodes == 4
    assert found.edge_column("eta", POSITIVE).shape == (6, 8)
    assert found.column("objective").shape == (6, 4)
    assert Trace.of(found).n_nodes == 4


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_a_damaged_file_is_refused_by_its_name(folder, file, damage, capfd, tmp_path):
    """A page needs few entries; a run without a summary is one that has not ended."""
    read(folder)
    damaged(folder, file, damage)
    with pytest.raises(DadmmError) as caught:
        read(folder)

    # entries that do not fit the other files may be the fault of those
    culprit = folder if file == "summary.json" else folder / file
    assert str(culprit) in str(caught.value)
    assert "\n" not in str(caught.value)
    if damage in [*ANY_FILE][1:]:
        return
    pytest.importorskip("plotly", reason="the extra `report` is not installed")
    code = main_of("report")([str(folder), "--out", str(tmp_path / "a.html")])
    said = capfd.readouterr().err.splitlines()
    assert (code, len(said)) in ((0, 0), (2, 1))


@pytest.mark.parametrize(
    ("file", "damage"), [*ROWS, *SETTINGS, ("edges.csv", "cut short")]
)
def test_a_damaged_run_is_not_resumed(folder, file, damage, capfd):
    damaged(folder, file, damage)

    assert run.main(["--resume", str(folder), "--max-iter", "9", "--quiet"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    if damage in ANY_FILE:
        assert str(folder / file if file == "config.toml" else folder) in line


BAD = ["null", "-1.06", '"x"', "[null]", '{"a": []}', "1e400", "1" * 400]
GONE = object()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Runs whose summaries have all entries among them."""
    home, rng = tmp_path_factory.mktemp("summaries"), np.random.default_rng(0)
    lines = [f"{rng.normal():.4f},{'abc'[k % 3]},{rng.choice(2)}" for k in range(90)]
    (home / "table.csv").write_text("\n".join(["u,kind,y", ",a,0", *lines, ""]))
    for name, words in {
        "a": f"--problem logistic --alpha 0 --on-missing drop --data {home}/table.csv",
        "b": "--n-components 2 --n-samples 60 --dimension 5 --bound-angle",
        "c": "--n-components 2 --n-samples 60 --dimension 5 --missing-fraction 0.1",
    }.items():
        words += f" --nodes 3 --quiet --out {home / name}"
        assert run.main(words.split()) in (0, 3)
    return [home / name for name in "abc"]


def places(content, path=()):
    """Yield the path to each entry of a JSON document, at all depths."""
    pairs = content.items() if isinstance(content, dict) else enumerate(content[:2])
    for key, value in pairs:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def mutated(summary, path, value):
    whole = copy.deepcopy(summary)
    place = reduce(lambda inner, key: inner[key], path[:-1], whole)
    place[path[-1]] = value
    if value is GONE:
        del place[path[-1]]
    return whole


def use(run):
    """Call all that reads a summary, except what draws."""
    page = Page([run])
    outcome.badge(run)
    outcome.top(page)
    outcome.results(page)
    document._facts(run)
    panels.endings(run)
    panels.title([run])


def test_no_mutation_of_an_entry_of_a_summary_reaches_a_reader(folders, tmp_path):
    file, refused, cases, seen = tmp_path / "summary.json", 0, 0, set()
    for folder in folders:
        whole = StoredRun.read(folder)
        use(whole)
        for path in {*places(whole.summary)} - seen:
            seen.add(path)
            for value in [*map(json.loads, BAD), GONE]:
                cases += 1
                file.write_text(json.dumps(mutated(whole.summary, path, value)))
                try:
                    found = read_summary(file)
                    one = StoredRun(folder, found)
                    vars(one).update(vars(whole) | {"summary": found})  # read once
                    use(one)
                except ConfigError as error:
                    refused += path[0] in str(error)
    assert refused > 0.6 * cases > 500
