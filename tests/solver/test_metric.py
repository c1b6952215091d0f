"""Convex runs in chosen coordinates: these, certificates, and what has no minimum."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dadmm import ProblemError, Topology, problems
from dadmm.problems import Huber, Lasso, LeastSquares, LogisticRegression
from dadmm.solver.certificate import pooled_axes
from dadmm.solver.ending import advise
from dadmm.solver.metric import MetricKind
from tests.support.problems import quadratics
from tests.support.shards import total_of
from tests.support.solving import solve
from tests.support.tables import KINDS, table

RING = Topology.ring(6)
UNPENALISED = partial(LogisticRegression, alpha=0.0)
CHANGING = ("logistic", "huber", "multinomial")


@pytest.mark.parametrize(
    ("kind", "agreement"), [*((k, "neighbours") for k in KINDS), ("ridge", "global")]
)
def test_a_default_run_is_certified_in_any_units(kind, agreement):
    """From it nothing is left to do; coordinates change if the curvature does."""
    seen, problems = [], table(kind, 6)
    watch = [lambda t, run: seen.append(run.state.coordinates["changes"].item())]
    result = solve(problems, RING, agreement=agreement, callbacks=watch)
    assert (result.status, result.why) == ("certified", "")
    assert (result.coordinates, result.converged) == ("metric", True)
    assert result.iterations < 150
    assert seen == sorted(seen)
    assert seen[-1] >= (kind in CHANGING)
    again = solve(problems, RING, warm_start=result)
    on_a_star = solve(problems, Topology.star(6), warm_start=result)
    assert again.status == on_a_star.status == "certified"
    assert again.traffic.messages == len(RING.edges)  # those with the start
    assert again.iterations == 0
    assert on_a_star.iterations <= 4 + 2 * 2
    exactly = solve(problems, RING, warm_start=result, tolerance=0, max_iter=3)
    assert (exactly.iterations, exactly.status) == (3, "max_iter")


@pytest.mark.parametrize("kind", CHANGING)
def test_a_run_that_goes_back_has_the_coordinates_of_then(kind):
    """As after a failure, if they have changed since."""
    states, pairs = [], []

    def go_back(t, run):
        states.append(run.snapshot())
        first, last = states[0].coordinates, states[-1].coordinates
        if last["changes"] == first["changes"]:
            return None
        run.restore(states[0])
        pairs.append((run.local.values_at(run.state.theta), run.work.objective.copy()))
        return "stop"

    solve(table(kind, 6), RING, callbacks=[go_back])
    assert_allclose(*pairs[0], rtol=1e-9)


def test_the_bound_of_an_l1_penalty_needs_constant_curvature():
    """Huber's rows at one point say nothing of the curvature at others."""
    rng = np.random.default_rng(1)
    X, errors = rng.standard_normal((2, 12, 3)), rng.standard_normal((2, 12))
    lasso = Lasso(X[0], X[0] @ [1.0, 0.0, 2.0] + errors[0], 2.0)
    huber = Huber(X[1], X[1] @ [9.0, 0.0, 2.0] + 9 + errors[1], 0.3)
    best = solve([lasso, huber], Topology.chain(2), tolerance=1e-7)
    assert best.status == "certified"
    for max_iter in range(1, 30, 2):
        result = solve([lasso, huber], Topology.chain(2), max_iter=max_iter)
        assert result.objective - best.objective <= result.certificate.gap


def test_the_status_says_what_is_not_known():
    """A Hessian, or a gradient; then no point nearby is much lower."""
    plain, own = table("least_squares", 6, per_node=20), quadratics(6, 3, seed=2)
    fixed = solve(plain, RING, scheme="fixed", eta0=1.0, max_iter=5)
    raw = solve(plain, RING, coordinates="raw", max_iter=5)
    other = solve(own, RING)
    assert fixed.certificate is not None
    assert raw.certificate is None
    assert fixed.status == raw.status == "not converged"
    assert (other.status, other.converged) == ("stopped", True)
    assert "gradient" in other.why
    for problem in own:
        problem.convex = problem.exact = True
    best = solve(own, RING, tolerance=1e-12, absolute_tolerance=1e-13)
    result = solve(own, RING, max_iter=6, tolerance=0)
    assert (best.status, best.coordinates) == ("stopped", "raw")
    assert "Quadratic" in best.why
    way = np.linalg.norm(best.solution - result.solution)
    true = result.objective - best.objective
    assert 0.0 < true <= result.certificate.lower_within(way)
    assert result.certificate.gap == np.inf
    assert not result.certificate.holds


def rows_of(n=6, per_node=10, units=True):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, per_node, 4)), rng.standard_normal((n, per_node))
    return (X * [1e-5, 1.0, 1e4, 3.0] + [0.0, 1e3, 0.0, 7.0] if units else X), y


@pytest.mark.parametrize(
    ("unit", "weight", "aim", "status"),
    [(1.0, 1.0, 0.0, "certified"), (1e-310, 1.0, 1.0, "stopped")]
    + [(1e-160, 1.0, 1.0, "stopped")]
    + [(1.0, 1e28, aim, "stopped") for aim in (1.0, 0.0)]
    + [(1.0, 1e100, aim, "stopped") for aim in (1.0, 0.0)],
)
def test_targets_that_underflow_and_rows_that_a_heavy_row_hides_are_not_certified(
    unit, weight, aim, status
):
    """But a fit without error is."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(3, 10, 3)), np.ones((3, 10))
    errors = rng.normal(size=(3, 10)) * (status != "certified")
    y = unit * (X @ [1.0, 2.0, 3.0] + errors)
    if weight > 1.0:
        weights[1, 2], y[1, 2] = weight, aim * y[1, 2]
    own = zip(X, y, weights, strict=True)
    nodes = [LeastSquares(x, t, sample_weight=w) for x, t, w in own]
    result = solve(nodes, Topology.ring(3))
    assert result.status == status
    assert weight == 1.0 or "weight" in result.why
    if status == "certified":
        assert_allclose(result.solution, [1.0, 2.0, 3.0, 0.0], atol=1e-6)


def tables():
    """Return kinds of problems of classes or counts, rows, and remedies if needed."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)) * [1e-3, 1.0, 1e3]
    u, dummy = X @ [1e3, 1.0, 1e-3], rng.random(120) < 0.3
    noisy, counts = u + rng.logistic(size=120) > 0, rng.poisson(2.0, 120)
    planes = X * [1e3, 1.0, 1e-3] @ rng.standard_normal((3, 3))
    three = partial(partial, problems.MultinomialLogistic, n_classes=3)
    poisson, wide = problems.PoissonRegression, np.column_stack([X, dummy])
    return {
        "separable": (UNPENALISED, X, u > 0.2, "alpha"),
        "one dummy": (UNPENALISED, wide, dummy | noisy, "alpha"),
        "one class": (LogisticRegression, X, np.ones(120), "rows"),
        "overlapping": (UNPENALISED, X, noisy, ""),
        "only zeros": (poisson, X, 0 * counts, "rows"),
        "dummy": (partial(poisson, alpha=0.0), wide, counts * ~dummy, "alpha"),
        "planes": (three(alpha=0.0), X, planes.argmax(axis=1), "alpha"),
        "two of three": (three(), X, rng.integers(2, size=120), "leave out that class"),
        "no intercept": (
            three(fit_intercept=False), X, rng.integers(2, size=120), ""
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", tables())
def test_a_problem_without_minimum_is_recognised_and_has_a_remedy(kind):
    own, X, y, remedy = tables()[kind]
    parts = np.array_split(np.arange(120), 6)
    result = solve([own(X[i], y[i].astype(float)) for i in parts], RING)
    none = ("not converged", "no_minimum") if remedy else ("certified", "converged")
    assert (result.status, result.reason) == none
    assert bool(result.why) == bool(remedy)
    assert remedy in advise(result)


def coordinates_of(problems, total):
    """Return the coordinates that nodes choose if they start from zero."""
    own = dict(enumerate(problems))
    kind = MetricKind(own, starts={i: np.zeros(p.layout.size) for i, p in own.items()})
    kind.choose(total, len(own))
    return kind.record


@pytest.mark.parametrize("graph", [RING, Topology.star(6), Topology.chain(6)])
@pytest.mark.parametrize("per_node", [1, 10])
def test_the_mean_of_all_hessians_is_one_in_z(graph, per_node):
    """A node sends a triangle up, and the root a map down."""
    X, y = rows_of(per_node=per_node)
    problems, (total, tree) = list(map(LeastSquares, X, y)), total_of(graph)
    found = coordinates_of(problems, total)
    whole = np.column_stack([np.vstack(list(X)), np.ones(6 * per_node)]) @ found.map
    assert_allclose(whole.T @ whole / 6, np.eye(5), atol=1e-8)
    assert_allclose(found.inverse @ found.map, np.eye(5), atol=1e-8)
    assert found.n_open == 0
    T = found.map / np.linalg.norm(found.map, axis=1, keepdims=True)
    same, _, _ = found.changed(np.ones(5), np.eye(5))
    assert_allclose(same.condition, np.linalg.cond(T), rtol=1e-6)
    sizes = {8 + 8 + 8 * (15 + 4), 8 + 16 + 8 * 5 * (2 * 5 + 6)}
    assert set(tree.sent[tree.sent[:, 0] > 0, 1].tolist()) == sizes or per_node == 1
    rows = [p.within(found.map).rows(None) for p in problems]
    lengths, axes = pooled_axes(total, rows, np.sqrt(6))
    assert_allclose(lengths, np.ones(5), atol=1e-8)
    assert_allclose(axes.T @ axes, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("inverse", [False, True])
def test_directions_that_the_data_leave_open_are_dropped_and_named(inverse):
    """Unless a node has a problem that needs an inverse: the root may have none."""
    X, y = rows_of(units=False)
    twice = [np.column_stack([x, x[:, 0], 0.0 * x[:, 0]]) for x in X]
    problems = list(map(LeastSquares, twice, y))
    if inverse:
        problems[3] = Lasso(twice[3], y[3])
    found = coordinates_of(problems, total_of(RING)[0])
    assert found.n_open == 2
    assert found.map.shape == (7, 7 if inverse else 5)
    assert np.linalg.matrix_rank(found.map, tol=1e-12) == found.map.shape[1]
    if not inverse:
        # column 0 and its copy, and the column of zeros; not the intercept
        assert found.is_open.tolist() == [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0]
        assert_allclose(found.inverse @ found.map, np.eye(5), atol=1e-10)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("unit", [1e-310, 1e-160, 1e160, 1e300])
@pytest.mark.parametrize("kind", [LeastSquares, Lasso, UNPENALISED])
def test_a_column_that_overflows_or_underflows_is_refused(kind, unit):
    X, y = rows_of(units=False)
    X[:, :, 1] *= unit
    with pytest.raises(ProblemError, match="column"):
        solve(list(map(kind, X, (y > 0.0).astype(float))), RING)


def test_a_start_where_curvature_vanishes_hides_no_direction():
    """Rows of the first group have no curvature at the start, 1e-30 of the others."""
    rng = np.random.default_rng(0)
    groups = np.zeros((160, 2))
    groups[:80, 0] = rng.choice([-1.0, 1.0], 80) * rng.uniform(1.0, 1.2, 80)
    groups[80:, 1] = rng.normal(size=80)
    y = groups @ [1.0, -1.0] + rng.logistic(size=160) > 0
    X, parts = groups @ [[1.0, 1.0], [1.0, -1.0]], np.arange(160).reshape(40, 4).T
    own = [UNPENALISED(X[i], y[i], fit_intercept=False) for i in parts]

    def quartic(x):
        return x[0] ** 2 + x[1] ** 4 - x[1], np.array([2 * x[0], 4 * x[1] ** 3 - 1])

    bends = {"hessian": lambda x: np.diag([2.0, 12 * x[1] ** 2]), "convex": True}
    graph, flats = Topology.ring(4), [problems.Smooth(quartic, 2, **bends)] * 4
    cold, far = (solve(own, graph, init=init) for init in (None, np.full((4, 2), 50)))
    flat = solve(flats, graph)  # its Hessian is zero at the start
    assert far.status == flat.status == "certified"
    assert far.certificate.open_directions == 0
    assert_allclose(far.objective, cold.objective, rtol=1e-7)
    assert flat.certificate.open_directions is None
    assert_allclose(flat.solution, [0.0, 0.25 ** (1 / 3)], atol=1e-5)
