"""When runs stop: certified, stopped, without a minimum; coordinates that change."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import Topology, penalty
from dadmm.problems import LogisticRegression, MultinomialLogistic, PoissonRegression
from tests.support.problems import quadratics
from tests.support.solving import solve
from tests.support.tables import KINDS, table

RING = Topology.ring(6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("agreement", ["neighbours", "global"])
def test_a_default_run_is_certified_in_any_units(kind, agreement):
    result = solve(table(kind, 6), RING, agreement=agreement)

    assert (result.status, result.why) == ("certified", "")
    assert result.coordinates == "metric"
    assert repr(result).startswith("<Result of 6 nodes: certified after ")
    assert result.converged
    assert result.iterations < 150


def labels(seed, kind):
    """Return problems of classes or counts, and what can be separated, if any."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 3)) * [1e-3, 1.0, 1e3]
    u, dummy = X @ [1e3, 1.0, 1e-3], rng.random(120) < 0.3
    noisy, alpha, counts = u + rng.logistic(size=120) > 0, 0.0, rng.poisson(2.0, 120)
    own, what, more = LogisticRegression, "the classes", ()
    if kind == "separable":
        y = u > 0.2
    elif kind == "one dummy":  # a column that is 1 for some rows of one class only
        X, y = np.column_stack([X, dummy]), dummy | noisy
    elif kind == "one class":
        y, alpha = np.ones(120), 1.0
    elif kind == "overlapping":
        y = noisy
    elif kind == "only zeros":
        own, y, alpha, what = PoissonRegression, 0 * counts, 1.0, "the rows with y = 0"
    elif kind == "a dummy of zeros":
        X, y = np.column_stack([X, dummy]), np.where(dummy, 0, counts)
        own, what = PoissonRegression, "the rows with y = 0"
    elif kind == "classes by planes":
        y = (X * [1e3, 1.0, 1e-3] @ rng.standard_normal((3, 3))).argmax(axis=1)
        own, what, more = MultinomialLogistic, "some classes", (3,)
    else:  # a class without rows
        y, alpha = rng.integers(2, size=120), 1.0
        own, what, more = MultinomialLogistic, "some classes", (3,)
    parts = np.array_split(np.arange(120), 6)
    return [own(X[i], y[i].astype(float), *more, alpha) for i in parts], what


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "kind",
    [
        "separable", "one dummy", "one class", "only zeros", "a dummy of zeros",
        "classes by planes", "a class without rows", "overlapping",
    ],
)  # fmt: skip
def test_a_problem_without_minimum_is_recognised(kind, seed):
    problems, what = labels(seed, kind)
    result = solve(problems, RING)

    if kind == "overlapping":
        assert result.status == "certified"
        return
    assert (result.status, result.reason) == ("not converged", "no_minimum")
    assert not result.converged
    assert result.why.startswith(what)


def test_the_status_says_what_is_not_known():
    plain = table("least_squares", 6, per_node=20)
    own = quadratics(6)

    fixed = solve(plain, RING, scheme=penalty.Fixed(eta0=1.0), max_iter=5)
    raw = solve(plain, RING, coordinates="raw", max_iter=5)
    other = solve(own, RING)

    assert fixed.certificate is not None
    assert raw.certificate is None
    assert fixed.status == raw.status == "not converged"
    assert (other.status, other.converged) == ("stopped", True)
    assert "gradient" in other.why
    for problem in own:
        problem.convex = True
    convex = solve(own, RING)
    assert convex.status == "stopped"
    assert "Quadratic" in convex.why


@pytest.mark.parametrize("kind", ["logistic", "huber", "multinomial"])
def test_coordinates_change_where_the_curvature_is_far_from_the_start(kind):
    changes = []

    def watch(t, run):
        changes.append(int(run.state.coordinates["changes"]))

    result = solve(table(kind, 6), RING, callbacks=[watch])

    assert result.status == "certified"
    assert changes[-1] >= 1
    assert changes == sorted(changes)
