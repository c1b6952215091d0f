"""Other algorithms on the same counted messages, to compare ADMM with.

`algorithms` has their recursions, `run` the loop that exchanges their messages. A new
algorithm is a class with `start`, `message` and `update`. The room may import `core`,
`graphs`, `comm` and `solver`.

Examples
--------
`ALGORITHMS` has the classes by their names on the command line:

>>> import dadmm
>>> list(dadmm.baselines.ALGORITHMS)
['extra', 'nids', 'diging', 'allreduce', 'one_sum']
"""

from dadmm.baselines.algorithms import ALGORITHMS, Algorithm
from dadmm.baselines.run import BaselineRun, solve

__all__ = ["ALGORITHMS", "Algorithm", "BaselineRun", "solve"]
