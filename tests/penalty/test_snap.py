"""`snap`: its equations, its bound, and what both ends of an edge agree on."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.admm.mail import Mail
from dadmm.core.errors import ProblemError
from dadmm.data.datasets import synthetic
from dadmm.data.shard import split
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES, SNAP
from dadmm.penalty.snap import spectral_ratio
from dadmm.problems import PPCA
from tests.support import reference_snap
from tests.support.problems import Quadratic, quadratics
from tests.support.solving import solve

KEYS = ("eta", "spent", "budget", "raised", "used_up")


def begin(scheme, multipliers):
    """Return the state before iteration 1; anchors are zero."""
    n_edges = len(multipliers)
    state = scheme.init(Incidence(np.array([n_edges])), np.full(n_edges, 2.0))
    return scheme.start(state, state["eta"], 0.0 * multipliers, multipliers)


def follow(scheme, anchors, multipliers, first=0.0):
    """Return the states (t, E) of each update; a row of a sequence is (E, size)."""
    states = [begin(scheme, np.full(anchors.shape[1:], first))]
    for k, (z, y) in enumerate(zip(anchors, multipliers, strict=True), start=1):
        obs = SimpleNamespace(t=3 * k, anchors=z, multipliers=y)
        with np.errstate(all="ignore"):  # as in a run
            states.append(scheme.update(states[-1], obs))
    return {name: np.array([state[name] for state in states]) for name in KEYS}


def wander(seed, n_edges=20, n=40, size=3):
    """Return sequences that shrink, grow, stand still or move on one side only."""
    rng = np.random.default_rng(seed)
    steps = rng.standard_normal((2, n, n_edges, size))
    steps *= np.exp(rng.normal(0, 3, (2, 1, n_edges, 1)))
    steps *= np.exp(np.arange(n)[:, None, None] * rng.uniform(-0.4, 0.2, (n_edges, 1)))
    steps[rng.random((2, n, n_edges)) < 0.1] = 0.0
    return steps.cumsum(axis=1)


BUDGETS = [
    (32.0, 0.5, 0.01),
    (5.0, 0.5, 0.1),
    (1.0, 0.9, 0.0),
    (1e-9, 0.99, 0.0),
    (1e-300, 0.5, 0.0),
    (0.0, 0.5, 0.0),
    (2.0, 0.0, 0.0),
    (2.0, 0.5, math.inf),
]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("seed", "first"), [(0, 0.0), (1, 0.0), (2, 3.0)])
def test_an_edge_is_adapted_as_by_the_plain_reference_and_its_total_is_bounded(
    budget, seed, first
):
    """Equations (10) and (11), for sequences that no run has, from any multipliers."""
    budget0, decay, trigger = budget
    scheme = SNAP(budget0=budget0, budget_decay=decay, budget_trigger=trigger)
    anchors, multipliers = wander(seed)
    multipliers += first
    found = follow(scheme, anchors, multipliers, first)

    given = (anchors, 0.0), (multipliers, first)
    z, y = (np.concatenate([0.0 * x[:1] + start, x]) for x, start in given)
    for e in range(z.shape[1]):
        edge = reference_snap.start(2.0, budget0)
        for k in range(1, len(z)):
            now, old = (z[k, e], y[k, e]), (z[k - 1, e], y[k - 1, e])
            reference_snap.update(edge, *now, *old, *budget)
            for name in KEYS:
                assert_allclose(found[name][k, e], edge[name], 1e-9, 1e-300)
    assert np.all(found["spent"] <= found["budget"] * (1 + 1e-15))
    assert np.all(found["budget"] <= budget0 / (1 - decay) * (1 + 1e-15))
    assert np.all(np.diff(found["spent"], axis=0) >= 0.0)
    bits = np.abs(np.diff(np.log2(found["eta"]), axis=0)).sum(axis=0)
    assert_allclose(bits, found["spent"][-1], rtol=1e-9, atol=1e-12)
    assert trigger > 0.0 or budget0 > 5.0 or found["raised"].max() > 0


@pytest.mark.parametrize("size", [0.0, 1.0, 1e9])
def test_noise_has_no_spectral_ratio(size):
    """Unless only one of the two changes is noise; then the ratio may be extreme."""
    whole, quiet, loud = (np.full(1, size * x) for x in (1.0, 0.5e-13, 2e-13))

    assert np.isnan(spectral_ratio(quiet, quiet, whole, whole))
    if size:
        for turn, way in [(quiet, loud), (loud, quiet), (loud, loud)]:
            assert spectral_ratio(turn, way, whole, whole) == turn / way


KINDS = {
    "quadratics": lambda: quadratics(6, size=5),
    "ppca": lambda: [PPCA(own, 2) for own in split(synthetic(90, 7, 2, seed=5)[0], 6)],
}


@pytest.fixture
def poisoned(monkeypatch):
    """Spoil the penalty in every message but the first, which proposes one."""
    read = Mail.read

    def spoil(mail, turn):
        read(mail, turn)
        mail.inbox.eta[:] = mail.outbox.eta[:] = math.nan

    monkeypatch.setattr(Mail, "read", spoil)


def trace(scheme, graph, kind, coordinates):
    """Return all penalties (t, E) and the result; both ends must agree all the time."""
    topology, etas = getattr(Topology, graph)(6), []

    def watch(t, run):
        etas.append(run.by_edge(run.state.eta))
        rows = run.by_edge(run.state.multipliers)
        kept = {"eta": run.state.eta} | run.state.penalty
        for name in {*KEYS, "largest_move"} & set(kept):
            both = run.by_edge(kept[name])
            assert_array_equal(both, both[topology.reverse], err_msg=name)
        assert_array_equal(rows, -rows[topology.reverse])

    result = solve(
        KINDS[kind](), topology, scheme=scheme, init="independent", max_iter=40,
        tolerance=0, callbacks=[watch], coordinates=coordinates,
    )  # fmt: skip
    return np.array(etas), result.theta


@pytest.mark.parametrize(
    ("kind", "coordinates"), [("quadratics", "raw"), ("ppca", "raw"), ("ppca", "auto")]
)
@pytest.mark.parametrize("graph", ["ring", "complete", "cluster"])
@pytest.mark.parametrize("scheme", ["snap", "global_balance"])
def test_both_ends_agree_bit_for_bit_without_a_message(
    scheme, graph, kind, coordinates, request
):
    etas, theta = trace(scheme, graph, kind, coordinates)
    request.getfixturevalue("poisoned")
    again, same = trace(scheme, graph, kind, coordinates)

    assert_array_equal(again, etas)
    assert_array_equal(same, theta)
    assert len(np.unique(etas[-1])) > 1 or scheme == "global_balance"
    assert len(np.unique(etas)) > 1 or coordinates == "auto"  # they do move


def test_only_schemes_that_couple_read_it(poisoned):
    for name, kind in SCHEMES.items():
        given = {"scheme": name, "max_iter": 5, "tolerance": 0}
        if kind().couples:
            with pytest.raises(ProblemError):
                solve(quadratics(6), Topology.ring(6), **given)
            given["coupling"] = "own"
        solve(quadratics(6), Topology.ring(6), **given)


@pytest.mark.parametrize(
    ("f", "x"), [(1e-9, 1.0), (0.3, 1.0), (1e9, 1.0), (1.0, 1e-9), (1.0, 0.3), (1, 1e9)]
)
def test_other_units_give_the_same_raw_run(f, x):
    problems, topology = quadratics(6, size=3), Topology.cluster(6)
    scaled = [Quadratic(f * problem.A / x**2, x * problem.b) for problem in problems]
    theta0 = np.random.default_rng(0).standard_normal((6, 3))

    for eta0, rtol in ((3.0, 1e-3), (None, 0.2)):  # or a curvature by five steps
        given = {"max_iter": 40, "tolerance": 0}
        plain = solve(problems, topology, init=theta0, eta0=eta0, **given)
        eta0 = eta0 and eta0 * f / x**2
        other = solve(scaled, topology, init=x * theta0, eta0=eta0, **given)

        assert_allclose(other.theta, x * plain.theta, rtol=1e-6)
        assert_allclose(other.eta, f * plain.eta / x**2, rtol=rtol)
