"""Estimators for scikit-learn: its checks, its solutions, and what a network adds."""

from __future__ import annotations

import copy
import pickle
import warnings

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

EVERY = (
    PPCA, LogisticRegression, Ridge, Lasso, ElasticNet, HuberRegressor, PoissonRegressor
)  # fmt: skip
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


def labelled(n_classes=2, n=80, names=None):
    """Return X and labels of classes that overlap."""
    X, y = regression(n, 4)
    cuts = np.quantile(y, np.arange(1, n_classes) / n_classes)
    noisy = y + np.random.default_rng(1).normal(size=n)
    return X, np.arange(n_classes)[np.searchsorted(cuts, noisy)]


def subspace(n=80, d=8, m=2, noise=0.3, seed=0):
    """Return rows about an m-dimensional plane, far from zero and in large units."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, m)) * np.linspace(3.0, 1.0, m)
    rows = rng.standard_normal((n, m)) @ W.T + noise * rng.standard_normal((n, d))
    return 200.0 * rows + 5000.0


NEWTON = {"tol": 1e-12, "solver": "newton-cholesky"}
SPARSE = {"tol": 1e-14, "max_iter": 100_000}
TWINS = [
    (Ridge(3.0), {"tol": 1e-12}),
    (Lasso(0.4), SPARSE),
    (ElasticNet(0.3), SPARSE),
    (ElasticNet(0.3, l1_ratio=0.9, topology="complete", n_nodes=5), SPARSE),
    (PoissonRegressor(0.0), NEWTON),
    (PoissonRegressor(0.5), NEWTON),
    *[(LogisticRegression(C), NEWTON) for C in (0.1, 10.0, np.inf)],
]


def twin(ours, tight):
    """Return the estimator of scikit-learn with the parameters of ours, but tight."""
    known = {"alpha", "C", "l1_ratio", "fit_intercept"}
    given = {k: v for k, v in ours.get_params().items() if k in known}
    return getattr(linear_model, type(ours).__name__)(**given, **tight)


def compare(ours, theirs, X, rows=None):
    """Compare coefficients and all predictions of two estimators."""
    rows = X if rows is None else rows
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    for method in ("decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(theirs, method):
            found, wanted = getattr(ours, method)(rows), getattr(theirs, method)(X)
            assert_allclose(found, wanted, atol=1e-5)
    if hasattr(theirs, "classes_"):
        assert_array_equal(ours.predict(rows), theirs.predict(X))
    else:
        assert_allclose(ours.predict(rows), theirs.predict(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(("ours", "tight"), TWINS)
def test_linear_models_are_those_of_scikit_learn(ours, tight, fit_intercept):
    """The same alpha means the same, with whatever number of nodes."""
    X, y = regression()
    if isinstance(ours, PoissonRegressor | LogisticRegression):
        X, y = labelled(5 if isinstance(ours, PoissonRegressor) else 2)
    ours = clone(ours).set_params(fit_intercept=fit_intercept, **TIGHT).fit(X, y)
    theirs = twin(ours, tight).fit(X, y)

    compare(ours, theirs, X)
    assert ours.result_.converged
    assert_array_equal(ours.coef_ == 0.0, theirs.coef_ == 0.0)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_more_classes_are_multinomial(fit_intercept):
    """Labels are sorted, so that nodes have one or two classes each."""
    X, y = labelled(3)
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.array(["ash", "birch", "cedar"])[y[order]]

    ours = LogisticRegression(fit_intercept=fit_intercept, **TIGHT).fit(X, y)

    assert_array_equal(ours.classes_, ["ash", "birch", "cedar"])
    compare(ours, twin(ours, NEWTON).fit(X, y), X)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_huber_regression_stands_where_no_force_is_left(fit_intercept):
    """The errors, cut off at delta, balance the penalty; scikit-learn's is near."""
    X, y = regression()
    y[::7] += 40.0
    theirs = linear_model.HuberRegressor(
        alpha=0.1, fit_intercept=fit_intercept, tol=1e-8, max_iter=10000
    ).fit(X, y)
    s = theirs.scale_

    ours = HuberRegressor(
        1.35 * s, alpha=0.1 * s, fit_intercept=fit_intercept, **TIGHT
    ).fit(X, y)

    force = np.clip(ours.predict(X) - y, -ours.delta, ours.delta)
    assert_allclose(force @ X, -ours.alpha * ours.coef_, atol=1e-5)
    assert not fit_intercept or abs(force.sum()) < 1e-6
    assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    assert_array_equal(ours.outliers_, np.abs(y - ours.predict(X)) > 1.35 * s)
    assert ours.outliers_[::7].all()
    ours.fit(csr_matrix(X), y, np.arange(len(X)) % 3)  # some have no weight
    assert ours.outliers_.shape == y.shape


@pytest.mark.parametrize("dense", [np.asarray, csr_matrix, csc_array])
@pytest.mark.parametrize(("ours", "tight"), [*TWINS[:3], *TWINS[5:7]])
def test_weights_and_sparse_rows_are_those_of_scikit_learn(ours, tight, dense):
    """Nodes may have no row of a positive weight; such rows count as absent."""
    X, y = labelled(3)
    X = np.where(X < 9.5, 0.0, X)
    weights = np.random.default_rng(2).uniform(0.1, 3.0, len(X))
    weights[:40], weights[50::9] = 0.0, 0.0
    theirs = twin(ours, tight).fit(X, y, weights)

    ours = clone(ours).set_params(**TIGHT).fit(dense(X), y, weights)

    compare(ours, theirs, X, dense(X))
    score = theirs.score(X, y, weights)
    assert_allclose(ours.score(dense(X), y, weights), score, atol=1e-6)


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
    exact, bytes_of = Ridge().fit(X, y), lambda ours: ours.result_.traffic.bytes
    for given in (
        {"sending": "float32"},
        {"sending": dadmm.Sending("quantised:6")},
        {"options": {"payload": "float16"}},
    ):
        ours = Ridge(**given).fit(X, y)
        assert_allclose(ours.coef_, exact.coef_, atol=1e-3)
        assert bytes_of(ours) / ours.n_iter_ < bytes_of(exact) / exact.n_iter_
    ours = Ridge(options={"record": False, "eta0": 5.0}, scheme="fixed").fit(X, y)
    assert len(ours.result_.history) == 0
    assert (ours.result_.eta == 5.0).all()


@pytest.mark.parametrize("n_nodes", [1, 4])
@pytest.mark.parametrize("noise", [1.0, 0.1])
def test_ppca_is_pca_with_a_noise(n_nodes, noise):
    """In any unit and about any place; a maximum likelihood divides by n, not n - 1."""
    X = subspace(noise=noise)
    theirs, share = PCA(2).fit(X), 79 / 80
    ours = PPCA(2, n_nodes=n_nodes, tolerance=1e-4).fit(X)

    assert_allclose(ours.components_, theirs.components_, atol=1e-4)
    assert_allclose(ours.mean_, theirs.mean_)
    for name, factor in {
        "explained_variance_": share,
        "noise_variance_": share,
        "explained_variance_ratio_": 1.0,
    }.items():
        found, wanted = getattr(ours, name), factor * getattr(theirs, name)
        assert_allclose(found, wanted, rtol=1e-6)
    assert_allclose(ours.transform(X), theirs.transform(X), atol=0.2)
    assert_allclose(ours.get_covariance(), share * theirs.get_covariance(), rtol=1e-3)
    best = dadmm.metrics.ppca_reference(X, 2)
    best = dadmm.metrics.ppca_log_likelihood(X, *best) / 80
    assert best - 1e-6 < ours.score(X) < best + 1e-9


def test_scores_are_log_densities():
    X = subspace(noise=1.0)
    ours = PPCA(2).fit(X)
    X[3, 2], X[4, 1:] = np.nan, np.nan
    C, scores = ours.get_covariance(), ours.score_samples(X[:6])

    for row, score in zip(X[:6], scores, strict=True):
        o = ~np.isnan(row)
        density = multivariate_normal(ours.mean_[o], C[np.ix_(o, o)])
        assert_allclose(score, density.logpdf(row[o]))
    assert_allclose(ours.score(X[:6]), scores.mean())
    assert_allclose(ours.get_precision() @ C, np.eye(8), atol=1e-12)


def test_missing_entries_are_left_out():
    """The fit is that of `solve`."""
    X = subspace(n=120, noise=1.0)
    holed = np.where(np.random.default_rng(1).random(X.shape) < 0.3, np.nan, X)
    holed[:30, 0] = np.nan  # the first node never sees this column

    ours = PPCA(2, tolerance=1e-4).fit(holed)

    nodes = [dadmm.problems.PPCA(rows, 2) for rows in dadmm.shard.split(holed, 4)]
    result = dadmm.solve(nodes, dadmm.Topology.ring(4))
    W, mu, a = result.layout.views(result.solution)
    best = dadmm.metrics.ppca_log_likelihood(holed, W, mu, float(a))
    assert_allclose(ours.score(holed), best / 120, rtol=1e-6)


def test_nodes_are_no_more_than_rows_allow():
    """One row each for regressions, two for PPCA; a graph is taken as it is."""
    X, y = regression(6, 2)

    assert Ridge().fit(X, y).result_.topology.n_nodes == 4
    assert Ridge(n_nodes=20).fit(X, y).result_.topology.n_nodes == 6
    assert PPCA(1, n_nodes=20).fit(X).result_.topology.n_nodes == 3
    graph = dadmm.Topology.star(5)
    assert Ridge(topology=graph).fit(X, y).result_.topology is graph
    with pytest.raises(ValueError, match="7 nodes"):
        Ridge(topology=dadmm.Topology.ring(7)).fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "culprit"),
    [
        (Ridge(-1.0), "alpha"),
        (Ridge(np.inf), "alpha"),
        (LogisticRegression(0.0), "C"),
        (LogisticRegression("1"), "C"),
        (PoissonRegressor(), "y"),
        (Ridge(sending="int8"), "payload"),
        (HuberRegressor(0.0), "delta"),
        (ElasticNet(l1_ratio=2.0), "l1_ratio"),
        (Ridge(n_nodes=0), "n_nodes"),
        (Ridge(topology="tree"), "graph 'tree'"),
        (Ridge(n_nodes=3, topology=dadmm.Topology.ring(4)), "4 nodes"),
        (Ridge(scheme="best"), "scheme"),
        (Ridge(options={"coupling": "none"}), "coupling"),
        (PPCA(4), "n_components"),
        (PPCA(1.5), "n_components"),
        (PPCA(3), "noise"),
    ],
)
def test_mistakes_are_named(estimator, culprit):
    """In `fit`, as scikit-learn wants it, and of a kind that both sides know."""
    X, y = labelled()
    rows = 4 if culprit == "noise" else 80
    with pytest.raises(dadmm.DadmmError, match=rf"\b{culprit}") as told:
        estimator.fit(X[:rows], 2 * y[:rows] - 1)
    assert isinstance(told.value, ValueError)


@pytest.mark.parametrize(
    ("estimator", "X", "culprit"),
    [
        (PPCA(2), np.ones((9, 4)), "equal"),
        (PPCA(2), np.where(np.arange(8) == 3, np.nan, subspace()), "feature 3"),
        (LogisticRegression(), subspace(), "classes"),
    ],
)
def test_data_that_leave_nothing_to_fit_are_told(estimator, X, culprit):
    with pytest.raises(ValueError, match=culprit):
        estimator.fit(X, np.ones(len(X)))


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


class Handle:
    """A communicator, as far as copies are concerned: there is no second one."""

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")

    def __reduce__(self):
        raise TypeError("cannot be pickled")


@pytest.mark.parametrize("kind", [PPCA, LogisticRegression])
def test_fitted_estimators_are_pickled_with_their_result(kind):
    """But without the communicator, which belongs to a job and not to a model."""
    X, y = labelled(3 if kind is LogisticRegression else 2)
    fitted = kind(**QUICK).fit(X, y)
    fitted.comm = Handle()

    for twin in (pickle.loads(pickle.dumps(fitted)), copy.copy(fitted)):
        assert twin.comm is not fitted.comm
        with pytest.raises(ProblemError):  # it would fit the rows of one rank
            twin.fit(X, y)
        one, other = fitted.result_, twin.result_
        assert_array_equal(other.theta, one.theta)
        assert_array_equal(other.parts(0)[0], one.parts(0)[0])
        assert_array_equal(other.history["primal"], one.history["primal"])
    assert_array_equal(fitted.score(X, y), twin.score(X, y))
    assert clone(fitted).comm is fitted.comm
    assert not hasattr(clone(fitted), "result_")


@pytest.mark.mpi
def test_every_rank_ends_with_the_estimator_of_one_process():
    """Bit by bit; and mistakes of one rank are told by all: see estimators.py."""
    ended = mpiexec(4, *program("estimators.py"))

    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 6
