"""`check_problem`, for authors of problems.

It calls the methods of a problem as a node does, and compares the results with finite
differences of the objective. It may import `core`, `problems` and `admm`.

Examples
--------
>>> import dadmm, numpy as np
>>> dadmm.testing.check_problem(dadmm.problems.LeastSquares(np.eye(3), np.ones(3)))
"""

from dadmm.testing.contract import check_problem

__all__ = ["check_problem"]
