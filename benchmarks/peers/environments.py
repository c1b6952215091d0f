"""The environments in which the programs run, each made once by venv and pip.

Versions are pinned, so that numbers can be had again. dadmm itself is not installed:
its folder goes on PYTHONPATH. disropt, mpi-sppy and what dadmm imports on ranks share
the environment "ranks", so that one job can time them in turns.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

MPI = ("mpich==5.0.2", "mpi4py==4.1.2")
DADMM = ("networkx==3.6.1", "scipy==1.17.1", "threadpoolctl==3.8.0")
DISROPT = ("disropt==0.1.9", "autograd==1.9.1", "cvxopt==1.3.3", "cvxpy==1.9.3",
           "dill==0.4.1", "osqp==1.1.3", "scipy==1.17.1",
           "threadpoolctl==3.8.0")  # fmt: skip
MPISPPY = ("mpi-sppy==0.14.0", "pyomo==6.10.1", "highspy==1.15.1")
DECENT = ("decent-bench==0.3.0", "decent-array==0.2.7", "networkx==3.7",
          "numpy==2.5.4", "threadpoolctl==3.8.0")  # fmt: skip


class Environment(NamedTuple):
    """A name, the least Python, and what pip installs."""

    name: str
    least: tuple[int, int]
    wheels: tuple[str, ...]


ENVIRONMENTS = {
    "dadmm": Environment("dadmm", (3, 11), ("numpy==2.4.6", *MPI, *DADMM)),
    "ranks": Environment("ranks", (3, 11), ("numpy==2.4.6", *MPI, *DISROPT, *MPISPPY)),
    "decent": Environment("decent", (3, 13), DECENT),
}


class Missing(Exception):
    """An environment cannot be made here; the message says why."""


def ensure(environment: Environment, cache: Path, timeout: float = 900) -> Path:
    """Return the environment's Python, after making the environment if need be."""
    folder = cache / environment.name
    python, stamp = folder / "bin" / "python", folder / "wheels.json"
    wanted = json.dumps(environment.wheels)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    base = interpreter(environment.least)
    pip = [str(python), "-m", "pip", "install", "--quiet", *environment.wheels]
    for command in ([base, "-m", "venv", "--clear", str(folder)], pip):
        ended = subprocess.run(
            command, timeout=timeout, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            lines = ended.stderr.strip().splitlines() or ["no message"]
            raise Missing(f"{' '.join(command[:4])} ... failed: {lines[-1]}")
    stamp.write_text(wanted)
    return python


def interpreter(least: tuple[int, int]) -> str:
    """Return a Python that is new enough: this one, one on PATH, or one of pyenv."""
    names = [f"python{least[0]}.{minor}" for minor in range(least[1], least[1] + 3)]
    pyenv = Path.home() / ".pyenv" / "versions"
    candidates = [sys.executable, *filter(None, map(shutil.which, names))]
    candidates += [str(p) for name in names for p in pyenv.glob(f"*/bin/{name}")]
    for candidate in candidates:
        if (version_of(candidate) or (0, 0)) >= least:
            return candidate
    raise Missing(f"no Python {least[0]}.{least[1]} or newer on PATH or in {pyenv}")


def version_of(python: str) -> tuple[int, int] | None:
    """Return the version of an interpreter, or None if it does not start."""
    ask = "import sys, ensurepip; print(*sys.version_info[:2])"
    try:
        ended = subprocess.run(
            [python, "-c", ask], timeout=20, capture_output=True, text=True, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = ended.stdout.split()
    return (int(words[0]), int(words[1])) if ended.returncode == 0 else None
