"""What a run remembers: blocks of rows, part files, their merging, and histories."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Record, Sending, Topology, datasets, problems
from dadmm.runs.row_files import PartFile, merged, write_rows
from dadmm.solver.recovery import NodeFailure
from dadmm.solver.rows import NODE_COLUMNS, Recorder, RowBuffer
from tests.support.problems import quadratics
from tests.support.runs import run_of
from tests.support.solving import solve


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


def fill(buffer, n_iterations, *shape):
    """Fill rows with numbers that say where they belong."""
    for t in range(1, n_iterations + 1):
        rows = buffer.next_rows(*shape)
        rows[...] = 100 * t + np.arange(rows.size).reshape(rows.shape)


def test_a_buffer_hands_over_full_blocks():
    sink = Blocks()
    buffer = RowBuffer(sink, seconds=1e9)
    fill(buffer, 10, 2**14, 4)  # four of them are 2**18 numbers
    buffer.flush()

    assert sink.firsts == [1, 5, 9]
    assert [len(block) for block in sink.blocks] == [4, 4, 2]
    assert_array_equal(sink.rows[:, 0, 0], 100 * np.arange(1, 11))
    assert_array_equal(sink.rows[6, 1], [704, 705, 706, 707])


def test_a_buffer_hands_over_old_blocks():
    sink = Blocks()
    fill(RowBuffer(sink, seconds=-1.0), 3, 1, 1)

    assert sink.firsts == [1, 2]


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


def test_parts_merge_by_iteration_then_node(tmp_path):
    write_part(tmp_path / "a.csv", [(0,), (1,)], 12)
    write_part(tmp_path / "b.csv", [(2,)], 12, at_once=5)
    write_part(tmp_path / "c.csv", [(3,), (4,), (5,)], 12, at_once=12)
    parts = [tmp_path / f"{name}.csv" for name in "abc"]
    with (tmp_path / "all.csv").open("wb") as target:
        rows = merged(parts, tmp_path / "no such file")
        write_rows(target, ("iteration", "node", "x", "y"), rows)
    header, *rows = read(tmp_path / "all.csv")

    assert header == ["iteration", "node", "x", "y"]
    expected = [(t, node) for t in range(1, 13) for node in range(6)]
    assert [(int(row[0]), int(row[1])) for row in rows] == expected
    assert [float(row[2]) for row in rows] == [1000 * t + 10 * i for t, i in expected]


def test_a_resumed_run_that_loses_nodes_goes_back_by_the_right_rows():
    """Its first row is that of the iteration after the one from which it goes on."""
    run = run_of(quadratics(2), Topology.chain(2), max_iter=1)
    recorder = Recorder(run, {}, True, True, start=100)
    kept = np.array([True, False])
    loss = NodeFailure(105, (1,), ((0,),), (0,), kept, kept)
    for t in range(101, 111):
        for watch in recorder.callbacks:
            watch(t, run)
    for watch in recorder.callbacks:
        watch.rewind(loss)
    history = recorder.history(recorder.tables())

    assert len(history) == len(history.edges) == 5
    assert history["eta"].shape == history.edges["eta"].shape == (5, 1)


def test_rows_of_the_dead_and_lines_cut_short_are_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("3,0,2,a\n3,0,1,b\n4,0,2,c\n4,0")
    (tmp_path / "c.csv").write_text("3,2,0,d\n3,2,1,e\n4,2,0,f\n")
    (tmp_path / "old.csv").write_text("?\n1,0,1,g\n2,0,2,h\n2,12,0,i\n3,0,2,j\n")
    parts, header = [tmp_path / "a.csv", tmp_path / "c.csv"], ("iteration", "i", "j")
    with (tmp_path / "all.csv").open("wb") as target:
        write_rows(target, header, merged(parts, tmp_path / "old.csv"), [0, 2])

    assert (tmp_path / "all.csv").read_text().split() == [
        "iteration,i,j", "2,0,2,h", "3,0,2,a", "3,2,0,d", "4,0,2,c", "4,2,0,f",
    ]  # fmt: skip


def test_a_row_per_node_holds_the_named_columns():
    """In the order of the nodes' numbers; the centre of a star is the last row."""
    names = {"eta": "eta_mean"}
    seen, thetas = [], []

    def watch(t, run):
        own = [getattr(run.work, names.get(name, name)) for name in measured]
        seen.append([run.by_node(numbers) for numbers in own])
        thetas.append(run.theta)

    measured = [name for name in NODE_COLUMNS[:12] if "over_limit" not in name]
    history = solve(
        quadratics(4), Topology.star(4), observe={"first": lambda theta: theta[0]},
        callbacks=[watch], stopping="residuals", tolerance=0.1,
    ).history  # fmt: skip

    assert history.columns == (*NODE_COLUMNS, "first")
    for name, numbers in zip(measured, np.moveaxis(seen, 1, 0), strict=True):
        assert_array_equal(history[name], numbers, err_msg=name)
    assert_array_equal(history["messages"][0], [3, 1, 1, 1])
    assert_array_equal(history["first"], np.array(thetas)[:, :, 0])
    over = history["disagreement_over_limit"]
    assert over[-1].max() < 1 < over[0].max()


@pytest.mark.parametrize("sending", ["float64", "float32"])
def test_a_change_of_coordinates_does_not_change_the_rows_of_messages(sending):
    """Logistic regression changes its coordinates; opening messages have no rows."""
    X, y, _ = datasets.classification(400, 30)
    parts = [(X[i::10], y[i::10]) for i in range(10)]
    net = [problems.LogisticRegression(*part, alpha=0.1) for part in parts]
    result = solve(net, Topology.ring(10), sending=Sending(sending), tolerance=1e-7)

    opening, each = 16 + 31 * 8, 8 + 31 * (8 if sending == "float64" else 4)
    counted = result.traffic.messages - 20 * result.iterations
    assert counted == 2 * 20  # at the start, and at the change
    assert_array_equal(result.history["messages"], 2)
    sent = result.history["bytes"]
    assert result.traffic.bytes == sent.sum() + counted * opening
    assert sent.max() < 2 * each + 20


def test_what_is_observed_is_in_the_coordinates_of_the_problems():
    """As `run.theta` is, whatever the coordinates of the run."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 9, 2)) * [1e-3, 1e3]
    own = [problems.LeastSquares(x, rng.normal(size=9)) for x in X]
    seen = []
    result = solve(
        own,
        Topology.ring(4),
        record=Record(observe={"second": lambda theta: theta[1]}),
        callbacks=[lambda t, run: seen.append(run.theta[:, 1])],
    )

    assert result.coordinates == "metric"
    assert_array_equal(result.history["second"], seen)
    assert_array_equal(result.history["second"][-1], result.theta[:, 1])
