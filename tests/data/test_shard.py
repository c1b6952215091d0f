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


@pytest.mark.parametrize(
    ("labels", "culprit"),
    [
        ([0, 1, 3], "sample 2 is 3"),
        ([0, -1, 2], "sample 1 is -1"),
        ([0.0, 1.5, 2.0], "sample 1 is 1.5"),
        ([0.0, np.nan, 2.0], "sample 1 is nan"),
        ([0, 2, 2], "node 1"),
        ([0, 1], r"\(2,\)"),
        ([[0], [1], [2]], r"\(3, 1\)"),
    ],
)
def test_bad_labels_are_refused(labels, culprit):
    for samples in (MATRIX[:3], Frame.of(MATRIX[:3])):
        with pytest.raises(ShardError, match=culprit):
            shard.split(samples, 3, labels)
        with pytest.raises(ShardError, match=r"2 samples .* 3 nodes"):
            shard.split(MATRIX[:2], 3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_one_file_equals_splitting_it(tmp_path, dtype, order):
    np.save(tmp_path / "x.npy", np.asarray(MATRIX, dtype=dtype, order=order))
    expected = shard.split(MATRIX, 3)

    for nodes in ([1], [0, 2], range(3)):
        tables = shard.open_tables(str(tmp_path / "x.npy"), 3, nodes)
        assert list(tables) == list(nodes)
        for i, (own,) in tables.items():
            assert_array_equal(np.column_stack(list(own.columns.values())), expected[i])


def test_each_node_can_have_its_own_file(tmp_path):
    for i in range(3):
        np.save(tmp_path / f"part-{i}.npy", MATRIX[: i + 1])
    source = str(tmp_path / "part-{rank}.npy")
    tables = shard.open_tables(source, 3, [0, 2])

    assert {i: own.n_rows for i, (own,) in tables.items()} == {0: 1, 2: 3}
    with pytest.raises(ShardError, match=r"node 3: .*part-3\.npy"):
        shard.open_tables(source, 4, [3])


X = np.ones((3, 2))


@pytest.mark.parametrize(
    ("rows", "culprit"),
    [
        (Rows(np.diag([1.0, np.nan])), "row 1, column 1 is nan"),
        (Rows(np.diag([1e80, 1.0])), "row 0, column 0 is 1e"),
        (Rows(X, np.array([1.0, 2.0, np.inf])), "row 2, the target is inf"),
        (Rows(X, np.array([1.0, 1e80, 2.0])), "row 1, the target is 1e"),
        (Rows(np.full((2, 2), np.nan)), "nan"),
    ],
)
def test_rows_that_no_problem_can_use_are_refused(rows, culprit):
    with pytest.raises(ShardError, match=f"node 5: .*{culprit}"):
        shard.check(rows, 5)


def test_entries_may_be_missing_but_not_all():
    shard.check(Rows(np.diag([1.0, np.nan])), 5, gaps=True)
    for X in (np.diag([np.inf, np.nan]), np.full((2, 2), np.nan)):
        with pytest.raises(ShardError, match="node 5: "):
            shard.check(Rows(X), 5, gaps=True)
