"""How messages travel: between nodes of one process, or between MPI ranks."""

from dadmm.exchange.inprocess import InProcessExchange

__all__ = ["InProcessExchange"]
