"""The network model: what is where, what it costs, and files that say so."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm import Topology
from dadmm.__main__ import main_of
from dadmm.core.errors import ConfigError
from dadmm.timing import calibrate
from dadmm.timing.network import PRESETS, Link, Network, Overhead, Override, Stragglers

main = main_of("calibrate")

LINKS = {
    "socket": Link(1e-7, 4e9),
    "host": Link(1e-6, 2e9),
    "lan": Link(1e-4, 1e8),
    "wan": Link(1e-2, 1e6),
}
RULES = (
    Override(latency=0.5, hosts=(3, 0)),
    Override(bandwidth=7.0, nodes=(0, 7)),
    Override(bandwidth=8.0, nodes=(7, 0)),
)
FOUR, TWO = (Network(LINKS, hosts=k, sockets=2, sites=2) for k in (4, 2))
RULED = Network(LINKS, hosts=4, override=RULES)
LAN, WAN = (2, 1e-4, 1e8), (3, 1e-2, 1e6)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (FOUR, {(0, 1): (1, 1e-6, 2e9), (0, 2): LAN, (0, 7): WAN}),
        (TWO, {(0, 1): (0, 1e-7, 4e9), (0, 2): (1, 1e-6, 2e9), (3, 4): WAN}),
        (Network({"host": LINKS["host"]}, hosts=1), {(0, 1): (0, 1e-6, 2e9)}),
        (RULED, {(0, 7): (2, 0.5, 8.0), (7, 0): (2, 0.5, 8.0)}),
        (RULED, {(1, 6): (2, 0.5, 1e8), (0, 2): LAN}),
    ],
)
def test_a_link_is_of_the_nearest_class_that_holds_both_ends(network, expected):
    """Among eight nodes; an override holds both ways, and the last one counts."""
    kind, latency, bandwidth, *_ = network.wires(np.array([*expected]), 8)

    assert [*zip(kind, latency, bandwidth, strict=True)] == [*expected.values()]


LISTED = {"hosts": (0, 2, 0, 2), "sites": (0, 0, 1), "sockets": (0, 0, 1, 0)}


def test_places_may_be_listed_recorded_or_each_its_own():
    for places, recorded, host, site in (
        (LISTED, (), [0, 2, 0, 2], [0, 1, 0, 1]),
        ({}, ("b", "a", "b", "c"), [0, 1, 0, 2], [0] * 4),
        ({}, (), [0, 0, 0, 0], [0] * 4),
        ({"hosts": "each", "sites": "each"}, (), [0, 1, 2, 3], [0, 1, 2, 3]),
        ({"hosts": 3}, (), [0, 0, 1, 2], [0] * 4),
    ):
        found = Network(LINKS, **places).place(4, recorded)
        assert_array_equal(found, [host, places.get("sockets", [0] * 4), site])


def test_the_wire_carries_headers_of_message_and_packets():
    overhead = Overhead(message=48, packet=66, payload=1448)
    sizes = np.array([0, 1, 1400, 1401, 14432])

    wire = [0, 115, 1514, 1448 + 1 + 132, 14432 + 48 + 660]
    assert_array_equal(overhead.wire(sizes), wire)
    assert_array_equal(Overhead().wire(sizes), sizes)


@pytest.mark.parametrize("anew", [False, True])
def test_stragglers_are_drawn_by_their_seed(anew):
    """The same seed names the same nodes; named ones are always slow."""
    rule = Stragglers(factor=3.0, nodes=(1,), share=0.25, seed=5, anew=anew)
    factors = rule.factors(200, 20)

    assert_array_equal(factors, rule.factors(200, 20))
    assert (factors[:, 1] == 3.0).all()
    assert ((factors == factors[0]).all()) == (not anew)
    assert 0.2 < (factors == 3.0).mean() < 0.35


def test_presets_are_read_by_name_and_differ_in_speed():
    seconds = {}
    for name in (file.stem for file in PRESETS.glob("*.toml")):
        network = Network.read(name)
        wires = network.wires(Topology.ring(6).edges, 6)
        size = network.overhead.wire(np.array([1000.0]))
        seconds[name] = (wires.latency + size / wires.bandwidth).mean()

    assert sorted(seconds, key=seconds.get) == ["host", "lan", "wireless", "wan"]


FULL = Network(
    LINKS, (0, 0, 1, 1), 2, "each", 1.25e6, 3000.0, True, 128.0,
    Overhead(40.0, 66.0, 1448.0), RULES, Stragglers(2.0, (3,), 0.5, 7, True), 'a "b"',
)  # fmt: skip
UNITS = "egress = '8 kbit/s'\n[links.lan]\nlatency = '1 us'\nbandwidth = '10 Mbit/s'"
READ = Network({"lan": Link(1e-6, 1.25e6)}, egress=1000.0, name="net")


@pytest.mark.parametrize(
    ("network", "text"), [(FULL, ""), (Network({}), ""), (READ, UNITS)]
)
def test_a_network_is_read_as_it_is_written(network, text, tmp_path):
    """By `to_toml`, or by hand with units."""
    (tmp_path / "net.toml").write_text(text or network.to_toml())

    assert Network.read(tmp_path / "net.toml") == network


REFUSED = {  # files, by the culprit
    "egress": ["egress = '10 furlongs'"],
    "link": ["links = 3", "[links.moon]\nlatency = 1", "[links.lan]\nspeed = 1"],
    "bandwidth": ["[links.lan]\nbandwidth = 1e-320"],
    "latency": ["[links.lan]\nlatency = -1"],
    "color": ["color = 1"],
    "override": ["override = 3", "[[override]]\nnodes = [1]",
                 "[[override]]\nnodes = [0, 99]\n[links.host]"],
    "stragglers": [f"[stragglers]\n{k} = 2" for k in ("share", "anew", "nodes")],
    "hosts": [f"hosts = {k}\n" for k in ("0", "[0, 1]", "'some'", "true")],
    "TOML": ["hosts = "],
    "links.lan": ["hosts = 2\n[links.host]"],
}  # fmt: skip


@pytest.mark.parametrize("culprit", REFUSED)
def test_a_file_that_is_wrong_or_does_not_fit_the_run_is_refused(culprit, tmp_path):
    for text in REFUSED[culprit]:
        (tmp_path / "net.toml").write_text(text)
        with pytest.raises(ConfigError, match=culprit):
            Network.read(tmp_path / "net.toml").wires(Topology.ring(8).edges, 8)


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
    rows, out = tmp_path / "rows.csv", tmp_path / "mine.toml"
    lines = [f"lan,{size},{1e-4 + size / 1e6}\n" for size in (8, 800, 80000)]
    lines += [f"host,{size},{1e-6 + size / 1e9}\n" for size in (8, 800, 80000)]
    rows.write_text("class,bytes,seconds\n" + "".join(lines))

    assert main([str(rows), "--out", str(out)]) == 0
    found = Network.read(out).links
    assert_allclose([found["lan"].latency, found["host"].bandwidth], [1e-4, 1e9])
    assert main([str(out)]) == 2
    assert "'class'" in capsys.readouterr().err
    wrong = ("8", "x,1", "-1,1", "8,0", "8,nan", "nan,1", "1,inf", "", "1,1e-320")
    for cells in (*wrong, "1,\xe9"):
        rows.write_text(f"class,bytes,seconds\nlan,8,1\nlan,{cells}\n", "latin-1")
        assert main([str(rows)]) == 2
        said = capsys.readouterr().err
        assert str(rows) in said
        assert cells not in wrong or "row 2" in said
