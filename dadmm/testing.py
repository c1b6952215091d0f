"""`check_problem`, for authors of problems."""

from dadmm.problems.contract import check_problem

__all__ = ["check_problem"]
