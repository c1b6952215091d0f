"""What users of scikit-learn see who pass a communicator: four ranks."""

import warnings

import networkx as nx
import numpy as np
import pyarrow
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from dadmm import sklearn as ours
from dadmm.sklearn import PPCA, Lasso, LogisticRegression, Ridge
from tests.support.programs.library import COMM, run_checks, same_everywhere

RNG = np.random.default_rng(3)
X = RNG.standard_normal((42, 5)) @ RNG.standard_normal((5, 5)) + 7.0
Y = X[:, 0] - X[:, 2] + RNG.standard_normal(42)


def own(rows: np.ndarray) -> np.ndarray:
    """Return the share of this rank; shares differ by a row."""
    return rows[np.array_split(np.arange(rows.shape[0]), COMM.size)[COMM.rank]]


def compare(estimator, *given) -> None:
    estimator.set_params(tolerance=3e-3)
    over = clone(estimator).set_params(comm=COMM).fit(*map(own, given))
    n_nodes = estimator.n_nodes or COMM.size
    alone = clone(estimator).set_params(n_nodes=n_nodes).fit(*given)
    assert over.comm is COMM
    assert vars(over).keys() == vars(alone).keys()
    for name in vars(over):
        if name.endswith("_") and name not in ("result_", "outliers_"):
            mine, other = getattr(over, name), getattr(alone, name)
            assert_array_equal(mine, other, err_msg=name)
            assert np.asarray(mine).dtype == np.asarray(other).dtype


def check_estimators_have_the_same_bits() -> None:
    """On other graphs too, with missing entries, weights (1 on one rank), and zeros."""
    compare(Lasso(0.1, topology="star", fit_intercept=False), X, Y)
    compare(Lasso(0.1, n_nodes=2 * COMM.size), X[:40], Y[:40])
    holed = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    holed[:13] = X[:13]  # nothing is missing on one rank
    compare(PPCA(2, topology="complete"), holed)
    weights = np.where(np.arange(len(Y)) < 11, 1.0, np.linspace(0.5, 3.0, len(Y)))
    labels = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
    for name in ("ElasticNet", "HuberRegressor", "PoissonRegressor"):
        compare(getattr(ours, name)(), X, labels, weights)
    compare(LogisticRegression(), X, labels, weights)
    compare(Ridge(), csr_array(np.where(X < 7.0, 0.0, X)), labels, weights)


def check_classes_are_those_of_all_ranks() -> None:
    """A rank may have one class only, and another names of another length."""
    ordered = X[np.argsort(Y)]
    labels = np.array(["a", "bee", "sea urchin"])[np.arange(42) // 15]
    for targets in (np.sort(Y) > 0.0, labels, labels.astype(object)):
        compare(LogisticRegression(), ordered, targets)
    compare(LogisticRegression(C=5.0), ordered, 3 - np.arange(42) // 15)


def check_a_mistake_of_one_rank_is_told_by_all() -> None:
    """In the same sentence; and the communicator can be used afterwards."""
    x, y, odd = own(X), own(Y), COMM.rank == 2
    gap = np.where(np.arange(5) == 1, np.inf if odd else 1.0, x)
    labels = y > 0 if odd else np.array(["a", "b"])[(y > 0) * 1]
    tables = [
        pyarrow.table(dict(zip(names, x.T, strict=True)))
        for names in ("abcde" if odd else "abced", "abcde" if odd else "vwxyz")
    ]
    search = GridSearchCV(Ridge(), {"alpha": [1.0, 2.0]}, error_score="raise", cv=2)
    for estimator, rows, targets, culprit in (
        (Ridge(), x[:, : 4 if odd else 5], y, "features"),
        (Ridge(), tables[0], y, "names of features"),
        (Ridge(), tables[1], y, "names"),
        (Ridge(2.0 if odd else 1.0), x, y, "alpha"),
        (Ridge() if odd else Lasso(), x, y, "estimator"),
        (Ridge(), csr_array(x) if odd else x, y, "format"),
        (Ridge(), StandardScaler().fit_transform(x), y, "standardised"),
        (Ridge(), gap, y, "rank 2"),
        (PPCA(), x[:0] if odd else x, y, "rank 2"),
        (Ridge(), x, y[:3] if odd else y, "rank 2"),
        (Ridge(n_nodes=COMM.size - 1), x, y, "ranks"),
        (LogisticRegression(), x, y, "continuous"),
        (LogisticRegression(), x, labels, "numbers"),
        (LogisticRegression(), x, np.ones(len(x)), "one class"),
        (PPCA(), 0 * x, y, "equal"),
        (PPCA(), x + np.where(np.arange(5) == 3, np.nan, 0), y, "feature 3"),
        (search, x, y, "cross-validation"),
    ):
        over_mpi = {"estimator__comm" if estimator is search else "comm": COMM}
        with pytest.raises(ValueError, match=culprit) as raised:
            clone(estimator).set_params(**over_mpi).fit(rows, targets)
        assert same_everywhere(str(raised.value))
    Ridge(comm=COMM).fit(StandardScaler().fit_transform(x) if odd else x, y)


def check_ranks_may_have_objects_of_their_own() -> None:
    """Such as functions, and the same graph in another form; not another graph."""
    ring, found = nx.cycle_graph(COMM.size), []
    given = {"callbacks": [lambda t, run: found.append(t)], "seed": 1}
    model = Lasso(topology=ring, options=given, comm=COMM).fit(own(X), own(Y))
    assert found[-1] == model.n_iter_
    path = nx.path_graph([1, 0, 2, 3] if COMM.rank == 2 else 4)
    with pytest.raises(ValueError, match="rank 2 has graph"):
        model.set_params(topology=path).fit(own(X), own(Y))


def check_a_warm_start_needs_few_iterations() -> None:
    found = Ridge(comm=COMM, warm_start=True).fit(own(X), own(Y))
    first = found.n_iter_
    assert found.fit(own(X), own(Y)).n_iter_ < first / 2


def check_any_communicator_serves() -> None:
    pair = COMM.Split(COMM.rank % 2, key=-COMM.rank)
    half = slice(21) if pair.rank == 0 else slice(21, 42)
    found = Ridge(comm=pair).fit(X[half], Y[half])
    assert_array_equal(found.coef_, Ridge(n_nodes=2).fit(X, Y).coef_)
    assert clone(found).comm is pair
    pair.Free()


def check_only_rank_0_warns() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Ridge(comm=COMM, max_iter=2).fit(own(X), own(Y))
    assert [w.category for w in seen] == [ConvergenceWarning] * (COMM.rank == 0)


if __name__ == "__main__":
    run_checks(dict(globals()))
