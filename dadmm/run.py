"""The main job: ``mpiexec -n 20 python -m dadmm.run``, or without mpiexec."""

from __future__ import annotations

import sys

from dadmm.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
