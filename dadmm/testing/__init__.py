"""`check_problem`, for authors of problems.

It calls the methods of a problem as a node does, and compares the results with finite
differences of the objective. It may import `core`, `problems` and `admm`.
"""

from dadmm.testing.contract import check_problem

__all__ = ["check_problem"]
