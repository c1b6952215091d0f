"""Which rank is which node: few edges between hosts, and never more than before."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core.errors import ConfigError
from dadmm.graphs import placement, topology
from dadmm.graphs.placement import assign, count_crossing, hosts_of, place
from dadmm.graphs.topology import Topology
from dadmm.runs.config import RunConfig
from tests.support.emulation import start_netem
from tests.support.processes import python
from tests.support.runs import arrays_of, assert_same_arrays, summary_of


def blocks(*counts):
    return [f"h{k}" for k, count in enumerate(counts) for _ in range(count)]


def cyclic(n, hosts):
    return [f"h{rank % hosts}" for rank in range(n)]


MAPPINGS = [
    blocks(5, 5, 5, 5), cyclic(20, 4), cyclic(20, 8), blocks(11, 1, 5, 3),
    blocks(1, 12, 7), ["h9", *blocks(10, 9)],
]  # fmt: skip


@pytest.mark.parametrize("name", topology.GRAPHS)
def test_every_node_has_a_rank_and_every_host_its_number(name):
    """With one node per rank, or equal numbers; no more edges cross than by number."""
    graph, larger = topology.build(name, 20), topology.build(name, 24)
    for hosts in MAPPINGS:
        nodes = place(graph, hosts)
        homes = [hosts[rank] for rank in np.argsort(nodes)]
        assert nodes[0] == 0
        assert_array_equal(np.sort(nodes), np.arange(20))
        assert sorted(homes) == sorted(hosts)
        assert count_crossing(graph, homes) <= count_crossing(graph, hosts)
    for machines in (cyclic(4, 2), blocks(3), cyclic(7, 3), cyclic(6, 2)):
        names = np.array(machines)
        placed, plain = (assign(larger, machines, how) for how in ("hosts", "blocks"))
        for ranks in (placed, plain):
            counts = np.bincount(ranks, minlength=len(machines))
            assert counts.sum() == 24
            assert counts.max() - counts.min() <= 1
        few, many = (count_crossing(larger, names[own]) for own in (placed, plain))
        assert few <= many
        assert_array_equal(plain, np.sort(plain))


def test_few_edges_cross():
    for name, hosts, most in (
        ("ring", cyclic(20, 4), 4),  # the least there can be, as each host has two ends
        ("chain", cyclic(20, 4), 3),
        ("cluster", cyclic(20, 2), 1),
        ("grid", cyclic(64, 4), 16),  # four squares of 4 x 4
        ("random-geometric", blocks(5, 5, 5, 5), 12),  # 32 by number
    ):
        graph = topology.build(name, len(hosts))
        homes = [hosts[rank] for rank in np.argsort(place(graph, hosts))]
        assert count_crossing(graph, homes) <= most, name


def test_nodes_near_each_other_share_a_rank_and_nobody_moves_for_nothing(monkeypatch):
    """The ranks of dense graphs take the order of the nodes, which takes no time."""
    wide = Topology.random_geometric(400, seed=1)
    one, other = (assign(wide, ["a"] * 4, how) for how in ("hosts", "blocks"))
    assert count_crossing(wide, one) < 0.5 * count_crossing(wide, other)
    for graph, hosts in (
        (Topology.ring(20), blocks(5, 5, 5, 5)),
        (Topology.complete(12), cyclic(12, 3)),
        (Topology.grid(9), blocks(*[1] * 9)),
        (Topology.grid(9), blocks(9)),
    ):
        assert_array_equal(place(graph, hosts), np.arange(len(hosts)))
    monkeypatch.setattr(placement, "_split", None)
    monkeypatch.setattr(placement, "WORK", 100)
    nodes = place(Topology.cluster(40), cyclic(40, 2))
    assert_array_equal(nodes[:4], [0, 20, 1, 21])


def test_each_node_has_one_rank_and_each_rank_a_node():
    """A file of a rank may be on its disk alone, so the rank keeps its node."""
    parts = "part-{rank}.npy"
    assert RunConfig(data="all.npy").placement == "hosts"
    assert RunConfig(data=parts).placement == "blocks"
    assert RunConfig(data=parts, placement="hosts").placement == "hosts"
    for nodes, ranks, n_ranks, culprit in (
        ([0, 1, 2], [0, 1, 2], 4, "4 ranks"), ([0, 1, 1, 2], [0, 1, 0, 1], 2, "node 1"),
        ([0, 2], [0, 1], 2, "node 1"), ([0, 1, 2], [0, 0, 0], 2, "rank 1"),
        ([0, 1, 3], [0, 1, 1], 2, "node 3"), ([0, 1, 2], [0, 1, 2], 2, "rank 2"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=culprit):
            hosts_of(np.array(nodes), np.array(ranks), 3, n_ranks)


DEALT = ("--hosts", 2, "-n", 8, "--cyclic")
RUN = ("--topology", "random-geometric", "--max-iter", 25, "--tolerance", 0, "--quiet")


@pytest.mark.mpi
def test_a_placement_changes_no_bit(tmp_path):
    words = ("--nodes", 8, "--out", tmp_path / "alone", *RUN)
    assert python("-m", "dadmm.run", *words).end().code == 0
    ended = start_netem(*DEALT, "--", "--out", tmp_path / "placed", *RUN).end()
    assert ended.code == 0, ended.err

    files = [tmp_path / name / "result.npz" for name in ("alone", "placed")]
    assert_same_arrays(*files)
    arrays, summary = arrays_of(tmp_path / "placed"), summary_of(tmp_path / "placed")
    assert summary["hosts"] == {"host0": 4, "host1": 4}
    near, far = (
        homes[arrays["edges"][:, 0]] != homes[arrays["edges"][:, 1]]
        for homes in (np.array(summary["node_hosts"]), np.arange(8) % 2)
    )
    assert summary["edges_between_hosts"] == near.sum() / 2 < far.sum() / 2
    assert summary["bytes_between_hosts"] == arrays["edge_bytes"][near].sum()
