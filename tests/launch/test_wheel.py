"""The wheel: what it holds, and that it runs in an empty environment."""

import os
import shutil
import sys
import zipfile
from email import message_from_bytes

import numpy as np
import pytest

import dadmm
from tests.support.processes import FOREIGN, ROOT, Job
from tests.support.runs import assert_same_arrays

LEFT_OUT = (".git", ".venv*", "__pycache__", "_build", "out", ".*_cache")
OWN = (*FOREIGN, "DADMM_", "MPI4PY_", "PYTHON", "VIRTUAL_ENV")
INSTALL = 1200  # seconds; packages are downloaded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * INSTALL)]


def run(*command, cwd, path="", timeout=INSTALL):
    """Return what a command prints, without the variables of this environment."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
    env["PATH"] = os.pathsep.join(filter(None, [path, "/usr/bin:/bin"]))
    ended = Job([str(word) for word in command], cwd, env).end(timeout)
    assert ended.code == 0, ended
    return ended.out


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("release")
    ignore = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(ROOT, folder / "source", ignore=ignore, symlinks=True)
    build = (sys.executable, "-m", "build", "--outdir", folder, folder / "source")
    run(*build, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_wheel_holds_the_package_and_its_data(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        about = message_from_bytes(file.read(metadata))
    files = [path for path in (ROOT / "dadmm").rglob("*") if path.suffix != ".pyc"]
    own = {str(path.relative_to(ROOT)) for path in files if path.is_file()}

    assert {name for name in names if name.startswith("dadmm/")} == own
    assert about["Version"] == dadmm.__version__
    assert about["License-Expression"] == "BSD-3-Clause"


@pytest.mark.mpi
def test_the_wheel_runs_without_the_checkout(wheel, tmp_path):
    """With MPICH and matplotlib: ranks and one process, then a figure and rows."""
    programs = tmp_path / "env" / "bin"
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    install = (programs / "python", "-m", "pip", "install", f"{wheel}[mpi,plot]")
    run(*install, cwd=tmp_path)

    def call(*words):
        return run(*words, cwd=tmp_path, path=str(programs), timeout=240)

    where = call("python", "-c", "import dadmm; print(dadmm.__file__)")
    assert where.startswith(str(tmp_path / "env" / "lib"))
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(80, 6)))
    job = ("dadmm", "run", "--data", "rows.npy", "--n-components", 2, "--out")
    assert "results in mpi\n" in call("mpiexec", "-n", 4, *job, "mpi")
    assert "results in one\n" in call(*job, "one", "--nodes", 4)
    assert_same_arrays(*(tmp_path / out / "result.npz" for out in ("mpi", "one")))
    for line, said in (
        ("plot one --kind convergence", "one/convergence.png\n"),
        ("predict one rows.npy --out a.csv", "80 rows predicted by ppca"),
        ("replay one --network wan", "wan"),
        ("run --config as-printed --dry-run", 'scheme = "'),
    ):
        assert said in call("dadmm", *line.split())
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 81
