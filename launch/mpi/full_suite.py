"""Run all tests: the suite, the other MPIs, a real Slurm and the fault campaign."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from launch.base.environment import PROJECT
from launch.base.messages import print_message
from launch.mpi.runtime import prepare

TEST = str(PROJECT / "launch" / "test")
CASES = 200


class Stage(NamedTuple):
    """One part of the full suite."""

    name: str
    command: list[str]
    variables: dict[str, str]


class Result(NamedTuple):
    """The outcome of one stage."""

    name: str
    code: int
    counts: str  # the last line with numbers of tests or cases
    minutes: float


def stages(python: str, faults: Path) -> list[Stage]:
    """Return the stages in order."""
    campaign = ["-m", "tests.faults.campaign"]
    options = ["--cases", str(CASES), "--out", str(faults)]
    return [
        Stage("suite, MPICH", [TEST, "--mpi", "mpich"], {"DADMM_ALL": "1"}),
        Stage("MPI part, Open MPI", [TEST, "--mpi", "openmpi"], {"DADMM_ALL": "1"}),
        Stage("MPI part, Intel MPI", [TEST, "--mpi", "impi"], {"DADMM_ALL": "1"}),
        Stage("Slurm", [TEST, "tests/slurm"], {"CI": "1"}),  # CI lets it install Slurm
        Stage("fault campaign", [python, *campaign, *options], {}),
    ]


def run_stage(stage: Stage, variables: dict[str, str]) -> Result:
    """Run one stage and show its output."""
    print_message(f"now: {stage.name}")
    start, counts = time.monotonic(), ""
    with subprocess.Popen(
        stage.command,
        cwd=PROJECT,
        env=variables | stage.variables,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if re.search(r"\d+ (passed|failed|skipped|error)|\| all \|", line):
                counts = line.strip(" =|\n").replace("|", ",")
    return Result(stage.name, process.wait(), counts, (time.monotonic() - start) / 60)


def run() -> int:
    """Run all stages, even after a failure, and print a table of their results."""
    runtime = prepare("", ("test", "dev", "plot"))
    faults = Path(tempfile.mkdtemp(prefix="dadmm-faults-"))
    results = [
        run_stage(stage, runtime.variables) for stage in stages(runtime.python, faults)
    ]
    print("\n| part | code | minutes | counts |\n|---|---|---|---|")
    for part in results:
        print(f"| {part.name} | {part.code} | {part.minutes:.1f} | {part.counts} |")
    print_message(f"the cases of the fault campaign are in {faults}")
    return max(part.code != 0 for part in results)
