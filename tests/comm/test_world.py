"""Collectives: sums over a tree, steps that are checked together, and waits."""

import io
import os
import sys
import threading

import numpy as np
import pytest

from dadmm import Topology
from dadmm.comm import mpi
from dadmm.comm.launch_link import doing, wait_until_read
from dadmm.comm.tree import TreeReduction, spanning_tree
from dadmm.comm.world import Checks, World, collectively
from dadmm.core.errors import ConfigError, DadmmError
from tests.support import openmpi
from tests.support.processes import program


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConfigError("no"), ConfigError), (MemoryError(), DadmmError)],
)
def test_after_a_failure_further_steps_are_left_out(error, kind):
    """Too little memory is an error of the input; other exceptions are raised."""
    checks, done = Checks(World()), []
    checks.run(lambda: fail(error))
    checks.run(lambda: done.append(1))
    checks.compare(lambda: done.append(2))

    with pytest.raises(kind):
        checks.gather()
    assert not done
    with pytest.raises(ZeroDivisionError):
        Checks(World()).run(lambda: 1 / 0)


@pytest.mark.mpi
@pytest.mark.parametrize("wait", ["block", "poll"])
def test_a_long_wait_sleeps(wait, monkeypatch):
    """Else a rank that is stopped would keep the cores of all others busy."""
    answers, slept, now = iter([False] * 40 + [True]), [], iter(range(1000))
    monkeypatch.setattr(mpi, "_test_all", lambda requests: next(answers))
    monkeypatch.setattr(mpi, "monotonic", lambda: 0.1 * next(now))
    monkeypatch.setattr(mpi.time, "sleep", slept.append)
    mpi.waiting(wait, crowded=False)([])

    assert slept[-1] == mpi.LONG_INTERVAL
    assert (slept[0] == mpi.POLL_INTERVAL) == (wait == "poll")


@pytest.mark.timeout(60)
def test_last_words_are_waited_for_until_the_launcher_has_read_them(tmp_path):
    """Without a pipe, or beyond the limit, there is no wait."""
    reader, writer = os.pipe()
    with open(reader, "rb") as outlet, open(writer, "w") as inlet:
        inlet.write("last words")
        inlet.flush()
        wait_until_read(inlet, 0.01)  # nobody reads it
        waiting = threading.Thread(target=wait_until_read, args=(inlet, 1e6))
        waiting.start()
        for count in (4, 100):
            waiting.join(0.05)
            assert waiting.is_alive()
            os.read(outlet.fileno(), count)
        waiting.join(30)
        assert not waiting.is_alive()
    with open(tmp_path / "file", "w") as file:
        file.write("words")
        for stream in (file, None, io.StringIO("words")):
            wait_until_read(stream, 1e6)


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


def test_a_step_that_ranks_do_together_is_work_and_not_a_wait():
    """The launch command names a rank that computes, also within `collectively`."""
    assert not collectively(World(), lambda: doing(sys._getframe()))["waits"]
    inside = []
    Checks(World()).compare(lambda: inside.append(doing(sys._getframe(1))))
    assert inside[0]["waits"]
    assert inside[0]["at"].startswith("run (world.py:")
