"""Linear regressions over a network: ridge, lasso, elastic net, Huber."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dadmm import problems
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.graphs.topology import Topology
from dadmm.penalty import Scheme
from dadmm.sklearn.base import (
    Consensus,
    FitData,
    check_positive,
    mean_parts,
    one_thread,
)


class Linear(RegressorMixin, Consensus):
    """The base of the regressors, which predict ``X coef_ + intercept_``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_iter_ : int
    result_ : Result
        The result of the run, with its history. With ``fit_intercept`` it is that of
        rows minus the mean of all rows.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        n_nodes: int | None = None,
        topology: str | Topology = "ring",
        scheme: str | Scheme = "auto",
        tolerance: float = 1e-4,
        max_iter: int = 1000,
        options: dict[str, Any] | None = None,
        comm: Any = None,
    ) -> None:
        super().__init__(n_nodes, topology, scheme, tolerance, max_iter, options, comm)
        self.alpha, self.fit_intercept = alpha, fit_intercept

    @one_thread
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows X (n, d) and targets y (n,); with ``comm``, this rank's own."""

        def check() -> tuple[Matrix, Vector]:
            rows, targets = validate_data(
                self, X, y, dtype=np.float64, order="C", y_numeric=True
            )
            return rows, targets

        data = self._assemble(check)
        self._fit(data, check_positive("alpha", self.alpha, zero=True))
        return self

    def predict(self, X: ArrayLike) -> Vector:
        """Return a prediction for each row of X (n, d)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(X @ self.coef_ + self.intercept_)

    def _fit(self, data: FitData, alpha: float) -> None:
        """Subtract the means if there is an intercept; then solve."""
        counts, means = data.means()
        if not self.fit_intercept:
            means = np.zeros_like(means)
        middle, level, nodes = means[:-1], means[-1], len(data.graph)
        result = self._solve(
            data,
            data.problems(
                lambda X, y: self._problem(
                    X - middle, y - level, alpha, nodes, int(counts[0])
                )
            ),
        )
        found = mean_parts(result)
        rest = float(getattr(found, "intercept", 0.0))  # of problems with an intercept
        self.coef_ = found.coef
        self.intercept_ = float(level - middle @ self.coef_ + rest)
        self.result_, self.n_iter_ = result, result.iterations

    def _problem(
        self, X: Matrix, y: Vector, alpha: float, n_nodes: int, n_samples: int
    ) -> Problem:
        """Return the problem of a node; ``n_samples`` is that of all nodes."""
        raise NotImplementedError


class Ridge(Linear):
    """Minimise ``|y - X w - b|^2 + alpha |w|^2``, as scikit-learn's `Ridge` does.

    Parameters
    ----------
    alpha : float
    fit_intercept : bool
    n_nodes, topology, scheme, tolerance, max_iter, options, comm
        The network, see `dadmm.sklearn.base.Consensus`; `Linear` has the attributes.
    """

    def _problem(
        self, X: Matrix, y: Vector, alpha: float, n_nodes: int, n_samples: int
    ) -> Problem:
        return problems.Ridge(X, y, alpha / n_nodes, fit_intercept=False)


class Lasso(Linear):
    """Minimise ``|y - X w - b|^2 / (2 n) + alpha |w|_1``, as scikit-learn's does.

    n is the number of rows of all nodes. `dadmm.problems.Lasso` and the command line
    have no factor 1/n: their alpha is n times this one.

    Parameters
    ----------
    alpha : float
    fit_intercept : bool
    n_nodes, topology, scheme, tolerance, max_iter, options, comm
        The network, see `dadmm.sklearn.base.Consensus`; `Linear` has the attributes.
    """

    def _problem(
        self, X: Matrix, y: Vector, alpha: float, n_nodes: int, n_samples: int
    ) -> Problem:
        share = alpha * n_samples / n_nodes
        return problems.Lasso(X, y, share, fit_intercept=False)


class ElasticNet(Linear):
    """Minimise ``|y - X w - b|^2 / (2 n) + alpha (r |w|_1 + (1 - r)/2 |w|^2)``.

    As scikit-learn's `ElasticNet` does; r is ``l1_ratio`` and n the number of rows of
    all nodes. The alpha of `dadmm.problems.ElasticNet` is n times this one.

    Parameters
    ----------
    alpha : float
    l1_ratio : float
        From 0 to 1.
    fit_intercept : bool
    n_nodes, topology, scheme, tolerance, max_iter, options, comm
        The network, see `dadmm.sklearn.base.Consensus`; `Linear` has the attributes.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        n_nodes: int | None = None,
        topology: str | Topology = "ring",
        scheme: str | Scheme = "auto",
        tolerance: float = 1e-4,
        max_iter: int = 1000,
        options: dict[str, Any] | None = None,
        comm: Any = None,
    ) -> None:
        Consensus.__init__(
            self, n_nodes, topology, scheme, tolerance, max_iter, options, comm
        )
        self.alpha, self.l1_ratio, self.fit_intercept = alpha, l1_ratio, fit_intercept

    def _problem(
        self, X: Matrix, y: Vector, alpha: float, n_nodes: int, n_samples: int
    ) -> Problem:
        share = alpha * n_samples / n_nodes
        return problems.ElasticNet(X, y, share, self.l1_ratio, fit_intercept=False)


class HuberRegressor(Linear):
    """Minimise the sum of h(x' w + b - y) and ``alpha/2 |w|^2``.

    h(r) is ``r^2 / 2`` up to delta, and ``delta (|r| - delta / 2)`` beyond. Unlike
    scikit-learn's `HuberRegressor`, it does not estimate a scale. If scikit-learn finds
    the ``scale_`` s, this estimator finds the same solution with ``delta = epsilon s``
    and an alpha s times as large.

    Parameters
    ----------
    delta : float
        Error from which the loss is linear, in the unit of y.
    alpha : float
    fit_intercept : bool
    n_nodes, topology, scheme, tolerance, max_iter, options, comm
        The network, see `dadmm.sklearn.base.Consensus`; `Linear` has the attributes.

    Attributes
    ----------
    outliers_ : ndarray of bool, shape (n,)
        Whether each row passed to `fit` is further than delta from its target.
    """

    def __init__(
        self,
        delta: float = 1.35,
        *,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        n_nodes: int | None = None,
        topology: str | Topology = "ring",
        scheme: str | Scheme = "auto",
        tolerance: float = 1e-4,
        max_iter: int = 1000,
        options: dict[str, Any] | None = None,
        comm: Any = None,
    ) -> None:
        Consensus.__init__(
            self, n_nodes, topology, scheme, tolerance, max_iter, options, comm
        )
        self.delta, self.alpha, self.fit_intercept = delta, alpha, fit_intercept

    def _fit(self, data: FitData, alpha: float) -> None:
        super()._fit(data, alpha)
        off = [X @ self.coef_ + self.intercept_ - y for X, y in data.shards]
        self.outliers_ = np.abs(np.concatenate(off)) > self.delta

    def _problem(
        self, X: Matrix, y: Vector, alpha: float, n_nodes: int, n_samples: int
    ) -> Problem:
        free = bool(self.fit_intercept)
        return problems.Huber(X, y, self.delta, alpha / n_nodes, fit_intercept=free)
