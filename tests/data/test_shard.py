"""Shards: whose samples are whose, and what is said when they do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm.core.errors import ShardError
from dadmm.data import shard

MATRIX = np.arange(30.0).reshape(10, 3)


def test_bounds_are_those_of_array_split():
    """For every size and every number of nodes."""
    for n_samples in range(1, 40):
        for n_nodes in range(1, n_samples + 1):
            own = [shard.bounds(n_samples, n_nodes, i) for i in range(n_nodes)]
            parts = np.array_split(np.arange(n_samples), n_nodes)
            assert own == [(part[0], part[-1] + 1) for part in parts]


def test_an_even_split_loses_nothing():
    """In order, sizes equal to within one."""
    shards = shard.split(MATRIX, 4)

    assert [len(own) for own in shards] == [3, 3, 2, 2]
    assert_array_equal(np.concatenate(shards), MATRIX)


def test_shards_lie_in_memory_alike():
    """Row by row, whichever way the file or the labels had them."""
    for labels in (None, np.arange(10) % 2):
        for own in shard.split(np.asfortranarray(MATRIX), 2, labels):
            assert own.flags.c_contiguous
            assert own.flags.owndata


def test_labels_say_whose_a_sample_is():
    """Random labels give back exactly the samples that carry them."""
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
    """It names the sample and its label, or the empty node."""
    with pytest.raises(ShardError, match=sentence):
        shard.by_label(labels, 3)


def test_there_is_one_label_per_sample():
    """Not fewer, not more, not a table."""
    for labels in (np.zeros(9, int), np.zeros(11, int), np.zeros((10, 1), int)):
        with pytest.raises(ShardError, match=r"labels have shape .* for 10 samples"):
            shard.split(MATRIX, 1, labels)


@pytest.mark.parametrize("labels", [None, np.arange(10)])
def test_every_node_needs_a_sample(tmp_path, labels):
    """More nodes than samples is an error, however they are shared."""
    np.save(tmp_path / "x.npy", MATRIX)

    with pytest.raises(ShardError, match="10 samples are too few for 11 nodes; use at"):
        shard.split(MATRIX, 11, labels)
    with pytest.raises(ShardError, match="10 samples are too few for 11 nodes; use at"):
        shard.read(tmp_path / "x.npy", 11, [0])


@pytest.mark.parametrize("column", [1, "1", -2, "-2"])
def test_a_column_of_labels_is_not_data(column):
    """It is removed from the samples."""
    samples, labels = shard.resolve_labels(MATRIX, column)

    assert_array_equal(labels, MATRIX[:, 1])
    assert_array_equal(samples, MATRIX[:, [0, 2]])


@pytest.mark.parametrize("column", [3, -4])
def test_a_missing_column_gets_one_sentence(column):
    """It names the column and those that exist."""
    with pytest.raises(ShardError, match=rf"no column {column} .* columns 0\.\.2"):
        shard.resolve_labels(MATRIX, column)


@pytest.mark.parametrize("suffix", ["npy", "csv", "txt"])
def test_a_file_of_labels_is_read(tmp_path, suffix):
    """The samples stay as they are."""
    path, expected = tmp_path / f"labels.{suffix}", np.arange(10) % 2
    np.save(path, expected) if suffix == "npy" else np.savetxt(path, expected)

    samples, labels = shard.resolve_labels(MATRIX, path)

    assert samples is MATRIX
    assert_array_equal(labels, expected)
    assert_array_equal(shard.split(samples, 2, labels)[1], MATRIX[1::2])


def test_a_missing_file_of_labels_gets_one_sentence():
    """Like any data file."""
    with pytest.raises(ShardError, match=r"cannot read nowhere\.npy: No such file"):
        shard.resolve_labels(MATRIX, "nowhere.npy")


@pytest.mark.parametrize(
    ("source", "local"),
    [
        ("x.npy", True),
        ("data/part-{rank}.npy", True),
        ("part-{rank}.csv", True),
        ("x.npz", False),
        ("x.npz::a.npy", False),
        ("x.csv", False),
        ("x.mat", False),
    ],
)
def test_some_sources_are_read_by_every_process(source, local):
    """Those of which it need not read the rest."""
    assert shard.is_local(source) is local


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_one_file_equals_splitting_it(tmp_path, dtype, order):
    """Own rows only, in memory, contiguous float64."""
    np.save(tmp_path / "x.npy", np.asarray(MATRIX, dtype=dtype, order=order))
    expected = shard.split(MATRIX, 3)

    for nodes in ([1], [0, 2], range(3)):
        shards = shard.read(tmp_path / "x.npy", 3, nodes)
        assert list(shards) == list(nodes)
        for i, own in shards.items():
            assert_array_equal(own, expected[i])
            assert own.dtype == np.float64
            assert own.flags.owndata
            assert own.flags.c_contiguous


def test_files_read_whole_can_be_read_too(tmp_path):
    """One process with all nodes need not ask what kind a file is."""
    np.savez(tmp_path / "x.npz", X=MATRIX, Y=-MATRIX)

    shards = shard.read(f"{tmp_path}/x.npz::Y", 3, [2])

    assert_array_equal(shards[2], shard.split(-MATRIX, 3)[2])


def test_each_node_can_have_its_own_file(tmp_path):
    """Of any length."""
    for i in range(3):
        np.save(tmp_path / f"part-{i}.npy", MATRIX[: i + 1])

    shards = shard.read(tmp_path / "part-{rank}.npy", 3, [0, 2])

    assert {i: len(own) for i, own in shards.items()} == {0: 1, 2: 3}
    assert all(own.flags.owndata and own.flags.writeable for own in shards.values())


def test_a_missing_part_names_its_node(tmp_path):
    """And the file that was looked for."""
    with pytest.raises(ShardError, match=r"node 2: cannot read .*part-2\.npy: No such"):
        shard.read(tmp_path / "part-{rank}.npy", 3, [2])


def test_good_samples_pass():
    """Floats of any precision."""
    shard.check(MATRIX, 0)
    shard.check(MATRIX[:1].astype(np.float32), 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_located(value):
    """Node, row, column and value."""
    samples = MATRIX.copy()
    samples[2, 1] = samples[4, 0] = value

    with pytest.raises(ShardError, match=f"node 3: row 2, column 1 is {value}; .*fill"):
        shard.check(samples, 3)


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
    """It names the node."""
    with pytest.raises(ShardError, match=sentence):
        shard.check(samples, 5)
