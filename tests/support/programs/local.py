"""Run the command local with this Python and an mpiexec, without an environment.

Usage: local.py MPIEXEC [arguments of launch/local]. The variable DADMM_LOCAL_STALL has
the seconds after which a hanging rank is named, and DADMM_LOCAL_RANK a program in place
of ``-m dadmm.run``.
"""

import os
import sys

from launch import commands, monitor, mpi
from launch.console import run_command


class Runtime(mpi.Runtime):
    def run_command(self, arguments: list[str]) -> list[str]:
        program = os.environ.get("DADMM_LOCAL_RANK")
        usual = super().run_command(arguments)
        return [self.python, program, *arguments] if program else usual


monitor.STALL = float(os.environ.get("DADMM_LOCAL_STALL", monitor.STALL))
runtime = Runtime(sys.executable, sys.argv[1], dict(os.environ))
mpi.prepare = lambda *_, **options: runtime
sys.exit(run_command(commands.local, sys.argv[2:]))
