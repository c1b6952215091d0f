"""What a run remembers: blocks of rows, part files, their merging, and histories."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.testing import assert_array_equal

from dadmm.admm.stopping import Verdict
from dadmm.core.interfaces import PenaltyState
from dadmm.resilience.recovery import NodeFailure
from dadmm.results.history import Recorder
from dadmm.results.part_files import merge
from dadmm.results.rows import NODE_COLUMNS, NodeRows, RowBuffer


class Blocks:
    """A sink that writes down how rows came."""

    def __init__(self):
        self.firsts, self.blocks = [], []

    def append(self, first, block):
        self.firsts.append(first)
        self.blocks.append(block.copy())

    @property
    def rows(self):
        return np.concatenate(self.blocks)


def fill(buffer, n_iterations, start=1):
    """Fill rows with numbers that say where they belong."""
    for t in range(start, start + n_iterations):
        rows = buffer.next_rows()
        rows[...] = 100 * t + np.arange(rows.size).reshape(rows.shape)


def test_a_buffer_hands_over_full_blocks():
    sink = Blocks()
    buffer = RowBuffer(2, 3, sink, seconds=1e9)
    buffer._block = buffer._block[:4]
    fill(buffer, 10)
    buffer.flush()

    assert sink.firsts == [1, 5, 9]
    assert [len(block) for block in sink.blocks] == [4, 4, 2]
    assert_array_equal(sink.rows[:, 0, 0], 100 * np.arange(1, 11))
    assert_array_equal(sink.rows[6, 1], [703, 704, 705])


def test_a_buffer_hands_over_old_blocks():
    sink = Blocks()
    fill(RowBuffer(1, 1, sink, seconds=-1.0), 3)

    assert sink.firsts == [1, 2]


def node(i, eta=(1.0, 2.0)):
    state = PenaltyState(np.array(eta), np.array(eta) + 10, np.array(eta) + 20, None)
    return SimpleNamespace(
        objective=1.0 + i, primal=2.0 + i, dual=3.0 + i,
        disagreement=4.0 + i, residual=5.0 + i,
        verdict=Verdict(6.0 + i, 7.0 + i, 8.0 + i), eta_mean=9.0 + i,
        accord=SimpleNamespace(quiet_count=10.0 + i),
        links=SimpleNamespace(lengths=np.array([9, 0] if len(eta) == 2 else eta)),
        seconds=[13.0 + i, 14.0 + i, 15.0 + i, 16.0 + i],
        theta=np.array([17.0 + i]), penalty=state,
    )  # fmt: skip


def test_a_resumed_run_that_loses_nodes_goes_back_by_the_right_rows():
    """Its first row is that of the iteration after the one from which it goes on."""
    one = node(0)
    one.eta = np.ones(2)
    recorder = Recorder([one], {}, True, True, start=100)
    loss = NodeFailure(105, (2,), ((0, 1),), (0, 1), np.array([True, False]))
    for t in range(101, 111):
        for watch in recorder.callbacks:
            watch(t, [one])
    for watch in recorder.callbacks:
        watch.rewind(loss)
    history = recorder.history(*recorder.tables())

    assert len(history) == len(history.edges) == 5
    assert history.edges["eta"].shape == (5, 1)


def test_rows_of_the_dead_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("3,0,2,a\n3,0,1,b\n4,0,2,c\n")
    (tmp_path / "c.csv").write_text("3,2,0,d\n3,2,1,e\n4,2,0,f\n")
    (tmp_path / "old.csv").write_text("?\n1,0,1,g\n2,0,2,h\n2,12,0,i\n3,0,2,j\n")
    parts, header = [tmp_path / "a.csv", tmp_path / "c.csv"], ("iteration", "i", "j")
    with (tmp_path / "all.csv").open("wb") as target:
        merge(parts, header, target, tmp_path / "old.csv", nodes=[0, 2])

    assert (tmp_path / "all.csv").read_text().split() == [
        "iteration,i,j", "2,0,2,h", "3,0,2,a", "3,2,0,d", "4,0,2,c", "4,2,0,f",
    ]  # fmt: skip


def test_a_row_per_node_holds_the_named_columns():
    sink = Blocks()
    rows = NodeRows(2, sink, {"first": lambda theta: theta[0]})
    rows(1, [node(0), node(10)])
    rows.flush()

    assert rows.columns == (*NODE_COLUMNS, "first")
    sent = [1.0, 9.0]  # one of two messages, of nine bytes
    for row, first in zip(sink.rows[0], (1.0, 11.0), strict=True):
        assert_array_equal(row[:10], np.arange(first, first + 10))
        assert_array_equal(row[10:12], sent)
        assert_array_equal(row[12:], np.arange(first + 12, first + 17))
