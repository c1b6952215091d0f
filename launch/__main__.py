"""Run a command of this folder: ``python launch COMMAND [arguments]``."""

import sys
from pathlib import Path

# Python puts this folder first; the packages are found from the project's folder.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from launch import commands  # noqa: E402
from launch.console import run_command  # noqa: E402

if __name__ == "__main__":
    sys.exit(run_command(getattr(commands, sys.argv[1]), sys.argv[2:]))
