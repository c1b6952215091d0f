"""Consensus ADMM with no centre: one node per process, talking to neighbours only."""

__version__ = "0.1.0"
