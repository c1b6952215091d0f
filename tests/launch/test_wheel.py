"""The wheel and the sdist: what they hold, and the wheel in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import numpy as np
import pytest

import dadmm
from tests.support.processes import FOREIGN, ROOT, Ended, Job

LEFT_OUT = (".git", ".venv*", "__pycache__", "runs", "_build", "out", ".*_cache")
OWN = (*FOREIGN, "DADMM_", "MPI4PY_", "PYTHON", "VIRTUAL_ENV")
INSTALL = 1200  # seconds; packages are downloaded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * INSTALL)]


def run(*command: object, cwd: Path, path: str = "", timeout: float = 240) -> Ended:
    """Run a command to its end, without the variables of this environment."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
    env["PATH"] = os.pathsep.join(filter(None, [path, "/usr/bin:/bin"]))
    return Job([str(word) for word in command], cwd, env).end(timeout)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist, and with the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("release")
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(ROOT, folder / "source", ignore=ignore, symlinks=True)
    build = (sys.executable, "-m", "build", "--outdir", folder, folder / "source")
    job = run(*build, cwd=folder, timeout=INSTALL)
    assert job.code == 0, job
    return folder


@pytest.fixture(scope="module")
def installed(built) -> Path:
    """An environment with the wheel, MPICH and matplotlib, and nothing else."""
    (wheel,) = built.glob("*.whl")
    python = built / "env" / "bin" / "python"
    job = run(sys.executable, "-m", "venv", "env", cwd=built, timeout=INSTALL)
    assert job.code == 0, job
    install = (python, "-m", "pip", "install", f"{wheel}[mpi,plot]")
    job = run(*install, cwd=built, timeout=INSTALL)
    assert job.code == 0, job
    return python.parent


def test_the_wheel_holds_the_package_and_its_data(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        about = message_from_bytes(file.read(metadata))
    package = ROOT / "dadmm"
    files = [path for path in package.rglob("*") if path.suffix != ".pyc"]
    own = {str(path.relative_to(ROOT)) for path in files if path.is_file()}

    assert {name for name in names if name.startswith("dadmm/")} == own
    assert about["Version"] == dadmm.__version__
    assert about["License-Expression"] == "BSD-3-Clause"
    assert "Programming Language :: Python :: 3.14" in about.get_all("Classifier")


@pytest.mark.mpi
def test_the_wheel_runs_without_the_checkout(installed, tmp_path):
    """The same result on four ranks and in one process; then a figure, and rows."""

    def call(*words: object) -> Ended:
        return run(*words, cwd=tmp_path, path=str(installed))

    where = call("python", "-c", "import dadmm; print(dadmm.__file__)")
    assert where.out.startswith(str(installed.parent / "lib")), where
    rows = np.random.default_rng(0).normal(size=(80, 6))
    np.save(tmp_path / "rows.npy", rows)
    job = ("dadmm", "run", "--data", "rows.npy", "--n-components", 2, "--topology")
    for start, out in (["mpiexec", "-n", 4], "mpi"), ([], "one"):
        nodes = [] if start else ["--nodes", 4]
        ended = call(*start, *job, "ring", *nodes, "--out", out)
        assert ended.code == 0, ended
        assert re.search(rf"^results in {out}$", ended.out, re.M), ended
    results = [dict(np.load(tmp_path / out / "result.npz")) for out in ("mpi", "one")]
    for name in ("W", "mu", "a"):
        np.testing.assert_array_equal(results[0][name], results[1][name])
    for words, said in (
        (["plot", "one", "--kind", "convergence"], "one/convergence.png\n"),
        (["predict", "one", "rows.npy", "--out", "a.csv"], "80 rows predicted by ppca"),
        (["replay", "one", "--network", "wan"], "wan"),
        (["run", "--config", "as-printed", "--dry-run"], 'scheme = "'),
    ):
        ended = call("dadmm", *words)
        assert (ended.code, said in ended.out) == (0, True), ended
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 81
