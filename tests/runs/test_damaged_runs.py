"""Damaged and foreign run folders: one sentence and exit code 2, no traceback."""

from __future__ import annotations

import io
import json
import os
import shutil

import numpy as np
import pytest

from dadmm import run
from dadmm.timing import replay, waiting
from launch import sweep
from launch.console import run_command

ITERATIONS = 6
ALL = ("config.toml", "summary.json", "history.csv", "edges.csv", "result.npz")
TIMING = ALL[1:]
READS = {  # which files a tool reads
    "replay": TIMING,
    "waiting": TIMING,
    "plot": ALL,
    "resume": ALL[:4],
    "collect": ("summary.json",),
}


def use(tool, folder, kind="all"):
    """Run a tool on a folder; return its exit code."""
    if tool == "replay":
        return replay.main([str(folder), "--network", "lan"])
    if tool == "waiting":
        return waiting.main([str(folder)])
    if tool == "resume":
        return run.main(["--resume", str(folder), "--max-iter", "9", "--quiet"])
    if tool == "collect":
        home = folder.parent / "sweep"
        home.mkdir()
        record = {"ranks": 4, "varied": ["seed"], "jobs": [], "tasks": {"task": {}}}
        (home / "sweep.json").write_text(json.dumps(record))
        folder.rename(home / "task")
        return run_command(lambda _: sweep.collect(sweep.Sweep.read(home)), [])
    pytest.importorskip("matplotlib")
    from dadmm.drawing import plot

    return plot.main([str(folder), "--kind", kind, "--format", "svg"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run, which says that it ran under MPI: others never waited."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    size = ["--nodes", "4", "--n-samples", "40", "--dimension", "5"]
    more = ["--tolerance", "0", "--max-iter", str(ITERATIONS), "--record-edges"]
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


def arrays(file, **changed):
    with np.load(file) as found:
        np.savez(file, **(dict(found) | changed))


def edges(file):
    with np.load(file) as found:
        return found["edges"]


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
    import zipfile

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
# by file: what is done to it, and the tools that must refuse
TIMERS = ("replay", "waiting")
DRAWN = (*TIMERS, "plot")
OWN = {
    "config.toml": {
        "deep": (lambda f: f.write_text("a = " + "[" * 10**5), ("plot", "resume")),
        "long key": (lambda f: f.write_text("a." * 10**5 + "b=1"), ("plot", "resume")),
        "digits": (lambda f: setting(f, "seed = " + "9" * 5000), ("plot", "resume")),
        "nodes": (lambda f: setting(f, "nodes = 99999999999999999999"), ("resume",)),
        "NaN": (lambda f: setting(f, "tolerance = nan"), ("plot", "resume")),
        "foreign": (lambda f: f.write_text("[tool]\nx = 1\n"), ("plot", "resume")),
    },
    "summary.json": {
        "a list": (lambda f: f.write_text("[]"), tuple(READS)),
        "deep": (lambda f: f.write_text("[" * 10**5), tuple(READS)),
        "absent": (lambda f: f.unlink(), DRAWN),
        "no entries": (lambda f: f.write_text("{}"), tuple(READS)),
        "no nodes": (lambda f: edit(f, n_nodes=0), DRAWN),
        "half a node": (lambda f: edit(f, n_nodes=2.5), DRAWN),
        "other nodes": (lambda f: edit(f, n_nodes=5), DRAWN),
        "too many nodes": (lambda f: edit(f, n_nodes=2**60), DRAWN),
        "bytes": (lambda f: edit(f, bytes="x"), TIMERS),
        "hosts": (lambda f: edit(f, node_hosts=["a"]), TIMERS),
        "iterations": (lambda f: edit(f, iterations="x"), ("resume", "collect")),
        "seconds": (lambda f: edit(f, seconds=3), ("collect",)),
    },
    "history.csv": {
        "a word": (lambda f: cell(f, "iteration", "x"), (*DRAWN, "resume")),
        "NaN": (lambda f: cell(f, "exchange_seconds", "nan"), TIMERS),
        "ages": (lambda f: cell(f, "exchange_seconds", "1e308"), TIMERS),
        "no column": (
            lambda f: f.write_text(f.read_text().replace("objective", "x", 1)),
            ("plot",),
        ),
        "another node": (lambda f: cell(f, "node", "9"), DRAWN),
        "other columns": (lambda f: f.write_text("a,b,c\n" + "1,2,3\n" * 24), DRAWN),
        "fewer iterations": (
            lambda f: f.write_text("\n".join(f.read_text().split("\n")[:9]) + "\n"),
            (*DRAWN, "resume"),
        ),
    },
    "edges.csv": {
        "infinite": (lambda f: cell(f, "bytes", "inf"), TIMERS),
        "no penalty": (lambda f: cell(f, "eta", "0"), ("plot",)),
    },
    "result.npz": {
        "one array": (lambda f: np.save(f.open("wb"), np.ones(3)), DRAWN),
        "pickled": (lambda f: arrays(f, edges=edges(f).astype(object)), DRAWN),
        "in halves": (lambda f: arrays(f, edges=edges(f) + 0.5), DRAWN),
        "one way": (lambda f: arrays(f, edges=edges(f)[::2]), DRAWN),
        "upside down": (lambda f: arrays(f, edges=edges(f)[::-1]), DRAWN),
        "far away": (lambda f: arrays(f, edges=edges(f) + 2**62), DRAWN),
        "a number": (lambda f: arrays(f, edges=np.array(3)), DRAWN),
        "terabytes": (claim_a_lot, DRAWN),
    },
}
CASES = [
    *((f, d, t) for t, read in READS.items() for f in read for d in ANY_FILE),
    *((f, d, t) for f, own in OWN.items() for d, (_, ts) in own.items() for t in ts),
]


@pytest.mark.parametrize(("file", "damage", "tool"), CASES)
def test_damage_is_told_in_one_sentence(folder, file, damage, tool, capfd):
    (ANY_FILE.get(damage) or OWN[file][damage][0])(folder / file)
    kind = "eta" if file == "edges.csv" else "convergence"

    assert use(tool, folder, kind) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("dadmm: ")
    if file != "config.toml" or tool != "resume":  # a flag may be wrong, too
        assert str(folder.parent) in line


DAMAGES = [
    *((f, d) for f in (*ALL, "model.json") for d in ANY_FILE),
    *((f, d) for f, own in OWN.items() for d in own),
]


@pytest.mark.parametrize(("file", "damage"), DAMAGES)
def test_a_damaged_run_has_a_page_or_one_sentence(
    folder, file, damage, capfd, tmp_path
):
    """A page needs few entries; a run without a summary is one that has not ended."""
    pytest.importorskip("plotly", reason="the extra `report` is not installed")
    parts = pytest.importorskip("dadmm.page.parts", reason="matplotlib is missing")
    from dadmm import report

    (ANY_FILE.get(damage) or OWN[file][damage][0])(folder / file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "picture", lambda figure: b"")
        code = report.main([str(folder), "--out", str(tmp_path / "a.html")])

    said = capfd.readouterr().err.splitlines()
    assert (code, len(said)) in ((0, 0), (2, 1))


@pytest.mark.parametrize("tool", ["replay", "waiting", "resume", "collect"])
def test_the_run_itself_is_fine(folder, tool):
    """So that what is refused above is refused for its damage."""
    assert use(tool, folder) == 0


@pytest.mark.parametrize("tool", ["replay", "waiting", "plot", "resume"])
@pytest.mark.parametrize("name", ["none", "a\0b", "x" * 5000])
def test_no_folder_at_all(tmp_path, tool, name, capfd):
    assert use(tool, tmp_path / name) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1
