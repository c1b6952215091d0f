"""How an MPI is told on which hosts its ranks are, and to use the network between."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from launch.base.arguments import setting

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


@contextlib.contextmanager
def on_hosts(
    mpiexec: str,
    places: list[str],
    job: list[str],
    variables: Mapping[str, str],
    agent: Path | None = None,
) -> Iterator[list[str]]:
    """Yield the command that runs a job with each rank on its host.

    Parameters
    ----------
    mpiexec : str
    places : list of str
        Host of each rank. The ranks of a host follow each other, or hosts take turns
        from first to last.
    job : list of str
    variables : dict of str to str
    agent : Path, optional
        A program to use instead of ssh, for emulated hosts. Ranks are not pinned then:
        each emulated host would use the same first cores.
    """
    with tempfile.NamedTemporaryFile("w", prefix="dadmm-hosts-") as file:
        if "Open" in banner(mpiexec):
            how = for_open_mpi(file, places, variables)
            how += ["--bind-to", "none"] if agent else []
        else:
            how = for_hydra(file, places)
            how += ["-launcher", "ssh", "-launcher-exec", str(agent)] if agent else []
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
