"""Estimators for scikit-learn, fitted over a network; an extra of the package.

In one process ``fit(X)`` splits the rows over ``n_nodes``; under MPI every rank passes
its own rows and ``comm=MPI.COMM_WORLD``, and all end with the same fitted estimator. It
may import `core`, `graphs`, `data`, `problems`, `penalty`, `comm`, `solver` and
`models`.
"""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "dadmm.sklearn needs scikit-learn; pip install scikit-learn", name="sklearn"
    ) from None

from dadmm.sklearn.estimators import (
    PPCA,
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)

__all__ = ["PPCA", "ElasticNet", "HuberRegressor", "Lasso", "LogisticRegression"]
__all__ += ["PoissonRegressor", "Ridge"]
