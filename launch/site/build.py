"""The command docs: build the site, check its links, run what its pages show."""

import os
import shutil
import subprocess
from pathlib import Path

from launch.base.environment import PROJECT
from launch.base.messages import UsageError, print_message
from launch.mpi.commands import EXTRAS
from launch.mpi.runtime import prepare
from launch.site.check import faults_of

OUT = PROJECT / "docs" / "_build"
MADE = (OUT, PROJECT / "docs" / "gallery", PROJECT / "docs" / "api" / "generated")
TESTS = ("tests/docs", "tests/examples")


def docs(arguments: list[str]) -> int:
    """Build the site and check it; return 0 if nothing is wrong."""
    if arguments:
        raise UsageError(f"./launch/docs takes no arguments, got {arguments[0]!r}")
    runtime = prepare("", (*EXTRAS, "docs"))
    for folder in MADE:
        shutil.rmtree(folder, ignore_errors=True)
    site = OUT / "html"
    # Examples start mpiexec themselves.
    path = f"{Path(runtime.mpiexec).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    variables = {**runtime.variables, "PATH": path}

    def call(*tool: str) -> int:
        command = [runtime.python, "-m", *tool]
        return subprocess.call(command, cwd=PROJECT, env=variables)

    print_message("building the site, with all examples of the gallery (minutes)")
    # -W: a warning is an error; -n: so is a reference without a target
    strict = ("-W", "--keep-going", "-n", "-q")
    code = call("sphinx", *strict, "-b", "html", "-c", "docs", ".", str(site))
    faults = faults_of(site)
    for fault in faults:
        print_message(fault)
    print_message(f"links of the site: {len(faults)} wrong")
    tests = call("pytest", "-n", "2", "--dist", "loadfile", "-q", *TESTS)
    if code == 0 and not faults and tests == 0:
        print(f"site     {site / 'index.html'}")
        return 0
    return code or tests or 1
