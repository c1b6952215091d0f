"""Write a page about runs: ``python -m dadmm.report RUN [RUN ...]``."""

from __future__ import annotations

import sys

from dadmm.page.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
