"""Run a job on emulated hosts: ``python benchmarks/emulation [arguments]``."""

import sys
from pathlib import Path

# Python puts this folder first; the packages are found from the project's folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.emulation.netem import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
