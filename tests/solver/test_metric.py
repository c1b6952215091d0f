"""When runs stop: certified, stopped, without a minimum; coordinates that change."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology, penalty
from dadmm.admm.loop import iterate
from dadmm.problems import (
    LogisticRegression,
    MultinomialLogistic,
    PoissonRegression,
)
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


@pytest.mark.parametrize("kind", ["logistic", "huber", "multinomial"])
def test_coordinates_change_where_the_curvature_is_far_from_the_start(kind):
    changes = []

    def watch(t, run):
        changes.append(int(run.state.coordinates["changes"]))

    result = solve(table(kind, 6), RING, callbacks=[watch])

    assert result.status == "certified"
    assert changes[-1] >= 1
    assert changes == sorted(changes)


def labels(seed, kind):
    """Return a table of two classes that can be separated, or almost."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 3)) * [1e-3, 1.0, 1e3]
    u = X @ [1e3, 1.0, 1e-3]
    y = (u > 0.2).astype(float)
    if kind == "one dummy":  # a column that is 1 for some rows of one class only
        dummy = rng.random(120) < 0.3
        y = np.where(dummy, 1.0, u + rng.logistic(size=120) > 0)
        X = np.column_stack([X, dummy])
    elif kind == "overlapping":
        y = (u + rng.logistic(size=120) > 0).astype(float)
    elif kind == "one class":
        y[:] = 1.0
    parts = np.array_split(np.arange(120), 6)
    alpha = 1.0 if kind == "one class" else 0.0
    return [LogisticRegression(X[part], y[part], alpha) for part in parts]


@pytest.mark.parametrize("kind", ["separable", "one dummy", "one class"])
@pytest.mark.parametrize("seed", range(3))
def test_a_problem_without_minimum_is_recognised(kind, seed):
    result = solve(labels(seed, kind), RING)

    assert (result.status, result.converged) == ("not converged", False)
    assert result.reason == "no_minimum"
    assert "separated" in result.why


def counted(seed, kind):
    """Return problems whose sum has no minimum, and what can be separated."""
    rng = np.random.default_rng(seed)
    X, zero = rng.standard_normal((120, 2)) * [1.0, 1e3], rng.random(120) < 0.2
    y, alpha = rng.poisson(2.0, size=120), 0.0
    if kind == "only zeros":
        y, alpha = 0 * y, 1.0
    if kind == "a dummy":
        X, y = np.column_stack([X, zero]), np.where(zero, 0, y)
    parts = np.array_split(np.arange(120), 6)
    if kind in ("only zeros", "a dummy"):
        own = [PoissonRegression(X[part], y[part], alpha) for part in parts]
        return own, "the rows with y = 0"
    classes = (X / [1.0, 1e3] @ rng.standard_normal((2, 3))).argmax(axis=1)
    if kind == "a class without rows":
        classes, alpha = rng.integers(2, size=120), 1.0
    own = [MultinomialLogistic(X[part], classes[part], 3, alpha) for part in parts]
    return own, "some classes"


@pytest.mark.parametrize(
    "kind", ["only zeros", "a dummy", "classes by planes", "a class without rows"]
)
@pytest.mark.parametrize("seed", range(2))
def test_counts_and_classes_without_minimum_are_recognised(kind, seed):
    problems, what = counted(seed, kind)

    result = solve(problems, RING)

    assert (result.status, result.reason) == ("not converged", "no_minimum")
    assert result.why.startswith(what)
    assert result.why.endswith("be separated")


@pytest.mark.parametrize("seed", range(5))
def test_classes_that_overlap_have_a_minimum(seed):
    assert solve(labels(seed, "overlapping"), RING).status == "certified"


def test_the_status_says_what_is_not_known():
    plain = table("least_squares", 6, per_node=20)
    own = quadratics(6)

    fixed = solve(plain, RING, scheme=penalty.Fixed(eta0=1.0), max_iter=5)
    raw = solve(plain, RING, coordinates="raw", max_iter=5)
    other = solve(own, RING)

    assert fixed.certificate is not None
    assert raw.why == "raw coordinates were asked for"
    assert raw.certificate is None
    assert fixed.status == raw.status == "not converged"
    assert (other.status, other.converged) == ("stopped", True)
    assert "no method gradient" in other.why
    for problem in own:
        problem.convex = True
    convex = solve(own, RING)
    assert convex.status == "stopped"
    assert convex.why == "the problem Quadratic has no methods rows and within"


def test_a_state_from_before_a_change_brings_its_coordinates():
    """As after a failure, when nodes return to an earlier iteration."""
    seen = []

    def watch(t, run):
        seen.append((t, run, int(run.state.coordinates["changes"]), run.snapshot()))

    result = solve(table("logistic", 6), RING, callbacks=[watch])
    t, run, before, state = seen[2]
    assert (before, seen[-1][2] > 0) == (0, True)
    run.restore(state)

    assert iterate(run, 1000, start=t) == (result.iterations, "converged")
    assert_array_equal(run.theta, result.theta)
