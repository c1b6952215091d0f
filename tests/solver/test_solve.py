"""`dadmm.solve`: where a run starts, what it gives back, and what it refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from dadmm.problems import LeastSquares, Ridge
from dadmm.solver.rows import NODE_COLUMNS
from tests.support.problems import Quadratic, quadratics
from tests.support.solving import solve

RING = Topology.ring(5)
CHAIN = Topology.chain(4)  # its diameter is 3
SIX = Topology.ring(6)


def starts(**settings):
    """Return the parameters that five nodes start from, as their E-steps see them."""
    seen, problems = [], quadratics(5)
    for problem in problems:
        problem.expect = lambda theta: seen.append(theta.copy())
    solve(problems, RING, max_iter=1, scheme="nap", **settings)  # needs no curvature
    return np.array(seen[:5])  # the others are at the solution


@pytest.mark.parametrize("init", ["shared", "independent"])
def test_drawn_starts_depend_on_the_seed(init):
    drawn = starts(seed=3, init=init)

    assert len(np.unique(drawn, axis=0)) == (1 if init == "shared" else 5)
    assert_array_equal(drawn, starts(seed=3, init=init))
    assert np.all(drawn != starts(seed=4, init=init))


@pytest.mark.parametrize("scheme", ["nap", "snap"])
def test_given_starts_are_used_and_left_alone(scheme):
    """Also by a problem that works in place; a survey of curvatures has copies."""
    problems, theta0 = quadratics(4), np.ones((4, 2))
    for problem in problems:
        problem.prox = lambda theta, *given: np.multiply(theta, 0.5, out=theta)

    result = solve(problems, CHAIN, scheme=scheme, init=theta0, max_iter=2)

    assert_array_equal(theta0, np.ones((4, 2)))
    assert_array_equal(result.theta, np.full((4, 2), 0.25))
    assert_array_equal(starts(init=np.eye(5, 2)), np.eye(5, 2))


def test_the_result_and_its_history_have_a_row_per_node():
    sums = {"sum": lambda theta: theta.sum(), "first": lambda theta: theta[0]}
    problems = quadratics(5)
    result = solve(problems, RING, max_iter=30, tolerance=0, observe=sums)
    history = result.history

    assert_array_equal(result.parts(3).x, result.theta[3])
    assert result.eta.shape == (len(RING.edges),)
    values = [p.objectives(result.theta[[i]], None)[0] for i, p in enumerate(problems)]
    assert_allclose(result.objectives, values, rtol=1e-14)
    assert len(history) == 30
    assert history.columns == (*NODE_COLUMNS, "sum", "first")
    assert all(history[column].shape == (30, 5) for column in history.columns)
    assert_array_equal(history["objective"][-1], result.objectives)
    assert_allclose(history["sum"][-1], result.theta.sum(axis=1))
    assert history.edges is None
    for name, total in result.seconds._asdict().items():
        if name != "observe":  # its column is one iteration behind
            assert_allclose(history[f"{name}_seconds"].sum(axis=0), total)
    with pytest.raises(KeyError, match="angle"):
        history["angle"]
    own = replace(result, theta=result.theta[2:3], nodes=np.array([2]))
    assert (own.of(2) == result.of(2)).all()
    for other in (1, 3, -1):  # as on a rank with gather="none"
        with pytest.raises(ConfigError, match=f"node {other}"):
            own.of(other)


def test_more_than_a_thousand_nodes_are_recorded_if_asked():
    problems, graph = quadratics(1) * 1001, Topology.star(1001)
    settings = {"max_iter": 2, "tolerance": 0}

    for history in (
        solve(problems, graph, **settings).history,
        solve(quadratics(5), RING, record=False, **settings).history,
    ):
        assert len(history) == 0
        with pytest.raises(KeyError, match="record"):
            history["primal"]
    asked = solve(problems, graph, record=True, **settings).history
    assert asked["primal"].shape == (2, 1001)


def rows(n, alpha):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 4)) * [1e-3, 1.0, 1e3, 1.0] + [0, 10, 0, 0]
    y = X @ [1e3, 1.0, 1e-3, 0.0] + rng.standard_normal(n)
    parts = np.array_split(np.arange(n), 6)
    return [Ridge(X[part], y[part], alpha) for part in parts]


@pytest.mark.parametrize(("alpha", "n"), [(1.1, 240), (1.0, 228)])
def test_a_warm_start_reaches_the_new_optimum_in_fewer_iterations(alpha, n):
    """After another penalty, or with more rows at every node."""
    cold, first = solve(rows(240, alpha), SIX), solve(rows(n, 1.0), SIX)
    warm = solve(rows(240, alpha), SIX, warm_start=first)

    assert warm.status == cold.status == "certified"
    assert warm.iterations < cold.iterations
    bounds = cold.certificate.coefficients + warm.certificate.coefficients
    assert (np.abs(warm.solution - cold.solution) <= bounds).all()
    other = [LeastSquares(np.eye(2), np.ones(2)) for _ in range(6)]
    for problems, given in (
        (rows(240, 1.0), {"warm_start": first.theta}),
        (rows(240, 1.0), {"warm_start": first, "init": "independent"}),
        (other, {"warm_start": first}),
        (rows(240, 1.0), {"warm_start": replace(first, duals={})}),
    ):
        with pytest.raises(ConfigError, match="warm_start"):
            solve(problems, SIX, **given)


def valueless(value):
    """Return a run of which one objective has no value in iteration 4."""
    problems, calls = quadratics(5), []

    def fail_late(rows, stats):
        calls.append(rows)
        return np.full(len(rows), value if len(calls) > 3 else 1.0)

    problems[2].objectives = fail_late
    return {"problems": problems, "tolerance": 0, "max_iter": 9, "scheme": "fixed"}


OTHER = Quadratic(np.eye(3), np.zeros(3))  # with another layout
REFUSED = {
    ConfigError: [
        ("eta0", {"eta0": "best"}),
        ("coordinates", {"coordinates": "full"}),
        ("bound_angle", {"bound_angle": 1}),
        ("max_iter", {"max_iter": 10**12}),
        ("tolerance", {"tolerance": 10**400}),
        ("tolerance", {"tolerance": math.inf}),
        ("stopping", {"stopping": np.ones(2)}),
        ("payload", {"sending": []}),
        ("scheme", {"scheme": "auto"}),
        ("wait", {"wait": np.ones(2)}),
        ("record", {"record": "no"}),
        ("record edges", {"record_edges": 1}),
        ("observe", {"observe": ["x"]}),
        ("primal", {"observe": {"primal": np.sum}}),
        ("comm", {"comm": "world"}),
        ("checkpoints", {"checkpoints": "a"}),
        ("callbacks", {"callbacks": print}),
        ("callback", {"callbacks": [lambda t, run: 0.0]}),
    ],
    ProblemError: [
        ("init", {"init": np.zeros((5, 3))}),
        ("without comm", {"problems": None}),
        ("node 4", {"problems": [*quadratics(4), 3]}),
        ("without comm", {"problems": OTHER}),
        ("node 4", {"problems": [*quadratics(4), OTHER]}),
        ("node 2: .* nan in iteration 4", valueless(math.nan)),
        ("node 2: .* -inf in iteration 4", valueless(-math.inf)),
    ],
    TopologyError: [
        (f"5 nodes but {n}", {"problems": quadratics(n)}) for n in (0, 4, 6)
    ],
}


@pytest.mark.parametrize(
    ("error", "culprit", "given"),
    [(error, *case) for error, cases in REFUSED.items() for case in cases],
)
def test_arguments_that_are_unknown_or_do_not_fit_are_refused(error, culprit, given):
    with pytest.raises(error, match=culprit) as caught:
        solve(**{"problems": quadratics(5), "topology": RING, **given})
    assert "\n" not in str(caught.value)


def test_a_graph_too_long_for_the_counter_of_the_agreement_is_refused(monkeypatch):
    """Two bytes count hops; a collective needs no counter."""
    monkeypatch.setattr("dadmm.admm.loop.MOST_QUIET", CHAIN.diameter)
    with pytest.raises(ConfigError, match="agreement"):
        solve(quadratics(4), CHAIN)
    assert solve(quadratics(4), CHAIN, agreement="global").converged
