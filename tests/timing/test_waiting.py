"""Who waits for whom: against simulated runs whose clocks are known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.core.errors import ConfigError
from dadmm.timing.network import Link, Network, Stragglers
from dadmm.timing.replay import Replay
from dadmm.timing.waiting import Clocks, main, waiting
from tests.support.problems import random_graph
from tests.support.traces import trace_of, write

T = 300


def recorded(topology, work, network, rng=None, drift=0.0):
    """Return what a run on a network would record, and what really happened.

    Nodes enter iteration 1 at random times if ``rng`` is given: every clock has an
    offset of its own. ``drift`` is what no timer sees, up to so many seconds in an
    iteration, other seconds for every node.
    """
    work = work * network.stragglers.factors(*work.shape)
    network = replace(network, stragglers=Stragglers())
    trace = trace_of(topology, work)
    late = np.zeros(trace.n_nodes) if rng is None else rng.random(trace.n_nodes)
    hidden = np.zeros(np.shape(work))
    hidden[0] = late
    hidden += drift * np.linspace(0, 1, trace.n_nodes)
    played = Replay(replace(trace, solve=trace.solve + hidden), network)
    posts, ends = played.posts[1:], played.ends[1:]
    return replace(trace, exchange=ends - posts), posts, ends


def truth(trace, posts, ends):
    """Return what each node waited for each neighbour, (n_nodes, n_nodes)."""
    n = trace.n_nodes
    own = [[j for a, j in trace.edges.tolist() if a == i] for i in range(n)]
    waited = np.zeros((n, n))
    for a, f in zip(posts.tolist(), ends.tolist(), strict=True):
        for i in range(n):
            j = max(own[i], key=a.__getitem__)
            waited[i, j] += min(max(a[j] - a[i], 0), f[i] - a[i])
    return waited


def lan(latency=1e-4, **more):
    return Network({"lan": Link(latency, 1e8)}, hosts="each", **more)


def work_of(rng, n_nodes, noise=0.2):
    return 1e-3 * rng.gamma(noise**-2, noise**2, (T, n_nodes))


@pytest.mark.parametrize("latency", [1e-5, 1e-3, 2e-2])
@pytest.mark.parametrize("seed", range(3))
def test_waiting_is_found_where_messages_take_equally_long(latency, seed):
    """By node and by edge, whatever the clocks say, with random stragglers."""
    rng = np.random.default_rng(seed)
    topology = random_graph(rng, 10)
    rule = Stragglers(6.0, share=0.1, seed=seed, anew=True)
    network = lan(latency, stragglers=rule)
    trace, posts, ends = recorded(topology, work_of(rng, 10), network, rng)
    found, waited = waiting(trace), truth(trace, posts, ends)

    assert_allclose(found.seconds.sum(), waited.sum(), rtol=0.02)
    by_edge = waited[trace.edges[:, 0], trace.edges[:, 1]]
    assert_allclose(found.by_edge, by_edge, atol=0.05 * by_edge.max())
    assert_allclose(found.by_edge.sum(), found.seconds.sum())
    assert_array_equal(found.exchange, trace.exchange.sum(axis=0))
    assert 0 < found.share < 1


@pytest.mark.parametrize("graph", [Topology.ring, Topology.complete, Topology.star])
@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_bounds_hold_also_where_one_node_is_always_late(graph, noise):
    """The estimate is between them; too small, unless the way of messages is known."""
    rng = np.random.default_rng(0)
    network = lan(stragglers=Stragglers(5.0, nodes=(2,)))
    trace, posts, ends = recorded(graph(8), work_of(rng, 8, noise), network, rng)
    found, waited = waiting(trace), truth(trace, posts, ends).sum(axis=1)
    known = waiting(trace, way=1.1e-4)

    assert (found.least <= waited + 1e-12).all()
    assert (waited <= found.most + 1e-12).all()
    assert (found.least <= found.seconds).all()
    assert (found.seconds <= found.most).all()
    assert 0.4 * waited.sum() < found.seconds.sum() < 1.01 * waited.sum()
    assert 0.75 * waited.sum() < known.seconds.sum() < 1.01 * waited.sum()
    assert found.busy.argmax() == 2
    assert_allclose(found.imbalance, 5 / (12 / 8), rtol=0.05)


def test_nobody_waits_where_all_post_at_once():
    trace, _, _ = recorded(Topology.ring(6), np.full((T, 6), 1e-3), lan(1e-3))
    found = waiting(trace)

    with pytest.raises(ConfigError, match="process"):
        waiting(replace(trace, alone=True))
    one = trace_of(Topology.complete(1), np.ones((T, 1)))
    assert_array_equal(waiting(one).seconds, [0])
    assert_allclose(found.seconds, 0, atol=1e-9)
    assert_allclose(found.exchange, T * (1e-3 + 1e-5))
    assert found.imbalance == pytest.approx(1)


def test_a_node_waits_for_no_message_that_was_not_sent():
    rng = np.random.default_rng(0)
    topology = Topology.ring(6)
    sizes = np.full((T, 12), 1000.0)
    sizes[:, 3] = 0.0  # node 1 never writes to node 2
    sizes[rng.random(sizes.shape) < 0.3] = 0.0
    trace = trace_of(topology, work_of(rng, 6), sizes)
    played = Replay(trace, lan())
    trace = replace(trace, exchange=(played.ends - played.posts)[1:])
    found = waiting(trace)

    two_for_one = [pair == [2, 1] for pair in trace.edges.tolist()].index(True)
    assert found.by_edge[two_for_one] == 0
    assert found.seconds.sum() > 0


def test_clocks_lay_durations_end_to_end():
    """The row of t has the observing of t - 1, which ends where its solve starts."""
    ones, observe = np.ones((3, 2)), np.array([[0, 0], [1000, 1000], [2000, 2000]])
    given = {"exchange": 10 * ones, "update": 100 * ones, "observe": observe}
    _, posts, ends, _ = Clocks.of(trace_of(Topology.ring(2), ones, **given))

    assert_array_equal(posts[:, 0], [1, 1112, 3223])
    assert_array_equal(ends[:, 0], [11, 1122, 3233])


def test_the_command_says_who_waited_for_whom(tmp_path, capsys):
    rng = np.random.default_rng(0)
    network = lan(stragglers=Stragglers(5.0, nodes=(2,)))
    trace = recorded(Topology.ring(4), work_of(rng, 4), network, rng)[0]
    run, out = str(write(tmp_path / "run", trace)), tmp_path / "found.json"
    assert main([run, "--out", str(out), "--way", "110 us"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "of which waiting for slower neighbours" in lines[0]
    assert lines[1].startswith("busiest node: 2, 2.")
    assert {line.rpartition(":")[0] for line in lines[2:4]} == {
        "node 1 waited for node 2", "node 3 waited for node 2",
    }  # fmt: skip
    told = json.loads(out.read_text())
    assert_allclose(told["seconds"], waiting(trace, 1.1e-4).seconds, rtol=1e-6)
    assert main([str(tmp_path)]) == 2
    assert main([run, "--way", "long"]) == 2
    assert main([run, "--out", str(tmp_path / "none" / "x.json")]) == 2
    assert capsys.readouterr().err.count("dadmm: error: ") == 3
