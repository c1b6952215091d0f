"""Coordinates: the Hessian is one in z, open directions are dropped, units cancel."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm.comm.tree import TreeReduction
from dadmm.core.errors import ProblemError
from dadmm.graphs import topology
from dadmm.problems import Lasso, LeastSquares, LogisticRegression, Smooth
from dadmm.solver.coordinates import Coordinates, find_coordinates, spectrum
from tests.support.solving import solve

UNPENALISED = partial(LogisticRegression, alpha=0.0)


def total_of(graph):
    """Return a sum over the nodes of a graph in one process."""
    tree = TreeReduction(graph)

    def total(rows, merge=np.add, finish=None):
        return tree.reduce(dict(enumerate(rows)), merge, finish)

    return total, tree


def rows_of(seed=0, n=6, per_node=10, units=True):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n * per_node, 4))
    if units:
        X = X * [1e-5, 1.0, 1e4, 3.0] + [0.0, 1e3, 0.0, 7.0]
    return np.split(X, n), np.split(rng.standard_normal(len(X)), n)


@pytest.mark.parametrize("name", ["ring", "star", "chain"])
@pytest.mark.parametrize("per_node", [1, 10])
def test_the_mean_of_all_hessians_is_one_in_z(name, per_node):
    X, y = rows_of(per_node=per_node)
    problems = [LeastSquares(*own) for own in zip(X, y, strict=True)]
    total, _ = total_of(topology.build(name, 6))

    found = find_coordinates(total, problems, [np.zeros(5)] * 6, 6)

    whole = np.column_stack([np.vstack(X), np.ones(6 * per_node)])
    mean = (whole @ found.map).T @ (whole @ found.map) / 6
    assert_allclose(mean, np.eye(5), atol=1e-8)
    assert_allclose(found.inverse @ found.map, np.eye(5), atol=1e-8)
    assert found.n_open == 0
    values, axes = spectrum(
        total, [p.within(found.map).rows(None) for p in problems], 6
    )
    assert_allclose(values, np.ones(5), atol=1e-8)
    assert_allclose(axes.T @ axes, np.eye(5), atol=1e-12)


def test_directions_that_the_data_leave_open_are_dropped_and_named():
    X, y = rows_of(units=False)
    twice = [np.column_stack([x, x[:, 0], 0.0 * x[:, 0]]) for x in X]
    total, _ = total_of(topology.build("ring", 6))
    problems = [LeastSquares(*own) for own in zip(twice, y, strict=True)]

    found = find_coordinates(total, problems, [np.zeros(7)] * 6, 6)

    assert found.map.shape == (7, 5)
    assert found.n_open == 2
    # column 0 and its copy, and the column of zeros; not the intercept
    assert found.is_open.tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    assert_allclose(found.inverse @ found.map, np.eye(5), atol=1e-10)


def test_one_kind_of_problem_that_needs_an_inverse_is_enough():
    """The flag travels with the factors: the root itself may not need one."""
    X, y = rows_of(units=False)
    twice = [np.column_stack([x, x[:, 0]]) for x in X]
    problems = [LeastSquares(*own) for own in zip(twice, y, strict=True)]
    problems[3] = Lasso(twice[3], y[3])
    total, _ = total_of(topology.build("ring", 6))

    found = find_coordinates(total, problems, [np.zeros(6)] * 6, 6)

    assert found.map.shape == (6, 6)
    assert found.n_open == 1
    assert np.linalg.matrix_rank(found.map, tol=1e-12) == 6


def test_a_change_makes_the_hessian_one_again():
    rng = np.random.default_rng(3)
    root = rng.standard_normal((5, 5))
    hessian = root.T @ root + 0.1 * np.eye(5)
    now = Coordinates(np.eye(5), np.eye(5), np.zeros(5), *map(np.array, np.ones(5)))

    values, axes = np.linalg.eigh(hessian)
    found, primal, dual = now.changed(values, axes)

    assert_allclose(found.map.T @ hessian @ found.map, np.eye(5), atol=1e-12)
    assert_allclose(found.inverse @ found.map, np.eye(5), atol=1e-12)
    assert_allclose(dual.T @ primal, np.eye(5), atol=1e-12)
    z = rng.standard_normal(5)
    assert_allclose(found.map @ (z @ primal), z, atol=1e-12)
    T = found.map / np.linalg.norm(found.map, axis=1, keepdims=True)
    assert_allclose(found.condition, np.linalg.cond(T))


def test_a_node_sends_a_triangle_up_and_the_root_a_map_down():
    X, y = rows_of()
    graph = topology.build("star", 6)
    total, tree = total_of(graph)

    problems = [LeastSquares(*own) for own in zip(X, y, strict=True)]
    find_coordinates(total, problems, [np.zeros(5)] * 6, 6)

    up = graph.edges[:, 1] == 0
    assert (tree.sent[:, 0] == 1).all()
    assert (tree.sent[up, 1] == 8 + 8 + 8 * (15 + 4)).all()
    assert (tree.sent[~up, 1] == 8 + 16 + 8 * 5 * (2 * 5 + 6)).all()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("unit", [1e-310, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("kind", [LeastSquares, Lasso, UNPENALISED])
def test_a_column_that_overflows_or_underflows_is_refused(kind, unit):
    X, y = map(np.array, rows_of(units=False))
    X[:, :, 1] *= unit
    y = (y > 0.0).astype(float)

    with pytest.raises(ProblemError, match="column"):
        solve(list(map(kind, X, y)), topology.build("ring", 6))


def test_a_start_where_curvature_vanishes_hides_no_direction():
    """Rows of the first group have no curvature at the start, 1e-30 of the others."""
    rng = np.random.default_rng(0)
    first = rng.choice([-1.0, 1.0], 80) * rng.uniform(1.0, 1.2, 80)
    groups = np.zeros((160, 2))
    groups[:80, 0], groups[80:, 1] = first, rng.normal(size=80)
    y = groups @ [1.0, -1.0] + rng.logistic(size=160) > 0
    X = groups @ [[1.0, 1.0], [1.0, -1.0]]
    parts = [np.arange(i, 160, 4) for i in range(4)]
    problems = [UNPENALISED(X[i], y[i], fit_intercept=False) for i in parts]
    graph = topology.build("ring", 4)
    cold = solve(problems, graph)

    far = solve(problems, graph, init=np.full((4, 2), 50.0))

    assert far.status == "certified"
    assert far.certificate.open_directions == 0
    assert_allclose(far.objective, cold.objective, rtol=1e-7)


def test_a_hessian_of_zero_at_the_start_hides_no_direction():
    def value_and_gradient(x):
        return x[0] ** 2 + x[1] ** 4 - x[1], np.array([2 * x[0], 4 * x[1] ** 3 - 1])

    problem = Smooth(
        value_and_gradient, 2, hessian=lambda x: np.diag([2.0, 12 * x[1] ** 2]),
        convex=True,
    )  # fmt: skip
    result = solve([problem] * 4, topology.build("ring", 4))

    assert result.status == "certified"
    assert result.certificate.open_directions is None
    assert_allclose(result.solution, [0.0, 0.25 ** (1 / 3)], atol=1e-5)
