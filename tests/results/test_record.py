"""What a run remembers: blocks of rows, part files, their merging, and histories."""

from __future__ import annotations

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm.admm.stopping import Verdict
from dadmm.core.interfaces import PenaltyState
from dadmm.resilience.recovery import NodeFailure
from dadmm.results.history import History, MemorySink, Recorder
from dadmm.results.part_files import PartFile, merge
from dadmm.results.rows import NODE_COLUMNS, EdgeRows, NodeRows, RowBuffer


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


# Buffers


def test_a_buffer_hands_over_full_blocks():
    """In order, each told by its first iteration, the rest at the end."""
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
    """So that a long run can be watched, and little is lost with it."""
    sink = Blocks()
    fill(RowBuffer(1, 1, sink, seconds=-1.0), 3)

    assert sink.firsts == [1, 2]


def test_an_empty_buffer_hands_over_nothing():
    """Neither at the start nor twice."""
    sink = Blocks()
    buffer = RowBuffer(1, 1, sink, seconds=1e9)
    buffer.flush()
    fill(buffer, 1)
    buffer.flush()
    buffer.flush()

    assert sink.firsts == [1]


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (20, 8), (380, 3), (10**6, 3)])
def test_a_buffer_is_allocated_once_and_not_too_large(shape):
    """Two megabytes, or one iteration where that is more."""
    buffer = RowBuffer(*shape, Blocks())
    block = buffer._block
    fill(buffer, 2)

    assert buffer._block is block
    assert 1 <= len(block) <= 4096
    assert block.nbytes <= max(8 * 2**18, 8 * shape[0] * shape[1])


def test_memory_keeps_all_blocks():
    """Copies: the buffer fills its block again."""
    memory = MemorySink()
    buffer = RowBuffer(2, 3, memory, seconds=1e9)
    buffer._block = buffer._block[:2]
    fill(buffer, 5)
    buffer.flush()

    assert memory.all(2, 3).shape == (5, 2, 3)
    assert_array_equal(memory.all(2, 3)[:, 1, 2], 100 * np.arange(1, 6) + 5)
    assert MemorySink().all(2, 3).shape == (0, 2, 3)


# Part files


def write_part(path, keys, n_iterations, n_columns=2, at_once=3):
    """Write the part of a process; a number says iteration, row and column."""
    part = PartFile(path, keys)
    block = np.empty((n_iterations, len(keys), n_columns))
    for t in range(n_iterations):
        for k, key in enumerate(keys):
            block[t, k] = 1000 * (t + 1) + 10 * key[0] + np.arange(n_columns) / 3
    for first in range(0, n_iterations, at_once):
        part.append(first + 1, block[first : first + at_once])
    part.close()


def read(path):
    with path.open() as file:
        return list(csv.reader(file))


def test_a_part_file_has_a_line_per_row(tmp_path):
    """Iteration, keys, and numbers that read back to the last bit."""
    part = PartFile(tmp_path / "part.csv", [(0, 3), (2, 1)])
    numbers = [[1 / 3, 1e-300], [np.inf, -0.0]]
    part.append(7, np.array([numbers]))
    rows = read(tmp_path / "part.csv")  # on the disk before the file is closed
    part.close()

    assert [row[:3] for row in rows] == [["7", "0", "3"], ["7", "2", "1"]]
    assert [[float(x) for x in row[3:]] for row in rows] == numbers


def test_parts_merge_by_iteration_then_node(tmp_path):
    """Whatever each process hosts, and however its rows came to disk."""
    write_part(tmp_path / "a.csv", [(0,), (1,)], 12)
    write_part(tmp_path / "b.csv", [(2,)], 12, at_once=5)
    write_part(tmp_path / "c.csv", [(3,), (4,), (5,)], 12, at_once=12)
    parts = [tmp_path / f"{name}.csv" for name in "abc"]
    with (tmp_path / "all.csv").open("wb") as target:
        merge(parts, ("iteration", "node", "x", "y"), target)
    header, *rows = read(tmp_path / "all.csv")

    assert header == ["iteration", "node", "x", "y"]
    expected = [(t, node) for t in range(1, 13) for node in range(6)]
    assert [(int(row[0]), int(row[1])) for row in rows] == expected
    assert [float(row[2]) for row in rows] == [1000 * t + 10 * i for t, i in expected]


def test_merging_nothing_leaves_a_header(tmp_path):
    """A run that was stopped before its first row is still a run."""
    (tmp_path / "a.csv").touch()
    with (tmp_path / "all.csv").open("wb") as target:
        merge([tmp_path / "a.csv"], ("iteration", "node"), target)

    assert (tmp_path / "all.csv").read_text() == "iteration,node\n"


# Callbacks


def node(i, eta=(1.0, 2.0)):
    """Return what the recorders look at."""
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
    history = recorder.history(SimpleNamespace(collect=lambda rows: rows))

    assert len(history) == len(history.edges) == 5
    assert history.edges["eta"].shape == (5, 1)


def test_rows_of_the_dead_are_left_out(tmp_path):
    """Those in a file of before, too, and all edges to them."""
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
    """In the order of the names, the user's own last."""
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


def test_a_row_per_edge_holds_the_penalty_state():
    """Edge by edge in the order of the nodes; a node alone has none."""
    sink = Blocks()
    rows = EdgeRows(3, sink)
    rows(1, [node(0), node(1, eta=()), node(2, eta=(3.0,))])
    rows.flush()

    assert rows.columns == ("eta", "spent", "budget", "bytes")
    assert_array_equal(sink.rows[0], [[1, 11, 21, 9], [2, 12, 22, 0], [3, 13, 23, 3]])


# Histories


def test_a_history_is_read_by_column():
    """(iterations, n_nodes), and a wrong name lists the right ones."""
    rows = np.arange(24.0).reshape(4, 3, 2)
    history = History(("primal", "dual"), rows)

    assert len(history) == 4
    assert_array_equal(history["dual"], rows[:, :, 1])
    with pytest.raises(KeyError, match="no column 'pirmal'; there are primal, dual"):
        history["pirmal"]
    assert history.edges is None


@pytest.fixture(scope="module")
def result():
    """A short run on three nodes, everything recorded."""
    samples, _ = dadmm.datasets.synthetic(30, 4, 1)
    problems = [dadmm.problems.PPCA(own, 1) for own in np.split(samples, 3)]
    return dadmm.solve(
        problems,
        dadmm.Topology.chain(3),
        tolerance=0.0,
        max_iter=6,
        record_edges=True,
        observe={"precision": lambda theta: theta[-1]},
    )


def test_a_solved_history_has_a_row_per_iteration(result):
    """Of nodes and of edges, which are aligned with the topology's."""
    history, edges = result.history, result.history.edges

    assert history.columns == (*NODE_COLUMNS, "precision")
    assert len(history) == len(edges) == result.iterations == 6
    assert history["primal"].shape == (6, 3)
    assert edges["eta"].shape == (6, len(result.topology.edges))
    assert_array_equal(edges["eta"][-1], result.eta)
    assert_array_equal(history["precision"][-1], result.theta[:, -1])
    assert_array_equal(history["objective"][-1], result.objectives)


def test_seconds_of_the_history_are_those_of_the_result(result):
    """Solving and exchanging; observing is told one row later."""
    for phase in ("solve", "exchange"):
        spent = result.history[f"{phase}_seconds"]
        assert (spent >= 0).all()
        np.testing.assert_allclose(spent.sum(axis=0), getattr(result.seconds, phase))
    assert (result.history["observe_seconds"][0] == 0).all()


def test_a_history_need_not_be_kept():
    """For runs of which only the end counts."""
    samples, _ = dadmm.datasets.synthetic(30, 4, 1)
    problems = [dadmm.problems.PPCA(own, 1) for own in np.split(samples, 3)]
    ring = dadmm.Topology.ring(3)
    result = dadmm.solve(problems, ring, max_iter=3, record=False)

    assert len(result.history) == 0
    assert result.history["primal"].shape == (0, 3)
