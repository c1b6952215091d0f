"""Reductions over a spanning tree: their order, bits and traffic."""

from __future__ import annotations

import numpy as np
import pytest

from dadmm import Topology
from dadmm.comm.tree import TreeReduction, spanning_tree
from tests.support import openmpi
from tests.support.processes import program

KITE = Topology.from_edges(6, [(0, 4), (0, 2), (2, 5), (4, 5), (2, 1), (5, 3)])
PARENTS = [-1, 2, 0, 5, 0, 2]


def test_the_parent_is_the_lowest_neighbour_that_is_nearer_to_the_root():
    """A merge that does not commute shows the order."""
    parents, depth = spanning_tree(KITE)
    names = {i: str(i) for i in range(6)}
    whole = TreeReduction(KITE).reduce(names, lambda mine, other: f"({mine} {other})")

    assert parents.tolist() == PARENTS
    assert depth.tolist() == [0, 2, 1, 3, 1, 2]
    assert whole == "((0 ((2 1) (5 3))) 4)"


def test_traffic_is_one_message_up_and_one_down_each_edge_of_the_tree():
    tree, alone = TreeReduction(KITE), TreeReduction(Topology.ring(1))
    for _ in range(3):
        tree.reduce({i: np.zeros((2, 3)) for i in range(6)})

    used = [PARENTS[i] == j or PARENTS[j] == i for i, j in KITE.edges.tolist()]
    expected = np.outer(used, [3, 3 * (8 + 2 * 8 + 6 * 8)])
    assert tree.sent.tolist() == expected.tolist()
    assert alone.reduce({0: 5}, max) == 5
    assert alone.sent.shape == (0, 2)


def test_the_root_has_the_order_that_others_receive():
    """The bits of a product depend on the order of its factors in memory."""
    tree = TreeReduction(Topology.ring(3))
    found = tree.reduce({i: np.eye(2, 3) for i in range(3)}, finish=lambda x: 2.0 * x.T)

    assert found.shape == (3, 2)
    assert found.flags.c_contiguous


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_that_are_left_build_a_new_tree():
    ended = openmpi.start(5, *program("survivors.py"), "tree").end()

    assert ended.code == 0, ended.err
    assert ended.out.strip() == "(0 (1 (2 3)))"
