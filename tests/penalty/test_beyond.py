"""Schemes beyond the paper: both ends agree by themselves; each moves as it says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.admm.mail import Mail
from dadmm.core.errors import ProblemError
from dadmm.core.interfaces import Observation
from dadmm.data.datasets import synthetic
from dadmm.data.shard import split
from dadmm.graphs.incidence import Incidence
from dadmm.penalty import SCHEMES, build, rules
from dadmm.penalty.beyond import Auto, GlobalBalance, SpectralRatio
from dadmm.problems import PPCA
from tests.support.problems import quadratics
from tests.support.solving import solve

AGREEING = [name for name in SCHEMES if SCHEMES[name].is_symmetric]
GRAPHS = ("ring", "complete", "cluster")
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


def trace(scheme, graph, kind):
    """Return all penalties (t, E) and the result; both ends must agree all the time."""
    topology, etas = getattr(Topology, graph)(6), []

    def watch(t, run):
        etas.append(run.by_edge(run.state.eta))
        rows = run.by_edge(run.state.multipliers)
        assert_array_equal(etas[-1], etas[-1][topology.reverse])
        assert_array_equal(rows, -rows[topology.reverse])

    settings = {"scheme": scheme, "init": "independent", "max_iter": 40}
    result = solve(KINDS[kind](), topology, tolerance=0, callbacks=[watch], **settings)
    return np.array(etas), result.theta


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("scheme", AGREEING)
def test_both_ends_agree_bit_for_bit_without_a_message(scheme, graph, kind, request):
    etas, theta = trace(scheme, graph, kind)
    request.getfixturevalue("poisoned")
    again, same = trace(scheme, graph, kind)

    assert_array_equal(again, etas)
    assert_array_equal(same, theta)
    assert len(np.unique(etas)) > 1  # they do move
    assert scheme == "global_balance" or len(np.unique(etas[-1])) > 1


def test_other_schemes_do_read_it(poisoned):
    with pytest.raises(ProblemError, match="the objective is nan in iteration 2"):
        solve(quadratics(6), Topology.ring(6), scheme="nap")


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


def begin(scheme, anchors=0.0):
    """Return the state before iteration 1 of a node with one edge."""
    state = scheme.init(ONE, np.array([math.nan]), 1)
    anchors = np.full((1, 2), anchors)
    return scheme.start(state, state["eta"], anchors, np.zeros_like(anchors))


def test_the_spectral_ratio_moves_every_third_iteration():
    """From where it last stood: |lambda - old| over |z - old|."""
    scheme = SpectralRatio(eta0=1.0)
    state = begin(scheme, anchors=0.0)
    for t in (1, 2):
        assert scheme.update(state, sight(t)) is state

    third = scheme.update(state, sight(3))
    want = math.sqrt(2.0) / 2.0  # from lambda = 0 and z = 0
    assert_allclose(third["eta"], [want ** rules.damping(3, scheme.SCALE)])

    moved = {"anchors": np.array([[2.0, 0.1]]), "multipliers": np.array([[1.0, 1.2]])}
    sixth = scheme.update(third, sight(6, **moved))
    step = (2.0 / third["eta"]) ** rules.damping(6, scheme.SCALE)
    assert_allclose(sixth["eta"], third["eta"] * step)


def test_an_edge_at_rest_keeps_its_penalty():
    scheme = SpectralRatio(eta0=1.0)
    third = scheme.update(begin(scheme), sight(3))

    assert_array_equal(scheme.update(third, sight(6))["eta"], third["eta"])


@pytest.mark.parametrize("kind", [SpectralRatio, Auto])
@pytest.mark.parametrize(("still", "end"), [("multipliers", 1e-6), ("anchors", 1e6)])
def test_one_sided_moves_are_bounded_and_summable(kind, still, end):
    """Ten times in a step, and less each time; a million times in all."""
    scheme = kind(eta0=1.0)
    states, rng = [begin(scheme)], np.random.default_rng(0)
    for t in range(3, 3000, 3):
        moved = {n: rng.standard_normal((1, 2)) for n in ("multipliers", "anchors")}
        moved[still] = np.zeros((1, 2))
        states.append(scheme.update(states[-1], sight(t, **moved)))
    etas = np.array([state["eta"][0] for state in states])
    steps = np.abs(np.diff(np.log10(etas)))

    assert np.all(steps <= 1.0)
    assert np.all(np.diff(steps[:5]) < 0)
    assert etas[-1] == end


def test_global_balance_doubles_and_halves_by_the_residuals_of_all():
    """Not by this node's own; not before they are known; and from t_max on it keeps."""
    scheme = build("global_balance", eta0=1.0, t_max=5)
    state = begin(scheme)
    for t, network, eta in [
        (1, None, 1.0),
        (2, (11.0, 1.0), 2.0),
        (3, (10.0, 1.0), 2.0),
        (4, (1.0, 11.0), 1.0),
        (4, (11.0, 1.0), 2.0),
        (5, (11.0, 1.0), 2.0),
        (9, (1.0, 11.0), 2.0),
    ]:
        obs = sight(t, primal=np.array([1e9]), global_residuals=network)
        state = scheme.update(state, obs)
        assert_array_equal(state["eta"], [eta])


@pytest.mark.parametrize("agreement", ["neighbours", "global"])
def test_every_node_knows_the_residuals_of_all_one_iteration_later(
    agreement, monkeypatch
):
    """By a collective, beside the votes if there are any."""
    problems, topology, lengths, known = quadratics(5), Topology.ring(5), [], []
    update = GlobalBalance.update

    def spy(scheme, state, obs):
        known.append(obs.global_residuals)
        return update(scheme, state, obs)

    def watch(t, run):
        assert len(known) == t
        if t == 1:
            assert known[0] is None
        else:
            assert_allclose(known[-1], lengths[-1], rtol=1e-14)
        own = run.work.primal, run.work.dual
        lengths.append([math.hypot(*column) for column in own])

    monkeypatch.setattr(GlobalBalance, "update", spy)

    settings = {"scheme": "global_balance", "agreement": agreement}
    assert solve(problems, topology, callbacks=[watch], **settings).converged


@pytest.mark.parametrize("stopping", ["optimality", "objective"])
def test_collectives_are_counted_and_messages_are_as_ever(stopping):
    """Two doubles per node and iteration; a vote is one more, but not in the last."""
    problems, topology = quadratics(5), Topology.ring(5)
    settings = {"scheme": "global_balance", "stopping": stopping}
    alone = solve(problems, topology, **settings)
    voted = solve(problems, topology, agreement="global", **settings)
    plain = solve(problems, topology, scheme="fixed", stopping=stopping)

    assert alone.converged
    assert voted.converged
    assert alone.traffic.collectives == alone.iterations
    assert alone.traffic.collective_bytes == alone.iterations * 5 * 2 * 8
    assert voted.traffic.collectives == 2 * voted.iterations - 1
    assert voted.traffic.collective_bytes == (3 * voted.iterations - 1) * 5 * 8
    assert plain.traffic.collectives == 0
    for result in (alone, voted, plain):
        assert result.traffic.messages == len(topology.edges) * (result.iterations + 1)
        eta = result is plain  # both ends of the others find the same by themselves
        each = 8 * (2 + 2) + result.iterations * 8 * (1 + eta + 2)
        assert result.traffic.bytes == len(topology.edges) * each
