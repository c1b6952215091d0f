"""Scores over the rows of all nodes, against scikit-learn and plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import Topology
from dadmm.comm.tree import TreeReduction
from dadmm.models.scores import BINS, Rows, score, standard_errors

GRAPH = Topology.chain(4)


def total(values, merge=np.add, finish=None):
    return TreeReduction(GRAPH).reduce(dict(enumerate(values)), merge, finish)


def split(X, y=None, weight=None):
    """Return rows of four nodes, the last of which has three only."""
    cuts = [10, 40, len(X) - 3]
    blocks = [np.split(a, cuts) if a is not None else [None] * 4 for a in (y, weight)]
    return [Rows(*own) for own in zip(np.split(X, cuts), *blocks, strict=True)]


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def X(rng):
    return rng.standard_normal((120, 3)) + 5.0


def probabilities(X, fit):
    """Return those of two or of several classes, by the formula."""
    margins = X @ fit["coef"].T + fit["intercept"]
    if margins.ndim == 1:
        margins = np.column_stack([np.zeros(len(X)), margins])
    powers = np.exp(margins)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_regressions_and_counts_have_the_scores_of_scikit_learn(rng, X, weighted):
    metrics = pytest.importorskip("sklearn.metrics")
    weight = rng.random(120) if weighted else None
    fit = {"coef": np.array([0.3, -0.2, 0.1]), "intercept": np.array(0.5)}
    fitted = X @ fit["coef"] + 0.5

    y = fitted + 1e3 + rng.standard_normal(120)
    found = score(
        total, "regression", fit | {"intercept": np.array(1e3)}, split(X, y, weight)
    )
    given = {"y_true": y, "y_pred": fitted + 999.5, "sample_weight": weight}
    expected = {
        "r2": metrics.r2_score(**given),
        "rmse": metrics.root_mean_squared_error(**given),
    }
    assert found.values == pytest.approx(expected, rel=1e-10)
    assert found.n_rows == 120

    y = rng.poisson(np.exp(fitted)).astype(float)
    found = score(total, "counts", fit, split(X, y, weight)).values
    given = {"y_pred": np.exp(fitted), "sample_weight": weight, "power": 1}
    expected = metrics.d2_tweedie_score(y, **given)
    assert_allclose(found["deviance_explained"], expected, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes_have_accuracy_and_log_loss_and_two_an_auc(rng, X, classes, weighted):
    """The area from histograms is off by no more than its bound."""
    metrics = pytest.importorskip("sklearn.metrics")
    fit = {"coef": np.array([1.0, -1.0, 0.5]), "intercept": np.array(-2.5)}
    if classes == 3:
        fit = {"coef": rng.standard_normal((3, 3)), "intercept": rng.standard_normal(3)}
    p = probabilities(X, fit)
    y = rng.integers(0, classes, 120).astype(float)
    weight = rng.random(120) if weighted else None

    scores = score(total, "classification", fit, split(X, y, weight))
    found, sizes = scores.values, np.bincount(y.astype(int), weight)

    expected = {
        "accuracy": metrics.accuracy_score(y, p.argmax(axis=1), sample_weight=weight),
        "log_loss": metrics.log_loss(y, p, sample_weight=weight),
    }
    if classes == 2:
        assert_allclose(scores.by_class, sizes)
        area = metrics.roc_auc_score(y, p[:, 1], sample_weight=weight)
        error = found.pop("auc_error")
        assert abs(found.pop("auc") - area) <= error + 1e-12
        assert 0.0 < error < 3.0 / BINS
    assert found == pytest.approx(expected, rel=1e-10)


def test_a_subspace_has_the_fraction_of_the_variance(rng):
    W, mu = rng.standard_normal((5, 2)), rng.standard_normal(5)
    X = rng.standard_normal((60, 2)) @ W.T + mu + 0.1 * rng.standard_normal((60, 5))
    fit = {"W": W, "mu": mu, "a": np.array(100.0)}
    again = (X - mu) @ W @ np.linalg.pinv(W) + mu

    found = score(total, "subspace", fit, split(X))

    expected = 1.0 - ((X - again) ** 2).sum() / ((X - mu) ** 2).sum()
    assert_allclose(found.values["explained_variance"], expected, rtol=1e-12)
    assert found.n_rows == 60


def test_what_is_not_defined_is_none(X):
    """R2 of a constant target, AUC of one class, and any score of another problem."""
    fit = {"coef": np.zeros(3), "intercept": np.array(0.3)}
    same = split(X, np.ones(120))

    assert score(total, "regression", fit, same).values["r2"] is None
    assert score(total, "classification", fit, same).values["auc"] is None
    assert score(total, None, fit, same).values == {}
    equal = score(total, "classification", fit, split(X, np.arange(120.0) % 2)).values
    assert (equal["auc"], equal["auc_error"]) == (0.5, 0.0)


@pytest.mark.parametrize("kind", ["regression", "classification", "counts"])
def test_standard_errors_in_other_units(rng, X, kind):
    """The root of the diagonal of s A (X'VX)^-1 A', V = w, w p (1 - p) or w m.

    s is RSS / (N - p) for least squares, else 1.
    """
    design, weight = np.column_stack([X, np.ones(120)]), rng.random(120)
    theta, y = np.array([1.0, -1.0, 0.5, -2.5]), rng.integers(0, 2, 120).astype(float)
    p, v, variance = 1.0 / (1.0 + np.exp(-design @ theta)), weight, 1.0
    if kind == "regression":
        variance = (weight * (y - design @ theta) ** 2).sum() / (120 - 4)
    else:
        v = weight * (p * (1.0 - p) if kind[1] == "l" else np.exp(design @ theta))
    A = np.diag([0.5, 0.1, 2.0, 1.0])
    A[3, :3] = [1.0, 2.0, -3.0]
    inverse = np.linalg.inv((design * v[:, None]).T @ design)
    fit, own = {"coef": theta[:3], "intercept": theta[3]}, split(X, y, weight)

    found = score(total, kind, fit, own).variance
    errors = standard_errors(total, kind, fit, own, A, found)

    assert_allclose(found, variance, rtol=1e-10)
    assert_allclose(errors, np.sqrt(variance * np.diag(A @ inverse @ A.T)), rtol=1e-8)


def test_standard_errors_of_several_classes_are_those_of_centred_coefficients(rng, X):
    """The pseudo-inverse of the Hessian of softmax, which lacks common shifts."""
    coef, intercept = rng.standard_normal((3, 3)), rng.standard_normal(3)
    design = np.column_stack([X - 5.0, np.ones(120)])
    fit = {"coef": coef, "intercept": intercept}
    p = probabilities(X - 5.0, fit)
    hessian = sum(
        np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x))
        for q, x in zip(p, design, strict=True)
    )
    expected = np.sqrt(np.diag(np.linalg.pinv(hessian, rcond=1e-10)))

    own = split(X - 5.0, np.zeros(120))
    errors = standard_errors(total, "classification", fit, own, np.eye(4))

    assert_allclose(errors, expected, rtol=1e-8)


def test_open_coefficients_have_no_standard_error(X):
    """Two columns are the same, and one is zero; the others are determined."""
    rows = np.column_stack([X[:, 0], X[:, 0], X[:, 1], np.zeros(120)])
    inverse = np.linalg.inv(X[:, :2].T @ X[:, :2])

    own = [Rows(block) for block in np.split(rows, 4)]
    fit = {"coef": np.zeros(4)}
    errors = standard_errors(total, "regression", fit, own, np.eye(4))

    assert np.isnan(errors[[0, 1, 3]]).all()
    assert_allclose(errors[2], np.sqrt(inverse[1, 1]), rtol=1e-9)
