"""The network model: what is where, what it costs, and files that say so."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.core.errors import ConfigError
from dadmm.timing import calibrate
from dadmm.timing.network import (
    PRESETS,
    RATES,
    SECONDS,
    Link,
    Network,
    Overhead,
    Override,
    Stragglers,
    quantity,
)

LINKS = {
    "socket": Link(1e-7, 4e9),
    "host": Link(1e-6, 2e9),
    "lan": Link(1e-4, 1e8),
    "wan": Link(1e-2, 1e6),
}


def between(network, i, j, n_nodes=8, **more):
    """Return class number, latency and bandwidth of the link from i to j."""
    wires = network.wires(Topology.complete(n_nodes).edges, n_nodes, **more)
    edge = next(
        e for e, pair in enumerate(Topology.complete(n_nodes).edges.tolist())
        if pair == [i, j]
    )  # fmt: skip
    return wires.kind[edge], wires.latency[edge], wires.bandwidth[edge]


def test_a_link_is_of_the_nearest_class_that_holds_both_ends():
    """Eight nodes in blocks: two sites of two hosts, two sockets in a host."""
    network = Network(LINKS, hosts=4, sockets=2, sites=2)
    deep = Network(LINKS, hosts=2, sockets=2, sites=2)

    assert between(network, 0, 1) == (1, 1e-6, 2e9)
    assert between(network, 0, 2) == (2, 1e-4, 1e8)
    assert between(network, 0, 7) == (3, 1e-2, 1e6)
    assert between(deep, 0, 1) == (0, 1e-7, 4e9)
    assert between(deep, 0, 2) == (1, 1e-6, 2e9)
    assert between(deep, 3, 4) == (3, 1e-2, 1e6)
    plain = {"host": LINKS["host"]}
    assert between(Network(plain, hosts=1), 0, 1) == (0, 1e-6, 2e9)
    with pytest.raises(ConfigError, match=r"links\.lan"):
        between(Network(plain, hosts=2), 0, 7)


def test_places_may_be_listed_recorded_or_each_its_own():
    """A list counts from 0; recorded hosts are numbered as they appear."""
    listed = Network(LINKS, hosts=(0, 2, 0, 2), sites=(0, 0, 1), sockets=(0, 0, 1, 0))
    names = ["b", "a", "b", "c"]

    host, socket, site = listed.place(4)
    assert_array_equal(host, [0, 2, 0, 2])
    assert_array_equal(socket, [0, 0, 1, 0])
    assert_array_equal(site, [0, 1, 0, 1])
    assert_array_equal(Network(LINKS).place(4, names)[0], [0, 1, 0, 2])
    assert_array_equal(Network(LINKS).place(4)[0], [0, 0, 0, 0])
    assert_array_equal(Network(LINKS, hosts="each").place(4)[0], [0, 1, 2, 3])
    assert_array_equal(Network(LINKS, hosts=2).place(5)[0], [0, 0, 0, 1, 1])
    wrong = [Network(LINKS, hosts=hosts) for hosts in (0, (0, 1), "some", True)]
    wrong.append(Network(LINKS, override=(Override(1.0, nodes=(0, 99)),)))
    for network in wrong:
        with pytest.raises(ConfigError, match=r"hosts|override"):
            network.wires(Topology.ring(8).edges, 8)


def test_overrides_hold_both_ways_and_the_last_one_counts():
    rules = (
        Override(latency=0.5, hosts=(3, 0)),
        Override(bandwidth=7.0, nodes=(0, 7)),
        Override(bandwidth=8.0, nodes=(7, 0)),
    )
    network = Network(LINKS, hosts=4, override=rules)

    assert between(network, 0, 7) == between(network, 7, 0) == (2, 0.5, 8.0)
    assert between(network, 1, 6) == (2, 0.5, 1e8)
    assert between(network, 0, 2) == (2, 1e-4, 1e8)


def test_the_wire_carries_headers_of_message_and_packets():
    """A message that just fills a packet has one; one byte more needs two."""
    overhead = Overhead(message=48, packet=66, payload=1448)

    sizes = np.array([0, 1, 1400, 1401, 14432])
    assert_array_equal(
        overhead.wire(sizes), [0, 115, 1514, 1448 + 1 + 132, 14432 + 48 + 660]
    )
    assert_array_equal(Overhead().wire(sizes), sizes)


@pytest.mark.parametrize("anew", [False, True])
def test_stragglers_are_drawn_by_their_seed(anew):
    """The same seed names the same nodes; named ones are always slow."""
    rule = Stragglers(factor=3.0, nodes=(1,), share=0.25, seed=5, anew=anew)
    factors = rule.factors(200, 20)

    assert_array_equal(factors, rule.factors(200, 20))
    assert set(np.unique(factors)) == {1.0, 3.0}
    assert (factors[:, 1] == 3.0).all()
    assert ((factors == factors[0]).all()) == (not anew)
    assert 0.2 < (factors == 3.0).mean() < 0.35


@pytest.mark.parametrize(
    ("text", "units", "value"),
    [
        ("10 Mbit/s", RATES, 1.25e6),
        ("2.5 kB/s", RATES, 2500.0),
        (1e6, RATES, 1e6),
        ("50 us", SECONDS, 5e-5),
        (1, SECONDS, 1.0),
    ],
)
def test_quantities_have_units(text, units, value):
    assert_allclose(quantity(text, units, "x"), value, rtol=1e-12)


def test_presets_are_read_by_name():
    """Each names all links that its own places need; slower ones come later."""
    seconds = []
    for name in ("host", "lan", "wan", "wireless"):
        network = Network.read(name)
        assert network.name == name
        wires = network.wires(Topology.ring(6).edges, 6)
        size = network.overhead.wire(np.array([1000.0]))
        seconds.append((wires.latency + size / wires.bandwidth).mean())
    assert seconds[0] < seconds[1] < seconds[3] < seconds[2]
    with pytest.raises(ConfigError, match="moon"):
        Network.read("moon")
    assert {file.stem for file in PRESETS.glob("*.toml")} == {
        "host", "lan", "wan", "wireless",
    }  # fmt: skip


FULL = Network(
    LINKS,
    hosts=(0, 0, 1, 1),
    sockets=2,
    sites="each",
    egress=1.25e6,
    burst=3000.0,
    confirm_above=128.0,
    overhead=Overhead(40.0, 66.0, 1448.0),
    override=(Override(0.1, None, nodes=(0, 3)), Override(None, 1e3, hosts=(0, 1))),
    stragglers=Stragglers(2.0, (3,), 0.5, 7, True),
    name='a "b"',
)


@pytest.mark.parametrize("network", [FULL, Network({"host": Link()}), Network({})])
def test_a_network_is_read_back_as_it_was_written(network, tmp_path):
    (tmp_path / "net.toml").write_text(network.to_toml())

    assert Network.read(tmp_path / "net.toml") == network


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("egress = '10 furlongs'", "egress"),
        ("[links.moon]\nlatency = 1", "moon"),
        ("[links.lan]\nspeed = 1", "speed"),
        ("[links.lan]\nbandwidth = 0", "bandwidth"),
        ("[links.lan]\nbandwidth = 1e-320", "bandwidth"),
        ("[links.lan]\nlatency = -1", "latency"),
        ("links = 3", "links"),
        ("color = 1", "color"),
        ("[[override]]\nnodes = [1]", "override"),
        ("[stragglers]\nshare = 2", "share"),
        ("[stragglers]\nanew = 1", "anew"),
        ("[stragglers]\nnodes = 3", "nodes"),
        ("override = 3", "override"),
        ("hosts = ", "TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused(text, culprit, tmp_path):
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(ConfigError, match=f"net.toml.*{culprit}"):
        Network.read(tmp_path / "net.toml")


def test_a_fit_finds_latency_and_bandwidth():
    """Of exact times exactly, of noisy ones nearly; never a negative one."""
    rng = np.random.default_rng(0)
    sizes = np.repeat(8.0 * 4.0 ** np.arange(10), 9)
    exact = 3e-5 + sizes / 1e8
    noisy = exact * rng.lognormal(0, 0.05, len(sizes))
    noisy[::5] *= 20

    assert_allclose(calibrate.fit(sizes, exact), (3e-5, 1e8), rtol=1e-9)
    assert_allclose(calibrate.fit(sizes, noisy), (3e-5, 1e8), rtol=0.1)
    assert calibrate.fit([10, 1000], [2e-3, 1e-3])[1] == math.inf
    assert calibrate.fit([10, 1000], [1e-6, 1e-3])[0] == 0.0
    with pytest.raises(ConfigError, match="sizes"):
        calibrate.fit([10, 10], [1.0, 1.0])


def test_rows_become_a_file_that_replay_reads(tmp_path, capsys):
    lines = ["class,bytes,seconds"]
    lines += [f"lan,{size},{1e-4 + size / 1e6}" for size in (8, 800, 80000)]
    lines += [f"host,{size},{1e-6 + size / 1e9}" for size in (8, 800, 80000)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "mine.toml"

    assert calibrate.main([str(tmp_path / "rows.csv"), "--out", str(out)]) == 0
    network = Network.read(out)
    assert network.name == "mine"
    assert_allclose(
        [network.links["lan"].latency, network.links["host"].bandwidth], [1e-4, 1e9]
    )
    assert calibrate.main([str(out)]) == 2
    assert "'class'" in capsys.readouterr().err
