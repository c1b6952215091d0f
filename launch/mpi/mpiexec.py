"""Command lines of mpiexec: its version, its host files, its fault tolerance."""

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from launch.base.arguments import run_setting
from launch.base.messages import UsageError
from launch.base.textfiles import read_text

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

    `hosts` has the host of each rank, in blocks or cyclic. `agent` is a program to use
    instead of ssh, for emulated hosts. Ranks are not pinned then, because each emulated
    host would use the same first cores.
    """
    with tempfile.NamedTemporaryFile("w", prefix="dadmm-hosts-") as file:
        if "Open" in version_text(mpiexec):
            options = write_for_open_mpi(file, hosts, variables)
            options += ["--bind-to", "none"] if agent else []
        else:
            options = write_for_hydra(file, hosts)
            by_agent = ["-launcher", "ssh", "-launcher-exec", str(agent)]
            options += by_agent if agent else []
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


# host, host:4, host slots=4; Open MPI's max_slots is accepted and ignored
LINE = re.compile(
    r"(?P<host>\w[\w.-]*)(?::(?P<count>\d+)|(?:\s+slots\s*=\s*(?P<slots>\d+))?"
    r"(?:\s+max[_-]slots\s*=\s*\d+)?)"
)


def read_hosts(file: str, ranks: int | None = None) -> list[str]:
    """Return the host of each of the first `ranks` slots, or of all if it is None.

    The slots of one host follow each other.
    """
    try:
        lines = read_text(Path(file)).splitlines()
    except FileNotFoundError as error:
        reason = error.strerror
        raise UsageError(f"cannot read the host file {file!r}: {reason}") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            hosts += slots(text, f"line {number} of {file}")
    if not hosts:
        raise UsageError(f"{file} names no host; write one per line, as node1:4")
    if ranks is not None and ranks > len(hosts):
        raise UsageError(
            f"the host file has {len(hosts)} slots, too few for -n {ranks}; "
            "give its hosts more, or leave out -n to use all"
        )
    return sorted(hosts, key=list(dict.fromkeys(hosts)).index)[:ranks]


def slots(text: str, where: str) -> list[str]:
    """Return the host of a line, once for each slot; one slot without a number."""
    found = LINE.fullmatch(text)
    number = (found["count"] or found["slots"] or "1") if found else "0"
    count = int(number) if len(number) < 7 else 0
    if not found or not count:
        raise UsageError(
            f"{where} must be a host and its ranks, as node1:4 or node1 slots=4, "
            f"got {text!r}"
        )
    return [found["host"]] * count
