"""Shards: whose samples are whose, and what is said when they do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core.errors import ShardError
from dadmm.data import shard
from dadmm.data.encoding import Rows
from dadmm.data.frame import Frame

MATRIX = np.arange(30.0).reshape(10, 3)


def test_bounds_are_those_of_array_split():
    for n_samples in range(1, 40):
        for n_nodes in range(1, n_samples + 1):
            own = [shard.bounds(n_samples, n_nodes, i) for i in range(n_nodes)]
            parts = np.array_split(np.arange(n_samples), n_nodes)
            assert own == [(part[0], part[-1] + 1) for part in parts]


def test_labels_say_whose_a_sample_is():
    rng = np.random.default_rng(0)
    for n_nodes in range(1, 6):
        labels = rng.permutation(np.arange(10) % n_nodes)
        for i, own in enumerate(shard.split(MATRIX, n_nodes, labels)):
            assert_array_equal(own, MATRIX[labels == i])
        rows = np.concatenate(shard.by_label(labels, n_nodes))
        assert_array_equal(np.sort(rows), np.arange(10))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([0, 1, 3], "label of sample 2 is 3; labels are node numbers 0..2"),
        ([0, -1, 2], "label of sample 1 is -1"),
        ([0.0, 1.5, 2.0], "label of sample 1 is 1.5"),
        ([0.0, np.nan, 2.0], "label of sample 1 is nan"),
        ([0, 2, 2], "node 1 has no samples: no label is 1; every node 0..2"),
    ],
)
def test_bad_labels_get_one_sentence(labels, sentence):
    with pytest.raises(ShardError, match=sentence):
        shard.by_label(labels, 3)


def test_there_is_one_label_per_sample():
    for labels in (np.zeros(9, int), np.zeros(11, int), np.zeros((10, 1), int)):
        with pytest.raises(ShardError, match=r"labels have shape .* for 10 samples"):
            shard.split(MATRIX, 1, labels)


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [("3", r"no column 3 .* columns 0\.\.2"), ("-4", r"no column -4 .* columns 0\.\.2"),
     ("nowhere.npy", r"cannot read nowhere\.npy: No such file")],
)  # fmt: skip
def test_missing_labels_get_one_sentence(labels, sentence):
    with pytest.raises(ShardError, match=sentence):
        shard.resolve_labels(Frame.of(MATRIX), labels)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_one_file_equals_splitting_it(tmp_path, dtype, order):
    np.save(tmp_path / "x.npy", np.asarray(MATRIX, dtype=dtype, order=order))
    expected = shard.split(MATRIX, 3)

    for nodes in ([1], [0, 2], range(3)):
        tables = shard.read_tables(str(tmp_path / "x.npy"), 3, nodes)
        assert list(tables) == list(nodes)
        for i, own in tables.items():
            assert_array_equal(np.column_stack(list(own.columns.values())), expected[i])


def test_each_node_can_have_its_own_file(tmp_path):
    for i in range(3):
        np.save(tmp_path / f"part-{i}.npy", MATRIX[: i + 1])

    source = str(tmp_path / "part-{rank}.npy")
    tables = shard.read_tables(source, 3, [0, 2])

    assert {i: own.n_rows for i, own in tables.items()} == {0: 1, 2: 3}
    with pytest.raises(ShardError, match=r"node 3: cannot read .*part-3\.npy: No such"):
        shard.read_tables(source, 4, [3])


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        (np.zeros(3), r"node 5: samples have shape \(3,\); give a matrix"),
        (np.zeros((0, 3)), r"node 5: samples have shape \(0, 3\)"),
        (np.zeros((3, 0)), r"node 5: samples have shape \(3, 0\)"),
        (np.zeros((3, 3), int), "node 5: samples have type int64; convert"),
    ],
)
def test_samples_of_another_kind_get_one_sentence(samples, sentence):
    with pytest.raises(ShardError, match=sentence):
        shard.check(Rows(samples), 5)
