"""How an MPI is told on which hosts its ranks are, and to use the network between."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import IO

from benchmarks.emulation.network import AGENT
from launch.base.arguments import setting

# Hosts share no memory, so there is only TCP between them; nobody shall look further.
# Each MPI heeds its own variables. MPICH has libfabric's TCP, too, but that waits for
# an answer to each message of more than 128 bytes, which costs a delay more.
OVER_TCP = {
    "MPIR_CVAR_CH4_NETMOD": "ucx",  # MPICH
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
    "I_MPI_FABRICS": "shm:ofi",  # Intel MPI
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "I_MPI_PIN": "off",  # each host would use the same first cores
    "OMPI_MCA_pml": "ob1",  # Open MPI
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "PRTE_MCA_plm_ssh_agent": str(AGENT),
    "OMPI_MCA_plm_rsh_agent": str(AGENT),  # before version 5
}
# How the hosts of launch/netem are reached, and for Open MPI: as I_MPI_PIN
EMULATED_HYDRA = ("-launcher", "ssh", "-launcher-exec", str(AGENT))
EMULATED_OPEN_MPI = ("--bind-to", "none")
# What Open MPI, unlike the others, does not hand on to ranks on other hosts by itself
HANDED_ON = (
    "OPENBLAS_", "OMP_", "MKL_", "DADMM_", "MPI4PY_", "PYTHON", "UCX_", "FI_",
    "PATH", "LD_LIBRARY_PATH", "COLUMNS",
)  # fmt: skip


def banner(mpiexec: str) -> str:
    """Return what an mpiexec says about itself, or nothing if it will not."""
    try:
        return subprocess.check_output(
            [mpiexec, "--version"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.SubprocessError):
        return ""


def outliving(mpiexec: str, arguments: list[str]) -> list[str]:
    """Return what makes an mpiexec outlive its ranks, if the job shall."""
    if setting(arguments, "on_failure") != "continue":
        return []
    able = re.search(r"\(Open MPI\) ([5-9]|\d\d)", banner(mpiexec))
    return ["--with-ft", "ulfm"] if able else []


def spread(ranks: int, hosts: int, cyclic: bool = False) -> list[str]:
    """Return the host of each rank: r * hosts // ranks, or r % hosts if cyclic."""
    where = range(ranks)
    return [f"host{r % hosts if cyclic else r * hosts // ranks}" for r in where]


@contextlib.contextmanager
def on_hosts(
    mpiexec: str,
    places: list[str],
    job: list[str],
    variables: Mapping[str, str],
    emulated: bool = False,
) -> Iterator[list[str]]:
    """Hold the command that runs a job with each rank on its host, and its host file.

    The ranks of a host follow each other, or hosts take turns from first to last.
    """
    with tempfile.NamedTemporaryFile("w", prefix="dadmm-hosts-") as file:
        if "Open" in banner(mpiexec):
            how = for_open_mpi(file, places, variables)
            how += EMULATED_OPEN_MPI if emulated else ()
        else:
            how = for_hydra(file, places)
            how += EMULATED_HYDRA if emulated else ()
        file.flush()
        how += outliving(mpiexec, job)
        yield [mpiexec, *how, "-n", str(len(places)), *job]


def for_open_mpi(
    file: IO[str], places: list[str], variables: Mapping[str, str]
) -> list[str]:
    """Write a host file and return the options that go with it.

    It has a line for each rank: by slots, and allowed more ranks than cores, Open MPI
    would put all ranks on the first host.
    """
    file.writelines(f"{host}\n" for host in places)
    names = sorted(name for name in variables if name.startswith(HANDED_ON))
    options = ["--hostfile", file.name, "--map-by", "seq"]
    return options + [word for name in names for word in ("-x", name)]


def for_hydra(file: IO[str], places: list[str]) -> list[str]:
    """Write a host file for MPICH or Intel MPI and return the options that go with it.

    No host may come twice in it: ranks of two lines would share no memory.
    """
    hosts = list(dict.fromkeys(places))
    if places == sorted(places, key=hosts.index):
        file.writelines(f"{host}:{places.count(host)}\n" for host in hosts)
        return ["-machinefile", file.name]
    file.writelines(f"{host}\n" for host in hosts)
    return ["-f", file.name, "-ppn", "1"]
