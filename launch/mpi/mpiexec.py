"""Command lines of mpiexec: its version, its host files, its fault tolerance."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from launch.base.arguments import run_setting

# Prefixes of the variables that Open MPI must be told to pass to other hosts.
# Other MPIs pass all variables.
PASSED_ON = (
    "OPENBLAS_", "OMP_", "MKL_", "DADMM_", "MPI4PY_", "PYTHON", "UCX_", "FI_",
    "PATH", "LD_LIBRARY_PATH", "COLUMNS",
)  # fmt: skip


def version_text(mpiexec: str) -> str:
    """Return the output of ``mpiexec --version``, or "" if it fails."""
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


def fault_tolerance(mpiexec: str, arguments: list[str]) -> list[str]:
    """Return the options that let a job continue without failed ranks, if it should.

    Only Open MPI 5 and later has them.
    """
    if run_setting(arguments, "on_failure") != "continue":
        return []
    able = re.search(r"\(Open MPI\) ([5-9]|\d\d)", version_text(mpiexec))
    return ["--with-ft", "ulfm"] if able else []


@contextlib.contextmanager
def command_on_hosts(
    mpiexec: str,
    hosts: list[str],
    job: list[str],
    variables: Mapping[str, str],
    agent: Path | None = None,
) -> Iterator[list[str]]:
    """Yield the command that runs each rank of a job on its host.

    Parameters
    ----------
    mpiexec : str
    hosts : list of str
        Host of each rank, in blocks or cyclic.
    job : list of str
    variables : dict of str to str
    agent : Path, optional
        A program to use instead of ssh, for emulated hosts. Ranks are not pinned then,
        because each emulated host would use the same first cores.
    """
    with tempfile.NamedTemporaryFile("w", prefix="dadmm-hosts-") as file:
        if "Open" in version_text(mpiexec):
            options = write_for_open_mpi(file, hosts, variables)
            options += ["--bind-to", "none"] if agent else []
        else:
            options = write_for_hydra(file, hosts)
            options += (
                ["-launcher", "ssh", "-launcher-exec", str(agent)] if agent else []
            )
        file.flush()
        options += fault_tolerance(mpiexec, job)
        yield [mpiexec, *options, "-n", str(len(hosts)), *job]


def write_for_open_mpi(
    file: IO[str], hosts: list[str], variables: Mapping[str, str]
) -> list[str]:
    """Write a host file for Open MPI and return the options that go with it.

    The file has a line for each rank. With slots, and more ranks than cores allowed,
    Open MPI would put all ranks on the first host.
    """
    file.writelines(f"{host}\n" for host in hosts)
    names = sorted(name for name in variables if name.startswith(PASSED_ON))
    options = ["--hostfile", file.name, "--map-by", "seq"]
    return options + [option for name in names for option in ("-x", name)]


def write_for_hydra(file: IO[str], hosts: list[str]) -> list[str]:
    """Write a host file for MPICH or Intel MPI and return the options for it.

    Each host has one line, because ranks of two lines would share no memory.
    """
    distinct = list(dict.fromkeys(hosts))
    if hosts == sorted(hosts, key=distinct.index):
        file.writelines(f"{host}:{hosts.count(host)}\n" for host in distinct)
        return ["-machinefile", file.name]
    file.writelines(f"{host}\n" for host in distinct)
    return ["-f", file.name, "-ppn", "1"]
