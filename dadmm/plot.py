"""Draw runs: ``python -m dadmm.plot RUN [RUN ...]``."""

from __future__ import annotations

import sys

from dadmm.drawing.plot import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
