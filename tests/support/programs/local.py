"""Run the command local with this Python and an mpiexec, without an environment.

Usage: local.py MPIEXEC [arguments of launch/local]
"""

from __future__ import annotations

import os
import sys

from launch.mpi import commands
from launch.mpi.runtime import Runtime

runtime = Runtime(sys.executable, sys.argv[1], dict(os.environ))
commands.prepare = lambda *_: runtime
sys.exit(commands.main("local", sys.argv[2:]))
