"""Cvxpy: steps against closed forms, runs against other solvers, and refusals."""

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import lsq_linear

import dadmm
from dadmm.core.errors import ProblemError
from dadmm.problems import Cvxpy, Lasso

cp = pytest.importorskip("cvxpy", reason="cvxpy is not installed")

N, D, NODES = 120, 4, 6
RING = dadmm.Topology.ring(NODES)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
Y = X @ [1.0, 0.0, -2.0, 0.5] + RNG.normal(size=N)
SHARDS = [(X[i::NODES], Y[i::NODES]) for i in range(NODES)]


def minimise(objective, limits=(), variables=()):
    return Cvxpy(cp.Problem(cp.Minimize(objective), list(limits)), variables)


def squares(shard, w):
    return 0.5 * cp.sum_squares(shard[0] @ w - shard[1])


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_proximal_steps_are_those_of_the_closed_form(unit, weight):
    centre, w = np.array([3.0, -1.0, 0.0, 0.2]), cp.Variable(D)
    problem = minimise(unit * (squares(SHARDS[0], w) + 3 * cp.norm1(w)), variables=[w])
    exact = Lasso(*SHARDS[0], 3.0, fit_intercept=False)

    found = problem.prox(centre, None, centre, unit * weight)

    atol = 1e-7 if unit == 1.0 else 1e-5
    assert_allclose(found, exact.prox(centre, None, centre, weight), atol=atol)
    if unit == weight == 1.0:
        dadmm.testing.check_problem(problem, rtol=1e-3)


A = np.array([[1.0, 2.0], [2.0, -3.0]])
VALUES, AXES = np.linalg.eigh(A)


@pytest.mark.parametrize(
    ("kind", "limit", "best"),
    [
        ({"PSD": True}, None, (AXES * np.maximum(VALUES, 0.0)) @ AXES.T),
        ({"nonneg": True}, None, np.maximum(A, 0.0)),
        ({}, lambda w: cp.norm(w, "fro") <= 1, A / np.sqrt(18.0)),
    ],
)
def test_attributes_and_constraints_make_a_step_a_projection(kind, limit, best):
    w = cp.Variable((2, 2), **kind)
    limits = [limit(w)] if limit else []
    problem = minimise(cp.sum_squares(w - A), limits, [w])

    found = problem.prox(np.zeros(4), None, np.zeros(4), 0.0)
    start = problem.init(np.random.default_rng(0))

    assert_allclose(found.reshape(2, 2), best, atol=1e-4)
    assert_allclose(problem.prox(start, None, start, 1e6), start, atol=1e-4)


def test_other_variables_are_private_and_a_constraint_of_one_node_holds_for_all():
    problems = []
    for i, (rows, y) in enumerate(SHARDS):
        w, offset = cp.Variable(D, name="w"), cp.Variable(name="offset")
        rest = cp.Variable(len(y))
        limits = [rest == rows @ w + offset - y - i, *([w >= 0] if i == 0 else [])]
        problems.append(minimise(cp.sum_squares(rest), limits, {"w": w}))

    found = dadmm.solve(problems, RING)

    assert found.converged
    assert {*problems[0].layout.private} == {"private0", "offset"}
    nodes = np.repeat(np.arange(NODES), N // NODES)
    rows = np.hstack([np.vstack([s[0] for s in SHARDS]), np.eye(NODES)[nodes]])
    targets = np.concatenate([s[1] for s in SHARDS]) + nodes
    least = np.repeat([0.0, -np.inf], [D, NODES])
    best = lsq_linear(rows, targets, (least, np.inf), tol=1e-12).x
    parts = [found.parts(i) for i in range(NODES)]
    assert parts[0].w.min() >= -1e-8
    for part, offset in zip(parts, best[D:], strict=True):
        assert_allclose([*part.w, part.offset], [*best[:D], offset], atol=2e-3)


def test_a_node_alone_may_be_unbounded():
    w = cp.Variable(1)
    terms = [cp.abs(w[0] - 1), 3 * w[0], -3 * w[0]]  # the sum has a minimum
    problems = [minimise(term, variables=[w]) for term in terms]

    found = dadmm.solve(problems, dadmm.Topology.ring(3))

    assert_allclose(found.theta, 1.0, atol=1e-2)


def test_matrices_keep_their_order_and_parameters_their_values():
    target, t = cp.Parameter((2, 3)), cp.Variable(name="t")
    target.value = value = np.arange(6.0).reshape(2, 3)
    w = cp.Variable((2, 3))
    problem = minimise(cp.sum_squares(w - target) + t - cp.log(t), [t >= 2], [w])
    target.value = np.ones((2, 3))

    found = problem.layout.views(problem.prox(np.zeros(7), None, np.zeros(7), 0.0))

    assert_allclose(found.x0, value, atol=1e-6)
    assert_allclose(found.t, 2.0, atol=1e-6)
    points = np.array([np.append(value, t) for t in (1.0, -1.0)])
    with np.errstate(invalid="ignore"):  # without the constraints
        assert_array_equal(problem.objectives(points, None), [1.0, np.inf])


x, z = (cp.Variable(2, name=name) for name in "xz")
whole, unset = cp.Variable(2, integer=True, name="n"), cp.Parameter(name="rate")
SQUARE = cp.sum_squares(x)
TWICE = SQUARE + cp.sum_squares(z) + cp.sum_squares(cp.Variable(name="z"))
LEAST = cp.Problem(cp.Minimize(SQUARE))
ERRORS = [
    ("int", 3, [x]),
    ("minimise", cp.Problem(cp.Maximize(-SQUARE)), [x]),
    ("rate", cp.Problem(cp.Minimize(SQUARE + unset)), [x]),
    ("infeasible", cp.Problem(cp.Minimize(SQUARE), [x >= 1, x <= 0]), [x]),
    ("private", cp.Problem(cp.Minimize(SQUARE + cp.sum(z))), [x]),
    ("is_dcp", cp.Problem(cp.Minimize(cp.sum(cp.sqrt(x)))), [x]),
    ("variables", cp.Problem(cp.Minimize(cp.Constant(1))), [x]),
    ("n is", cp.Problem(cp.Minimize(cp.sum_squares(whole))), [x]),
    ("x, z, z", cp.Problem(cp.Minimize(TWICE)), [x]),
    ("variables", LEAST, ()),
    ("'z'", LEAST, [z]),
    ("'x0'", LEAST, ["x"]),
    ("Variable", LEAST, x),
    ("variables", LEAST, [x, x]),
    ("'a b'", LEAST, {"a b": x}),
]


@pytest.mark.parametrize(("culprit", "problem", "variables"), ERRORS)
def test_bad_input_is_named(culprit, problem, variables):
    with pytest.raises(ProblemError, match=culprit):
        Cvxpy(problem, variables)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(ProblemError, match="clarabel"):
        minimise(SQUARE, variables=[x])
