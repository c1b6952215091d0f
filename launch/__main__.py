"""Run a command of this folder: ``python launch COMMAND [arguments]``."""

import sys
from pathlib import Path

# Python puts this folder first; the packages are found from the project's folder.
sys.path[0] = str(Path(__file__).resolve().parents[1])


def main(command: str, arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    if command in ("slurm", "pbs"):
        from launch.batch import batch_job

        return batch_job.main(command, arguments)
    if command == "sweep":
        from launch.batch import sweep

        return sweep.main(arguments)
    if command == "diagnose":
        from launch.base.messages import run_command
        from launch.mpi import diagnosis

        return run_command(diagnosis.main, arguments)
    if command == "docs":
        from launch.base.messages import run_command
        from launch.site import build

        return run_command(build.docs, arguments)
    from launch.mpi import commands

    return commands.main(command, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
