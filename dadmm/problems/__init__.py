"""Local problems: the objective of one node, with its proximal step.

The room may import `core` and `data`. A new problem is a class and a line in
`PROBLEMS`, which has the classes by their names on the command line:

>>> import dadmm
>>> list(dadmm.problems.PROBLEMS)
['ppca', 'sfm', 'least_squares', 'ridge', 'lasso', 'elastic_net', 'logistic',
'multinomial', 'poisson', 'huber']
"""

from dadmm.problems.cvxpy import Cvxpy
from dadmm.problems.glm import (
    LogisticRegression,
    MultinomialLogistic,
    PoissonRegression,
)
from dadmm.problems.lasso import ElasticNet, Lasso
from dadmm.problems.linear import Huber, LeastSquares, LinearProblem, Ridge
from dadmm.problems.missing import IncompletePPCA
from dadmm.problems.ppca import PPCA
from dadmm.problems.sfm import LostTracks, StructureFromMotion
from dadmm.problems.smooth import Smooth

PROBLEMS: dict[str, type[LinearProblem | PPCA]] = {
    "ppca": PPCA,
    "sfm": StructureFromMotion,
    "least_squares": LeastSquares,
    "ridge": Ridge,
    "lasso": Lasso,
    "elastic_net": ElasticNet,
    "logistic": LogisticRegression,
    "multinomial": MultinomialLogistic,
    "poisson": PoissonRegression,
    "huber": Huber,
}

__all__ = ["PPCA", "PROBLEMS", "Cvxpy", "ElasticNet", "Huber", "IncompletePPCA"]
__all__ += ["Lasso", "LeastSquares", "LogisticRegression", "LostTracks"]
__all__ += ["MultinomialLogistic", "PoissonRegression", "Ridge", "Smooth"]
__all__ += ["StructureFromMotion"]
