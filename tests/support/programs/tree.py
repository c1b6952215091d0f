"""Reductions over a tree: ranks and one process get the same bits.

Usage: tree.py [failing]. With "failing", the last rank ends itself, and the others
build a new tree without it; this needs an MPI that tolerates failed ranks.
"""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
from mpi4py import MPI
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.comm import mpi_library
from dadmm.comm.tree import TreeReduction
from dadmm.graphs import topology
from dadmm.solver import recovery


def numbers(i: int) -> np.ndarray:
    """Return numbers whose sum depends on the order."""
    return np.random.default_rng(i).standard_normal((3, 2)) * 10.0 ** (i % 5)


def rows(i: int) -> np.ndarray:
    return np.full((i % 3, 2), i, dtype=np.int32)


def nested(mine, other):
    return f"({mine} {other})"


CASES = (
    (numbers, np.add),
    (lambda i: np.float64(0.1 * i), np.add),
    (rows, lambda mine, other: np.concatenate([mine, other])),
    (str, nested),
    (lambda i: {str(i): [0.1 * i, None]}, lambda mine, other: mine | other),
    (lambda i: np.full(100_000, 0.1 * i), np.add),  # too long to be sent eagerly
)


def check(comm: MPI.Comm, graph: Topology, hosts: list[int] | None) -> int:
    """Compare all cases with one process, bytes by edge included."""
    over, alone = TreeReduction(graph, comm, hosts), TreeReduction(graph)
    nodes = range(len(graph))
    hosted = [i for i in nodes if (hosts or nodes)[i] == comm.rank]
    for value, merge in CASES:
        found = over.reduce({i: value(i) for i in hosted}, merge)
        expected = alone.reduce({i: value(i) for i in nodes}, merge)
        assert type(found) is type(expected)
        assert_array_equal(found, expected)
    assert_array_equal(comm.allreduce(over.sent), alone.sent)
    return 1


def survive(comm: MPI.Comm) -> str:
    """Lose the last rank during a reduction; add up what the others have."""
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    graph = Topology.ring(comm.size)
    if comm.rank == comm.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        TreeReduction(graph, comm).reduce({comm.rank: 1})
        whole = True
    except MPI.Exception:
        comm.Revoke()
        whole = False
    assert not mpi_library.agree(comm, whole)
    left = comm.Shrink()
    alive = mpi_library.ranks_in(left.Get_group(), comm)
    rest, _ = recovery.restrict(graph, None, alive)
    return TreeReduction(rest, left).reduce({left.rank: str(comm.rank)}, nested)


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    if sys.argv[1:] == ["failing"]:
        said = survive(comm)
        if comm.rank == 0:
            print(said)
        mpi_library.leave(0)
    one = [topology.build(name, comm.size) for name in topology.GRAPHS]
    several = [topology.build(name, 3 * comm.size) for name in topology.GRAPHS]
    draw = np.random.default_rng(0)
    done = sum(check(comm, graph, None) for graph in one)
    for graph in several:
        blocks = [i // 3 for i in range(len(graph))]
        scattered = draw.permutation(blocks).tolist()
        done += check(comm, graph, scattered) + check(comm, graph, blocks)
    if comm.rank == 0:
        print(done)
