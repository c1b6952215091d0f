"""A problem that is slow while a file exists, with the results of PPCA."""

import os
import time

from dadmm.problems import PPCA

SECONDS = 0.25  # per iteration


class SlowPPCA(PPCA):
    """PPCA whose E-step sleeps while the file of DADMM_TEST_SLOW exists."""

    def expect(self, theta):
        if os.path.exists(os.environ.get("DADMM_TEST_SLOW", "")):
            time.sleep(SECONDS)
        return super().expect(theta)
