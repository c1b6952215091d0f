"""`dadmm.solve` with settings by name, as the command line has them."""

from typing import Any

import dadmm
from dadmm.solver.solve import grouped


def solve(problems: Any, topology: Any, **settings: Any) -> dadmm.Result:
    """Solve with settings such as ``eta0``, ``tolerance`` and ``max_iter``."""
    return dadmm.solve(problems, topology, **grouped(settings))
