"""Tables of a run: where columns are found, what nodes agree on, and what is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy import sparse
from scipy.io import savemat

from dadmm.cli import setup
from dadmm.comm.world import Checks, World
from dadmm.data import shard
from dadmm.graphs.topology import Topology
from dadmm.predict import main as predict
from dadmm.run import main
from dadmm.runs.config import RunConfig
from tests.support.processes import mpiexec
from tests.support.runs import arrays_of, refused, summary_of

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
    np.savez("named.npz", X=X, y=Y, z=2 * Y, rows=3 * X)
    np.savez("names.npz", X=X, y=Y, feature_names=np.array(["u", "v", "w"]))
    np.savez("one.npz", table=BOTH)
    savemat("named.mat", {"X": X, "y": Y})  # as a row vector
    sparse.save_npz("sparse.npz", sparse.csr_array(BOTH))
    table = pyarrow.table(dict(zip("abcy", BOTH.T, strict=True)))
    parquet.write_table(table, "x.parquet", row_group_size=5)
    np.save("nodes.npy", NODES)
    np.savetxt("nodes-last.csv", np.column_stack([BOTH, NODES]), **TEXT)
    np.savetxt("nodes-first.csv", np.column_stack([NODES, BOTH]), **TEXT)
    np.savez("nodes.npz", X=np.column_stack([NODES, X]), y=Y)
    for i, rows in enumerate(shard.split(BOTH, 3)):
        np.savez(f"part-{i}.npz", X=rows[:, :-1], y=rows[:, -1])


def shards(source, n_nodes=3, **settings):
    """Return the data of all nodes, in one process."""
    config = RunConfig(**({"problem": "ridge", "data": source} | settings))
    world = World()
    checks = Checks(world)
    data = setup.shards(world, config, Topology.ring(n_nodes), checks)
    checks.gather()
    return data


@pytest.mark.parametrize(
    ("source", "target", "names"),
    [
        ("last.npy", None, "x0 x1 x2"), ("last.npy", "-1", "x0 x1 x2"),
        ("first.npy", "0", "x1 x2 x3"), ("last.csv", None, "x0 x1 x2"),
        ("head.csv", "price", "a b c"), ("named.npz", "y", "x0 x1 x2"),
        ("named.npz::X", None, "x0 x1 x2"), ("names.npz", None, "u v w"),
        ("named.mat", None, "x0 x1 x2"), ("one.npz", "3", "x0 x1 x2"),
        ("part-{rank}.npz", None, "x0 x1 x2"), ("sparse.npz", None, "x0 x1 x2"),
        ("x.parquet", None, "a b c"),
    ],
)  # fmt: skip
def test_the_target_is_found(source, target, names):
    data = shards(source, target=target)

    assert data.encoding.feature_names == tuple(names.split())
    for own, expected in zip(data.rows.values(), shard.split(BOTH, 3), strict=True):
        X = own.X
        if source == "sparse.npz":
            assert sparse.issparse(X)
            X = X.toarray()
        assert_array_equal(X, expected[:, :-1])
        assert_array_equal(own.y, expected[:, -1])
        assert X.flags.c_contiguous


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
    found = shards(source, labels=labels, target=target).rows

    for i, own in found.items():
        assert_array_equal(own.X, X[i == NODES])
        assert_array_equal(own.y, Y[i == NODES])


def test_names_follow_their_columns():
    text = "a;node;y;b\n" + "".join(f"{k};{k % 3};{2 * k};{3 * k}\n" for k in range(6))
    Path("labels.csv").write_text(text)

    for labels in ("1", "node"):
        found = shards("labels.csv", labels=labels, target="y").encoding
        assert found.feature_names == ("a", "b")
        found = shards("labels.csv", labels=labels, problem="ppca").encoding
        assert found.feature_names == ("a", "y", "b")


@pytest.mark.mpi
@pytest.mark.parametrize("words", [("sparse.npz",), ("weighted.npz", "--weight", "w")])
def test_tables_over_mpi_are_those_of_one_process(words, tmp_path):
    np.savez("weighted.npz", X=X, y=Y, w=np.abs(Y))
    given = ("--problem", "ridge", "--quiet", "--data", *words, "--out")
    assert mpiexec(3, "-m", "dadmm.run", *given, "mpi", cwd=tmp_path).code == 0
    assert main([*given, "alone", "--nodes", "3"]) == 0

    many, one = arrays_of("mpi"), arrays_of("alone")
    for name in ("coef", "intercept"):
        assert_array_equal(many[name], one[name])


def test_a_run_is_not_resumed_with_other_categories(capsys):
    """Renamed categories leave the numbers as they were."""
    Path("x.csv").write_text(
        "a,y\n" + "".join(f"{'AB'[k % 2]},{k}\n" for k in range(9))
    )
    words = ["--problem", "ridge", "--data", "x.csv", "--nodes", "3", "--quiet"]
    assert main([*words, "--out", "run", "--max-iter", "3", "--tolerance", "0"]) == 0
    Path("x.csv").write_text(Path("x.csv").read_text().replace("B", "BB"))

    refused(capsys, "--resume", "run", "--max-iter", "9")


def test_ppca_of_a_sparse_table_is_that_of_the_dense_one():
    words = ["--n-components", "1", "--nodes", "3", "--quiet"]
    for source in ("sparse.npz", "last.npy"):
        assert main([*words, "--data", source, "--out", source[:4]]) == 0
    assert summary_of("spar")["scores"] == summary_of("last")["scores"]
    assert predict(["spar", "sparse.npz", "--out", "sparse.csv"]) == 0
    assert predict(["last", "last.npy", "--out", "dense.csv"]) == 0
    assert Path("sparse.csv").read_text() == Path("dense.csv").read_text()


def test_names_do_not_control_the_terminal(capsys):
    """Categories of other nodes are printed; so escape sequences are escaped."""
    words = ["a\x1b[2J", "b\nc", "d\x9b31m", "e\u202e", "f" * 500]
    rows = [f'"{word}",{k % 3}.5' for k, word in enumerate(words * 3)]
    for i in range(2):
        Path(f"odd-{i}.csv").write_text("\n".join(["c\x1b[31m,y", *rows]))
    given = ["--problem", "ridge", "--data", "odd-{rank}.csv", "--target", "y"]

    for more in (["--nodes", "2", "--out", "odd"], ["--dry-run"]):
        assert main([*given, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if not line.isprintable()] == []
        assert any("d\\x9b31m" in line for line in lines)
    assert max(map(len, Path("odd/summary.json").read_text().splitlines())) > 500


def test_weights_reach_a_problem_that_takes_them():
    Path("own.py").write_text(
        "from dadmm.problems import Ridge\n"
        "class Own(Ridge):\n"
        "    def __init__(self, X, y, alpha=1.0, sample_weight=None):\n"
        "        root = sample_weight[:, None] ** 0.5\n"
        "        y = root[:, 0] * y\n"
        "        super().__init__(root * X, y, alpha, fit_intercept=False)\n"
    )
    np.savetxt("w.csv", np.column_stack([X, np.abs(Y), Y]), header="a,b,c,w,y", **TEXT)
    assert main(["--problem", "own:Own", "--data", "w.csv", "--weight", "w", "--nodes",
                 "3", "--alpha", "1", "--tolerance", "1e-8", "--quiet",
                 "--out", "run"]) == 0  # fmt: skip

    V = np.abs(Y)[:, None]
    best = np.linalg.solve(X.T @ (V * X) + np.eye(3), X.T @ (V[:, 0] * Y))
    found = arrays_of("run")["coef"].mean(axis=0)
    assert_allclose(found, best, rtol=1e-4, atol=1e-6)
