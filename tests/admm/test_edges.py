"""What nodes measure at their edges; edges that rest, and losses."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Sending, Topology
from dadmm.comm.sending import Turn
from dadmm.penalty import build as scheme
from tests.support.engine import build, nodes_of
from tests.support.problems import quadratics, random_graph

ALL = Turn(1)
NOISY = Sending(payload="float32")  # neighbours have rounded parameters


@pytest.fixture(params=["pair", "star", "random"])
def topology(request):
    random = random_graph(np.random.default_rng(3), 9)
    graphs = {"pair": Topology.chain(2), "star": Topology.star(6), "random": random}
    return graphs[request.param]


def anywhere(topology, size=3, relaxation=1.0, sending=None):
    """Return a run at random parameters; what both ends of an edge share is equal."""
    policy = scheme("fixed", relaxation=relaxation)
    run = build(quadratics(len(topology), size), topology, policy, sending)
    rng, state, reverse = np.random.default_rng([0, size]), run.state, topology.reverse
    (i, j), m = topology.edges.T, len(topology.edges)
    theta, said = rng.normal(size=(2, len(topology), size))
    said = theta if run.mail.direct else said
    pull, anchors = rng.normal(size=(2, m, size))
    eta = np.exp(rng.normal(size=m))
    state.theta[...] = run.work.shared[...] = theta[run.nodes]
    state.mean[...] = rng.normal(size=(len(topology), size))
    for name, rows in {
        "sent": said[i], "received": said[j], "multipliers": pull - pull[reverse],
        "anchors": anchors + anchors[reverse], "eta": eta + eta[reverse],
    }.items():  # fmt: skip
        getattr(state, name)[...] = rows[run.arcs]
    run.edges.sum_multipliers()
    return run


def test_an_edge_that_is_not_live_does_not_move(topology):
    run, full = anywhere(topology, relaxation=1.6), anywhere(topology, relaxation=1.6)
    old = run.state.choose()
    live = np.random.default_rng(1).random(len(old.eta)) < 0.5

    run.edges.move(Turn(1, live=live))
    full.edges.move(ALL)

    for name in ("multipliers", "anchors"):
        now, start = getattr(run.state, name), getattr(old, name)
        assert_array_equal(now[~live], start[~live])
        assert_allclose(now[live], getattr(full.state, name)[live], rtol=1e-13)


def lengths(rows):
    return np.sqrt((rows**2).sum(axis=-1))


@pytest.mark.parametrize("sending", [None, NOISY])
def test_what_a_node_can_know_of_its_edges(topology, sending):
    run = anywhere(topology, sending=sending)

    run.edges.pull()
    run.edges.move(ALL)
    run.edges.update_residuals(ALL)

    influence = run.by_edge(run.edges.influence())
    assert_array_equal(influence, influence[topology.reverse])
    want = []
    for node in nodes_of(run):
        behind = node.theta - node.sent
        slope = 2 * (node.eta[:, None] * (node.drift + behind)).sum(axis=0)
        assert_allclose(node.stationarity, slope, rtol=1e-11, atol=1e-12)
        assert_allclose(node.residual, lengths(slope), rtol=1e-11)
        apart = np.sqrt(((node.theta - node.received) ** 2).mean(axis=0))
        lag = np.sqrt((behind**2).mean(axis=0))
        assert_allclose(node.disagreement, lengths(apart), rtol=1e-13)
        assert_allclose(node.lag, lengths(lag), rtol=1e-13)
        assert_allclose(node.difference, apart + lag, rtol=1e-13)
        assert (node.lag > 0.0) == (sending is not None)
        between = lengths(node.sent - node.received) / 2
        want.extend(node.eta * (lengths(node.drift) + between))
    assert_allclose(influence, want, rtol=1e-13)


@pytest.mark.parametrize("alpha", [1.0, 1.6])
def test_lossy_edges_are_those_of_r_admm(topology, alpha):
    run = anywhere(topology, relaxation=alpha, sending=Sending(drop_probability=0.5))
    arrived = np.random.default_rng(2).random(len(run.arcs)) < 0.5
    state, message = run.state, np.empty_like(run.state.sent)
    before = nodes_of(run)

    run.edges.message(message)
    state.received[...] = np.random.default_rng(3).normal(size=message.shape)
    heard, start = state.received.copy(), state.anchors.copy()
    run.edges.move(Turn(1, arrived=arrived))
    run.edges.update_residuals(Turn(1, arrived=arrived))

    want = [2 * node.theta - anchor for node in before for anchor in node.anchors]
    assert_array_equal(run.by_edge(message), want)
    moved = (1 - alpha / 2) * start + alpha / 2 * heard
    assert_allclose(state.anchors[arrived], moved[arrived], atol=1e-14)
    assert_array_equal(state.anchors[~arrived], start[~arrived])
    assert np.isnan(run.work.dual).all()
    for node, old in zip(nodes_of(run), before, strict=True):
        drift = (node.received - old.anchors) / 2
        far = math.sqrt((drift**2).sum() / len(drift))
        assert_allclose(node.primal, far, rtol=1e-12)
