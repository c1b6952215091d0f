"""The commands of the scripts in this folder."""

import itertools
import os
import shlex
import shutil
import signal
import subprocess
from contextlib import nullcontext
from importlib.util import find_spec

from launch import mpi
from launch.console import (
    PRINTS,
    UsageError,
    print_message,
    same_problem,
    take_option,
    whole_number,
)
from launch.environment import PROJECT
from launch.job import run_job

BATCH_STALL = 300  # seconds after which a stopped or frozen rank ends a batch job
# Two files at a time: most tests keep one core busy, those over MPI all of them.
WORKERS = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
DIAGNOSE = (
    "usage: python launch diagnose RUN [FILE [COMMAND]], which are the folder of a "
    "run, the output of mpiexec or srun, and what resumes a run before its folder"
)


def usage(script: str) -> str:
    """Return the comment at the start of a script, which says how to use it."""
    lines = (PROJECT / "launch" / script).read_text().splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines[1:])
    return "".join(f"{line[2:]}\n" for line in comment)


def local(arguments: list[str]) -> int:
    """Run ``dadmm.run`` here or on the hosts of a file; return mpiexec's exit code."""
    file, job = take_option(arguments, ("--hostfile",), None)
    ranks, job = take_option(job, ("-n", "-np"), None)
    name, job = take_option(job, ("--mpi",), "")
    stall, job = take_option(job, ("--stall-seconds",), "0")
    stall_seconds = whole_number("--stall-seconds", stall)
    n = None if ranks is None else whole_number("-n", ranks, 1)
    hosts = None if file is None else mpi.read_hosts(file, n)
    runtime = mpi.prepare(name, own=True)
    mpi.enter(runtime)
    command = runtime.run_command(job)
    if PRINTS & set(job):
        print(usage("local"), flush=True)
        return subprocess.call(command, env=runtime.variables)
    runtime.check()
    given = {"--hostfile": file, "-n": ranks, "--mpi": name}
    options = [part for option in given.items() if option[1] for part in option]
    options += [*same_problem(job), "--resume"]
    resume = shlex.join([mpi.script_path("launch/local"), *map(str, options)])
    shown = [os.path.relpath(runtime.python), "-m", "dadmm", "report"]
    variables = runtime.variables | {  # rank 0 prints these
        "DADMM_RESUME_COMMAND": resume,
        "DADMM_REPORT_COMMAND": shlex.join(shown),
    }
    if hosts is None:
        options = mpi.fault_tolerance(runtime.mpiexec, command)
        options += ["-n", str(n or mpi.DEFAULT_RANKS)]
        started = nullcontext([runtime.mpiexec, *options, *command])
    else:
        started = mpi.command_on_hosts(runtime.mpiexec, hosts, command, variables)
    spread = hosts is not None
    with started as command:
        return run_job(command, variables, resume, job, None, stall_seconds, spread)


def setup(arguments: list[str]) -> int:
    """Create an environment, for batch jobs, and print its Python and mpiexec."""
    if PRINTS & set(arguments):
        print(usage("setup"), end="")
        return 0
    name, arguments = take_option(arguments, ("--mpi",), "")
    if arguments:
        raise UsageError(f"./launch/setup takes --mpi NAME only, got {arguments[0]!r}")
    runtime = mpi.prepare(name)
    print(f"python   {runtime.python}\nmpiexec  {runtime.mpiexec}")
    return 0


def slurm(arguments: list[str], system: str = "slurm") -> int:
    """Run a job of a batch system."""
    name, arguments = take_option(arguments, ("--mpi",), "")
    stall, arguments = take_option(arguments, ("--stall-seconds",), str(BATCH_STALL))
    stall_seconds = whole_number("--stall-seconds", stall)
    runtime = mpi.prepare(name, own=True, install=False)
    mpi.enter(runtime)
    from launch import batch

    return batch.run(system, arguments, name, runtime, stall_seconds)


def pbs(arguments: list[str]) -> int:
    """Run a job of PBS, whose qsub passes no arguments to a script."""
    text = os.environ.get("DADMM_ARGS", "")
    try:
        given = shlex.split(text)
    except ValueError as error:
        raise UsageError(
            f"DADMM_ARGS is not a shell command, {error}: {text}"
        ) from None
    return slurm([*given, *arguments], "pbs")


def sweep(arguments: list[str]) -> int:
    """Run a grid of settings, in Slurm or on this machine, or collect its table."""
    if not arguments or PRINTS & set(arguments):
        print(usage("sweep"), end="")
        return 0 if arguments else 2
    name, words = take_option(arguments, ("--mpi",), "")
    here = "--local" in words
    # batch jobs may be running from the environment, so it is not changed for them
    runtime = mpi.prepare(name, own=True, install=here)
    words = [word for word in words if word != "--local"]
    if not here:
        script = [str(PROJECT / "launch" / "slurm.sbatch")]
        script += ["--mpi", name] if name else []
        words = ["--sbatch", shlex.join(script), *words]
    command = [runtime.python, "-P", "-m", "dadmm", "sweep", *words]
    os.execve(runtime.python, command, runtime.variables)


def diagnose(arguments: list[str]) -> int:
    """Print the explanation of a failed run."""
    if not 1 <= len(arguments) <= 3 or arguments[0].startswith("-"):
        raise UsageError(DIAGNOSE)
    if find_spec("numpy") is None:
        mpi.enter(mpi.prepare("", own=True, install=False))
    from launch import diagnosis

    diagnosis.diagnose(*arguments)
    return 0


def test(arguments: list[str]) -> int:
    """Run ruff, mypy and pytest in the project's folder; return 0 if all pass."""
    if arguments == ["--all"]:
        return mpi.prepare("", ["dev", "browser"]).call("tests.campaigns")
    name, arguments = take_option(arguments, ("--mpi",), "")
    if name not in ("", "mpich") and not arguments:
        arguments = ["-m", "mpi"]  # the other tests do not depend on the MPI
    runtime = mpi.prepare(name, ["dev"])
    style = runtime.call("ruff", "check", "--extend-exclude", ".venv*", ".")
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # beside the tests; its output comes after theirs
    mypy = subprocess.Popen([runtime.python, "-m", "mypy"], cwd=PROJECT, **output)
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal's Ctrl-C ends pytest
    try:
        code = runtime.call("pytest", *WORKERS, *arguments)
        print(mypy.communicate()[0], end="", flush=True)
    finally:
        mypy.kill()
    return code or style or mypy.returncode


def docs(arguments: list[str]) -> int:
    """Build the site and run the tests of its pages; return 0 if all pass."""
    if arguments:
        raise UsageError(f"./launch/docs takes no arguments, got {arguments[0]!r}")
    runtime, docs = mpi.prepare("", ["dev", "docs"]), PROJECT / "docs"
    for made in (docs / "_build", docs / "gallery", docs / "api" / "generated"):
        shutil.rmtree(made, ignore_errors=True)
    site = docs / "_build" / "html"
    print_message("building the site, with all examples of the gallery (minutes)")
    # -W: a warning is an error; -n: so is a reference without a target
    strict = ("-W", "--keep-going", "-n", "-j", "auto")
    code = runtime.call("sphinx", *strict, "-b", "html", "-c", "docs", ".", str(site))
    tests = ("-q", "tests/docs", "tests/examples")
    code = runtime.call("pytest", *WORKERS, *tests) or code
    if code == 0:
        print(f"site     {site / 'index.html'}")
    return code
