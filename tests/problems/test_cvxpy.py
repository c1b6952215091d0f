"""Cvxpy: runs against other solvers, private variables, and errors."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import nnls

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


def squares(shard, w):
    X, y = shard
    return 0.5 * cp.sum_squares(X @ w - y)


def lasso(shard):
    w = cp.Variable(D, name="w")
    return Cvxpy(cp.Problem(cp.Minimize(squares(shard, w) + 3 * cp.norm1(w))), [w])


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_proximal_steps_are_those_of_the_closed_form(unit, weight):
    """Whatever the units of the objective."""
    centre, w = np.array([3.0, -1.0, 0.0, 0.2]), cp.Variable(D)
    objective = unit * (squares(SHARDS[0], w) + 3 * cp.norm1(w))
    exact = Lasso(*SHARDS[0], 3.0, fit_intercept=False)
    problem = Cvxpy(cp.Problem(cp.Minimize(objective)), [w])

    found = problem.prox(centre, None, centre, unit * weight)

    atol = 1e-7 if unit == 1.0 else 1e-5
    assert_allclose(found, exact.prox(centre, None, centre, weight), atol=atol)


def test_the_contract_holds():
    """Without constraints; `objectives` leaves these out."""
    dadmm.testing.check_problem(lasso(SHARDS[0]), rtol=1e-3)


@pytest.mark.parametrize("attribute", [True, False])
def test_nonnegative_least_squares(attribute):
    """By an attribute of the variable, or by a constraint of one node alone."""
    problems = []
    for i, shard in enumerate(SHARDS):
        w = cp.Variable(D, nonneg=attribute)
        limits = [w >= 0] if i == 0 and not attribute else []
        problem = cp.Problem(cp.Minimize(squares(shard, w)), limits)
        problems.append(Cvxpy(problem, {"w": w}))

    found = dadmm.solve(problems, RING)

    assert found.converged
    assert problems[0].init(np.random.default_rng(0)).min() >= -1e-8
    assert found.theta[0].min() >= -1e-8
    assert_allclose(found.theta, np.tile(nnls(X, Y)[0], (NODES, 1)), atol=2e-3)


def test_other_variables_are_private():
    """Each node has an offset of its own; the residuals are private, too."""
    problems = []
    for i, (rows, y) in enumerate(SHARDS):
        w, offset = cp.Variable(D, name="w"), cp.Variable(name="offset")
        rest = cp.Variable(len(y))
        limits = [rest == rows @ w + offset - y - i]
        problem = cp.Problem(cp.Minimize(cp.sum_squares(rest)), limits)
        problems.append(Cvxpy(problem, [w]))

    found = dadmm.solve(problems, RING)

    assert problems[0].layout.private == ("private0", "offset")
    nodes = np.repeat(np.arange(NODES), N // NODES)
    rows = np.hstack([np.vstack([s[0] for s in SHARDS]), np.eye(NODES)[nodes]])
    targets = np.concatenate([s[1] for s in SHARDS]) + nodes
    best = np.linalg.lstsq(rows, targets)[0]
    assert_allclose(found.theta[:, :D], np.tile(best[:D], (NODES, 1)), atol=1e-3)
    offsets = [found.parts(i).offset for i in range(NODES)]
    assert_allclose(offsets, best[D:], atol=1e-3)


def test_matrices_keep_their_order_and_parameters_their_values():
    target, t = cp.Parameter((2, 3)), cp.Variable(name="t")
    target.value = value = np.arange(6.0).reshape(2, 3)
    w = cp.Variable((2, 3))
    problem = Cvxpy(
        cp.Problem(cp.Minimize(cp.sum_squares(w - target) + t), [t >= 1]), [w]
    )
    target.value = np.ones((2, 3))

    found = problem.layout.views(problem.prox(np.zeros(7), None, np.zeros(7), 0.0))

    assert_allclose(found.x0, value, atol=1e-6)
    assert_allclose(found.t, 1.0, atol=1e-6)
    assert_allclose(problem.objectives(np.append(value, 1.0)[None], None), [1.0])


def test_objectives_leave_constraints_out_and_are_infinite_where_not_defined():
    w = cp.Variable(1)
    problem = Cvxpy(cp.Problem(cp.Minimize(w - cp.sum(cp.log(w))), [w <= 2]), [w])

    assert_allclose(problem.objectives(np.array([[3.0]]), None), 3.0 - np.log(3.0))
    with np.errstate(invalid="ignore"):
        assert_array_equal(problem.objectives(np.array([[-1.0]]), None), [np.inf])


def test_a_node_alone_may_be_unbounded():
    """The sum of |w - 1| and of linear terms that cancel has a minimum."""
    w = cp.Variable(1)
    terms = [cp.abs(w[0] - 1), 3 * w[0], -3 * w[0]]
    problems = [Cvxpy(cp.Problem(cp.Minimize(term)), [w]) for term in terms]

    found = dadmm.solve(problems, dadmm.Topology.ring(3))

    assert_allclose(found.theta, 1.0, atol=1e-2)


x, z = (cp.Variable(2, name=name) for name in "xz")
whole, unset = cp.Variable(2, integer=True, name="n"), cp.Parameter(name="rate")


def minimise(objective, constraints=(), variables=(x,)):
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    return lambda: Cvxpy(problem, variables)


SQUARE = cp.sum_squares(x)
TWICE = SQUARE + cp.sum_squares(z) + cp.sum_squares(cp.Variable(name="z"))
ERRORS = [
    ("int", lambda: Cvxpy(3, [x])),
    ("minimise", lambda: Cvxpy(cp.Problem(cp.Maximize(-SQUARE)), [x])),
    ("rate", minimise(SQUARE + unset)),
    ("infeasible", minimise(SQUARE, [x >= 1, x <= 0])),
    ("private", minimise(SQUARE + cp.sum(z))),
    ("is_dcp", minimise(cp.sum(cp.sqrt(x)))),
    ("variables", minimise(cp.Constant(1))),
    ("variables", minimise(SQUARE, variables=())),
    ("'z'", minimise(SQUARE, variables=[z])),
    ("'x0'", minimise(SQUARE, variables=["x"])),
    ("Variable", minimise(SQUARE, variables=x)),
    ("variables", minimise(SQUARE, variables=[x, x])),
    ("'a b'", minimise(SQUARE, variables={"a b": x})),
    ("n is", minimise(cp.sum_squares(whole))),
    ("x, z, z", minimise(TWICE)),
]


@pytest.mark.parametrize(("culprit", "call"), ERRORS)
def test_bad_input_is_named(culprit, call):
    with pytest.raises(ProblemError, match=culprit) as caught:
        call()

    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "clarabel", None)

    with pytest.raises(ProblemError, match="clarabel"):
        minimise(SQUARE)()


def test_semidefinite_matrices():
    A = np.array([[1.0, 2.0], [2.0, -3.0]])
    S = cp.Variable((2, 2), PSD=True)
    problem = Cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(S - A))), [S])

    found = problem.prox(np.zeros(4), None, np.zeros(4), 0.0)

    values, axes = np.linalg.eigh(A)
    best = (axes * np.maximum(values, 0.0)) @ axes.T
    assert_allclose(found.reshape(2, 2), best, atol=1e-4)


def test_second_order_cones():
    """Sums of norms within a ball, with any scheme."""
    problems, w = [], cp.Variable(D)
    limits, norms = [cp.norm(w) <= 1], [cp.norm(x @ w - y) for x, y in SHARDS]
    for norm in norms:
        problems.append(Cvxpy(cp.Problem(cp.Minimize(norm), limits), [w]))

    results = [dadmm.solve(problems, RING, scheme=name) for name in ("snap", "nap")]

    cp.Problem(cp.Minimize(sum(norms)), limits).solve(solver=cp.CLARABEL)
    for result in results:
        assert result.converged
        assert_allclose(result.theta, np.tile(w.value, (NODES, 1)), atol=2e-3)
