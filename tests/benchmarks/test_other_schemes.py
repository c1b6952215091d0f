"""The schemes that only the benchmarks have, as plug-ins; limits of their rules."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.shared.schemes import (
    OTHERS,
    EdgeBalance,
    barzilai_borwein,
    build,
    relative_balance,
)
from dadmm import CheckpointError, Checkpoints, ConfigError, Topology
from dadmm.graphs.incidence import Incidence
from dadmm.penalty.schemes import Fixed, Observation
from tests.support.problems import distance, optimum, quadratics
from tests.support.solving import solve

ONE = Incidence(np.array([1]))


def sight(t, **changes):
    """Return one edge of two entries: gap 1, |theta| 1, drift 1, |lambda| sqrt(2)."""
    zero = np.zeros(1)
    standing = Observation(
        t=t,
        incidence=ONE,
        objective=zero,
        previous=zero,
        probes=zero,
        f_min=zero,
        f_max=zero,
        primal=np.ones(1),
        dual=np.ones(1),
        theta=np.array([[1.0, 0.0]]),
        centre=np.array([[1.0, 0.0]]),
        weight=np.array([20.0]),
        sent=np.array([[1.0, 0.0]]),
        received=np.array([[0.0, 0.0]]),
        anchors=np.array([[2.0, 0.0]]),
        drift=np.array([[0.0, 1.0]]),
        multipliers=np.array([[1.0, 1.0]]),
        eta=np.array([10.0]),
    )
    return replace(standing, **changes)


def begin(scheme):
    """Return the state before iteration 1 of a node with one edge."""
    state, zero = scheme.init(ONE, np.array([scheme.eta0])), np.zeros((1, 2))
    return scheme.start(state, state["eta"], zero, zero)


@pytest.mark.parametrize(
    ("name", "relaxation"), [*((name, 1.6) for name in OTHERS), ("edge_balance", 1.0)]
)
def test_a_scheme_that_is_an_object_reaches_the_optimum(name, relaxation):
    problems, scheme = quadratics(5), build(name, relaxation=relaxation)
    result = solve(problems, Topology.ring(5), scheme=scheme, tolerance=0, max_iter=600)

    assert distance(result.theta, optimum(problems)) < 1e-8
    assert result.ending.scheme == type(scheme).__name__
    with pytest.raises(ConfigError, match=f"^unknown scheme '{name}'; choose one of"):
        solve(problems, Topology.ring(5), scheme=name)


def test_an_object_of_a_known_scheme_is_that_scheme():
    """An argument of solve would be ignored, so it is an error."""
    problems, topology = quadratics(5), Topology.ring(5)
    one = solve(problems, topology, scheme=Fixed(eta0=3.0))
    other = solve(problems, topology, scheme="fixed", eta0=3.0)

    assert_array_equal(one.theta, other.theta)
    assert one.ending.scheme == "fixed"
    message = r"^scheme is an object with its own eta0; pass EdgeBalance\(eta0=3.0\) "
    with pytest.raises(ConfigError, match=message):
        solve(problems, topology, scheme=EdgeBalance(), eta0=3.0)


@pytest.mark.parametrize("other", [EdgeBalance(eta0=2.0), "fixed"])
def test_a_checkpoint_knows_the_scheme_and_its_settings(tmp_path, other):

    def run(scheme, n, **more):
        checkpoints = Checkpoints(tmp_path, every=10, **more)
        settings = {"max_iter": n, "tolerance": 0, "checkpoints": checkpoints}
        return solve(quadratics(5), Topology.ring(5), scheme=scheme, **settings)

    run(EdgeBalance(), 20)
    whole = solve(
        quadratics(5), Topology.ring(5), scheme=EdgeBalance(), max_iter=40, tolerance=0
    )

    with pytest.raises(CheckpointError):
        run(other, 40, resume=True)
    assert_array_equal(run(EdgeBalance(), 40, resume=True).theta, whole.theta)


def scaled(problem, c):
    """Return c times a quadratic, without asking for its axes again."""
    other = copy.copy(problem)
    other.A, other._curvature = c * problem.A, c * problem._curvature
    other._pull = c * problem._pull
    return other


@pytest.mark.parametrize("scheme", OTHERS)
@pytest.mark.parametrize("c", [4.0**-10, 4.0**10])
def test_objectives_and_penalties_in_other_units_give_the_same_bits(scheme, c):
    """Powers of two are exact, but the geometric mean of node_spectral is rounded."""
    problems, topology = quadratics(6), Topology.cluster(6)
    settings = {"tolerance": 0, "max_iter": 15 if scheme == "node_spectral" else 40}
    settings["record_edges"] = True
    plain = solve(problems, topology, scheme=build(scheme, eta0=3.0), **settings)
    other = [scaled(problem, c) for problem in problems]
    result = solve(other, topology, scheme=build(scheme, eta0=3.0 * c), **settings)

    near = {"theta": 1e-10, "eta": 1e-8} if scheme == "node_spectral" else {}
    assert_allclose(result.theta, plain.theta, near.get("theta", 0))
    etas, before = result.history.edges["eta"], plain.history.edges["eta"]
    assert_allclose(etas, c * before, near.get("eta", 0))


@pytest.mark.parametrize(
    ("factor", "moved"),
    [(1.0, 1.0), (2.25, 1.5), (0.25, 0.5), (99.0, 2.0), (0.01, 0.5)],
)
def test_edge_balance_moves_by_the_root_of_the_ratio(factor, moved):
    """Of primal to dual, here by the gap; at most by two, and less as time goes on."""
    scheme = build("edge_balance", eta0=1.0)
    for t in (0, 150):
        far = np.array([[1.0 - factor, 0.0]])
        size = max(1.0, abs(1.0 - factor))  # the longer of both ends
        pull = size * np.array([[1.0, 1.0]])

        obs = sight(t, received=far, multipliers=pull)
        state = scheme.update(begin(scheme), obs)

        assert_allclose(state["eta"], [moved ** (1.0 if t == 0 else 0.25)])


def test_edge_balance_counts_how_far_the_anchor_went():
    """That is the relaxation times the drift."""
    plain = build("edge_balance", eta0=1.0)
    relaxed = build("edge_balance", eta0=1.0, relaxation=1.5)

    one, other = (s.update(begin(s), sight(0))["eta"][0] for s in (plain, relaxed))

    assert_allclose(one / other, math.sqrt(1.5))


def test_node_spectral_takes_the_mean_of_both_curvatures():
    """Its slope turned by 8 per way, the multipliers by 2: weight 4, eta 2."""
    scheme = build("node_spectral", eta0=1.0)
    state = scheme.update(begin(scheme), sight(1))
    assert_array_equal(state["eta"], [1.0])
    assert scheme.update(state, sight(2)) is state  # every second iteration

    way = np.array([[0.5, -0.25]])
    now = sight(3)
    turned = replace(
        now,
        theta=now.theta + way,
        centre=now.theta + way + 8.0 / now.weight * way,
        anchors=now.anchors + way,
        multipliers=now.multipliers + way,  # which pull twice
    )
    third = scheme.update(state, turned)

    assert_allclose(third["eta"], [2.0])


def test_node_spectral_without_a_curvature_stays():
    scheme = build("node_spectral", eta0=1.0)
    state = scheme.update(begin(scheme), sight(1))

    assert_array_equal(scheme.update(state, sight(3))["eta"], [1.0])
    wrong = {"theta": np.array([[2.0, 0.0]]), "centre": np.array([[3.0, 0.0]])}
    assert scheme.update(state, sight(3, **wrong))["eta"][0] != 1.0
    wrong = {"theta": np.array([[2.0, 0.0]]), "centre": np.array([[1.0, 0.0]])}
    assert_array_equal(scheme.update(state, sight(3, **wrong))["eta"], [1.0])


def test_the_relative_balance_is_primal_over_dual_each_by_its_own_size():
    rng = np.random.default_rng(1)
    rows = np.exp(rng.normal(size=(5, 6)))
    gap, size, drift, multipliers, eta = rows
    want = []
    for k in range(6):
        primal = gap[k] / (math.sqrt(2.0) * size[k])
        dual = eta[k] * drift[k] / multipliers[k]
        want.append(primal / dual)

    assert_allclose(relative_balance(*rows), want, rtol=1e-14)


@pytest.mark.parametrize("nothing", ["gap", "drift", "multipliers", "size", "noise"])
def test_without_something_to_balance_the_ratio_is_one(nothing):
    """For this edge alone, as with zero multipliers at the start."""
    edge = dict.fromkeys(("gap", "size", "drift", "multipliers", "eta"), np.ones(2))
    name, value = ("gap", 0.9e-13) if nothing == "noise" else (nothing, 0.0)
    edge[name] = np.array([value, 1.0])
    with np.errstate(all="raise"):
        ratio = relative_balance(**edge)

    assert_allclose(ratio, [1.0, 1.0 / math.sqrt(2.0)])


@pytest.mark.parametrize(
    ("way", "turn"),
    [
        ((0.0, 0.0), (0.0, 0.0)),  # nothing has moved
        ((1.0, 0.0), (0.0, 0.0)),
        ((0.0, 0.0), (1.0, 0.0)),
        ((1.0, 0.0), (0.0, 1.0)),  # at a right angle
        ((1.0, 0.0), (-1.0, 0.0)),  # bent the wrong way
        ((1.0, 0.0), (0.19, math.sqrt(1 - 0.19**2))),  # correlated by 0.19
        ((math.nan, 0.0), (1.0, 0.0)),
        ((1.0, 0.0), (math.nan, 0.0)),
    ],
)
def test_a_move_that_shows_no_curvature_has_none(way, turn):
    with np.errstate(all="raise"):
        assert math.isnan(barzilai_borwein(np.array(way), np.array(turn)))
    enough = np.array([0.21, math.sqrt(1 - 0.21**2)])
    assert barzilai_borwein(np.array([1.0, 0.0]), enough) > 0
    assert math.isnan(barzilai_borwein(np.array([1.0, 0.0]), enough, least=0.3))
