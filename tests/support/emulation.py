"""How tests use the networks of benchmarks/netem; they skip where there can be none."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.emulation.network import Network, NetworkError
from tests.support.processes import ROOT, Job, find_mpiexec, variables


@cache
def obstacle() -> str:
    """Return why this machine or user can have no network, or nothing."""
    if find_mpiexec() is None:
        return f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC"
    try:
        Network(hosts=1).close()
    except NetworkError as error:
        return str(error)
    return ""


def network(hosts: int, rate: int = 0, delay: float = 0.0) -> Network:
    """Return a network; skip the test where there can be none."""
    if obstacle():
        pytest.skip(obstacle())
    return Network(hosts, rate, delay)


def start_netem(*options: object, cwd: Path | None = None, **more: str) -> Job:
    """Start ./benchmarks/netem with the Python of the tests; skip where it cannot work."""
    if obstacle():
        pytest.skip(obstacle())
    words = [ROOT / "benchmarks" / "netem", "--python", sys.executable, *options]
    chosen = {"DADMM_PYTHON": sys.executable} | more
    return Job([str(word) for word in words], cwd, variables(**chosen))
