"""Fit a network to measurements: ``python -m dadmm.calibrate ROWS.csv``."""

from __future__ import annotations

import sys

from dadmm.timing.calibrate import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
