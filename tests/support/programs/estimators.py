"""What users of scikit-learn see who pass a communicator: four ranks."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow
from mpi4py import MPI
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from dadmm.sklearn import (
    PPCA,
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)

COMM = MPI.COMM_WORLD
FITTED = (
    "coef_", "intercept_", "classes_", "components_", "mean_", "noise_variance_",
    "explained_variance_", "explained_variance_ratio_", "n_components_", "n_iter_",
    "n_features_in_",
)  # fmt: skip


def data(n: int = 42) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of all ranks, and targets; shares differ by a row."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 5)) @ rng.standard_normal((5, 5)) + 7.0
    return X, X[:, 0] - X[:, 2] + rng.standard_normal(n)


def own(rows: np.ndarray) -> np.ndarray:
    """Return the share of this rank."""
    return np.array_split(rows, COMM.size)[COMM.rank]


def compare(estimator, X, y, weights=None) -> None:
    """Fit over MPI and in this process, and assert that all bits agree."""
    estimator.set_params(tolerance=3e-3)
    places = own(np.arange(len(y)))
    more = () if weights is None else (weights[places],)
    ours = clone(estimator).set_params(comm=COMM).fit(X[places], y[places], *more)
    more = () if weights is None else (weights,)
    n_nodes = estimator.n_nodes or COMM.size
    alone = clone(estimator).set_params(n_nodes=n_nodes).fit(X, y, *more)
    assert ours.comm is COMM
    for name in FITTED:
        assert hasattr(ours, name) == hasattr(alone, name), name
        if hasattr(ours, name):
            mine, other = getattr(ours, name), getattr(alone, name)
            assert_array_equal(mine, other, err_msg=name)
            assert np.asarray(mine).dtype == np.asarray(other).dtype


def check_estimators_have_the_same_bits() -> None:
    """On other graphs too, with missing entries, weights (1 on one rank), and zeros."""
    X, y = data()
    compare(Lasso(0.1, topology="star", fit_intercept=False), X, y)
    compare(Lasso(0.1, n_nodes=2 * COMM.size), X[:40], y[:40])
    holed = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    holed[:13] = X[:13]  # nothing is missing on one rank
    compare(PPCA(2, topology="complete"), holed, y)
    weights = np.where(np.arange(len(y)) < 11, 1.0, np.linspace(0.5, 3.0, len(y)))
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    for kind in (ElasticNet, HuberRegressor, PoissonRegressor, LogisticRegression):
        compare(kind(), X, labels, weights)
    compare(Ridge(), csr_array(np.where(X < 7.0, 0.0, X)), labels, weights)


def check_a_warm_start_needs_few_iterations() -> None:
    """Each rank begins with its own parameters and multipliers."""
    X, y = data()
    ours = Ridge(comm=COMM, warm_start=True).fit(own(X), own(y))
    first = ours.n_iter_
    assert ours.fit(own(X), own(y)).n_iter_ < first / 2


def check_classes_are_those_of_all_ranks() -> None:
    """A rank may have one class only, and another names of another length."""
    X, y = data()
    order = np.argsort(y)
    compare(LogisticRegression(), X[order], np.sort(y) > 0.0)
    labels = np.array(["a", "bee", "sea urchin"])[np.arange(42) // 15]
    compare(LogisticRegression(), X[order], labels)
    compare(LogisticRegression(), X[order], labels.astype(object))
    compare(LogisticRegression(C=5.0), X[order], 3 - np.arange(42) // 15)


def check_a_mistake_of_one_rank_is_told_by_all() -> None:
    """In the same sentence; and the communicator can be used afterwards."""
    X, y = data()
    X, y, odd = own(X), own(y), COMM.rank == 2
    gap = np.where(np.arange(5) == 1, np.inf if odd else 1.0, X)
    labels = y > 0 if odd else np.array(["a", "b"])[(y > 0) * 1]
    names = "abcde" if odd else "abced"
    table = pyarrow.table(dict(zip(names, X.T, strict=True)))
    many, constant = LogisticRegression(), np.ones(len(X))
    named = {f"{'b' if odd else 'a'}{k}": X[:, k] for k in range(5)}
    search = GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, error_score="raise", cv=2)
    for estimator, rows, targets, culprit in (
        (Ridge(), X[:, : 4 if odd else 5], y, "features"),
        (Ridge(), table, y, "names of features"),
        (Ridge(2.0 if odd else 1.0), X, y, "alpha"),
        (Ridge(), csr_array(X) if odd else X, y, "format"),
        (Ridge(), StandardScaler().fit_transform(X), y, "standardised"),
        (Ridge(), gap, y, "rank 2"),
        (PPCA(), X[:0] if odd else X, y, "rank 2"),
        (Ridge(), X, y[:3] if odd else y, "rank 2"),
        (Ridge(n_nodes=COMM.size - 1), X, y, "ranks"),
        (many, X, y, "continuous"),
        (many, X, labels, "numbers"),
        (many, X, constant, "one class"),
        (PPCA(), 0 * X, y, "equal"),
        (PPCA(), X + np.where(np.arange(5) == 3, np.nan, 0), y, "feature 3"),
        (Ridge(), pyarrow.table(named), y, "names"),
        (search, X, y, "cross-validation"),
    ):
        over_mpi = {"estimator__comm" if estimator is search else "comm": COMM}
        try:
            clone(estimator).set_params(**over_mpi).fit(rows, targets)
        except ValueError as error:
            said = str(error)
            assert culprit in said, said
            assert len(set(COMM.allgather(said))) == 1
        else:
            raise AssertionError(f"accepted: {culprit}")
    Ridge(comm=COMM).fit(StandardScaler().fit_transform(X) if odd else X, y)


def check_any_communicator_serves() -> None:
    """Two pairs of ranks fit two models at the same time."""
    pair = COMM.Split(COMM.rank % 2, key=-COMM.rank)
    X, y = data()
    halves = (slice(21), slice(21, 42))
    ours = Ridge(comm=pair).fit(X[halves[pair.rank]], y[halves[pair.rank]])

    assert_array_equal(ours.coef_, Ridge(n_nodes=2).fit(X, y).coef_)
    assert clone(ours).comm is pair
    pair.Free()


def check_only_rank_0_warns() -> None:
    """Once for all."""
    X, y = data()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Ridge(comm=COMM, max_iter=2).fit(own(X), own(y))

    assert [w.category for w in seen] == [ConvergenceWarning] * (COMM.rank == 0)


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            check()
            if COMM.rank == 0:
                print(name)
