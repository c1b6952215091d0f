"""Networks of emulated hosts for tests, which skip where there can be none."""

import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.emulation.netem import OVER_TCP
from benchmarks.emulation.network import EmulatedNetwork, NetworkError
from tests.support.processes import ROOT, Job, find_mpiexec, variables


@cache
def obstacle() -> str:
    """Return why there can be no network here, or ""."""
    if find_mpiexec() is None:
        return f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC"
    if " " in f"{ROOT}{sys.prefix}":
        return "mpiexec cannot start ranks on other hosts from a path with a space"
    try:
        EmulatedNetwork(hosts=1).close()
    except NetworkError as error:
        return str(error)
    return ""


def network(hosts: int, rate: int = 0, delay: float = 0.0) -> EmulatedNetwork:
    if obstacle():
        pytest.skip(obstacle())
    return EmulatedNetwork(hosts, rate, delay)


def reached_by(agent: Path) -> dict[str, str]:
    """Return the variables of a user who reaches hosts by another command than ssh."""
    names = ("HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC",
             "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent")  # fmt: skip
    chosen = {"HYDRA_LAUNCHER": "ssh", "I_MPI_HYDRA_BOOTSTRAP": "ssh"}
    return OVER_TCP | chosen | dict.fromkeys(names, str(agent))


def start_netem(*options: object, cwd: Path | None = None, **more: str) -> Job:
    """Start benchmarks/netem with the Python of the tests, or skip the test."""
    if obstacle():
        pytest.skip(obstacle())
    command = [ROOT / "benchmarks" / "netem", "--python", sys.executable, *options]
    chosen = {"DADMM_PYTHON": sys.executable} | more
    return Job([str(part) for part in command], cwd, variables(**chosen))
