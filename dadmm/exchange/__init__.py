"""How messages travel: between the nodes of one process, or between MPI ranks.

Only this room imports mpi4py. It imports `core` and `graphs`.
"""

from dadmm.core.errors import ConfigError
from dadmm.exchange.inprocess import InProcessExchange

WAITS = ("auto", "block", "poll")  # how ranks wait, see `dadmm.exchange.mpi`

__all__ = ["WAITS", "InProcessExchange", "check_wait"]


def check_wait(wait: str) -> None:
    """Raise a ConfigError if ``wait`` is not one of `WAITS`."""
    if wait == "nap":
        raise ConfigError("wait = nap is now called wait = poll")
    if wait not in WAITS:
        raise ConfigError(f"unknown wait {wait!r}; choose one of {', '.join(WAITS)}")
