"""Checks for those who write problems of their own."""

from dadmm.testing.contract import check_problem

__all__ = ["check_problem"]
