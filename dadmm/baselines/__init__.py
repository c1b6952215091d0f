"""Other algorithms on the same counted messages, to compare ADMM with.

`algorithms` has their recursions, `run` the loop that exchanges their messages. A new
algorithm is a class with `start`, `message` and `update`. The room may import `core`,
`graphs`, `comm` and `solver`.

Examples
--------
>>> import dadmm
>>> X, y, _ = dadmm.datasets.regression(60, 3)
>>> problems = [dadmm.problems.LeastSquares(X[i::6], y[i::6]) for i in range(6)]
>>> ring = dadmm.Topology.ring(6)
>>> run = dadmm.baselines.solve(problems, ring, "extra", max_iter=200)
>>> run.theta.shape, run.t
((6, 4), 200)
>>> near = dadmm.solve(problems, ring).solution
>>> bool(abs(run.theta - near).max() < 1e-6)
True
"""

from dadmm.baselines.algorithms import (
    ALGORITHMS,
    EXTRA,
    NIDS,
    Algorithm,
    AllReduce,
    DIGing,
    OneSum,
)
from dadmm.baselines.run import BaselineRun, solve

__all__ = [
    "ALGORITHMS",
    "EXTRA",
    "NIDS",
    "Algorithm",
    "AllReduce",
    "BaselineRun",
    "DIGing",
    "OneSum",
    "solve",
]
