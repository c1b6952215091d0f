"""A problem that is slow while a file exists, with the results of PPCA."""

from __future__ import annotations

import os
import time

from dadmm.problems import PPCA

SECONDS = 0.25  # per iteration


class SlowPPCA(PPCA):
    """PPCA whose E-step sleeps while the file of DADMM_TEST_SLOW exists."""

    def expect(self, theta):
        """Return the statistics of PPCA, after a pause."""
        if os.path.exists(os.environ.get("DADMM_TEST_SLOW", "")):
            time.sleep(SECONDS)
        return super().expect(theta)
