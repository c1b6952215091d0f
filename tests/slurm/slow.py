"""A problem that takes its time while a file exists, and has the same numbers."""

from __future__ import annotations

import os
import time

from dadmm.problems import PPCA

SECONDS = 0.25  # of an iteration


class SlowPPCA(PPCA):
    """PPCA whose E-step sleeps as long as the file of DADMM_TEST_SLOW is there."""

    def expect(self, theta):
        """Return what PPCA expects, later."""
        if os.path.exists(os.environ.get("DADMM_TEST_SLOW", "")):
            time.sleep(SECONDS)
        return super().expect(theta)
