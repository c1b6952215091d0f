"""`dadmm.solve`: its plan, its start, its result, what it refuses, and its advice."""

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Layout, Topology, penalty, problems
from dadmm.admm.rule import CRITERIA
from dadmm.comm.sending import Sending
from dadmm.core.errors import ConfigError, ProblemError, TopologyError
from dadmm.problems import LeastSquares, Ridge
from dadmm.solver.ending import advise
from dadmm.solver.plan import COORDINATES, Kind, abilities, make_plan
from dadmm.solver.rows import NODE_COLUMNS
from tests.support.problems import Quadratic, quadratics
from tests.support.solving import solve

RING = Topology.ring(5)
CHAIN = Topology.chain(4)  # its diameter is 3
SIX = Topology.ring(6)


def starts(**settings):
    """Return the parameters that five nodes start from, as their E-steps see them."""
    seen, own = [], quadratics(5)
    for problem in own:
        problem.expect = lambda theta: seen.append(theta.copy())
    solve(own, RING, max_iter=1, scheme="nap", **settings)  # needs no curvature
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
    own, theta0 = quadratics(4), np.ones((4, 2))
    for problem in own:
        problem.prox = lambda theta, *given: np.multiply(theta, 0.5, out=theta)
    result = solve(own, CHAIN, scheme=scheme, init=theta0, max_iter=2)
    assert_array_equal(theta0, np.ones((4, 2)))
    assert_array_equal(result.theta, np.full((4, 2), 0.25))
    assert_array_equal(starts(init=np.eye(5, 2)), np.eye(5, 2))


def test_the_result_and_its_history_have_a_row_per_node():
    sums = {"sum": lambda theta: theta.sum(), "first": lambda theta: theta[0]}
    own = quadratics(5)
    result = solve(own, RING, max_iter=30, tolerance=0, observe=sums)
    history = result.history

    assert_array_equal(result.parts(3).x, result.theta[3])
    assert result.eta.shape == (len(RING.edges),)
    values = [p.objectives(result.theta[[i]], None)[0] for i, p in enumerate(own)]
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
    part = replace(result, theta=result.theta[2:3], nodes=np.array([2]))
    assert (part.of(2) == result.of(2)).all()
    for other in (1, 3, -1):  # as on a rank with gather="none"
        with pytest.raises(ConfigError, match=f"node {other}"):
            part.of(other)


def test_more_than_a_thousand_nodes_are_recorded_if_asked():
    many, graph = quadratics(1) * 1001, Topology.star(1001)
    settings = {"max_iter": 2, "tolerance": 0}
    for history in (
        solve(many, graph, **settings).history,
        solve(quadratics(5), RING, record=False, **settings).history,
    ):
        assert len(history) == 0
        with pytest.raises(KeyError, match="record"):
            history["primal"]
    asked = solve(many, graph, record=True, **settings).history
    assert asked["primal"].shape == (2, 1001)


def test_lost_payloads_are_counted_where_they_were_sent():
    seen, lossy = [], {"scheme": "fixed", "drop_probability": 0.3, "tolerance": 0}
    watch = [lambda t, run: seen.append(run.by_edge(run.state.sending["lost"]))]
    result = solve(quadratics(4), CHAIN, callbacks=watch, max_iter=30, **lossy)
    assert (seen[-1] != seen[-1][CHAIN.reverse]).any()
    assert_array_equal(result.traffic.edge_lost, seen[-1][CHAIN.reverse])


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
    for nodes, given in (
        (rows(240, 1.0), {"warm_start": first.theta}),
        (rows(240, 1.0), {"warm_start": first, "init": "independent"}),
        (other, {"warm_start": first}),
        (rows(240, 1.0), {"warm_start": replace(first, duals={})}),
    ):
        with pytest.raises(ConfigError, match="warm_start"):
            solve(nodes, SIX, **given)


def valueless(value):
    """Return a run of which one objective has no value in iteration 4."""
    nodes, calls = quadratics(5), []

    def fail_late(rows, stats):
        calls.append(rows)
        return np.full(len(rows), value if len(calls) > 3 else 1.0)

    nodes[2].objectives = fail_late
    return {"problems": nodes, "tolerance": 0, "max_iter": 9, "scheme": "fixed"}


OTHER = Quadratic(np.eye(3), np.zeros(3))  # with another layout
WRONG = [  # a setting, which the error names, and its value
    ("eta0", "best"), ("coordinates", "full"), ("bound_angle", 1), ("scheme", "auto"),
    ("tolerance", 10**400), ("tolerance", math.inf), ("max_iter", 10**12),
    ("stopping", np.ones(2)), ("wait", np.ones(2)), ("observe", ["x"]),
    ("record", "no"), ("comm", "world"), ("checkpoints", "a"), ("callbacks", print),
]  # fmt: skip
REFUSED = {
    ConfigError: [
        *((name, {name: value}) for name, value in WRONG),
        ("payload", {"sending": []}),
        ("record edges", {"record_edges": 1}),
        ("primal", {"observe": {"primal": np.sum}}),
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


ROWS = np.random.default_rng(0).standard_normal((3, 8, 4))
HOLES = np.where(np.random.default_rng(1).random(ROWS.shape) < 0.2, np.nan, ROWS)


def with_own(method, kind=problems.PPCA):
    """Return a class with a method of its own, about which nothing is known."""
    return type("Own", (kind,), {method: lambda *given: getattr(kind, method)(*given)})


NODES = {
    "ppca": [problems.PPCA(x, 2) for x in ROWS],
    "gaps": [problems.IncompletePPCA(x, 2) for x in HOLES],
    "one_gap": [problems.PPCA(ROWS[0], 2), problems.IncompletePPCA(HOLES[1], 2)],
    "sfm": [problems.StructureFromMotion(x.T) for x in ROWS],
    "lasso": [problems.Lasso(x, x[:, 0], 0.1) for x in ROWS],
    "wide": [problems.Ridge(np.ones((1, 400)), [1.0], 1.0)] * 3,
    "own_step": [with_own("prox")(x, 2) for x in ROWS],
    "own_init": [with_own("init")(x, 2) for x in ROWS],
    "own_rows": [with_own("prox", problems.Lasso)(x, x[:, 0]) for x in ROWS],
    "own": quadratics(3),
}
ARRAY = np.zeros((3, 5))
# The kind of run by problem, start and kind of penalties (or a warm start), with the
# coordinates auto, metric, units and raw; "-" is not possible
TABLE = """
    ppca      default      adaptive  merged  -       merged  raw
    ppca      default      constant  units   -       units   raw
    ppca      default      warm      units   -       units   raw
    ppca      merged       constant  merged  -       merged  -
    ppca      shared       adaptive  units   -       units   raw
    ppca      given        adaptive  raw     -       -       raw
    gaps      default      adaptive  merged  -       merged  raw
    gaps      default      constant  raw     -       -       raw
    gaps      merged       constant  merged  -       merged  -
    one_gap   default      adaptive  merged  -       merged  raw
    one_gap   shared       adaptive  raw     -       -       raw
    sfm       default      adaptive  raw     -       -       raw
    sfm       merged       adaptive  merged  -       merged  -
    lasso     default      adaptive  metric  metric  -       raw
    lasso     independent  warm      metric  metric  -       raw
    lasso     given        adaptive  metric  metric  -       raw
    lasso     merged       adaptive  -       -       -       -
    wide      default      adaptive  raw     metric  -       raw
    own_step  default      adaptive  raw     -       -       raw
    own_step  merged       adaptive  -       -       -       -
    own_init  default      adaptive  raw     -       -       raw
    own_rows  default      adaptive  raw     -       -       raw
    own       default      adaptive  raw     -       -       raw
    own       merged       adaptive  -       -       -       -
"""


@pytest.mark.parametrize("row", TABLE.strip().splitlines())
def test_the_kind_of_a_run(row):
    nodes, init, how, *kinds = row.split()
    able = abilities(dict(enumerate(NODES[nodes])))
    start = {"default": None, "given": ARRAY}.get(init, init)
    for coordinates, kind in zip(COORDINATES, kinds, strict=True):
        given = able, start, coordinates, how == "adaptive"
        if kind == "-":
            with pytest.raises(ConfigError):
                make_plan(*given)
            continue
        plan = make_plan(*given)
        assert plan.kind is Kind[kind.upper()]
        usual = "independent" if nodes == "sfm" else "shared"
        usual = "merged" if kind == "merged" else usual
        assert plan.init is (usual if start is None else start)
        assert plan.name == ("units" if kind == "merged" else kind)
        assert bool(plan.why) == (kind == "raw")
        assert plan.asked == (coordinates == "raw")


@pytest.mark.parametrize("scheme", penalty.SCHEMES)
@pytest.mark.parametrize("nodes", ["ppca", "gaps", "lasso", "own"])
def test_the_coordinates_do_not_depend_on_the_scheme(nodes, scheme):
    """But only `fixed` never starts from merged axes unless it is asked to."""
    settings = {"scheme": scheme, "coupling": "own", "tolerance": 0.0, "max_iter": 1}
    result = solve(NODES[nodes], Topology.ring(3), **settings)
    able = abilities(dict(enumerate(NODES[nodes])))
    plan = make_plan(able, None, "auto", scheme != "fixed")
    assert (result.coordinates, result.ending.init) == (plan.name, plan.init)
    assert result.status == "max_iter"


# which criterion a run waited for last, and advice where it did not converge


@pytest.mark.parametrize("stopping", ["optimality", "residuals", "objective"])
def test_the_ending_is_that_of_the_recorded_criteria(stopping):
    chain = Topology.chain(5)
    result = solve(quadratics(5), chain, stopping=stopping, tolerance=1e-6)
    columns = [result.history[f"{name}_over_limit"] for name in CRITERIA]
    ending, over = result.ending, np.stack(columns, axis=-1)
    unmet = (over >= 1).any(axis=(1, 2))  # by iteration, from 1
    until = ending.iteration + ending.patience
    assert unmet[ending.iteration - 1]
    assert not unmet[ending.iteration : until].any()
    assert result.iterations == until + ending.delay
    assert ending.delay == 2 * chain.diameter
    last = over[ending.iteration - 1, ending.node]
    assert last[CRITERIA.index(ending.criterion)] == ending.factor == np.nanmax(last)
    assert ending.summary()["last_unmet"] == ending.iteration
    said = ending.words(converged=True)
    assert f"node {ending.node}" in said
    assert str(ending.iteration + 1) in said


def test_the_part_of_theta_that_is_furthest_from_its_limit_is_named():
    own = []
    for row in np.eye(3):
        problem = Quadratic(np.eye(5), np.array([1.0, 1.0, *(10.0 * row)]))
        problem.layout = Layout.of(still=(2,), moving=(3,))
        problem.init = lambda rng: np.array([1.0, 1.0, 0.0, 0.0, 0.0])
        own.append(problem)
    settings = {"scheme": "fixed", "eta0": 0.01, "max_iter": 20}
    ending = solve(own, Topology.ring(3), **settings).ending
    assert (ending.part, ending.met) == ("moving", False)
    assert "moving" in ending.words(converged=False)


LOSSY = {"scheme": "fixed", "sending": Sending(drop_probability=0.2), "max_iter": 60}
FAR = {"scheme": "fixed", "max_iter": 300}


@pytest.mark.parametrize(
    ("n", "settings", "remedy"),
    [
        (5, LOSSY | {"stopping": "residuals"}, 'stopping = "optimality"'),
        (5, {"max_iter": 4}, "raise max_iter"),
        (5, {"eta0": 1e-6} | FAR, "raise eta0"),
        (5, {"eta0": 1e6} | FAR, "lower eta0"),
        (40, {"tolerance": 1e-9, "max_iter": 60}, "up to 39 iterations"),
        (5, {"tolerance": 1e-2}, ""),
    ],
)
def test_advice_names_the_remedy(n, settings, remedy):
    graph = RING if n == 5 else Topology.chain(n)
    said = advise(solve(quadratics(n), graph, **settings))
    assert remedy in said
    assert bool(said) == bool(remedy)


@pytest.mark.parametrize(
    ("first", "convex", "remedy"),
    [(53.0, False, "another init"), (53.0, True, "raise tolerance"),
     (1e13, False, "double precision")],
)  # fmt: skip
def test_a_standstill_has_a_remedy(first, convex, remedy):
    """A criterion that hardly decreases in the last half of a run does not."""
    result = solve(quadratics(5), RING, tolerance=1e-9, max_iter=35)
    trail = np.append(np.full(20, first), np.geomspace(53.0, 50.0, 20))
    still = {"trail": trail, "factor": 50.0, "convex": convex}
    assert remedy in advise(replace(result, ending=replace(result.ending, **still)))


def test_a_run_that_was_cut_short_is_told_how_many_iterations_it_needs():
    """A few if it ends on the threshold; else by how fast it falls."""
    last = solve(quadratics(5), RING, tolerance=1e-6).ending.iteration
    result = solve(quadratics(5), RING, tolerance=1e-6, max_iter=last + 2)
    assert result.ending.met
    assert "at least 8 iterations" in advise(result)
    slow = {"scheme": "fixed", "eta0": 2.0, "tolerance": 1e-9}
    need = solve(quadratics(8), Topology.chain(8), **slow).iterations
    cut = solve(quadratics(8), Topology.chain(8), max_iter=need // 2, **slow)
    said = advise(cut).split("at least ")[1].split()[0]
    assert need / 4 < int(said) < 1.5 * need


def test_scales_of_the_rows_of_one_node_count_in_raw_coordinates():
    rows = np.random.default_rng(0).standard_normal((50, 3))
    result = solve(quadratics(5), RING, tolerance=1e-14, max_iter=35)
    assert "column 1)" in advise(result, rows * [1.0, 1e4, 1.0])
    for scale in (1.0, 1e-5):  # one part of theta
        assert "scales" not in advise(result, scale * rows)
    own = [problems.PPCA(1e-4 * part, 1) for part in np.split(rows[:48], 4)]
    settings = {"max_iter": 35, "tolerance": 1e-9, "init": "shared"}
    for coordinates in ("raw", "units"):
        found = solve(own, Topology.ring(4), coordinates=coordinates, **settings)
        assert ("scales" in advise(found, 1e-4 * rows)) == (coordinates == "raw")
