"""Rows with a target: where y is found in a file, and what is said if it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import savemat

from dadmm.core.errors import ShardError
from dadmm.data import shard, tables

rng = np.random.default_rng(5)
X, Y = rng.standard_normal((12, 3)), rng.standard_normal(12)
NODES = np.arange(12) * 5 % 7 % 3
BOTH = np.column_stack([X, Y])
TEXT = {"delimiter": ",", "fmt": "%.17g", "comments": ""}


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The same rows in every form."""
    monkeypatch.chdir(tmp_path)
    np.save("last.npy", BOTH)
    np.save("first.npy", np.column_stack([Y, X]))
    np.savetxt("last.csv", BOTH, **TEXT)
    np.savetxt("head.csv", BOTH[:, [0, 3, 1, 2]], header='a, "price",b,c', **TEXT)
    np.savetxt("head.txt", BOTH[:, [0, 3, 1, 2]], header="a y b c", comments="")
    np.savez("named.npz", X=X, y=Y, z=2 * Y, rows=3 * X)
    np.savez("one.npz", table=BOTH)
    savemat("named.mat", {"X": X, "y": Y})  # as a row vector
    np.save("nodes.npy", NODES)
    np.savetxt("nodes-last.csv", np.column_stack([BOTH, NODES]), **TEXT)
    np.savetxt("nodes-first.csv", np.column_stack([NODES, BOTH]), **TEXT)
    np.savez("nodes.npz", X=np.column_stack([NODES, X]), y=Y)
    for i, rows in enumerate(shard.split(BOTH, 3)):
        np.save(f"part-{i}.npy", rows)
        np.savez(f"part-{i}.npz", X=rows[:, :-1], y=rows[:, -1])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("last.npy", None), ("last.npy", "3"), ("last.npy", "-1"), ("first.npy", "0"),
        ("last.csv", None), ("head.csv", "1"), ("head.csv", "price"), ("head.txt", "y"),
        ("named.npz", None), ("named.npz", "y"), ("named.npz::X", None),
        ("named.mat", None), ("one.npz", "3"), ("one.npz::table", "-1"),
    ],
)  # fmt: skip
def test_the_target_is_found(source, target):
    rows, names, nodes = tables.load(source, target)

    assert nodes is None
    heads = {"head.csv": ("a", "b", "c", "price"), "head.txt": ("a", "b", "c", "y")}
    assert names == heads.get(source)
    decimals = 15 if source == "head.txt" else 17
    assert_array_equal(rows.round(decimals), BOTH.round(decimals))
    assert rows.flags.c_contiguous
    rows, *_ = tables.load("named.npz::rows", "z")  # arrays of other names
    assert_array_equal(rows, np.column_stack([3 * X, 2 * Y]))


@pytest.mark.parametrize(
    ("source", "labels", "target"),
    [
        ("last.npy", "nodes.npy", None), ("first.npy", "nodes.npy", "0"),
        ("named.npz", "nodes.npy", None), ("nodes.npz", "0", None),
        ("nodes-last.csv", "-1", None), ("nodes-last.csv", "4", "3"),
        ("nodes-first.csv", "0", None), ("nodes-first.csv", "0", "-1"),
    ],
)  # fmt: skip
def test_labels_and_target_may_be_columns_of_one_file(source, labels, target):
    rows, names, nodes = tables.load(source, target, labels)

    assert names is None

    assert_array_equal(rows, BOTH)
    assert_array_equal(nodes, NODES)


def test_names_follow_their_columns():
    text = "a;node;y;b\n" + "".join(f"{k};{k % 3};{2 * k};{3 * k}\n" for k in range(6))
    Path("labels.csv").write_text(text)
    np.savez("names.npz", X=X, y=Y, feature_names=np.array(["u", "v", "w"]))

    assert tables.load("labels.csv", "y", "1").names == ("a", "b", "y")
    assert tables.load("labels.csv", None, "1", supervised=False).names == (
        "a", "y", "b",
    )  # fmt: skip
    assert tables.load("names.npz", None).names == ("u", "v", "w", "y")
    assert tables.load("names.npz::X", None, supervised=False).names == ("u", "v", "w")


@pytest.mark.parametrize("source", ["last.npy", "part-{rank}.npy", "part-{rank}.npz"])
def test_a_node_reads_its_own_rows(source):
    whole = shard.split(BOTH, 3)

    for i in range(3):
        assert_array_equal(tables.read(source, None, 3, [i])[i].rows, whole[i])
    with pytest.raises(ShardError, match=r"^node 3: cannot read part-3\.npz: No such"):
        tables.read("part-{rank}.npz", None, 4, [3])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("last.csv", "price"), "last.csv has no column 'price' for the target; its "
         "columns are 0..3, without names"),
        (("head.csv", "prize"), "its columns are called 'a', 'price', 'b', 'c'"),
        (("last.npy", "4"), "last.npy has no column '4' for the target; its columns"),
        (("named.npz", "w"), "named.npz has no matrix 'w'; it holds X, y, z, rows"),
        (("one.npz", None), "one.npz has no matrix 'X'; it holds table"),
        (("nodes.npy", None), "samples are a matrix with one row per sample"),
        (("nodes-last.csv", "4", "4"), "column 4 cannot be both labels and target"),
        (("nodes.npz", None, "-1"), "column -1 cannot be both labels and target"),
        (("short.npz", None), "y has shape (5,), but X has 12 rows; give one target"),
        (("thin.npy", None), "thin.npy has one column; a target needs at least one"),
        (("wide.csv", "colum7"), "columns are called 'column7', "),
        (("few.npz", None), "few.npz has 2 names in feature_names for 3 columns; give"),
        (("objects.npz", None), "feature_names must be an array of text, one name per"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_sentence(arguments, sentence):
    np.savez("short.npz", X=X, y=Y[:5])
    np.save("thin.npy", X[:, :1])
    np.savetxt(
        "wide.csv", BOTH.T, header=",".join(f"column{k}" for k in range(12)), **TEXT
    )
    np.savez("few.npz", X=X, y=Y, feature_names=["a", "b"])
    np.savez("objects.npz", X=X, y=Y, feature_names=np.array(["a", "b", "c"], object))
    with pytest.raises(ShardError) as caught:
        tables.load(*arguments)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
