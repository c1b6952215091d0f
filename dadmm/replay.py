"""Predict the time of a run on other networks: ``python -m dadmm.replay RUN ...``."""

from __future__ import annotations

import sys

from dadmm.timing.replay import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
