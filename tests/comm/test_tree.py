"""Reductions over a spanning tree: their order, bits and traffic."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import Topology
from dadmm.comm.tree import TreeReduction, spanning_tree
from dadmm.graphs import topology
from tests.support import openmpi
from tests.support.processes import mpiexec, program

KITE = Topology.from_edges(6, [(0, 4), (0, 2), (2, 5), (4, 5), (2, 1), (5, 3)])


def nested(mine, other):
    return f"({mine} {other})"


def test_the_parent_is_the_lowest_neighbour_that_is_nearer_to_the_root():
    parents, depth = spanning_tree(KITE)

    assert parents.tolist() == [-1, 2, 0, 5, 0, 2]
    assert depth.tolist() == [0, 2, 1, 3, 1, 2]


@pytest.mark.parametrize("name", topology.GRAPHS)
def test_a_tree_spans_every_graph(name):
    graph = topology.build(name, 30)
    parents, depth = spanning_tree(graph)

    edges = {tuple(edge) for edge in graph.edges.tolist()}
    for i in range(1, 30):
        assert (parents[i], i) in edges
        assert depth[parents[i]] == depth[i] - 1


def test_a_merge_that_does_not_commute_shows_the_order():
    whole = TreeReduction(KITE).reduce({i: str(i) for i in range(6)}, nested)

    assert whole == "((0 ((2 1) (5 3))) 4)"


def test_traffic_is_one_message_up_and_one_down_each_edge_of_the_tree():
    tree = TreeReduction(KITE)
    for _ in range(3):
        tree.reduce({i: np.zeros((2, 3)) for i in range(6)})

    sent = {tuple(edge): row for edge, row in zip(KITE.edges, tree.sent, strict=True)}
    used = {(2, 1), (0, 2), (5, 3), (0, 4), (2, 5)}
    used |= {edge[::-1] for edge in used}
    for edge, row in sent.items():
        expected = [3, 3 * (8 + 2 * 8 + 6 * 8)] if edge in used else [0, 0]
        assert row.tolist() == expected


def test_one_node_has_the_result_already():
    tree = TreeReduction(Topology.ring(1))

    assert tree.reduce({0: 5}, max) == 5
    assert tree.sent.shape == (0, 2)


def test_the_root_has_the_order_that_others_receive():
    """The bits of a product depend on the order of its factors in memory."""
    tree = TreeReduction(Topology.ring(3))
    found = tree.reduce({i: np.eye(2, 3) for i in range(3)}, finish=lambda x: 2.0 * x.T)

    assert found.shape == (3, 2)
    assert found.flags.c_contiguous


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [4, 6])
def test_ranks_and_one_process_get_the_same_bits(ranks):
    """One node per rank, and several, in blocks and at random; bytes by edge too."""
    ended = mpiexec(ranks, *program("tree.py"))

    assert ended.code == 0, ended.err
    assert int(ended.out) == 3 * len(topology.GRAPHS)


@pytest.mark.mpi
def test_ranks_that_are_left_build_a_new_tree():
    ended = openmpi.start(5, *program("tree.py"), "failing").end()

    assert ended.code == 0, ended.err
    assert ended.out.strip() == "(0 (1 (2 3)))"
