"""Shards: whose samples are whose, and what is said when they do not fit."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dadmm.core.errors import ShardError
from dadmm.data import shard
from dadmm.data.datasets import synthetic
from dadmm.data.encoding import Rows
from dadmm.data.frame import Frame
from dadmm.problems import PPCA
from dadmm.problems.metrics import subspace_angle

MATRIX = np.arange(30.0).reshape(10, 3)


def test_labels_say_whose_a_sample_is():
    """Without them, nodes have the blocks of `numpy.array_split`."""
    labels = np.random.default_rng(0).permutation(np.arange(10) % 4)
    for i, own in enumerate(shard.split(MATRIX, 4, labels)):
        assert_array_equal(own, MATRIX[labels == i])
    for n_nodes in range(1, 11):
        parts = np.array_split(np.arange(10), n_nodes)
        own = [shard.bounds(10, n_nodes, i) for i in range(n_nodes)]
        assert own == [(part[0], part[-1] + 1) for part in parts]
        assert_array_equal(np.vstack(shard.split(MATRIX, n_nodes)), MATRIX)
    frames = shard.split_frames(np.vstack([MATRIX, MATRIX, MATRIX[:2]]), 4)
    assert [len(block) for block in frames] == [6, 6, 6, 4]  # two rows of each frame
    assert_array_equal(np.vstack(frames)[:10], MATRIX)


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


@pytest.mark.parametrize("order", ["C", "F"])
def test_reading_one_file_equals_splitting_it(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(MATRIX, dtype=np.int16, order=order))
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


X, NAN = np.ones((3, 2)), np.nan


@pytest.mark.parametrize(
    ("rows", "gaps", "culprit"),
    [
        (Rows(np.diag([1.0, NAN])), False, "row 1, column 1 is nan"),
        (Rows(np.diag([1e80, 1.0])), False, "row 0, column 0 is 1e"),
        (Rows(X, np.array([1.0, 2.0, np.inf])), False, "row 2, the target is inf"),
        (Rows(X, np.array([1.0, 1e80, 2.0])), False, "row 1, the target is 1e"),
        (Rows(np.diag([np.inf, NAN])), True, "inf"),
        (Rows(np.full((2, 2), NAN)), True, ""),
    ],
)
def test_rows_that_no_problem_can_use_are_refused(rows, gaps, culprit):
    """Entries may be missing where that is allowed, but not all."""
    with pytest.raises(ShardError, match=f"node 5: .*{culprit}"):
        shard.check(rows, 5, gaps=gaps)
    shard.check(Rows(np.diag([1.0, NAN])), 5, gaps=True)


def test_samples_are_those_of_the_model_and_follow_their_seed():
    """The covariance is W W' + noise_variance I; a start is not drawn as they are."""
    samples, W = synthetic(200_000, dimension=4, n_components=2, noise_variance=0.5)
    expected = W @ W.T + 0.5 * np.eye(4)
    assert_allclose(samples.mean(axis=0), 0, atol=0.03)
    assert_allclose(np.cov(samples.T), expected, atol=0.02 * np.abs(expected).max())
    samples, W = synthetic(seed=4)
    assert_array_equal(samples, synthetic(seed=4)[0])
    assert (samples != synthetic(seed=3)[0]).all()
    start = PPCA(samples, 5).init(np.random.default_rng([4, 0]))
    assert subspace_angle(start[:100].reshape(20, 5), W) > 45
