"""What may be asked of messages, when an edge sends, and what is counted."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.admm.edges import Edges
from dadmm.comm.codec import Coder, codec_of
from dadmm.comm.sending import REVISIT, Sending
from dadmm.comm.wire import HEADER
from dadmm.core.errors import ConfigError
from dadmm.graphs.schedule import Schedule
from dadmm.penalty import SCHEMES, build
from tests.support.problems import quadratics
from tests.support.solving import solve

RING = Topology.ring(5)
HEAD = HEADER.itemsize


@pytest.mark.parametrize(
    ("culprit", "settings"),
    [("drop_probability", {"payload": "float32"}),
     ("drop_probability", {"censor": 0.1}), ("drop_probability", {"edge_sleep": 0.1})]
    + [(f"'{name}'", {"scheme": name}) for name in SCHEMES if name != "fixed"],
)  # fmt: skip
def test_losses_go_with_whole_payloads_and_one_scheme_only(culprit, settings):
    """A receiver that lost a difference could not use the next."""
    given = {"scheme": "fixed", "drop_probability": 0.1} | settings
    with pytest.raises(ConfigError, match=culprit):
        solve(quadratics(2), Topology.ring(2), **given)


@pytest.mark.parametrize("payload", ["float64", "quantised:4"])
def test_requests_do_not_change_the_bytes(payload):
    """When they are made may depend on the clock: signals, and saves by time."""

    def run(*callbacks):
        done = solve(quadratics(5), RING, payload=payload, callbacks=callbacks)
        return done.iterations, done.traffic.bytes

    assert run() == run(lambda t, run: "save" if t in (2, 7) else None)


@pytest.mark.parametrize("payload", ["float64", "quantised:8"])
@pytest.mark.parametrize(("censor", "decay"), [(0.3, 0.9), (2.0, 0.5), (1e-3, 0.98)])
def test_a_change_is_sent_exactly_if_it_is_longer_than_the_threshold(
    payload, censor, decay
):
    """|theta - sent| > censor decay^t |theta|, and else a header alone."""
    head = HEAD if payload == "float64" else 2
    full = head + Coder(codec_of(payload), quadratics(1, 3)[0].layout).length
    before, seen = [], set()

    def watch(t, run):
        sent = run.state.sent
        for k, theta in enumerate(run.theta[run.incidence.node]):
            if t > 1:
                limit = censor * decay**t * np.linalg.norm(theta)
                due = bool(np.linalg.norm(theta - before[-1][k]) > limit)
                assert run.exchange.lengths[k] == (full if due else head)
                assert due or (sent[k] == before[-1][k]).all()
                seen.add(due)
        before.append(sent.copy())

    sending = Sending(payload=payload, censor=censor, censor_decay=decay)
    solve(
        quadratics(5, 3), RING, sending=sending, tolerance=0, max_iter=40,
        callbacks=[watch],
    )  # fmt: skip

    assert seen == {True, False} or censor < 0.01


@pytest.mark.parametrize(("period", "every"), [(1, 1), (1, 3), (2, 2), (5, 1), (10, 3)])
def test_a_sleeping_edge_is_used_in_one_of_ten_turns(period, every, monkeypatch):
    """By its own turns: whatever the schedule, it is woken; all others stay awake."""
    rounds = [[] for _ in range(period)]
    for k, edge in enumerate(((0, 1), (1, 2), (2, 3), (3, 4), (0, 4))):
        rounds[k % period].append(edge)
    cycle = period * every

    def influence(self):  # the edge 0 - 1 moves neither end, and all others do
        ends = RING.edges.tolist()
        return np.array([1e-9 if {i, j} == {0, 1} else 1.0 + i for i, j in ends])

    monkeypatch.setattr(Edges, "influence", influence)
    result = solve(
        quadratics(5, 3), RING, schedule=Schedule(5, rounds), tolerance=0,
        sending=Sending(edge_sleep=0.1, send_every=every), max_iter=35 * cycle,
        record_edges=True,
    )  # fmt: skip
    sent = result.history.edges["bytes"] > HEAD
    woken, other = np.flatnonzero(sent[:, 0]), RING.edges.tolist().index([2, 3])

    assert_array_equal(sent, sent[:, RING.reverse])
    assert sent[:, other].sum() == 35
    assert woken[0] == (every - 1) * period
    # it may take a turn until both have said that they would sleep
    assert (np.diff(woken[-3:]) == REVISIT * cycle).all()


def test_an_edge_sleeps_only_if_both_ends_would(monkeypatch):
    """One end that is moved by it keeps it awake."""
    iterations = count(1)

    def influence(self):  # node 0 would sleep always, node 1 from 10 to 25
        moved = np.ones(len(RING.edges))
        moved[0] = 1e-9
        moved[2] = 1e-9 if 10 <= next(iterations) < 25 else 1.0
        return moved

    monkeypatch.setattr(Edges, "influence", influence)
    result = solve(
        quadratics(5, 3), RING, sending=Sending(edge_sleep=0.5), tolerance=0,
        max_iter=40, record_edges=True,
    )  # fmt: skip
    sent = result.history.edges["bytes"][:, [0, 2]] > HEAD  # 0 -> 1, 1 -> 0

    assert RING.edges[[0, 2]].tolist() == [[0, 1], [1, 0]]
    assert sent[:10].all()
    assert not sent[12:18].any()
    assert sent[36:].all()


OPTIONS = [
    {"payload": "float16"},
    {"censor": 0.5, "censor_decay": 0.9},
    {"send_every": 3},
    {"edge_sleep": 0.6},
    {"payload": "quantised:3", "censor": 0.5, "edge_sleep": 0.6,
     "send_every": 2},
    {"drop_probability": 0.2, "send_every": 2},
]  # fmt: skip


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("scheme", ["snap", "nap", "fixed"])
@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=lambda it: "+".join(it))
def test_counters_are_those_of_a_tally_by_iteration(options, scheme, turns):
    """And a broadcast has the same bytes for all neighbours of a node."""
    if "drop_probability" in options:
        scheme = "fixed"
    graph, alike, couples = Topology.cluster(6), [], build(scheme).couples
    is_brief = not couples and options.get("payload", "float64") != "float64"
    head, opening = 2 if is_brief else HEAD + 8 * couples, HEAD + 8 + 24

    def look(t, run):
        box, lengths = run.exchange.outbox, run.exchange.lengths
        payload = box.payload[:, : run.exchange.width] * (lengths > head)[:, None]
        eta = (box.eta * couples).view(np.uint64)
        rows = np.column_stack([lengths, box.header, eta, payload])
        first = rows[run.incidence.offsets[:-1]][run.incidence.node]
        alike.append((rows == first).all())

    result = solve(
        quadratics(6, 3), graph, scheme=scheme, sending=Sending(**options), tolerance=0,
        schedule=Schedule.matchings(graph) if turns else None, max_iter=40,
        record_edges=True, callbacks=[look],
    )  # fmt: skip

    sent, traffic = result.history.edges["bytes"], result.traffic  # (iterations, E)
    assert_array_equal(traffic.edge_messages, (sent > 0).sum(axis=0) + 1)
    assert_array_equal(traffic.edge_bytes, sent.sum(axis=0) + opening)
    assert_array_equal(traffic.edge_silent, (sent == head).sum(axis=0))
    for name, counted in (("messages", sent > 0), ("bytes", sent)):
        by_node = [counted[:, graph.edges[:, 0] == i].sum(axis=1) for i in range(6)]
        assert_array_equal(result.history[name], np.transpose(by_node))
    assert traffic.lost == 0 or "drop_probability" in options
    assert (traffic.edge_lost <= (sent > head).sum(axis=0)).all()
    few = turns or couples or {"edge_sleep", "drop_probability"} & set(options)
    assert traffic.is_broadcast == (not few)
    assert traffic.is_broadcast <= all(alike)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("every", [2, 3])
def test_a_run_that_sends_rarely_is_the_plain_one_in_slow_motion(scheme, every):
    """Bit for bit: iterations in which nothing is sent teach no scheme anything."""
    problems, plain, slow = quadratics(4, 3, seed=2), [], []
    settings = {"scheme": scheme, "tolerance": 0, "t_max": 9, "budget0": 0.6}
    ring = Topology.ring(4)

    def record(rows):
        return lambda t, run: rows.append(run.theta)

    solve(problems, ring, max_iter=24, callbacks=[record(plain)], **settings)
    solve(
        problems, ring, max_iter=24 * every, callbacks=[record(slow)],
        sending=Sending(send_every=every), **settings,
    )  # fmt: skip

    assert_array_equal(slow[every - 1 :: every], plain)
