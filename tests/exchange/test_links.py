"""A node's edges: when something is sent, who knows what, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology, solve
from dadmm.admm.stopping import StopState
from dadmm.core.layout import Layout
from dadmm.exchange import InProcessExchange
from dadmm.exchange.codec import PAYLOADS
from dadmm.exchange.links import Links
from dadmm.exchange.sending import REVISIT, Sending
from dadmm.exchange.wire import HEADER, width
from dadmm.graphs.schedule import Schedule
from dadmm.penalty import SCHEMES
from tests.support.problems import quadratics

LAYOUT = Layout.of(x=(3,))
RING = Topology.ring(5)
HEAD = HEADER.itemsize
NOTHING = StopState()  # to say


class Network:
    """Links of all nodes of a graph, and an exchange between them."""

    def __init__(self, graph, sending, agrees=True, schedule=None, size=3):
        layout = Layout.of(x=(size,))
        self.exchange = InProcessExchange(graph, width(size))
        self.links = [
            Links(
                self.exchange, i, layout, sending, agrees=agrees,
                schedule=None if schedule is None else schedule.active_edges(graph, i),
            )
            for i in range(len(graph))
        ]  # fmt: skip
        self.graph, self.size = graph, size
        for i, links in enumerate(self.links):
            degree = len(graph.neighbours[i])
            links.greet(np.full(size, float(i)), np.full(degree, 1.0 + i), StopState())
        self.exchange.swap()
        for links in self.links:
            links.meet()

    def step(self, thetas, etas=None, accord=NOTHING):
        """Send and receive once; return the words that each node heard."""
        for i, (links, theta) in enumerate(zip(self.links, thetas, strict=True)):
            degree = len(self.graph.neighbours[i])
            eta = np.full(degree, 1.0) if etas is None else np.full(degree, etas[i])
            links.send(np.asarray(theta, dtype=float), eta, accord)
        self.exchange.swap()
        return [links.receive() for links in self.links]

    def pairs(self):
        """Yield both ends of each edge: links and row, links and row."""
        for i, j in self.graph.edges.tolist():
            here, there = self.graph.neighbours[i], self.graph.neighbours[j]
            yield self.links[i], here.index(j), self.links[j], there.index(i)

    def check(self):
        """Both ends of every edge know the same, bit for bit."""
        for mine, k, theirs, m in self.pairs():
            assert_array_equal(mine.said[k], theirs.heard[m])
            assert mine._asleep[k] == theirs._asleep[m]
            assert (mine.live is None) == (theirs.live is None)
            if mine.live is not None and not mine.sending.drop_probability:
                assert mine.live[k] == theirs.live[m]


def walk(n, steps, size=3, seed=0):
    """Yield thetas (n, size) that move less and less."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((n, size))
    for k in range(steps):
        theta = theta + 0.8**k * rng.standard_normal(theta.shape)
        yield theta


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize(("censor", "decay"), [(0.3, 0.9), (2.0, 0.5), (1e-3, 0.98)])
def test_a_change_is_sent_exactly_if_it_is_longer_than_the_threshold(
    payload, censor, decay
):
    """|theta - said| > censor decay^t |theta|, and else a header alone."""
    net = Network(RING, Sending(payload=payload, censor=censor, censor_decay=decay))
    seen = set()
    for t, thetas in enumerate(walk(5, 40), start=1):
        before = [links.said[0].copy() for links in net.links]
        net.step(thetas)
        for links, theta, said in zip(net.links, thetas, before, strict=True):
            limit = censor * decay**t * np.linalg.norm(theta)
            due = bool(np.linalg.norm(theta - said) > limit)
            full = HEAD + links.codec.length
            assert links.lengths.tolist() == [full if due else HEAD] * 2
            if not due:
                assert_array_equal(links.said[0], said)
            seen.add(due)
        net.check()
    assert seen == {True, False} or censor < 0.01


def test_nothing_new_is_not_sent_where_changes_are_weighed():
    """Zero is not longer than a threshold of zero, in whatever units."""
    net = Network(RING, Sending(censor=0.5))
    net.step(np.zeros((5, 3)))
    sent = [links.lengths.copy() for links in net.links]
    net.step(np.zeros((5, 3)))

    assert sent[0].tolist() == [HEAD, HEAD]  # it was at zero
    assert sent[3].tolist() == [HEAD + 24] * 2
    assert all((links.lengths == HEAD).all() for links in net.links)
    assert [links.silent.sum() for links in net.links] == [4, 2, 2, 2, 2]


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_every_so_many_iterations_carry_a_payload(every):
    """The others have a header with the words on stopping."""
    net = Network(RING, Sending(send_every=every))
    accord = StopState(quiet_count=3.0, stop_at=99.0)
    for t, thetas in enumerate(walk(5, 22), start=1):
        words = net.step(thetas, accord=accord)
        due = t % every == 0
        for links, heard in zip(net.links, words, strict=True):
            assert (links.lengths == HEAD + 24 * due).all()
            assert links.idle is not due
            assert heard.quiet_count.tolist() == [3.0, 3.0]
            assert heard.stop_at.tolist() == [99.0, 99.0]
            if due:
                assert_array_equal(links.said, [thetas[links.index]] * 2)
        net.check()


def tire(net, edge):
    """Let both ends find that an edge does not move them, and all others do."""
    for links in net.links:
        near = net.graph.neighbours[links.index]
        moved = [
            1e-9 if {links.index, j} == set(edge) else 1.0 + links.index for j in near
        ]
        links.rest(np.array(moved))


def lengths(net, edge):
    """Return the bytes of an edge's two directions."""
    i, j = edge
    near = net.graph.neighbours
    return [int(net.links[a].lengths[near[a].index(b)]) for a, b in ((i, j), (j, i))]


@pytest.mark.parametrize("period", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_sleeping_edge_is_heard_in_one_of_ten_turns(period, every):
    """By its own turns: whatever the schedule, it is woken; all others stay awake."""
    rounds = [[] for _ in range(period)]
    for k, edge in enumerate(((0, 1), (1, 2), (2, 3), (3, 4), (0, 4))):
        rounds[k % period].append(edge)
    schedule = Schedule(5, rounds)
    net = Network(RING, Sending(edge_sleep=0.1, send_every=every), schedule=schedule)
    edge, cycle = (0, 1), period * every
    woken, others = [], 0
    for t, thetas in enumerate(walk(5, 35 * cycle), start=1):
        net.step(thetas)
        net.check()
        assert len(set(lengths(net, edge))) == 1
        if lengths(net, edge)[0] > HEAD:
            woken.append(t)
        others += lengths(net, (2, 3))[0] > HEAD
        tire(net, edge)

    assert others == 35
    assert woken[0] == 1 + (every - 1) * period
    # it may take a turn until both have said that they would sleep
    asleep = np.diff(woken[-3:])
    assert (asleep == REVISIT * cycle).all()


def test_an_edge_sleeps_only_if_both_ends_would():
    """One end that is moved by it keeps it awake, and it wakes at a word."""
    net = Network(RING, Sending(edge_sleep=0.5))
    for t, thetas in enumerate(walk(5, 12), start=1):
        net.step(thetas)
        net.check()
        assert lengths(net, (0, 1)) == [HEAD + 24] * 2 if t < 6 else True
        net.links[0].rest(np.array([1e-9, 1.0]))  # from 1, and from 4
        net.links[1].rest(np.array([1e-9 if t >= 4 else 1.0, 1.0]))
        for i in (2, 3, 4):
            net.links[i].rest(np.ones(2))
    assert lengths(net, (0, 1)) == [HEAD, HEAD]
    net.links[1].rest(np.array([1.0, 1e-9]))  # nor does the other edge move it now
    for thetas in walk(5, 2):
        net.step(thetas)
    assert lengths(net, (0, 1)) == [HEAD + 24] * 2


def test_an_edge_that_is_not_there_carries_nothing():
    """No message, no word; what both ends know stays as it was."""
    schedule = Schedule.matchings(RING)
    net = Network(RING, Sending(), agrees=False, schedule=schedule)
    for t, thetas in enumerate(walk(5, 12), start=1):
        there = schedule.rounds[(t - 1) % schedule.period]
        before = [links.said.copy() for links in net.links]
        words = net.step(thetas, etas=10.0 * t + np.arange(5))
        for i, links in enumerate(net.links):
            for k, j in enumerate(RING.neighbours[i]):
                present = (i, j) in there
                assert links.lengths[k] == (HEAD + 8 + 24) * present
                wanted = thetas[i] if present else before[i][k]
                assert_array_equal(links.said[k], wanted)
            assert len(words[i].quiet_count) == sum(links.lengths > 0)
            assert not links.silent.any()
        net.check()
        for mine, k, theirs, m in net.pairs():
            assert mine.eta_said[k] == theirs.eta_heard[m]


@pytest.mark.parametrize("seed", [0, 1])
def test_losses_are_the_receivers_luck(seed):
    """By seed; the words on stopping arrive always."""
    net = Network(RING, Sending(drop_probability=0.3, drop_seed=seed))
    again = Network(RING, Sending(drop_probability=0.3, drop_seed=seed))
    other = Network(RING, Sending(drop_probability=0.3, drop_seed=seed + 1))
    rng = np.random.default_rng(0)
    for thetas in rng.standard_normal((60, 5, 3)):
        each = [np.array([theta, theta]) for theta in thetas]
        for one in (net, again, other):
            words = one.step(each, accord=StopState(quiet_count=2.0))
            assert all((heard.quiet_count == 2.0).all() for heard in words)
        for links in net.links:
            fresh = links.heard == thetas[list(RING.neighbours[links.index])]
            assert_array_equal(fresh.all(axis=1), links.live)
            assert (links.lengths == HEAD + 24).all()
    lost = [np.concatenate([x.lost for x in one.links]) for one in (net, again, other)]
    assert_array_equal(lost[0], lost[1])
    assert (lost[0] != lost[2]).any()
    assert 0.25 < lost[0].sum() / 600 < 0.35


OPTIONS = [
    {"payload": "float16"},
    {"censor": 0.5, "censor_decay": 0.9},
    {"send_every": 3},
    {"edge_sleep": 0.6},
    {
        "payload": "quantised",
        "bits": 3,
        "censor": 0.5,
        "edge_sleep": 0.6,
        "send_every": 2,
    },
    {"drop_probability": 0.2, "send_every": 2},
]


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("scheme", ["auto", "nap", "fixed"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda it: "+".join(it))
def test_counters_are_those_of_a_tally_by_iteration(options, scheme, turns):
    """Messages, bytes and silent ones, from the bytes of each edge and iteration."""
    if "drop_probability" in options and scheme != "fixed":
        pytest.skip("losses go with fixed only")
    schedule = Schedule.matchings(RING) if turns else None
    net = quadratics(5, 3)
    sending = Sending(**options)

    result = solve(
        net, RING, scheme=scheme, sending=sending, schedule=schedule,
        tolerance=0, max_iter=40, record_edges=True,
    )  # fmt: skip

    sent = result.history.edges["bytes"]  # (iterations, E)
    head = HEAD + 8 * (not SCHEMES[scheme].is_symmetric)
    opening = HEAD + 8 + 24
    traffic = result.traffic
    assert_array_equal(traffic.edge_messages, (sent > 0).sum(axis=0) + 1)
    assert_array_equal(traffic.edge_bytes, sent.sum(axis=0) + opening)
    assert_array_equal(traffic.edge_silent, (sent == head).sum(axis=0))
    by_node = [sent[:, RING.edges[:, 0] == i] for i in range(5)]
    messages = np.array([(mine > 0).sum(axis=1) for mine in by_node]).T
    assert_array_equal(result.history["messages"], messages)
    assert_array_equal(result.history["bytes"], np.array(by_node).sum(axis=2).T)
    assert traffic.lost == 0 or "drop_probability" in options
    assert (traffic.edge_lost <= (sent > head).sum(axis=0)).all()


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("turns", [False, True])
def test_a_node_alone_sends_nothing(payload, turns):
    """Whatever was asked for."""
    one = Topology.complete(1)
    schedule = Schedule.matchings(one) if turns else None
    sending = Sending(payload=payload, censor=0.1, edge_sleep=0.5, send_every=2)
    (problem,) = quadratics(1)

    result = solve([problem], one, sending=sending, schedule=schedule)

    assert result.converged
    assert result.traffic.messages == result.traffic.bytes == 0
    assert_array_equal(result.theta[0].round(9), problem.b.round(9))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("every", [2, 3])
def test_a_run_that_sends_rarely_is_the_plain_one_in_slow_motion(scheme, every):
    """Bit for bit: iterations in which nothing is sent teach no scheme anything."""
    problems, plain, slow = quadratics(4, 3, seed=2), [], []
    settings = {"scheme": scheme, "tolerance": 0, "t_max": 9, "budget0": 0.6}
    ring = Topology.ring(4)

    def record(rows):
        return lambda t, nodes: rows.append(np.array([node.theta for node in nodes]))

    solve(problems, ring, max_iter=24, callbacks=[record(plain)], **settings)
    solve(
        problems, ring, max_iter=24 * every, callbacks=[record(slow)],
        sending=Sending(send_every=every), **settings,
    )  # fmt: skip

    assert_array_equal(slow[every - 1 :: every], plain)
