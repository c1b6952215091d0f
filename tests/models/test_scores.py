"""Scores over the rows of all nodes, against scikit-learn and plain formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import Topology
from dadmm.comm.tree import TreeReduction
from dadmm.models.scores import BINS, Rows, score, standard_errors

REDUCE = TreeReduction(Topology.chain(4)).reduce
RNG = np.random.default_rng(0)
X, WEIGHT = RNG.standard_normal((120, 3)) + 5.0, RNG.random(120)
DESIGN = np.column_stack([X, np.ones(120)])
FIT = {"coef": np.array([1.0, -1.0, 0.5]), "intercept": np.array(-2.5)}
MANY = {"coef": 0.3 * RNG.standard_normal((3, 3)), "intercept": RNG.standard_normal(3)}
FITTED, LABELS = X @ FIT["coef"] - 2.5, RNG.integers(0, 2, 120).astype(float)


def total(values, merge=np.add, finish=None):
    return REDUCE(dict(enumerate(values)), merge, finish)


def split(X, y=None, weight=None):
    """Return rows of four nodes, the last of which has three only."""
    cuts = [10, 40, len(X) - 3]
    blocks = [np.split(a, cuts) if a is not None else [None] * 4 for a in (y, weight)]
    return [Rows(*own) for own in zip(np.split(X, cuts), *blocks, strict=True)]


def probabilities(X, fit):
    """Return those of two or of several classes, by the formula."""
    margins = X @ fit["coef"].T + fit["intercept"]
    if margins.ndim == 1:
        margins = np.column_stack([np.zeros(len(X)), margins])
    powers = np.exp(margins)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_regressions_and_counts_have_the_scores_of_scikit_learn(weight):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    y = FITTED + 1e3 + rng.standard_normal(120)
    shifted = FIT | {"intercept": np.array(1e3)}
    found = score(total, "regression", shifted, split(X, y, weight))
    given = {"y_true": y, "y_pred": FITTED + 1002.5, "sample_weight": weight}
    expected = {
        "r2": metrics.r2_score(**given),
        "rmse": metrics.root_mean_squared_error(**given),
    }
    assert found.values == pytest.approx(expected, rel=1e-10)
    assert found.n_rows == 120
    y = rng.poisson(np.exp(FITTED)).astype(float)
    found = score(total, "counts", FIT, split(X, y, weight)).values
    given = {"y_pred": np.exp(FITTED), "sample_weight": weight, "power": 1}
    expected = metrics.d2_tweedie_score(y, **given)
    assert_allclose(found["deviance_explained"], expected, rtol=1e-10)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("fit", [FIT, MANY])
def test_classes_have_accuracy_and_log_loss_and_two_an_auc(fit, weight):
    """The area from histograms is off by no more than its bound."""
    metrics = pytest.importorskip("sklearn.metrics")
    p = probabilities(X, fit)
    y = LABELS if fit is FIT else np.arange(120.0) % 3

    scores = score(total, "classification", fit, split(X, y, weight))

    found, best = scores.values, p.argmax(axis=1)
    expected = {
        "accuracy": metrics.accuracy_score(y, best, sample_weight=weight),
        "log_loss": metrics.log_loss(y, p, sample_weight=weight),
    }
    if fit is FIT:
        assert_allclose(scores.by_class, np.bincount(y.astype(int), weight))
        area = metrics.roc_auc_score(y, p[:, 1], sample_weight=weight)
        error = found.pop("auc_error")
        assert abs(found.pop("auc") - area) <= error + 1e-12
        assert 0.0 < error < 3.0 / BINS
    assert found == pytest.approx(expected, rel=1e-10)


def test_a_subspace_has_the_fraction_of_the_variance():
    rng = np.random.default_rng(1)
    W, mu = rng.standard_normal((5, 2)), rng.standard_normal(5)
    rows = rng.standard_normal((60, 5)) + mu
    again = (rows - mu) @ W @ np.linalg.pinv(W) + mu

    found = score(total, "subspace", {"W": W, "mu": mu, "a": np.array(9)}, split(rows))

    expected = 1.0 - ((rows - again) ** 2).sum() / ((rows - mu) ** 2).sum()
    assert_allclose(found.values["explained_variance"], expected, rtol=1e-12)
    assert found.n_rows == 60


def test_what_is_not_defined_is_none():
    """R2 of a constant target, AUC of one class, and any score of another problem."""
    fit = {"coef": np.zeros(3), "intercept": np.array(0.3)}
    same = split(X, np.ones(120))

    assert score(total, "regression", fit, same).values["r2"] is None
    assert score(total, "classification", fit, same).values["auc"] is None
    assert score(total, None, fit, same).values == {}
    equal = score(total, "classification", fit, split(X, LABELS)).values
    assert (equal["auc"], equal["auc_error"]) == (0.5, 0.0)


@pytest.mark.parametrize("kind", ["regression", "classification", "counts"])
def test_standard_errors_in_other_units(kind):
    """The root of the diagonal of s A (X'VX)^-1 A', V = w, w p (1 - p) or w m.

    s is RSS / (N - p) for least squares, else 1.
    """
    p, v, variance = probabilities(X, FIT)[:, 1], WEIGHT, 1.0
    if kind == "regression":
        variance = (v * (LABELS - FITTED) ** 2).sum() / (120 - 4)
    else:
        v = v * (p * (1.0 - p) if kind == "classification" else np.exp(FITTED))
    A = np.diag([0.5, 0.1, 2.0, 1.0])
    A[3, :3] = [1.0, 2.0, -3.0]
    inverse, own = np.linalg.inv((DESIGN.T * v) @ DESIGN), split(X, LABELS, WEIGHT)

    found = score(total, kind, FIT, own).variance
    errors = standard_errors(total, kind, FIT, own, A, found)

    assert_allclose(found, variance, rtol=1e-10)
    assert_allclose(errors, np.sqrt(variance * np.diag(A @ inverse @ A.T)), rtol=1e-8)


def test_standard_errors_of_several_classes_are_those_of_centred_coefficients():
    """The pseudo-inverse of the Hessian of softmax, which lacks common shifts."""
    rows = X - 5.0
    design, p = np.column_stack([rows, np.ones(120)]), probabilities(rows, MANY)
    hessian = sum(
        np.kron(np.diag(q) - np.outer(q, q), np.outer(x, x))
        for q, x in zip(p, design, strict=True)
    )
    expected = np.sqrt(np.diag(np.linalg.pinv(hessian, rcond=1e-10)))

    own = split(rows, np.zeros(120))
    errors = standard_errors(total, "classification", MANY, own, np.eye(4))

    assert_allclose(errors, expected, rtol=1e-8)


def test_open_coefficients_have_no_standard_error():
    """Two columns are the same, and one is zero; the others are determined."""
    rows = np.column_stack([X[:, 0], X[:, :2], np.zeros(120)])
    inverse = np.linalg.inv(X[:, :2].T @ X[:, :2])

    fit = {"coef": np.zeros(4)}
    errors = standard_errors(total, "regression", fit, split(rows), np.eye(4))

    assert_allclose(errors, [np.nan, np.nan, np.sqrt(inverse[1, 1]), np.nan])
