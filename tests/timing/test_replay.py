"""Replays and who waits for whom: against closed forms, and simulated events."""

import heapq
import json
from collections import defaultdict, deque
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.__main__ import main_of
from dadmm.core.errors import ConfigError
from dadmm.timing.network import Link, Network, Overhead, Override, Stragglers
from dadmm.timing.replay import Replay, Trace
from dadmm.timing.waiting import Clocks, waiting
from tests.support.problems import random_graph
from tests.support.traces import trace_of, write

main, waits = main_of("replay"), main_of("waiting")

T, SIZE = 7, 1000.0
LAN = Network({"lan": Link(1e-3, 1e6)}, hosts="each")
MIXED = Network(
    {"host": Link(1e-5, 1e8), "lan": Link(1e-3, 1e6)},
    hosts=3,
    egress=1.5e6,
    overhead=Overhead(40, 66, 1448),
    override=(Override(latency=5e-3, bandwidth=2e5, hosts=(0, 2)),),
)


def random_run(rng, n_nodes=9, silent=0.0, iterations=40):
    """Return the trace of random work and sizes on a random graph."""
    topology = random_graph(rng, n_nodes)
    work = rng.gamma(2.0, 5e-4, (iterations, n_nodes))
    sizes = rng.integers(1, 5000, (iterations, len(topology.edges))).astype(float)
    sizes[rng.random(sizes.shape) < silent] = 0.0
    return trace_of(topology, work, sizes, prime=np.full(len(topology.edges), 500.0))


def simulate(trace, network):
    """Return when exchanges end, by single events: posts, wires, arrivals."""
    wires = network.wires(trace.edges, trace.n_nodes)
    sizes = np.concatenate([trace.prime[None], trace.bytes])
    factors = network.stragglers.factors(len(trace.solve), trace.n_nodes)
    events, order = [], count()
    queues, busy, free = defaultdict(deque), set(), defaultdict(float)
    lying = defaultdict(list)
    inbox, posted, ends = defaultdict(int), {}, np.zeros((len(sizes), trace.n_nodes))

    def at(time, action, *args):
        heapq.heappush(events, (time, next(order), action, args))

    def post(now, i, t):
        posted[i, t] = now
        for e, (source, _) in enumerate(trace.edges.tolist()):
            if source == i and sizes[t, e] > 0 and wires.leaves[e]:
                size = float(network.overhead.wire(sizes[t, e]))
                queues[wires.host[i]].append((e, t, size, arrive))
            elif source == i and sizes[t, e] > 0:
                travel(now, e, t, sizes[t, e], now, arrive)
        serve(now, wires.host[i])
        for e in sorted(lying.pop((i, t), [])):
            confirm(now, e, t)
        finish(now, i, t)

    def serve(now, host):
        if host not in busy and queues[host]:
            e, t, size, action = queues[host].popleft()
            busy.add(host)
            at(now + size / network.egress, release, host)
            travel(now, e, t, size, now + size / network.egress, action)

    def release(now, host):
        busy.remove(host)
        serve(now, host)

    def travel(now, e, t, size, sent, action):
        free[e] = max(max(now, free[e]) + size / wires.bandwidth[e], sent)
        at(free[e] + wires.latency[e], action, e, t)

    def arrive(now, e, t):
        j = trace.edges[e, 1]
        if (j, t) in posted:
            confirm(now, e, t)
        else:
            lying[j, t].append(e)
        confirmed(now, e, t)

    def confirm(now, e, t):
        if wires.leaves[e] and sizes[t, e] > network.confirm_above:
            host, back = wires.host[trace.edges[e, 1]], trace.topology.reverse[e]
            size = network.overhead.confirmation + network.overhead.packet
            queues[host].append((back, t, size, confirmed))
            serve(now, host)

    def confirmed(now, e, t):
        inbox[trace.edges[e, 1], t] += 1
        finish(now, trace.edges[e, 1], t)

    def finish(now, i, t):
        heard, said = (np.flatnonzero(trace.edges[:, k] == i) for k in (1, 0))
        due = sum(sizes[t, e] > 0 for e in heard)
        due += sum(
            wires.leaves[e] and sizes[t, e] > network.confirm_above for e in said
        )
        if (i, t) in posted and inbox[i, t] == due:
            ends[t, i] = now
            if t + 1 < len(sizes):
                work = trace.solve[t, i] + (trace.update[t - 1, i] if t else 0.0)
                at(now + factors[t, i] * work, post, i, t + 1)

    for i in range(trace.n_nodes):
        at(0.0, post, i, 0)
    while events:
        now, _, action, args = heapq.heappop(events)
        action(now, *args)
    return ends


OF_EVENTS = {  # hosts have several nodes, and slow links
    "lan": LAN, "mixed": MIXED,
    "stragglers": replace(MIXED, stragglers=Stragglers(8.0, share=0.3)),
    "narrow": replace(MIXED, hosts=4, egress=2e5),
    "confirmed": replace(MIXED, confirm_above=1000.0),
    "all confirmed": replace(MIXED, hosts="each", egress=2e5, confirm_above=0.0),
}  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", OF_EVENTS)
def test_a_replay_is_the_simulation_of_its_events(seed, name):
    """Also with silent edges, at odd seeds."""
    rng, network = np.random.default_rng(seed), OF_EVENTS[name]
    trace = random_run(rng, silent=0.3 * (seed % 2))
    trace = replace(trace, update=rng.gamma(2.0, 1e-4, trace.solve.shape))
    found = Replay(trace, network)

    assert_allclose(found.ends, simulate(trace, network), rtol=1e-12, atol=1e-15)
    assert_allclose(sum(found.breakdown), found.seconds, rtol=1e-12)
    assert min(found.breakdown) >= 0
    assert_allclose(found.path[1].sum(), sum(found.breakdown[2:]), rtol=1e-12)


WORK = np.full((T, 5), 1e-3)
FREE = Network({"host": Link()}, hosts=1)
BURST = replace(LAN, links={"lan": Link()}, egress=1e6, burst=1500.0)
RADIO = Network({"lan": Link(0.0, 1e6)}, hosts="each", egress=1e6, broadcast=True)
LATE = Network({"lan": Link()}, hosts="each", stragglers=Stragglers(6.0, nodes=(2,)))
TWICE = np.tile([2.0, 2 * SIZE], (8, 1))  # sums over the tree, by edge of a chain
WATCHED = {"update": 2 * WORK, "observe": 4 * WORK}
STAR, CHAIN = Topology.star(5), Topology.chain(5)
CLOSED = {  # a trace, a network, and the parts of the critical path; see `Breakdown`
    "a burst passes at once after a rest": (
        trace_of(Topology.complete(5), WORK * 1e3, SIZE), BURST,
        {"compute": T, "transmission": T * 2500 / 1e6}),
    "without a rest there is one burst in all": (
        trace_of(Topology.complete(5), WORK * 0, SIZE), BURST,
        {"transmission": (T * 4 * SIZE - 1500) / 1e6}),
    "the last update counts, although no exchange follows; what watchers took does not":
        (trace_of(STAR, WORK, 1.0, **WATCHED), FREE, {"compute": 3e-3 * T}),
    "what a straggler takes beyond the average work is its own": (
        trace_of(STAR, WORK, 1.0), LATE, {"compute": 2e-3 * T, "stragglers": 4e-3 * T}),
    "a radio sends a broadcast once": (
        trace_of(STAR, WORK * 0, SIZE, is_broadcast=True), RADIO,
        {"transmission": T * SIZE / 1e6}),
    "but what differs by neighbour to each": (
        trace_of(STAR, WORK * 0, SIZE), RADIO, {"transmission": 4 * T * SIZE / 1e6}),
    "sums go four levels up and four down the tree, twice": (
        trace_of(CHAIN, WORK * 0, 0.0, sums=TWICE), LAN,
        {"sums": 2 * 8 * (1e-3 + SIZE / 1e6)}),
    "one node has no link": (
        trace_of(Topology.complete(1), WORK[:, :1]), LAN, {"compute": T * 1e-3}),
}  # fmt: skip


@pytest.mark.parametrize("name", CLOSED)
def test_the_critical_path_has_the_parts_of_the_closed_form(name):
    trace, network, parts = CLOSED[name]
    found = Replay(trace, network)

    assert_allclose(found.seconds, sum(parts.values()), rtol=1e-9)
    for cause, seconds in found.breakdown._asdict().items():
        close = {"transmission", "queueing"} & {cause}
        assert close or seconds == pytest.approx(parts.get(cause, 0.0)), cause
    if name == "a radio sends a broadcast once":
        assert found.wire_bytes == T * 5 * SIZE
    elif trace.n_nodes == 1:
        assert found.slowest is None


def test_the_slowest_link_is_found_and_watchers_count_if_asked():
    network = replace(LAN, override=(Override(latency=0.1, nodes=(0, 4)),))
    found = Replay(trace_of(STAR, WORK, 1.0, **WATCHED), network)

    assert found.slowest in ((0, 4), (4, 0))
    assert found.breakdown.latency > 0.9 * found.seconds
    assert_allclose(Replay(found.trace, FREE, observe=True).seconds, 7e-3 * T)


EVEN, UNEVEN = np.full((2, T, 10), 80.0)
UNEVEN[3, 2] = 0.0  # no message


@pytest.mark.parametrize(
    ("by_edge", "sizes", "step"), [(True, UNEVEN, 1), (False, EVEN, 1), (True, EVEN, 2)]
)
def test_a_folder_is_read_as_it_was_recorded(by_edge, sizes, step, tmp_path):
    """Rows of several iterations are divided evenly."""
    rng = np.random.default_rng(0)
    more = {k: rng.random((T, 5)) for k in ("exchange", "update", "observe")}
    more |= {"prime": np.full(10, 24.0), "hosts": ("a", "a", "b", "b", "b")}
    trace = trace_of(Topology.ring(5), rng.random((T, 5)), sizes, **more)
    found = Trace.read(write(tmp_path, trace, by_edge, step))

    for name, value in vars(trace).items():
        if name in ("solve", "exchange", "update", "observe", "bytes"):
            value = np.repeat(value / step, step, axis=0)
        assert_array_equal(getattr(found, name), value)


@pytest.mark.parametrize(
    ("sizes", "summary"), [(UNEVEN, {}), (EVEN, {"silent_messages": 3})]
)
def test_silent_edges_need_their_file(sizes, summary, tmp_path):
    """A node's bytes do not tell to whom it sent."""
    folder = write(tmp_path, trace_of(Topology.ring(5), WORK, sizes), False, **summary)
    with pytest.raises(ConfigError, match=r"edges\.csv"):
        Trace.read(folder)


def test_the_command_prints_a_row_for_each_network(tmp_path, capsys):
    """And writes the numbers; collectives are said not to be modelled."""
    trace = trace_of(Topology.ring(5), WORK, 80.0, collectives=T)
    run, out = str(write(tmp_path / "run", trace)), tmp_path / "found.json"
    (tmp_path / "mine.toml").write_text(LAN.to_toml())
    words = ["--network", "wan", "--network", str(tmp_path / "mine.toml")]
    assert main([run, *words, "--out", str(out)]) == 0

    said, (wan, mine) = capsys.readouterr(), json.loads(out.read_text())
    assert "7 collectives" in said.err
    names = [line.split()[0] for line in said.out.splitlines()[1:]]
    assert names == ["network", "wan", "network"]
    assert mine["seconds"] == pytest.approx(Replay(trace, LAN).seconds)
    assert mine["wire_bytes"] == mine["bytes"] == wan["bytes"] == 5600
    assert wan["wire_bytes"] > 2 * wan["bytes"]


# who waits for whom: against simulated runs whose clocks are known

MANY = 300  # iterations


def recorded(topology, network, rng, noise=0.2, silent=0.0):
    """Return what a run on a network would record, and what each node waited for each.

    The clock of a node starts at a random time.
    """
    n, reverse = len(topology), topology.reverse
    work = 1e-3 * rng.gamma(noise**-2, noise**2, (MANY, n))
    sizes = np.where(rng.random((MANY, len(reverse))) < silent, 0.0, 1000.0)
    trace = trace_of(topology, work * network.stragglers.factors(MANY, n), sizes)
    hidden = np.zeros((MANY, n))
    hidden[0] = rng.random(n)
    plain = replace(network, stragglers=Stragglers())
    played = Replay(replace(trace, solve=trace.solve + hidden), plain)
    posts, ends = played.posts[1:], played.ends[1:]
    waited = np.zeros((n, n))
    for a, f, heard in zip(posts, ends, sizes[:, reverse] > 0, strict=True):
        for i in range(n):
            own = trace.edges[heard & (trace.edges[:, 0] == i), 1]
            if len(own):
                j = own[a[own].argmax()]
                waited[i, j] += min(max(a[j] - a[i], 0), f[i] - a[i])
    return replace(trace, exchange=ends - posts), waited


def lan(latency=1e-4, **more):
    return Network({"lan": Link(latency, 1e8)}, hosts="each", **more)


ONE_LATE = lan(stragglers=Stragglers(5.0, nodes=(2,)))


@pytest.mark.parametrize(
    ("seed", "latency", "silent"), [(0, 1e-5, 0.0), (1, 1e-3, 0.3), (2, 2e-2, 0.0)]
)
def test_waiting_is_found_where_messages_take_equally_long(latency, seed, silent):
    """By node and by edge, whatever the clocks say, with random stragglers.

    Nobody waits for a message that was not sent.
    """
    rng = np.random.default_rng(seed)
    rule = Stragglers(6.0, share=0.1, seed=seed, anew=True)
    network = lan(latency, stragglers=rule)
    trace, waited = recorded(random_graph(rng, 10), network, rng, silent=silent)
    found = waiting(trace)

    assert_allclose(found.seconds.sum(), waited.sum(), rtol=0.02)
    by_edge = waited[trace.edges[:, 0], trace.edges[:, 1]]
    assert_allclose(found.by_edge, by_edge, atol=0.05 * by_edge.max())
    assert_allclose(found.by_edge.sum(), found.seconds.sum())
    assert_array_equal(found.exchange, trace.exchange.sum(axis=0))
    assert_allclose(found.share, found.seconds.sum() / found.exchange.sum())


@pytest.mark.parametrize("graph", [Topology.ring, Topology.complete, Topology.star])
@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_bounds_hold_also_where_one_node_is_always_late(graph, noise):
    """The estimate is between them; too small, unless the way of messages is known."""
    trace, waited = recorded(graph(8), ONE_LATE, np.random.default_rng(0), noise)
    found, known, waited = waiting(trace), waiting(trace, 1.1e-4), waited.sum(axis=1)

    assert (found.least <= np.minimum(waited + 1e-12, found.seconds)).all()
    assert (np.maximum(waited - 1e-12, found.seconds) <= found.most).all()
    assert 0.4 * waited.sum() < found.seconds.sum() < 1.01 * waited.sum()
    assert 0.75 * waited.sum() < known.seconds.sum() < 1.01 * waited.sum()
    assert found.busy.argmax() == 2
    assert_allclose(found.imbalance, 5 / (12 / 8), rtol=0.05)


def test_nobody_waits_where_all_post_at_once():
    trace = trace_of(Topology.ring(6), np.full((MANY, 6), 1e-3))
    played = Replay(trace, lan())
    trace = replace(trace, exchange=(played.ends - played.posts)[1:])
    one = trace_of(Topology.complete(1), np.ones((MANY, 1)))

    assert_allclose(waiting(trace).seconds, 0, atol=1e-9)
    assert_array_equal(waiting(one).seconds, [0])
    with pytest.raises(ConfigError, match="process"):
        waiting(replace(trace, alone=True))


def test_clocks_lay_durations_end_to_end():
    """The row of t has the observing of t - 1, which ends where its solve starts."""
    ones, observe = np.ones((3, 2)), np.array([[0, 0], [1000, 1000], [2000, 2000]])
    given = {"exchange": 10 * ones, "update": 100 * ones, "observe": observe}
    _, posts, ends, _ = Clocks.of(trace_of(Topology.ring(2), ones, **given))

    assert_array_equal(posts[:, 0], [1, 1112, 3223])
    assert_array_equal(ends[:, 0], [11, 1122, 3233])


def test_the_command_says_who_waited_for_whom(tmp_path, capsys):
    trace, _ = recorded(Topology.ring(4), ONE_LATE, np.random.default_rng(0))
    run, out = str(write(tmp_path / "run", trace)), tmp_path / "found.json"
    assert waits([run, "--out", str(out), "--way", "110 us"]) == 0

    _, busiest, *others = capsys.readouterr().out.splitlines()
    assert busiest.startswith("busiest node: 2, 2.")
    assert {line.rpartition(":")[0] for line in others[:2]} == {
        f"node {i} waited for node 2" for i in (1, 3)
    }
    told = json.loads(out.read_text())
    assert_allclose(told["seconds"], waiting(trace, 1.1e-4).seconds, rtol=1e-6)
    assert waits([run, "--way", "0.00011", "--out", str(out)]) == 0  # seconds
    assert json.loads(out.read_text()) == told
    for way in ("-5 us", "fast", ""):
        assert waits([run, f"--way={way}"]) == 2
        assert "--way" in capsys.readouterr().err
