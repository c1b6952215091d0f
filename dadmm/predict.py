"""Predict new rows by a fitted model: ``python -m dadmm.predict RUN new.csv``."""

from __future__ import annotations

import sys

from dadmm.cli.predict import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
