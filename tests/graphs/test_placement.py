"""Which rank is which node: few edges between hosts, and never more than before."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core.errors import ConfigError
from dadmm.graphs import placement, topology
from dadmm.graphs.placement import assign, count_crossing, hosts_of, place
from dadmm.runs.config import RunConfig
from tests.support.emulation import start_netem
from tests.support.processes import PROGRAMS, python
from tests.support.runs import assert_same_arrays, summary_of

GRAPHS = sorted(topology.GRAPHS)


def blocks(*counts):
    """Return the hosts of ranks that fill one host after the other."""
    return [f"h{k}" for k, count in enumerate(counts) for _ in range(count)]


def cyclic(n, hosts):
    """Return the hosts of ranks that are dealt out like cards."""
    return [f"h{rank % hosts}" for rank in range(n)]


MAPPINGS = {
    "four blocks": blocks(5, 5, 5, 5),
    "four in turn": cyclic(20, 4),
    "eight in turn": cyclic(20, 8),
    "unequal": blocks(11, 1, 5, 3),
    "unequal, small first": blocks(1, 12, 7),
    "the first host last": ["h9", *blocks(10, 9)],
}


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_node_has_a_rank_and_every_host_its_number(name, mapping):
    graph, hosts = topology.build(name, 20), MAPPINGS[mapping]
    nodes = place(graph, hosts)
    homes = [hosts[rank] for rank in np.argsort(nodes)]

    assert nodes[0] == 0
    assert_array_equal(np.sort(nodes), np.arange(20))
    assert {h: homes.count(h) for h in hosts} == {h: hosts.count(h) for h in hosts}
    assert count_crossing(graph, homes) <= count_crossing(graph, hosts)


@pytest.mark.parametrize(
    ("name", "hosts", "most"),
    [
        ("ring", cyclic(20, 4), 4),  # the least there can be, as each host has two ends
        ("chain", cyclic(20, 4), 3),
        ("cluster", cyclic(20, 2), 1),
        ("grid", cyclic(64, 4), 16),  # four squares of 4 x 4
        ("random-geometric", blocks(5, 5, 5, 5), 12),  # 32 by number
    ],
)
def test_few_edges_cross(name, hosts, most):
    graph = topology.build(name, len(hosts))
    nodes = place(graph, hosts)

    assert count_crossing(graph, [hosts[rank] for rank in np.argsort(nodes)]) <= most


def test_files_of_ranks_stay_with_their_ranks():
    """They may be on the disk of that rank's host alone, unless told otherwise."""
    parts = "part-{rank}.npy"
    assert RunConfig(data="all.npy").placement == "hosts"
    assert RunConfig(data=parts).placement == "blocks"
    assert RunConfig(data=parts, placement="hosts").placement == "hosts"


DEALT = ("--hosts", 2, "-n", 8, "--cyclic")
HOSTS = ["host0", "host1"] * 4
RUN = ("--topology", "random-geometric", "--max-iter", 25, "--tolerance", 0, "--quiet")


@pytest.mark.mpi
def test_a_placement_changes_no_bit(tmp_path):
    """Eight ranks on two hosts, placed and not, and eight nodes in one process."""
    summaries = {}
    for name in ["hosts", "blocks"]:
        words = ("--placement", name, "--out", tmp_path / name, *RUN)
        ended = start_netem(*DEALT, "--", *words).end()
        assert ended.code == 0, ended.err
        summaries[name] = summary_of(tmp_path / name)
    alone = python("-m", "dadmm.run", "--nodes", 8, "--out", tmp_path / "alone", *RUN)
    assert alone.end().code == 0

    one = tmp_path / "alone" / "result.npz"
    with np.load(one) as arrays:
        edges, edge_bytes = arrays["edges"], arrays["edge_bytes"]
    for name, summary in summaries.items():
        assert_same_arrays(one, tmp_path / name / "result.npz")
        assert summary["hosts"] == {"host0": 4, "host1": 4}
        homes = np.array(summary["node_hosts"])
        far = homes[edges[:, 0]] != homes[edges[:, 1]]
        assert summary["edges_between_hosts"] == far.sum() / 2
        assert summary["bytes_between_hosts"] == edge_bytes[far].sum()
    placed, plain = summaries["hosts"], summaries["blocks"]
    assert plain["node_hosts"] == HOSTS
    assert placed["edges_between_hosts"] < plain["edges_between_hosts"]
    assert placed["bytes_between_hosts"] < plain["bytes_between_hosts"]


def test_nobody_moves_for_nothing():
    for graph, hosts in (
        (topology.Topology.ring(20), blocks(5, 5, 5, 5)),
        (topology.Topology.complete(12), cyclic(12, 3)),
        (topology.Topology.grid(9), blocks(*[1] * 9)),
        (topology.Topology.grid(9), blocks(9)),
    ):
        assert_array_equal(place(graph, hosts), np.arange(len(hosts)))


@pytest.mark.mpi
@pytest.mark.parametrize(("event", "code"), [("raise", 1), ("diverge", 2)])
def test_a_placed_node_that_fails_is_named(tmp_path, event, code):
    """By the rank that mpiexec started; and the job ends."""
    script = PROGRAMS / "failing_rank.py"
    arguments = (3, event, *RUN, "--out", tmp_path / "run")
    job = ("--command", "--", sys.executable, script, *arguments)
    ended = start_netem(*DEALT, *job).end()

    assert ended.code in (code, 255), ended.err  # 255: Intel MPI
    # Not in `said`: what Open MPI brings from another host may start within a line.
    assert re.findall(r"dadmm: (?:error: )?(rank \d+)", ended.err) == ["rank 3"]


def test_dense_graphs_cost_no_search(monkeypatch):
    """Their ranks take the order of the nodes, which takes no time."""
    monkeypatch.setattr(placement, "_split", None)
    monkeypatch.setattr(placement, "WORK", 100)
    nodes = place(topology.Topology.cluster(40), cyclic(40, 2))

    assert_array_equal(nodes[:4], [0, 20, 1, 21])


@pytest.mark.parametrize("how", ["hosts", "blocks"])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("machines", [cyclic(4, 2), blocks(3), cyclic(7, 3)])
def test_ranks_have_equal_numbers_of_nodes(name, machines, how):
    """And few edges are between hosts: never more than by number."""
    graph = topology.build(name, 24)
    homes = np.array(machines)
    hosts, plain = (assign(graph, machines, way) for way in (how, "blocks"))

    counts = np.bincount(hosts, minlength=len(machines))
    assert counts.sum() == 24
    assert counts.max() - counts.min() <= 1
    assert count_crossing(graph, homes[hosts]) <= count_crossing(graph, homes[plain])
    if how == "blocks":
        assert_array_equal(hosts, np.sort(hosts))


def test_nodes_near_each_other_share_a_rank():
    graph = topology.Topology.random_geometric(400, seed=1)
    one, other = (assign(graph, ["a"] * 4, how) for how in ["hosts", "blocks"])

    assert count_crossing(graph, one) < 0.5 * count_crossing(graph, other)


@pytest.mark.parametrize(
    ("nodes", "ranks", "n_ranks", "culprit"),
    [
        ([0, 1, 2], [0, 1, 2], 4, "4 ranks"),
        ([0, 1, 1, 2], [0, 1, 0, 1], 2, "node 1"),
        ([0, 2], [0, 1], 2, "node 1"),
        ([0, 1, 2], [0, 0, 0], 2, "rank 1"),
        ([0, 1, 3], [0, 1, 1], 2, "node 3"),
        ([0, 1, 2], [0, 1, 2], 2, "rank 2"),
    ],
)
def test_each_node_has_one_rank_and_each_rank_a_node(nodes, ranks, n_ranks, culprit):
    with pytest.raises(ConfigError, match=culprit):
        hosts_of(np.array(nodes), np.array(ranks), 3, n_ranks)
