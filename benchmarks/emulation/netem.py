"""The command netem: run a job over TCP on emulated hosts of this machine."""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from benchmarks.emulation.network import AGENT, EmulatedNetwork, NetworkError
from launch.console import UsageError, run_command, same_problem
from launch.job import run_job
from launch.mpi import (
    DEFAULT_RANKS,
    Runtime,
    command_on_hosts,
    default_variables,
    enter,
    prepare,
    script_path,
)

ABOUT = """\
Run a job over TCP on several hosts, which are network namespaces of this machine. They
are removed when the job ends. Root is needed only where users may not create them.
What follows -- are arguments of dadmm.run. Ctrl-C stops a run at a common iteration; a
second one ends it at once. The exit code is that of the job, or 2 if an option is wrong
or the network cannot be created."""
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


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; arguments of the job follow after --")


def quantity(units: Mapping[str, float]) -> Callable[[str], float]:
    """Return a function that reads a number with a unit, in the basic unit."""

    def read(text: str) -> float:
        found = re.fullmatch(rf"([0-9]*\.?[0-9]+)({'|'.join(units)})", text)
        if found is None:
            raise argparse.ArgumentTypeError(f"{text!r} needs one of {[*units]}")
        return float(found[1]) * units[found[2]]

    return read


def count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def make_parser() -> Parser:
    kind = argparse.RawDescriptionHelpFormatter
    prog = "./benchmarks/netem"
    parser = Parser(prog, description=ABOUT, formatter_class=kind, allow_abbrev=False)
    add = parser.add_argument
    add("--hosts", type=count, default=2, metavar="N", help="hosts (default 2)")
    add("-n", "-np", type=count, default=DEFAULT_RANKS, metavar="RANKS", dest="ranks",
        help=f"rank r is on host r*N//RANKS (default {DEFAULT_RANKS})")  # fmt: skip
    add("--cyclic", action="store_true", help="rank r is on host r%%N instead")
    add("--rate", type=quantity(RATES), default=0.0, help="limit of what each host "
        "sends, as 500kbit, 10mbit or 1gbit")  # fmt: skip
    add("--delay", type=quantity(DELAYS), default=0.0, metavar="TIME", help="one-way "
        "delay between hosts, as 200us, 5ms or 0.1s")  # fmt: skip
    add("--counters", type=Path, metavar="FILE", help="write what each host sent and "
        "received during the job, as JSON")  # fmt: skip
    add("--command", action="store_true", help="a command follows --")
    add("--mpi", default="", metavar="NAME", help="mpich (default), openmpi or impi")
    add("--python", metavar="PATH", help="use this Python and the mpiexec beside it")
    return parser


def read(arguments: list[str]) -> argparse.Namespace:
    """Return the options, with the host of each rank, and the arguments of the job."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given = make_parser().parse_args(arguments[:end])
    given.job = job = arguments[end + 1 :]
    again = [*arguments[:end], "--", *same_problem(job), "--resume"]
    given.resume = shlex.join([script_path("benchmarks/netem"), *again])
    if given.command:
        given.resume = ""
    if given.command and not job:
        raise UsageError("--command needs a command after --")
    if given.mpi and given.python:
        raise UsageError("--python uses the MPI beside it; leave out --mpi")
    given.places = spread(given.ranks, given.hosts, given.cyclic)
    return given


def spread(ranks: int, hosts: int, cyclic: bool = False) -> list[str]:
    """Return the host of each rank: r * hosts // ranks, or r % hosts if cyclic."""
    numbers = (r % hosts if cyclic else r * hosts // ranks for r in range(ranks))
    return [f"host{number}" for number in numbers]


def emulate(arguments: list[str]) -> int:
    """Create the network, run the job and write the counters; return its exit code."""
    given = read(arguments)
    runtime = runtime_beside(given.python) if given.python else prepare(given.mpi)
    enter(runtime)
    folders = [os.path.dirname(runtime.python), os.path.dirname(runtime.mpiexec)]
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    variables = OVER_TCP | runtime.variables | {"PATH": path}
    own = None if given.command else given.job
    job = given.job if own is None else runtime.run_command(own)
    spread_out = command_on_hosts(runtime.mpiexec, given.places, job, variables, AGENT)
    with contextlib.ExitStack() as stack:
        report = (
            stack.enter_context(given.counters.open("w")) if given.counters else None
        )
        command = stack.enter_context(spread_out)
        try:
            limits = given.hosts, round(given.rate), given.delay
            network = stack.enter_context(EmulatedNetwork(*limits))
        except NetworkError as error:
            raise UsageError(str(error)) from None
        before = network.counters()
        code = run_job(network.command(0, command), variables, given.resume, own)
        if report:
            json.dump(growth(before, network.counters()), report, indent=2)
    return code


def runtime_beside(python: str) -> Runtime:
    """Return a Python with the mpiexec beside it, or that of DADMM_MPIEXEC."""
    python, external = os.path.abspath(python), os.environ.get("DADMM_MPIEXEC", "")
    mpiexec = shutil.which(external or str(Path(python).with_name("mpiexec")))
    if mpiexec is None or shutil.which(python) is None:
        raise UsageError(f"--python must be a Python beside an mpiexec, got {python!r}")
    variables = default_variables(mpiexec, external=bool(external))
    return Runtime(python, mpiexec, {**variables, **os.environ})


def growth(
    before: list[dict[str, int]], after: list[dict[str, int]]
) -> dict[str, dict[str, int]]:
    return {
        f"host{host}": {name: last[name] - first[name] for name in first}
        for host, (first, last) in enumerate(zip(before, after, strict=True))
    }


def main(arguments: list[str]) -> int:
    return run_command(emulate, arguments)
