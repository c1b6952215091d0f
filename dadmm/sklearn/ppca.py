"""Probabilistic PCA over a network, with the interface of scikit-learn's `PCA`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from dadmm import problems
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.core.linalg import principal_axes
from dadmm.core.schema import integer
from dadmm.core.threads import with_one_blas_thread
from dadmm.data.patterns import fill
from dadmm.problems.metrics import log_likelihoods
from dadmm.sklearn.base import Consensus


@dataclass(eq=False, repr=False)
class PPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Consensus):
    """Principal components by maximum likelihood of ``x = W z + mu + noise``.

    Entries of X may be missing (NaN): they are left out of the likelihood.

    Parameters
    ----------
    n_components : int, optional
        Less than the number of features. The default is 2, or 1 for two features.
    n_nodes, topology, scheme, tolerance, max_iter, sending, options, comm
        The network, see `dadmm.sklearn.base.Consensus`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal axes of the subspace of W, by decreasing variance. The largest entry
        of each is positive.
    mean_ : ndarray of shape (n_features,)
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each component in the model. Maximum likelihood divides by n,
        and scikit-learn's `PCA` by n - 1.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same, divided by the variance of all features in the model.
    noise_variance_ : float
        Mean variance along the other n_features - n_components directions.
    n_components_, n_iter_ : int
    result_ : Result
        The result of `dadmm.solve`, with its history.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from dadmm.sklearn import PPCA
    >>> X = np.random.default_rng(0).normal(size=(40, 3)) * [5.0, 1.0, 1.0]
    >>> plain = PPCA(1, n_nodes=2).fit(X)
    >>> short = PPCA(1, n_nodes=2, sending="float32").fit(X)
    >>> bool(np.allclose(short.components_, plain.components_, atol=1e-3))
    True
    >>> short.result_.traffic.bytes < plain.result_.traffic.bytes
    True
    """

    n_components: int | None = None
    _: KW_ONLY
    tolerance: float = 1e-3

    @with_one_blas_thread
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit to rows X (n, d), which may have NaN; with ``comm``, this rank's own."""

        def check() -> tuple[Matrix]:
            rows = 2 if self.comm is None else 1
            return (self._rows(X, order="C", ensure_min_samples=rows),)

        data = self._assemble(check, least=2)
        sizes = [[len(own), *(~np.isnan(own)).sum(axis=0)] for (own,) in data.shards]
        n_samples, *counts = data.total(sizes).tolist()
        if 0.0 in counts:
            raise ProblemError(
                f"feature {counts.index(0.0)} is missing in all rows of all nodes; "
                "leave it out"
            )
        self.n_components_ = M = self._count(int(n_samples))
        nodes = data.problems(lambda own: problems.PPCA(own, M))
        self.result_ = self._solve(data, nodes)
        self.n_iter_ = self.result_.iterations
        W, self.mean_, a = self.result_.layout.views(self.result_.solution)
        axes, lengths = principal_axes(W)
        self.noise_variance_ = noise = float(1.0 / a)
        self.explained_variance_ = variance = lengths**2 + noise
        self.components_ = np.ascontiguousarray(axes.T)
        others = (self.n_features_in_ - M) * noise
        self.explained_variance_ratio_ = variance / (variance.sum() + others)
        return self

    def transform(self, X: ArrayLike) -> Matrix:
        """Return the projections of rows X (n, d) on the components, (n, n_components).

        They are the same as in `PCA`. Missing entries are first replaced by their
        expectation given the observed entries.
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

    def _count(self, n_samples: int) -> int:
        """Return n_components; raise if the data do not allow it."""
        D, wanted = int(self.n_features_in_), self.n_components
        M = min(2, max(D - 1, 1)) if wanted is None else wanted
        integer(1).check("n_components", M)
        if M >= D or n_samples < M + 2:
            raise ConfigError(
                f"n_components is {M}, which leaves no noise; it must be less than "
                f"n_features = {D} and than n_samples = {n_samples} - 1"
            )
        return int(M)
