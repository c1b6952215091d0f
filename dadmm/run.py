"""The main job: ``mpiexec -n 20 python -m dadmm.run``, or without mpiexec."""

from __future__ import annotations

import gc
import sys

from dadmm.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    gc.freeze()  # no search for garbage among modules
    code = main()
    gc.freeze()  # nor at exit, where it takes an eighth of the time of a short run
    sys.exit(code)
