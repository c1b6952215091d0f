"""Estimators for scikit-learn, fitted over a network; an extra of the package.

In one process ``fit(X)`` splits the rows over ``n_nodes``; under MPI every rank passes
its own rows and ``comm=MPI.COMM_WORLD``, and all end with the same fitted estimator. It
may import `core`, `graphs`, `data`, `problems`, `penalty`, `comm` and `solver`.

Examples
--------
>>> from dadmm.sklearn import Ridge
>>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0]
>>> Ridge(alpha=0.0, n_nodes=2).fit(X, y).coef_.round(3)
array([2.])
"""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "dadmm.sklearn needs scikit-learn; pip install scikit-learn",
        name="sklearn",
    ) from None

from dadmm.sklearn.linear import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)
from dadmm.sklearn.ppca import PPCA

__all__ = [
    "PPCA",
    "ElasticNet",
    "HuberRegressor",
    "Lasso",
    "LogisticRegression",
    "PoissonRegressor",
    "Ridge",
]
