"""Runs, folders of runs and projects, and what a refused command line says."""

import csv
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path

import numpy as np

import dadmm
import dadmm.run
from tests.support.processes import ROOT
from tests.support.solving import solve

TINY = (  # the flags of a run that takes a moment
    "--nodes", 3, "--n-samples", 30, "--dimension", 4, "--n-components", 2,
    "--tolerance", 0, "--quiet",
)  # fmt: skip


def run_of(problems, topology, **settings):
    """Return the run that `solve` makes of its arguments, after it."""
    runs = []
    solve(problems, topology, callbacks=[lambda t, run: runs.append(run)], **settings)
    return runs[-1]


def run_job(*words: object, out: str | Path = "run") -> Path:
    assert dadmm.run.main([*map(str, words), "--out", str(out), "--quiet"]) == 0
    return Path(out)


def summary_of(folder: str | Path) -> dict:
    return json.loads(Path(folder, "summary.json").read_text())


def arrays_of(folder: str | Path) -> dict[str, np.ndarray]:
    with np.load(Path(folder, "result.npz"), allow_pickle=False) as arrays:
        return dict(arrays)


def rows_of(file: str | Path) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as lines:
        return [*csv.DictReader(lines)]


def history_of(folder: str | Path, name: str = "history.csv") -> list[list[str]]:
    """Return the cells of history.csv, without the columns of seconds."""
    lines = Path(folder, name).read_text().splitlines()
    rows = [line.split(",") for line in lines]
    timed = {k for k, name in enumerate(rows[0]) if name.endswith("_seconds")}
    return [[cell for k, cell in enumerate(row) if k not in timed] for row in rows]


def contents(folder: str | Path) -> dict[str, bytes | str | None]:
    """Return all that is below a folder; links by where they point."""
    found: dict[str, bytes | str | None] = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        else:
            found[str(path)] = path.read_bytes() if path.is_file() else None
    return found


def refused(capture, *words: object, main=dadmm.run.main) -> str:
    """Return the one line of stderr with which a command line ends with code 2."""
    capture.readouterr()
    assert main([str(word) for word in words]) == 2
    out, err = capture.readouterr()
    assert out == "" or main is not dadmm.run.main  # plot may have drawn before
    (line,) = err.splitlines()
    assert line.startswith("dadmm: error: ")
    return line


SINCE_RESUME = ("tree_messages", "tree_bytes")  # arrays that count the last session


def differences(one: Path, other: Path, facts, but: Collection[str] = ()) -> list[str]:
    """Return in what two runs differ: files, facts of the summary, and arrays.

    Times and config.toml are left out, and some arrays.
    """
    found = []
    for path in sorted(one.iterdir()):
        name, theirs = path.name, other / path.name
        if not theirs.exists():
            found += [f"{name} (missing)"] * (name != "config.toml")
        elif path.suffix == ".npz":
            a, b = bits_of(path), bits_of(theirs)
            wrong = [key for key in sorted(a | b) if a.get(key) != b.get(key)]
            found += [f"{name}:{key}" for key in wrong if key not in but]
        elif name == "summary.json":
            a, b = summary_of(one), summary_of(other)
            found += [f"{name}:{key}" for key in facts if a.get(key) != b.get(key)]
        elif path.suffix == ".csv" and name != "ranks.csv":
            found += [name] * (history_of(one, name) != history_of(other, name))
    return found


def assert_same_arrays(
    first: str | Path, second: str | Path, but: Collection[str] = ()
) -> None:
    """Assert that two .npz files have the same arrays, but for some, to the bit."""
    one, other = bits_of(first), bits_of(second)
    assert one.keys() == other.keys()
    assert [k for k in one if k not in but and one[k] != other[k]] == []


def bits_of(file: str | Path) -> dict[str, object]:
    """Return type, shape and bytes of each array of a .npz file."""
    with np.load(file, allow_pickle=False) as arrays:
        return {k: (a.dtype, a.shape, a.tobytes()) for k, a in arrays.items()}


def write_run(folder: Path, hosts=("vm",) * 4) -> Path:
    """Write the folder of a run that has started, with one rank per host."""
    folder.mkdir()
    rows = [f"{k},{k},{host},{11 + k}\n" for k, host in enumerate(hosts)]
    (folder / "ranks.csv").write_text("rank,node,host,pid\n" + "".join(rows))
    (folder / "config.toml").write_text(f'scheme = "snap"\nnodes = {len(hosts)}\n')
    return folder


def write_checkpoint(folder: Path, iteration: int, nodes) -> None:
    place = folder / "checkpoints" / f"{iteration:08d}"
    place.mkdir(parents=True)
    for i in nodes:
        (place / f"node-{i:05d}.npz").touch()


def write_program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def copy_launch(folder: Path) -> None:
    """Copy the launch commands into a project of their own, with this dadmm."""
    shutil.copytree(ROOT / "launch", folder / "launch")
    (folder / "dadmm").symlink_to(ROOT / "dadmm")
