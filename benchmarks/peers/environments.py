"""The environments in which the programs run, each made once by venv and pip.

Versions are pinned, so that numbers can be had again. dadmm itself is not installed:
its folder goes on PYTHONPATH. disropt, mpi-sppy and what dadmm imports on ranks share
the environment "ranks", so that one job can time them in turns.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

MPI = ("mpich==5.0.2", "mpi4py==4.1.2")
DADMM = ("networkx==3.6.1", "scipy==1.17.1", "threadpoolctl==3.8.0")
DISROPT = ("disropt==0.1.9", "autograd==1.9.1", "cvxopt==1.3.3", "cvxpy==1.9.3",
           "dill==0.4.1", "osqp==1.1.3", "scipy==1.17.1",
           "threadpoolctl==3.8.0")  # fmt: skip
MPISPPY = ("mpi-sppy==0.14.0", "pyomo==6.10.1", "highspy==1.15.1")
DECENT = ("decent-bench==0.3.0", "decent-array==0.2.7", "networkx==3.7",
          "numpy==2.5.4", "threadpoolctl==3.8.0")  # fmt: skip
# The least Python and the wheels of each environment.
ENVIRONMENTS = {
    "dadmm": ((3, 11), ("numpy==2.4.6", *MPI, *DADMM)),
    "ranks": ((3, 11), ("numpy==2.4.6", *MPI, *DISROPT, *MPISPPY)),
    "decent": ((3, 13), DECENT),
}


class Missing(Exception):
    """An environment cannot be made here; the message says why."""


def ensure(name: str, cache: Path) -> Path:
    """Return the Python of an environment, after making the environment if need be."""
    least, wheels = ENVIRONMENTS[name]
    python, stamp = cache / name / "bin" / "python", cache / name / "wheels.json"
    wanted = json.dumps(wheels)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    pip = [str(python), "-m", "pip", "install", "--quiet", *wheels]
    for command in ([interpreter(*least), "-m", "venv", "--clear", cache / name], pip):
        ended = subprocess.run(command, timeout=900, capture_output=True, text=True)
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or ["no message"]
            raise Missing(f"{' '.join(map(str, command[:4]))} ... failed: {lines[-1]}")
    stamp.write_text(wanted)
    return python


def interpreter(major: int, minor: int) -> str:
    """Return this Python if it is new enough, else the one on PATH."""
    if sys.version_info >= (major, minor):
        return sys.executable
    found = shutil.which(f"python{major}.{minor}")
    if found is None:
        raise Missing(f"there is no python{major}.{minor} on PATH")
    return found
