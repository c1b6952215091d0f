"""Probabilistic PCA over a network, with the interface of scikit-learn's `PCA`."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dadmm import problems
from dadmm.core.errors import ConfigError, ProblemError
from dadmm.core.layout import Matrix, Vector
from dadmm.data.patterns import Patterns, posterior
from dadmm.sklearn.base import Consensus, FitData, mean_parts, one_thread
from dadmm.sklearn.units import rescale_latent, scale, variances
from dadmm.solver.result import Result

LOG_2PI = math.log(2.0 * math.pi)


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
    random_state : int, RandomState or None
        Seed of the start, unless that is from merged principal axes of all rows, which
        is the default but for ``scheme="fixed"``; others are by
        ``options={"init": "shared"}``. With ``comm``, that of rank 0 is used.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal axes of the subspace of W, by decreasing variance. The largest entry
        of each is positive.
    mean_ : ndarray of shape (n_features,)
    explained_variance_ : ndarray of shape (n_components,)
        Variance along each component in the model. That of scikit-learn's `PCA` is
        n / (n - 1) times as large: a maximum likelihood divides by n.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same, divided by the variance of all features in the model.
    noise_variance_ : float
        Mean variance along the other n_features - n_components directions. Without
        missing entries, this and the variances above are those of the rows of all
        nodes, given the subspace of the run.
    n_components_, n_iter_ : int
    result_ : Result
        The result of the run, with its history. Its W, mu and a are those of rows
        minus their mean, in units of ``scale_``.
    scale_ : float
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
    random_state: Any = 0

    @one_thread
    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Fit to rows X (n, d), which may have NaN; with ``comm``, this rank's own."""

        def check() -> tuple[Matrix]:
            rows = 2 if self.comm is None else 1
            return (self._rows(X, order="C", ensure_min_samples=rows),)

        data = self._assemble(check, least=2)
        counts, mean = data.means()
        if not counts.all():
            raise ProblemError(
                f"feature {np.flatnonzero(counts == 0)[0]} is missing in all rows of "
                "all nodes; leave it out"
            )
        sizes = [[float(len(own))] for (own,) in data.shards]
        (n_samples,) = data.total(sizes)
        self.n_components_ = self._count(int(n_samples))
        whole = bool((counts == n_samples).all())
        rows = [own - mean for (own,) in data.shards]
        self.result_ = self._run(data, rows, whole)
        self.n_iter_ = self.result_.iterations
        self._set_attributes(data, mean, rows, whole)
        return self

    def transform(self, X: ArrayLike) -> Matrix:
        """Return the projections of rows X (n, d) on the components, (n, n_components).

        The same as in `PCA`. (The expectation of ``W z`` in the model is smaller by the
        factor ``1 - noise_variance_ / explained_variance_``.) Missing entries are first
        replaced by their expectation given the observed entries.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        return np.asarray((self._filled(rows) - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: ArrayLike) -> Matrix:
        """Return the rows (n, d) that have these projections (n, n_components)."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X) @ self.components_ + self.mean_)

    def score_samples(self, X: ArrayLike) -> Vector:
        """Return the log likelihood of each row's observed entries, (n,)."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        means, covariances, found = self._posterior(rows)
        left = np.nan_to_num(rows - self.mean_ - means @ self._loadings.T)
        distance = np.vecdot(left, left) / self.noise_variance_
        distance += np.vecdot(means, means)
        widths = found.mask.sum(axis=1)
        constants = widths * (LOG_2PI + math.log(self.noise_variance_))
        constants -= np.linalg.slogdet(covariances)[1]
        return np.asarray(-0.5 * (distance + constants[found.which]))

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

    def __sklearn_tags__(self) -> Any:
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
        if not (wanted is None or isinstance(wanted, Integral)):
            raise ConfigError(f"n_components must be an integer, got {wanted!r}")
        M = min(2, max(D - 1, 1)) if wanted is None else int(wanted)
        if not 1 <= M < D:
            raise ConfigError(
                f"n_components must be at least 1 and less than n_features = {D}, "
                f"got {M}"
            )
        if n_samples < M + 2:
            raise ConfigError(
                f"{M} components leave no noise in n_samples = {n_samples}; PPCA needs "
                "two samples more than components"
            )
        return M

    def _run(self, data: FitData, rows: list[Matrix], whole: bool) -> Result:
        """Return the result of the nodes, given rows minus the mean of all."""
        M, seed = self.n_components_, self.random_state
        if not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        (seed,) = data.world.share_array(np.array([seed], dtype=np.int64)).tolist()
        self.scale_ = scale(data.total, [np.nan_to_num(own) for own in rows], M)
        centred = data._replace(shards=[(own / self.scale_,) for own in rows])
        # without missing entries the best mu is the mean, which is zero here
        nodes = centred.problems(lambda own: problems.PPCA(own, M, zero_mean=whole))
        return self._solve(centred, nodes, seed=seed)

    def _set_attributes(
        self, data: FitData, mean: Vector, rows: list[Matrix], whole: bool
    ) -> None:
        """Set the fitted attributes, in the units of the data."""
        W, mu, a = mean_parts(self.result_)
        unit, noise = self.scale_, float(self.scale_**2 / a)
        self.mean_ = mean + unit * mu
        if not whole:
            scaled = [own / unit for own in rows]
            W = rescale_latent(data.total, scaled, W, mu, float(a))
        axes, lengths, _ = np.linalg.svd(W, full_matrices=False)
        variance = (unit * lengths) ** 2 + noise
        if whole:
            axes, variance, noise = variances(data.total, rows, axes)
        largest = np.abs(axes).argmax(axis=0)
        signs = np.sign(axes[largest, np.arange(len(variance))])
        self.components_ = np.ascontiguousarray((axes * signs).T)
        self.explained_variance_, self.noise_variance_ = variance, noise
        others = (self.n_features_in_ - len(variance)) * noise
        self.explained_variance_ratio_ = variance / (variance.sum() + others)

    def _posterior(self, rows: Matrix) -> tuple[Matrix, Matrix, Patterns]:
        precision, prior = 1.0 / self.noise_variance_, np.eye(self.n_components_)
        return posterior(rows, self._loadings, self.mean_, precision, prior)

    def _filled(self, rows: Matrix) -> Matrix:
        """Return rows with the expectation of each missing entry."""
        lost = np.isnan(rows)
        if not lost.any():
            return rows
        expected = self.mean_ + self._posterior(rows)[0] @ self._loadings.T
        return np.where(lost, expected, rows)
