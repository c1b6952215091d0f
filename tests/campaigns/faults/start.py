"""Start a job as launch/local does, with ranks of ``rank.py`` and less patience.

Usage: start.py MPIEXEC [arguments of launch/local]
"""

import os
import sys
from pathlib import Path

from launch import commands, monitor, mpi
from launch.console import run_command
from launch.mpi import Runtime


class Planned(Runtime):
    """A runtime whose ranks follow a plan."""

    def run_command(self, arguments: list[str]) -> list[str]:
        return [self.python, str(Path(__file__).with_name("rank.py")), *arguments]


monitor.STALL = float(os.environ["DADMM_FAULTS_STALL"])
runtime = Planned(sys.executable, sys.argv[1], dict(os.environ))
mpi.prepare = lambda *_, **options: runtime
sys.exit(run_command(commands.local, sys.argv[2:]))
