"""Run the command local with this Python and an mpiexec, without an environment.

Usage: local.py MPIEXEC [arguments of launch/local]
"""

from __future__ import annotations

import os
import sys

from launch import commands, mpi
from launch.console import run_command
from launch.mpi import Runtime

runtime = Runtime(sys.executable, sys.argv[1], dict(os.environ))
mpi.prepare = lambda *_, **options: runtime
sys.exit(run_command(commands.local, sys.argv[2:]))
