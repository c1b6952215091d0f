"""All that can be tested: suite, other MPIs, a real Slurm, the fault campaign."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from launch.base.environment import PROJECT, say
from launch.mpi.commands import Launcher, prepare

TEST = str(PROJECT / "launch" / "test")
CASES = 200


class Stage(NamedTuple):
    """One part of everything."""

    name: str
    command: list[str]
    variables: dict[str, str]


class Ended(NamedTuple):
    """How a part went."""

    name: str
    code: int
    counts: str  # in the part's own words
    minutes: float


def stages(launcher: Launcher, faults: Path) -> list[Stage]:
    """Return what to run, in order."""
    campaign = str(PROJECT / "tests" / "faults" / "campaign.py")
    words = ["--cases", str(CASES), "--out", str(faults)]
    return [
        Stage("suite, MPICH", [TEST, "--mpi", "mpich"], {"DADMM_ALL": "1"}),
        Stage("MPI part, Open MPI", [TEST, "--mpi", "openmpi"], {"DADMM_ALL": "1"}),
        Stage("MPI part, Intel MPI", [TEST, "--mpi", "impi"], {"DADMM_ALL": "1"}),
        Stage("Slurm", [TEST, "tests/slurm"], {"CI": "1"}),  # which may install it
        Stage("fault campaign", [launcher.python, campaign, *words], {}),
    ]


def play(stage: Stage, variables: dict[str, str]) -> Ended:
    """Run one part, showing what it says."""
    say(f"now: {stage.name}")
    began, counts = time.monotonic(), ""
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
    return Ended(stage.name, process.wait(), counts, (time.monotonic() - began) / 60)


def run() -> int:
    """Run everything, whatever fails, and end with a table."""
    launcher = prepare("", ("test", "dev", "plot"))
    faults = Path(tempfile.mkdtemp(prefix="dadmm-faults-"))
    ended = [play(stage, launcher.variables) for stage in stages(launcher, faults)]
    print("\n| part | code | minutes | in its own words |\n|---|---|---|---|")
    for part in ended:
        print(f"| {part.name} | {part.code} | {part.minutes:.1f} | {part.counts} |")
    say(f"the cases of the fault campaign are in {faults}")
    return max(part.code != 0 for part in ended)
