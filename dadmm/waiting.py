"""Show who waited for whom in a run: ``python -m dadmm.waiting RUN``."""

from __future__ import annotations

import sys

from dadmm.timing.waiting import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
