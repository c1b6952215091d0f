"""The estimators: linear models, logistic regression, and probabilistic PCA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import base
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import Tags, multiclass, validation
from sklearn.utils.validation import check_is_fitted, validate_data

from dadmm import problems
from dadmm.comm.world import World, from_rank_0
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.core.interfaces import Problem
from dadmm.core.layout import Array, Matrix, Vector
from dadmm.core.linalg import principal_axes, with_one_blas_thread
from dadmm.core.schema import AT_LEAST_0, integer, number
from dadmm.data.patterns import fill
from dadmm.models.scores import log_probabilities, means
from dadmm.problems.metrics import log_likelihoods
from dadmm.sklearn.base import Arrays, Consensus, FitData

Local = Callable[..., Problem]  # of rows, targets, alpha, fit_intercept, sample_weight


@dataclass(eq=False, repr=False)
class LinearModel(Consensus):
    """The base of estimators that are functions of ``X coef_ + intercept_``.

    X may be sparse.

    Parameters
    ----------
    fit_intercept : bool
        Whether there is an intercept. It is not penalised.
    warm_start : bool
        Whether `fit` starts from the parameters and multipliers of the last fit, which
        had as many nodes, features and classes.
    """

    _: KW_ONLY
    fit_intercept: bool = True
    warm_start: bool = False

    def _problem(self, data: FitData) -> tuple[FitData, Local, float]:
        """Return the rows of each node, its problem, and the alpha of all nodes."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @with_one_blas_thread
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to rows X (n, d) and targets y (n,); with ``comm``, this rank's own.

        A row of ``sample_weight`` 2 counts twice, and one of weight 0 as absent.
        """
        labelled = base.is_classifier(self)

        def check() -> Arrays:
            rules = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}
            rows, targets = validate_data(self, X, y, y_numeric=not labelled, **rules)
            if labelled:
                multiclass.check_classification_targets(targets)
            weights = validation._check_sample_weight(
                sample_weight, rows, dtype=np.float64, ensure_non_negative=True
            )
            kept = np.flatnonzero(weights)
            return rows[kept], targets[kept], weights[kept]

        data, problem, alpha = self._problem(self._assemble(check))
        free = bool(self.fit_intercept)
        given = {"alpha": alpha / len(data.graph), "fit_intercept": free}
        nodes = data.problems(lambda X, y, w: problem(X, y, sample_weight=w, **given))
        last = getattr(self, "result_", None) if self.warm_start else None
        self.result_ = self._solve(data, nodes, warm_start=last)
        found = self.result_.layout.views(self.result_.solution)
        rest = found.intercept if free else np.zeros(found.coef.shape[:-1])
        self.coef_ = np.atleast_2d(found.coef) if labelled else found.coef
        self.intercept_ = np.atleast_1d(rest) if labelled else float(rest)
        n_iter = self.result_.iterations
        self.n_iter_ = np.array([n_iter]) if labelled else n_iter
        self._conclude(X, y)
        return self

    def _conclude(self, X: ArrayLike, y: ArrayLike) -> None:
        """Set further attributes, after a fit to X and y."""

    def _linear(self, X: ArrayLike) -> Matrix:
        """Return ``X coef_ + intercept_``, shape (n,) or (n, n_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        return np.asarray(X @ self.coef_.T + self.intercept_)


@dataclass(eq=False, repr=False)
class LinearRegressor(base.RegressorMixin, LinearModel):
    """The base of the regressors, which predict ``X coef_ + intercept_``.

    Parameters
    ----------
    alpha : float
        Strength of the penalty, not negative.
    fit_intercept, warm_start
        As in `dadmm.sklearn.estimators.LinearModel`.
    n_nodes, topology, scheme, tolerance, max_iter, sending, options, comm
        The network, see `dadmm.sklearn.base.Consensus`, which has further attributes.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        If ``result_`` is certified, the first entries of
        ``result_.certificate.coefficients`` bound its errors.
    intercept_ : float
    """

    alpha: float = 1.0
    _kind: ClassVar[Local]  # the class of the problem of a node
    _settings: ClassVar[tuple[str, ...]] = ()  # passed to the problem, beside alpha
    _averages: ClassVar[bool] = False  # whether it minimises the mean loss, not the sum

    def _problem(self, data: FitData) -> tuple[FitData, Local, float]:
        AT_LEAST_0.check("alpha", self.alpha)
        settings = {name: getattr(self, name) for name in self._settings}
        alpha = float(self.alpha)
        if self._averages:
            alpha *= float(data.total([[w.sum()] for _, _, w in data.shards])[0])
        return data, partial(self._kind, **settings), alpha

    def predict(self, X: ArrayLike) -> Vector:
        """Return a prediction for each row of X (n, d)."""
        return self._linear(X)


class Ridge(LinearRegressor):
    """Minimise ``|y - X w - b|^2 + alpha |w|^2``, as scikit-learn's `Ridge` does.

    `LinearRegressor` has the parameters and attributes.

    Examples
    --------
    >>> from dadmm.sklearn import Ridge
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 3.0, 5.0, 7.0]
    >>> Ridge(alpha=0.0, n_nodes=2).fit(X, y).predict([[4.0]]).round(3)
    array([9.])
    """

    _kind = problems.Ridge


class Lasso(LinearRegressor):
    """Minimise ``|y - X w - b|^2 / (2 n) + alpha |w|_1``, as scikit-learn's does.

    n is the sum of the weights of all rows, and the alpha of `dadmm.problems.Lasso` n
    times this one. `LinearRegressor` has the parameters and attributes.

    Examples
    --------
    >>> from dadmm.sklearn import Lasso
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [3.0, 1.0]], [0.0, 1.0, 2.0, 3.0]
    >>> Lasso(alpha=0.25, n_nodes=2).fit(X, y).coef_.round(3)
    array([0.8, 0. ])
    """

    _kind = problems.Lasso
    _averages = True


@dataclass(eq=False, repr=False)
class ElasticNet(LinearRegressor):
    """Minimise ``|y - X w - b|^2 / (2 n) + alpha (r |w|_1 + (1 - r)/2 |w|^2)``.

    As scikit-learn's `ElasticNet` does; r is ``l1_ratio``, and n as in `Lasso`.
    `LinearRegressor` has the parameters and attributes, and:

    Parameters
    ----------
    l1_ratio : float
        From 0 to 1.

    Examples
    --------
    >>> from dadmm.sklearn import ElasticNet
    >>> X, y = [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [3.0, 1.0]], [2.0, 1.0, 2.0, 5.0]
    >>> ElasticNet(alpha=0.5, l1_ratio=0.5, n_nodes=2).fit(X, y).coef_.round(3)
    array([0.667, 0.5  ])
    """

    _: KW_ONLY
    l1_ratio: float = 0.5
    _kind = problems.ElasticNet
    _settings = ("l1_ratio",)
    _averages = True


@dataclass(eq=False, repr=False)
class HuberRegressor(LinearRegressor):
    """Minimise the sum of h(x' w + b - y) and ``alpha/2 |w|^2``.

    h(r) is ``r^2 / 2`` up to delta, and ``delta (|r| - delta / 2)`` beyond. No scale is
    estimated: if scikit-learn's `HuberRegressor` finds the ``scale_`` s, this one finds
    the same solution with ``delta = epsilon s`` and an alpha s times as large.
    `LinearRegressor` has the parameters and attributes, and:

    Parameters
    ----------
    delta : float
        Error from which the loss is linear, in the unit of y.

    Attributes
    ----------
    outliers_ : ndarray of bool, shape (n,)
        Whether each row passed to `fit` is further than delta from its target.

    Examples
    --------
    >>> from dadmm.sklearn import HuberRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0], [4.0]], [0.0, 1.0, 9.0, 3.0, 4.0]
    >>> HuberRegressor(delta=0.1, n_nodes=2).fit(X, y).outliers_
    array([False, False,  True, False, False])
    """

    delta: float = 1.35
    _: KW_ONLY
    alpha: float = 1e-4
    _kind = problems.Huber
    _settings = ("delta",)

    def _conclude(self, X: ArrayLike, y: ArrayLike) -> None:
        self.outliers_ = np.abs(self.predict(X) - np.ravel(y)) > self.delta


class PoissonRegressor(LinearRegressor):
    """Minimise the mean of ``m - y log m`` plus ``alpha/2 |w|^2``, m = exp(x' w + b).

    As scikit-learn's `PoissonRegressor` does; y is not negative, and the mean is by the
    weights of all rows. The alpha of `dadmm.problems.PoissonRegression` is their sum
    times this one. `LinearRegressor` has the parameters and attributes.

    Examples
    --------
    >>> from dadmm.sklearn import PoissonRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [1.0, 2.0, 4.0, 8.0]
    >>> PoissonRegressor(alpha=0.0, n_nodes=2).fit(X, y).predict([[4.0]]).round(2)
    array([16.])
    """

    _kind = problems.PoissonRegression
    _averages = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def predict(self, X: ArrayLike) -> Vector:
        """Return the expected count of each row of X (n, d)."""
        return means(self._linear(X))

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return D^2, the share of the deviance that is explained."""
        fitted = self.predict(X)
        return float(d2_tweedie_score(y, fitted, sample_weight=sample_weight, power=1))


@dataclass(eq=False, repr=False)
class LogisticRegression(base.ClassifierMixin, LinearModel):
    """Minimise ``-C sum log p + 1/2 |w|^2``, as scikit-learn's `LogisticRegression`.

    p is the probability of a row's own class; the sum is over the rows of all nodes,
    with their weights. More than two classes are multinomial. Labels are numbers or
    text. A node may lack classes.

    Parameters
    ----------
    C : float
        Inverse of the strength of the penalty; infinite for no penalty. The sum over
        nodes of alpha of `dadmm.problems.LogisticRegression` is ``1 / C``.
    fit_intercept, warm_start
        As in `dadmm.sklearn.estimators.LinearModel`.
    n_nodes, topology, scheme, tolerance, max_iter, sending, options, comm
        The network, see `dadmm.sklearn.base.Consensus`, which has further attributes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Of all nodes together, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Of more than two classes, both sum to zero over the classes.

    Examples
    --------
    >>> from dadmm.sklearn import LogisticRegression
    >>> X, y = [[0.0], [1.0], [4.0], [5.0], [9.0]], ["a", "a", "b", "b", "c"]
    >>> model = LogisticRegression(n_nodes=2).fit(X, y)
    >>> model.predict([[0.0], [5.0], [10.0]])
    array(['a', 'b', 'c'], dtype='<U1')
    """

    C: float = 1.0
    _: KW_ONLY

    def _problem(self, data: FitData) -> tuple[FitData, Local, float]:
        number("above 0", lambda x: x > 0.0).check("C", self.C)
        present = np.unique(np.concatenate([own for _, own, _ in data.shards]))
        self.classes_ = classes = _all_labels(data.world, present)
        if len(classes) < 2:
            raise ProblemError(
                "LogisticRegression needs at least two classes, but all labels are of "
                f"one class, {classes[0]!s}"
            )
        numbered = [(A, np.searchsorted(classes, b), w) for A, b, w in data.shards]
        problem: Local = problems.LogisticRegression
        if len(classes) > 2:
            problem = partial(problems.MultinomialLogistic, n_classes=len(classes))
        return data._replace(shards=numbered), problem, 1.0 / self.C

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return ``x' w + b`` of each row, (n, n_classes), or (n,) of the second."""
        scores = self._linear(X)
        return scores if len(self.coef_) > 1 else scores[:, 0]

    def predict(self, X: ArrayLike) -> Array:
        """Return the most probable class of each row of X (n, d)."""
        scores = self.decision_function(X)
        best = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)
        return np.asarray(self.classes_[best])

    def predict_log_proba(self, X: ArrayLike) -> Matrix:
        """Return the logarithm of the probability of each class, (n, n_classes)."""
        return log_probabilities(self.decision_function(X))

    def predict_proba(self, X: ArrayLike) -> Matrix:
        """Return the probability of each class, (n, n_classes)."""
        return np.asarray(np.exp(self.predict_log_proba(X)))


def _all_labels(world: World, labels: Array) -> Array:
    """Return the labels (n_classes,) of all ranks, given the labels of this rank.

    Only rank 0 knows which rank has which label.
    """
    everyone = world.gather_json([labels.dtype.str, labels.tolist()], everywhere=False)
    found = [np.array(own, kind) for kind, own in everyone]

    def join() -> list[Any]:
        if len({isinstance(own[0], str) for own in found}) > 1:
            raise ProblemError("labels must be numbers on all ranks, or text on all")
        together = np.unique(np.concatenate(found))
        return [together.dtype.str, together.tolist()]

    kind, every = from_rank_0(world, join)
    return np.array(every, dtype=kind)


@dataclass(eq=False, repr=False)
class PPCA(base.ClassNamePrefixFeaturesOutMixin, base.TransformerMixin, Consensus):
    """Principal components by maximum likelihood of ``x = W z + mu + noise``.

    Entries of X may be missing (NaN): they are left out of the likelihood.

    Parameters
    ----------
    n_components : int, optional
        Less than the number of features. The default is 2, or 1 for two features.
    n_nodes, topology, scheme, tolerance, max_iter, sending, options, comm
        The network, see `dadmm.sklearn.base.Consensus`, which has further attributes.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal axes of the subspace of W, by decreasing variance. The largest entry
        of each is positive.
    mean_ : ndarray of shape (n_features,)
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each component in the model; scikit-learn's `PCA` divides by
        n - 1, maximum likelihood by n.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same, divided by the variance of all features in the model.
    noise_variance_ : float
        Mean variance along the other n_features - n_components directions.
    n_components_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from dadmm.sklearn import PPCA
    >>> X = np.random.default_rng(0).normal(size=(40, 3)) * [5.0, 1.0, 1.0]
    >>> PPCA(1, n_nodes=2).fit(X).transform(X).shape
    (40, 1)
    """

    n_components: int | None = None
    _: KW_ONLY
    tolerance: float = 1e-3

    @with_one_blas_thread
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit to rows X (n, d), which may have NaN; with ``comm``, this rank's own."""
        rules = {"order": "C", "ensure_min_samples": 2 if self.comm is None else 1}
        data = self._assemble(lambda: (self._rows(X, **rules),), least=2)
        sizes = [[len(own), *(~np.isnan(own)).sum(axis=0)] for (own,) in data.shards]
        n_samples, *counts = data.total(sizes).astype(int).tolist()
        if 0 in counts:
            raise ProblemError(
                f"feature {counts.index(0)} is missing in all rows of all nodes; "
                "leave it out"
            )
        D, M = int(self.n_features_in_), self.n_components
        M = min(2, max(D - 1, 1)) if M is None else M
        integer(1).check("n_components", M)
        if M >= D or n_samples < M + 2:
            raise ConfigError(
                f"n_components is {M}, which leaves no noise; it must be less than "
                f"n_features = {D} and than n_samples = {n_samples} - 1"
            )
        self.n_components_ = M = int(M)
        nodes = data.problems(lambda own: problems.PPCA(own, M))
        self.result_ = self._solve(data, nodes)
        self.n_iter_ = self.result_.iterations
        W, self.mean_, a = self.result_.layout.views(self.result_.solution)
        axes, lengths = principal_axes(W)
        self.noise_variance_ = noise = float(1.0 / a)
        self.explained_variance_ = variance = lengths**2 + noise
        self.components_ = np.ascontiguousarray(axes.T)
        self.explained_variance_ratio_ = variance / (variance.sum() + (D - M) * noise)
        return self

    def transform(self, X: ArrayLike) -> Matrix:
        """Return the projections of rows X (n, d) on the components, (n, n_components).

        Missing entries are first replaced by their expectation.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        filled = fill(rows, self._loadings, self.mean_, 1.0 / self.noise_variance_)
        return np.asarray((filled - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Matrix:
        """Return the rows (n, d) that have these projections (n, n_components)."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X) @ self.components_ + self.mean_)

    def score_samples(self, X: ArrayLike) -> Vector:
        """Return the log likelihood of each row's observed entries, (n,)."""
        check_is_fitted(self)
        rows, precision = self._rows(X, reset=False), 1.0 / self.noise_variance_
        return log_likelihoods(rows, self._loadings, self.mean_, precision)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Return the mean log likelihood of rows X (n, d)."""
        return float(self.score_samples(X).mean())

    def get_covariance(self) -> Matrix:
        """Return the covariance of a row in the model, (d, d)."""
        check_is_fitted(self)
        signal = self._loadings @ self._loadings.T
        return np.asarray(signal + self.noise_variance_ * np.eye(len(signal)))

    def get_precision(self) -> Matrix:
        """Return the inverse of `get_covariance`."""
        check_is_fitted(self)
        share = 1.0 - self.noise_variance_ / self.explained_variance_
        inside = (self.components_.T * share) @ self.components_
        return np.asarray((np.eye(len(inside)) - inside) / self.noise_variance_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)

    @property
    def _loadings(self) -> Matrix:
        """W (d, n_components), in the axes of the components."""
        signal = np.maximum(self.explained_variance_ - self.noise_variance_, 0.0)
        return np.asarray(self.components_.T * np.sqrt(signal))

    def _rows(self, X: ArrayLike, **rules: Any) -> Matrix:
        rules |= {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        rows: Matrix = validate_data(self, X, **rules)
        return rows
