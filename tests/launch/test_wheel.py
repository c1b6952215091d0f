"""The wheel holds the package with its data, and runs in an empty environment."""

import configparser
import os
import re
import shutil
import sys
import zipfile

import numpy as np
import pytest

import dadmm
from tests.support.processes import FOREIGN, ROOT, Job
from tests.support.runs import assert_same_arrays

LEFT_OUT = (".git", ".venv*", "__pycache__", "_build", "out", ".*_cache")
OWN = (*FOREIGN, "DADMM_", "MPI4PY_", "PYTHON", "VIRTUAL_ENV")
INSTALL = 1200  # seconds; packages are downloaded


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.timeout(2 * INSTALL)
def test_the_wheel_runs_without_the_checkout(tmp_path):
    """With MPICH and matplotlib: ranks and one process, then a figure and rows."""
    programs = tmp_path / "env" / "bin"

    def run(*command, timeout=240):
        env = {k: v for k, v in os.environ.items() if not k.startswith(OWN)}
        env["PATH"] = f"{programs}:/usr/bin:/bin"
        ended = Job([str(word) for word in command], tmp_path, env).end(timeout)
        assert ended.code == 0, ended
        return ended.out

    ignore = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(ROOT, tmp_path / "source", ignore=ignore, symlinks=True)
    build = (sys.executable, "-m", "build", "--outdir", ".", "source")
    run(*build, timeout=INSTALL)  # from the sdist
    (wheel,) = tmp_path.glob(f"dadmm-{dadmm.__version__}-*.whl")
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if name.startswith("dadmm/")}
    files = [path for path in (ROOT / "dadmm").rglob("*") if path.suffix != ".pyc"]
    assert held == {str(f.relative_to(ROOT)) for f in files if f.is_file()}

    run(sys.executable, "-m", "venv", "env", timeout=INSTALL)
    run("python", "-m", "pip", "install", f"{wheel}[mpi,plot]", timeout=INSTALL)
    where = run("python", "-P", "-c", "import dadmm; print(dadmm.__file__)")
    assert where.startswith(str(tmp_path / "env" / "lib"))
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(80, 6)))
    job = ("dadmm", "run", "--data", "rows.npy", "--n-components", 2, "--out")
    assert "results in mpi\n" in run("mpiexec", "-n", 4, *job, "mpi")
    assert "results in one\n" in run(*job, "one", "--nodes", 4)
    assert_same_arrays(*(tmp_path / out / "result.npz" for out in ("mpi", "one")))
    for line, said in (
        ("plot one --kind convergence", "one/convergence.png\n"),
        ("predict one rows.npy --out a.csv", "80 rows predicted by ppca"),
        ("replay one --network wan", "wan"),
        ("run --config as-printed --dry-run", 'scheme = "'),
    ):
        assert said in run("dadmm", *line.split())
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 81


def test_actions_are_pinned_by_commit_and_packages_at_allowed_versions():
    text = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    assert all((ROOT / f).exists() for f in re.findall(r"tests/\S+\.py", text))
    for step in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step)
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    lines = (ROOT / "constraints.txt").read_text().lower().splitlines()
    pinned = dict(line.split("==") for line in lines if line[0] != "#")
    extras = metadata["options.extras_require"]
    names = ("mpi", "plot", "report", "sklearn", "tables", "dev")
    needed = [metadata["options"]["install_requires"], *(extras[k] for k in names)]
    for name, least in re.findall(r"^([\w-]+) >= ([\d.]+)$", "\n".join(needed), re.M):
        have, wanted = pinned[name.lower()].split("."), least.split(".")
        assert [*map(int, have[:2])] >= [*map(int, wanted)], name
