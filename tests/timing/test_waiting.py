"""Who waits for whom: against simulated runs whose clocks are known."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.__main__ import main_of
from dadmm.core.errors import ConfigError
from dadmm.timing.network import Link, Network, Stragglers
from dadmm.timing.replay import Replay
from dadmm.timing.waiting import Clocks, waiting
from tests.support.problems import random_graph
from tests.support.traces import trace_of, write

main = main_of("waiting")

T = 300


def recorded(topology, network, rng, noise=0.2, silent=0.0):
    """Return what a run on a network would record, and what each node waited for each.

    The clock of a node starts at a random time.
    """
    n, reverse = len(topology), topology.reverse
    work = 1e-3 * rng.gamma(noise**-2, noise**2, (T, n))
    sizes = np.where(rng.random((T, len(reverse))) < silent, 0.0, 1000.0)
    trace = trace_of(topology, work * network.stragglers.factors(T, n), sizes)
    hidden = np.zeros((T, n))
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
    trace = trace_of(Topology.ring(6), np.full((T, 6), 1e-3))
    played = Replay(trace, lan())
    trace = replace(trace, exchange=(played.ends - played.posts)[1:])
    one = trace_of(Topology.complete(1), np.ones((T, 1)))

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
    assert main([run, "--out", str(out), "--way", "110 us"]) == 0

    _, busiest, *waits = capsys.readouterr().out.splitlines()
    assert busiest.startswith("busiest node: 2, 2.")
    assert {line.rpartition(":")[0] for line in waits[:2]} == {
        f"node {i} waited for node 2" for i in (1, 3)
    }
    told = json.loads(out.read_text())
    assert_allclose(told["seconds"], waiting(trace, 1.1e-4).seconds, rtol=1e-6)
    assert main([run, "--way", "0.00011", "--out", str(out)]) == 0  # seconds
    assert json.loads(out.read_text()) == told
    for way in ("-5 us", "fast", ""):
        assert main([run, f"--way={way}"]) == 2
        assert "--way" in capsys.readouterr().err
