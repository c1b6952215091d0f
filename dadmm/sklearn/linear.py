"""Linear regressions over a network: ridge, lasso, elastic net, Huber."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from dadmm import problems
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Matrix, Vector
from dadmm.sklearn.base import (
    Consensus,
    FitData,
    check_positive,
    mean_parts,
    one_thread,
)


@dataclass(eq=False, repr=False)
class Linear(RegressorMixin, Consensus):
    """The base of the regressors, which predict ``X coef_ + intercept_``.

    Parameters
    ----------
    alpha : float
    fit_intercept : bool
    n_nodes, topology, scheme, tolerance, max_iter, options, comm
        The network, see `dadmm.sklearn.base.Consensus`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    n_iter_ : int
    result_ : Result
        The result of the run, with its history. With ``fit_intercept`` it is that of
        rows minus the mean of all rows. If it is certified,
        ``result_.certificate.coefficients`` bounds the errors of ``coef_``.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    alpha: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    _averages = False  # whether the objective has the mean error, not the sum

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
        middle, level = means[:-1], means[-1]
        share = alpha * (int(counts[0]) if self._averages else 1) / len(data.graph)
        nodes = data.problems(lambda X, y: self._problem(X - middle, y - level, share))
        result = self._solve(data, nodes)
        found = mean_parts(result)
        rest = float(getattr(found, "intercept", 0.0))  # of problems with an intercept
        self.coef_ = found.coef
        self.intercept_ = float(level - middle @ self.coef_ + rest)
        self.result_, self.n_iter_ = result, result.iterations

    def _problem(self, X: Matrix, y: Vector, alpha: float) -> Problem:
        """Return the problem of a node, given its share of alpha."""
        raise NotImplementedError


class Ridge(Linear):
    """Minimise ``|y - X w - b|^2 + alpha |w|^2``, as scikit-learn's `Ridge` does.

    `Linear` has the parameters and attributes.
    """

    def _problem(self, X: Matrix, y: Vector, alpha: float) -> Problem:
        return problems.Ridge(X, y, alpha, fit_intercept=False)


class Lasso(Linear):
    """Minimise ``|y - X w - b|^2 / (2 n) + alpha |w|_1``, as scikit-learn's does.

    n is the number of rows of all nodes. `dadmm.problems.Lasso` and the command line
    have no factor 1/n: their alpha is n times this one.
    `Linear` has the parameters and attributes.
    """

    _averages = True

    def _problem(self, X: Matrix, y: Vector, alpha: float) -> Problem:
        return problems.Lasso(X, y, alpha, fit_intercept=False)


@dataclass(eq=False, repr=False)
class ElasticNet(Linear):
    """Minimise ``|y - X w - b|^2 / (2 n) + alpha (r |w|_1 + (1 - r)/2 |w|^2)``.

    As scikit-learn's `ElasticNet` does; r is ``l1_ratio`` and n the number of rows of
    all nodes. The alpha of `dadmm.problems.ElasticNet` is n times this one.

    Parameters
    ----------
    alpha : float
    l1_ratio : float
        From 0 to 1.
    fit_intercept, n_nodes, topology, scheme, tolerance, max_iter, options, comm
        As in `Linear`, which has the attributes.
    """

    _: KW_ONLY
    l1_ratio: float = 0.5
    _averages = True

    def _problem(self, X: Matrix, y: Vector, alpha: float) -> Problem:
        return problems.ElasticNet(X, y, alpha, self.l1_ratio, fit_intercept=False)


@dataclass(eq=False, repr=False)
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
    alpha, fit_intercept, n_nodes, topology, scheme, tolerance, max_iter, options, comm
        As in `Linear`, which has the other attributes.

    Attributes
    ----------
    outliers_ : ndarray of bool, shape (n,)
        Whether each row passed to `fit` is further than delta from its target.
    """

    delta: float = 1.35
    _: KW_ONLY
    alpha: float = 1e-4

    def _fit(self, data: FitData, alpha: float) -> None:
        super()._fit(data, alpha)
        off = [X @ self.coef_ + self.intercept_ - y for X, y in data.shards]
        self.outliers_ = np.abs(np.concatenate(off)) > self.delta

    def _problem(self, X: Matrix, y: Vector, alpha: float) -> Problem:
        free = bool(self.fit_intercept)
        return problems.Huber(X, y, self.delta, alpha, fit_intercept=free)
