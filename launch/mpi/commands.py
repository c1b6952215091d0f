"""The commands local, test and setup."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from launch.base.arguments import (
    DEFAULT_RANKS,
    positive_number,
    run_folder,
    take_flag,
    take_option,
    trust_flags,
)
from launch.base.environment import PROJECT
from launch.base.messages import UsageError, print_message, run_command
from launch.mpi.job import run_job
from launch.mpi.mpiexec import command_on_hosts, fault_tolerance, read_hosts
from launch.mpi.runtime import Runtime, prepare, script_path

EXTRAS = ("dev", "plot", "report")  # of the environment of tests; dev has test
BROWSER = "browser"  # extra of the tests of pages in a browser
CASES = 200  # of the fault campaign
STATEMENTS = 2000  # random problems whose statements are checked
OF_PPCA = 500  # the same, of PPCA
OF_HARD = 500  # the same, at the edge of double precision
INPUTS = 3000  # bad inputs of the fuzz test
USAGE = f"""\
usage: ./launch/local [-n RANKS] [--hostfile FILE] [--mpi mpich|openmpi|impi]
                      [--report] [arguments of dadmm.run]

  -n, -np RANKS    number of ranks (default {DEFAULT_RANKS}, or all in the host file)
  --hostfile FILE  run them on these hosts: node1:4 or node1 slots=4 in each line
  --mpi NAME       MPI to install and use, in an environment of its own (default mpich)
  --report         write a page about the run at its end, and print its path

variables: DADMM_MPIEXEC=/path/mpiexec  use this MPI and install none
           DADMM_PYTHON=/path/python3   create the environment with this Python
"""


def local(arguments: list[str]) -> int:
    """Run ``dadmm.run`` here or on the hosts of a file; return mpiexec's exit code."""
    file, arguments = take_option(arguments, ("--hostfile",), None)
    ranks, arguments = take_option(arguments, ("-n", "-np"), None)
    mpi, arguments = take_option(arguments, ("--mpi",), "")
    reports, arguments = take_flag(arguments, "--report")
    n = None if ranks is None else positive_number("-n", ranks)
    hosts = None if file is None else read_hosts(file, n)
    runtime = prepare(mpi, ("report",) if reports else ())
    job, variables = runtime.run_command(arguments), runtime.variables
    if {"-h", "--help"} & set(arguments):
        print(USAGE, flush=True)
        return subprocess.call(job, env=variables)
    given = {"--hostfile": file, "-n": ranks, "--mpi": mpi}
    options = [part for option in given.items() if option[1] for part in option]
    options += ["--report"] if reports else []
    options += [*trust_flags(arguments), "--resume"]
    resume = shlex.join([script_path("launch/local"), *map(str, options)])
    folder = run_folder(arguments)
    setup = shlex.quote(script_path("launch/setup"))  # installs what a page needs
    page = f"{setup} && {shlex.quote(runtime.python)} -m dadmm.report"
    variables = variables | {  # rank 0 prints these
        "DADMM_RESUME_COMMAND": resume,
        "DADMM_REPORT_COMMAND": "" if reports else page,
    }
    after = partial(write_report, runtime) if reports else None
    if hosts is None:
        tolerance = fault_tolerance(runtime.mpiexec, arguments)
        n = n or DEFAULT_RANKS
        command = [runtime.mpiexec, *tolerance, "-n", str(n), *job]
        return run_job(command, variables, resume, folder, None, after)
    with command_on_hosts(runtime.mpiexec, hosts, job, variables) as command:
        return run_job(command, variables, resume, folder, None, after)


def write_report(runtime: Runtime, folder: Path) -> int:
    """Write the page about a run, which prints its path; return the exit code."""
    command = [runtime.python, "-P", "-m", "dadmm.report", str(folder)]
    return subprocess.call(command, env=runtime.variables)


def test(arguments: list[str]) -> int:
    """Run ruff, mypy and pytest in the project's folder; return 0 if all pass."""
    if arguments == ["--all"]:
        return test_all()
    mpi, arguments = take_option(arguments, ("--mpi",), "")
    if mpi not in ("", "mpich") and not arguments:
        arguments = ["-m", "mpi"]  # the other tests do not depend on the MPI
    runtime = prepare(mpi, EXTRAS)
    # The tests start mpiexec themselves.
    path = f"{Path(runtime.mpiexec).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    variables = {**runtime.variables, "PATH": path}

    def call(*tool: str) -> int:
        command = [runtime.python, "-m", *tool]
        return subprocess.call(command, cwd=PROJECT, env=variables)

    style = call("ruff", "check", "--extend-exclude", ".venv*", ".")
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # beside the tests; its output comes after theirs
    mypy = subprocess.Popen([runtime.python, "-m", "mypy"], cwd=PROJECT, **output)
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal's Ctrl-C ends pytest
    # Two files at a time: most tests keep one core busy, those over MPI all of them.
    try:
        workers = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
        code = call("pytest", *workers, *arguments)
        print(mypy.communicate()[0], end="", flush=True)
    finally:
        mypy.kill()
    return code or style or mypy.returncode


def test_all() -> int:
    """Run the suite, other MPIs, Slurm and the campaigns; print a table."""
    runtime = prepare("", (*EXTRAS, BROWSER))
    script = str(PROJECT / "launch" / "test")
    faults = Path(tempfile.mkdtemp(prefix="dadmm-faults-"))
    campaign = [runtime.python, "-m", "tests.faults.campaign", "--cases", str(CASES)]
    properties = "tests.campaigns.properties.campaign"
    statements = [runtime.python, "-m", properties, "--jobs", "2"]
    inputs = [runtime.python, "-m", "tests.faults.fuzz", "--cases", str(INPUTS)]
    slow, mpich = {"DADMM_ALL": "1"}, [script, "--mpi", "mpich"]
    stages: dict[str, tuple[list[str], dict[str, str]]] = {
        "suite, MPICH": ([*mpich, "--ignore", "tests/slurm"], slow),
        "MPI part, Open MPI": ([script, "--mpi", "openmpi"], slow),
        "MPI part, Intel MPI": ([script, "--mpi", "impi"], slow),
        "Slurm": ([script, "tests/slurm"], {"CI": "1"}),  # CI lets it install Slurm
        "statements": ([*statements, "--cases", str(STATEMENTS)], {}),
        "statements, PPCA": ([*statements, "--ppca", "--cases", str(OF_PPCA)], {}),
        "statements, hard": ([*statements, "--hard", "--cases", str(OF_HARD)], {}),
        "bad inputs": ([*inputs, "--jobs", "2"], {}),
        "site": ([str(PROJECT / "launch" / "docs")], {}),
        "fault campaign": ([*campaign, "--out", str(faults)], {}),
    }
    rows, failed = [], False
    for name, (command, variables) in stages.items():
        print_message(f"now: {name}")
        start = time.monotonic()
        code, counts = show_output(command, runtime.variables | variables)
        minutes = (time.monotonic() - start) / 60
        rows.append(f"| {name} | {code} | {minutes:.1f} | {counts} |")
        failed = failed or code != 0
    print("\n| part | code | minutes | counts |\n|---|---|---|---|", *rows, sep="\n")
    print_message(f"the cases of the fault campaign are in {faults}")
    return int(failed)


def show_output(command: list[str], variables: dict[str, str]) -> tuple[int, str]:
    """Run a command; return its exit code and its last line with numbers of tests."""
    options = {"text": True, "errors": "replace", "stdout": subprocess.PIPE}
    counts = ""
    with subprocess.Popen(command, cwd=PROJECT, env=variables, **options) as process:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if re.search(r"\d+ (passed|failed|skipped|error)|\| all \|", line):
                counts = line.strip(" =|\n").replace("|", ",")
    return process.returncode, counts


def setup(arguments: list[str]) -> int:
    """Create an environment, for batch jobs, and print its Python and mpiexec."""
    mpi, arguments = take_option(arguments, ("--mpi",), "")
    if arguments:
        raise UsageError(f"./launch/setup takes --mpi NAME only, got {arguments[0]!r}")
    runtime = prepare(mpi, ("plot", "report"))
    print(f"python   {runtime.python}\nmpiexec  {runtime.mpiexec}")
    return 0


def main(command: str, arguments: list[str]) -> int:
    """Run the command of that name and return its exit code."""
    known = {"local": local, "test": test, "setup": setup}
    return run_command(known[command], arguments)
