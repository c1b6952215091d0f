"""How messages travel: between nodes of one process, or between MPI ranks."""

from dadmm.exchange.inprocess import InProcessExchange

WAITS = ("auto", "block", "nap")  # how ranks wait, see `dadmm.exchange.mpi`

__all__ = ["WAITS", "InProcessExchange"]
