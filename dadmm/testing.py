"""`check_problem`, for authors of problems.

Examples
--------
>>> import dadmm, numpy as np
>>> dadmm.testing.check_problem(dadmm.problems.LeastSquares(np.eye(3), np.ones(3)))
"""

from dadmm.problems.contract import check_problem

__all__ = ["check_problem"]
