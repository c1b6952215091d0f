"""Other algorithms on the same counted messages, to compare ADMM with.

It may import `core`, `graphs`, `comm` and `solver`. `ALGORITHMS` has the classes by
their names on the command line:

>>> import dadmm
>>> list(dadmm.baselines.ALGORITHMS)
['extra', 'nids', 'diging', 'allreduce', 'one_sum']
"""

from dadmm.baselines.algorithms import ALGORITHMS, Algorithm, BaselineRun, solve

__all__ = ["ALGORITHMS", "Algorithm", "BaselineRun", "solve"]
