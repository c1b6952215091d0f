"""Estimators for scikit-learn: its checks, its solutions, and what a network adds."""

import copy
import os
import pickle
import warnings
from threading import Lock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_matrix
from scipy.stats import multivariate_normal

import dadmm
from dadmm.core.errors import ProblemError
from tests.support.processes import mpiexec, program

pytest.importorskip("sklearn", reason="scikit-learn is not installed: extra sklearn")

from sklearn import linear_model
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from dadmm.sklearn import (
    PPCA,
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
)

EVERY = [PPCA, LogisticRegression, Ridge]
if os.environ.get("DADMM_ALL"):  # regressions differ by little
    EVERY += [Lasso, ElasticNet, HuberRegressor, PoissonRegressor]
TIGHT = {"tolerance": 1e-10, "max_iter": 5000}
QUICK = {"n_nodes": 2, "tolerance": 1e-3, "max_iter": 300}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([kind(**QUICK) for kind in EVERY])
def test_scikit_learns_own_checks(estimator, check):
    """Some compare weights and repeated rows, which nodes have others of, to 1e-7."""
    if "sample_weight_equivalence" in check.func.__name__:
        estimator.set_params(tolerance=1e-9, max_iter=1000)
    check(estimator)


def regression(n=60, d=5, seed=0):
    """Return X far from zero and y, which drift from the first node to the last."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(0.5, 2.0, d) + 10.0
    X[:, 0] += np.linspace(-1.0, 1.0, n)
    y = X @ np.where(np.arange(d) % 2, 0.0, 1.0) + 0.5 * rng.standard_t(2, n)
    return X, y + np.linspace(0.0, 3.0, n)


def labelled(n_classes=2):
    """Return X and labels of classes that overlap."""
    X, y = regression(80, 4)
    cuts = np.quantile(y, np.arange(1, n_classes) / n_classes)
    noisy = y + np.random.default_rng(1).normal(size=80)
    return X, np.arange(n_classes)[np.searchsorted(cuts, noisy)]


def names():
    """Return X and three names, sorted: nodes have one or two of them each."""
    X, y = labelled(3)
    order = np.argsort(y, kind="stable")
    return X[order], np.array(["ash", "birch", "cedar"])[y[order]]


def subspace(n=80, noise=0.3):
    """Return rows about a plane, far from zero and in large units."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((8, 2)) * [3.0, 1.0]
    rows = rng.standard_normal((n, 2)) @ W.T + noise * rng.standard_normal((n, 8))
    return 200.0 * rows + 5000.0


NEWTON = {"tol": 1e-12, "solver": "newton-cholesky"}
SPARSE = {"tol": 1e-14, "max_iter": 100_000}
TWINS = [
    (Ridge(3.0), {"tol": 1e-12}, regression),
    (Lasso(0.4), SPARSE, regression),
    (ElasticNet(0.3), SPARSE, regression),
    (ElasticNet(0.3, l1_ratio=0.9, topology="complete", n_nodes=5), SPARSE, regression),
    (PoissonRegressor(0.5), NEWTON, lambda: labelled(5)),
    (PoissonRegressor(0.0), NEWTON, lambda: labelled(5)),
    (LogisticRegression(0.1), NEWTON, labelled),
    (LogisticRegression(np.inf), NEWTON, labelled),
    (LogisticRegression(), NEWTON, names),
]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(("ours", "tight", "data"), TWINS)
def test_models_are_those_of_scikit_learn(ours, tight, data, dense, fit_intercept):
    """The same alpha means the same, with whatever number of nodes; also with weights.

    A node may have no row of a positive weight, and such rows count as absent.
    """
    (X, y), weights = data(), None
    if not dense:
        X, weights = np.where(X < 9.5, 0.0, X), np.linspace(0.1, 3.0, len(X))
        weights[:15], weights[20::9] = 0.0, 0.0
    known = {"alpha", "C", "l1_ratio", "fit_intercept"}
    ours = clone(ours).set_params(fit_intercept=fit_intercept, **TIGHT)
    same = {k: v for k, v in ours.get_params().items() if k in known}
    theirs = getattr(linear_model, type(ours).__name__)(**same, **tight)
    theirs.fit(X, y, weights)
    rows = X if dense else (csr_matrix if fit_intercept else csc_array)(X)
    ours.fit(rows, y, weights)

    assert ours.result_.converged
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert_array_equal(ours.coef_ == 0.0, theirs.coef_ == 0.0)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    for method in ("decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(theirs, method):
            found, wanted = getattr(ours, method)(rows), getattr(theirs, method)(X)
            assert_allclose(found, wanted, atol=1e-5)
    if hasattr(theirs, "classes_"):
        assert_array_equal(ours.classes_, theirs.classes_)
        assert_array_equal(ours.predict(rows), theirs.predict(X))
    else:
        assert_allclose(ours.predict(rows), theirs.predict(X), rtol=1e-5, atol=1e-5)
    score = theirs.score(X, y, weights)
    assert_allclose(ours.score(rows, y, weights), score, atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_huber_regression_stands_where_no_force_is_left(fit_intercept):
    """The errors, cut off at delta, balance the penalty."""
    X, y = regression()
    y[::7] += 40.0

    ours = HuberRegressor(1.5, alpha=0.1, fit_intercept=fit_intercept, **TIGHT)
    ours.fit(X, y)

    force = np.clip(ours.predict(X) - y, -1.5, 1.5)
    assert_allclose(force @ X, -0.1 * ours.coef_, atol=1e-5)
    assert not fit_intercept or abs(force.sum()) < 1e-6
    assert_array_equal(ours.outliers_, np.abs(y - ours.predict(X)) > 1.5)
    assert ours.outliers_[::7].all()
    ours.fit(csr_matrix(X), y, np.arange(len(X)) % 3)  # some have no weight
    assert ours.outliers_.shape == y.shape


@pytest.mark.parametrize("kind", [Lasso, LogisticRegression])
def test_a_warm_start_begins_where_the_last_fit_ended(kind):
    X, y = labelled(3)
    ours = kind(warm_start=True, tolerance=1e-6, n_nodes=4).fit(X, y)
    first, coef = ours.n_iter_, ours.coef_
    ours.fit(X, y)

    assert ours.n_iter_ < first / 2
    assert_allclose(ours.coef_, coef, atol=1e-4)
    assert kind(tolerance=1e-6).fit(X, y).fit(X, y).n_iter_ == first
    with pytest.raises(dadmm.ConfigError, match="warm_start"):
        ours.fit(X[:, :2], y)


def test_sending_and_options_go_to_the_solver():
    X, y = regression()
    exact = Ridge().fit(X, y)
    half = {"options": {"payload": "float16"}}
    for given in ({"sending": dadmm.Sending("quantised:6")}, half):
        ours = Ridge(**given).fit(X, y)
        assert_allclose(ours.coef_, exact.coef_, atol=1e-3)
        sizes = [each.result_.traffic.bytes / each.n_iter_ for each in (ours, exact)]
        assert sizes[0] < sizes[1]
    ours = Ridge(options={"record": False, "eta0": 5.0}, scheme="fixed").fit(X, y)
    assert len(ours.result_.history) == 0
    assert (ours.result_.eta == 5.0).all()


@pytest.mark.parametrize(("n_nodes", "noise"), [(1, 1.0), (4, 0.1)])
def test_ppca_is_pca_with_a_noise(n_nodes, noise):
    """In any unit and about any place; a maximum likelihood divides by n, not n - 1."""
    X = subspace(noise=noise)
    theirs, share = PCA(2).fit(X), 79 / 80
    ours = PPCA(2, n_nodes=n_nodes, tolerance=1e-4).fit(X)

    assert_allclose(ours.components_, theirs.components_, atol=1e-4)
    assert_allclose(ours.mean_, theirs.mean_)
    for name in ("explained_variance_", "noise_variance_", "explained_variance_ratio_"):
        wanted = getattr(theirs, name) * (1.0 if "ratio" in name else share)
        assert_allclose(getattr(ours, name), wanted, rtol=1e-6)
    assert_allclose(ours.transform(X), theirs.transform(X), atol=0.2)
    assert_allclose(ours.get_covariance(), share * theirs.get_covariance(), rtol=1e-3)
    best = dadmm.metrics.ppca_reference(X, 2)
    best = dadmm.metrics.ppca_log_likelihood(X, *best) / 80
    assert best - 1e-6 < ours.score(X) < best + 1e-9


def test_missing_entries_are_left_out_of_fits_and_of_log_densities():
    X = subspace(120, noise=1.0)
    holed = np.where(np.random.default_rng(1).random(X.shape) < 0.3, np.nan, X)
    holed[:30, 0] = np.nan  # the first node never sees this column
    ours = PPCA(2, tolerance=1e-4).fit(holed)
    nodes = [dadmm.problems.PPCA(rows, 2) for rows in dadmm.shard.split(holed, 4)]
    result = dadmm.solve(nodes, dadmm.Topology.ring(4))
    parts = result.layout.views(result.solution)
    best = dadmm.metrics.ppca_log_likelihood(holed, *parts)

    assert_allclose(ours.score(holed), best / 120, rtol=1e-6)
    C = ours.get_covariance()
    for row, score in zip(holed[:6], ours.score_samples(holed[:6]), strict=True):
        o = ~np.isnan(row)
        density = multivariate_normal(ours.mean_[o], C[np.ix_(o, o)])
        assert_allclose(score, density.logpdf(row[o]))
    assert_allclose(ours.get_precision() @ C, np.eye(8), atol=1e-12)


def test_nodes_are_no_more_than_rows_allow():
    """One row each for regressions, two for PPCA; a graph is taken as it is."""
    X, y = regression(6, 2)
    star = dadmm.Topology.star(5)

    for estimator, n_nodes in (
        (Ridge(), 4), (Ridge(n_nodes=20), 6), (PPCA(1, n_nodes=20), 3),
        (Ridge(topology=star), 5),
    ):  # fmt: skip
        assert estimator.fit(X, y).result_.topology.n_nodes == n_nodes
    assert estimator.result_.topology is star
    with pytest.raises(ValueError, match="7 nodes"):
        Ridge(topology=dadmm.Topology.ring(7)).fit(X, y)


GAP = np.where(np.arange(8) == 3, np.nan, subspace())


MISTAKES = [  # with good rows
    (Ridge(-1.0), "alpha"), (LogisticRegression(0.0), "C"), (PoissonRegressor(), "y"),
    (HuberRegressor(0.0), "delta"), (ElasticNet(l1_ratio=2.0), "l1_ratio"),
    (Ridge(scheme="best"), "scheme"), (Ridge(topology="tree"), "graph 'tree'"),
    (Ridge(n_nodes=3, topology=dadmm.Topology.ring(4)), "4 nodes"),
    (Ridge(n_nodes=0), "n_nodes"), (Ridge(sending="int8"), "payload"),
    (Ridge(options={"coupling": "none"}), "coupling"),
    (PPCA(4), "n_components"), (PPCA(1.5), "n_components"),
]  # fmt: skip
BAD_ROWS = [
    (PPCA(3), "noise", labelled()[0][:4]),
    (PPCA(2), "equal", np.ones((9, 4))),
    (PPCA(2), "feature 3", GAP),
    (LogisticRegression(), "classes", subspace()),
]


@pytest.mark.parametrize(
    ("estimator", "culprit", "X"), [*((*case, None) for case in MISTAKES), *BAD_ROWS]
)
def test_mistakes_are_named(estimator, culprit, X):
    """In `fit`, as scikit-learn wants it."""
    rows, y = labelled()
    X, y = (rows, 2 * y - 1) if X is None else (X, np.ones(len(X)))
    with pytest.raises(ValueError, match=rf"\b{culprit}") as told:
        estimator.fit(X, y)
    assert culprit == "classes" or isinstance(told.value, dadmm.DadmmError)


def test_not_converging_is_a_warning_with_advice():
    X, y = regression()
    with pytest.warns(ConvergenceWarning, match="max_iter after 3") as caught:
        Ridge(max_iter=3).fit(X, y)
    assert caught[0].filename == __file__
    with pytest.warns(ConvergenceWarning, match="no_minimum"):
        LogisticRegression(C=np.inf).fit(X, X[:, 0] > 10.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Ridge().fit(X, y)


@pytest.mark.parametrize("kind", [PPCA, LogisticRegression])
def test_fitted_estimators_are_pickled_with_their_result(kind):
    """But without the communicator, which belongs to a job and not to a model."""
    X, y = labelled(3)
    fitted = kind(**QUICK).fit(X, y)
    fitted.comm = Lock()  # neither can be copied

    for twin in (pickle.loads(pickle.dumps(fitted)), copy.copy(fitted)):
        assert twin.comm is not fitted.comm
        with pytest.raises(ProblemError):  # it would fit the rows of one rank
            twin.fit(X, y)
        one, other = fitted.result_, twin.result_
        assert_array_equal(other.theta, one.theta)
        assert_array_equal(other.parts(0)[0], one.parts(0)[0])
        assert_array_equal(other.history["primal"], one.history["primal"])
        assert fitted.score(X, y) == twin.score(X, y)
    assert clone(fitted).comm is fitted.comm
    assert not hasattr(clone(fitted), "result_")


@pytest.mark.mpi
def test_every_rank_ends_with_the_estimator_of_one_process():
    """Bit by bit; and mistakes of one rank are told by all: see estimators.py."""
    ended = mpiexec(4, *program("estimators.py"))

    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 7
