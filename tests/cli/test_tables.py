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
from dadmm.core.errors import ShardError
from dadmm.data import shard
from dadmm.graphs.topology import Topology
from dadmm.predict import main as predict
from dadmm.run import main
from dadmm.runs.config import RunConfig
from tests.support.processes import mpiexec
from tests.support.runs import refused, summary_of

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
    np.savetxt("head.txt", BOTH[:, [0, 3, 1, 2]], fmt="%.17g", header="a y b c",
               comments="")  # fmt: skip
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
        np.save(f"part-{i}.npy", rows)
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
        ("last.npy", None, "x0 x1 x2"), ("last.npy", "3", "x0 x1 x2"),
        ("last.npy", "-1", "x0 x1 x2"), ("first.npy", "0", "x1 x2 x3"),
        ("last.csv", None, "x0 x1 x2"), ("head.csv", "1", "a b c"),
        ("head.csv", "price", "a b c"), ("head.txt", "y", "a b c"),
        ("named.npz", None, "x0 x1 x2"), ("named.npz", "y", "x0 x1 x2"),
        ("named.npz::X", None, "x0 x1 x2"), ("names.npz", None, "u v w"),
        ("named.mat", None, "x0 x1 x2"), ("one.npz", "3", "x0 x1 x2"),
        ("one.npz::table", "-1", "x0 x1 x2"), ("part-{rank}.npy", None, "x0 x1 x2"),
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


@pytest.mark.parametrize(
    ("settings", "culprits"),
    [
        ({"data": "last.csv", "target": "price"}, "'price'|0..3"),
        ({"data": "head.csv", "target": "prize"}, "'prize'|'price'"),
        ({"data": "last.npy", "target": "4"}, "'4'"),
        ({"data": "named.npz", "target": "w"}, "named.npz|'w'|X, y, z, rows"),
        ({"data": "one.npz"}, "one.npz|'X'|table"),
        ({"data": "nodes.npy"}, "nodes.npy"),
        ({"data": "nodes-last.csv", "target": "4", "labels": "4"}, "labels|target"),
        ({"data": "nodes.npz", "labels": "-1"}, "'y'|labels|target"),
        ({"data": "last.npy", "labels": "9"}, "'9'|labels"),
        ({"data": "last.npy", "labels": "nowhere.npy"}, "nowhere.npy"),
        ({"data": "part-{rank}.npz", "labels": "0"}, "labels"),
        ({"data": "wide.csv", "target": "colum7"}, "'column7', "),
    ],
)
def test_columns_that_are_not_there_are_refused(settings, culprits):
    np.savetxt(
        "wide.csv", BOTH.T, header=",".join(f"column{k}" for k in range(12)), **TEXT
    )
    with pytest.raises(ShardError) as caught:
        shards(settings.pop("data"), **settings)

    for word in culprits.split("|"):
        assert word in str(caught.value)


# three hospitals whose files differ in order, categories and gaps

NAMES = ("age", "ward", "sex", "ill")
WORDS = ("--problem", "logistic", "--data", "h-{rank}.csv", "--target", "ill",
         "--tolerance", "1e-8", "--alpha", "0", "--nodes", "3")  # fmt: skip


def hospitals() -> list[dict[str, list]]:
    """Return the columns of each file; None is a missing entry."""
    draw = np.random.default_rng(3)
    tables = []
    for i, wards in enumerate((["A", "B"], ["A"], ["A", "C"])):
        n = 20 + i
        age, ward = draw.integers(20, 80, n).tolist(), draw.choice(wards, n).tolist()
        sex = draw.choice(["F", "M"], n).tolist()
        ill = np.array(age) + 20 * draw.standard_normal(n) > 50
        for k in range(i):
            age[3 * k] = sex[3 * k + 1] = None
        columns = (age, ward, sex, np.where(ill, "yes", "no").tolist())
        tables.append(dict(zip(NAMES, columns, strict=True)))
    return tables


def write(path: str, table: dict[str, list], *, backwards: bool = False) -> None:
    names = sorted(table, reverse=backwards)
    rows = zip(*(table[name] for name in names), strict=True)
    lines = [",".join("" if x is None else str(x) for x in row) for row in rows]
    Path(path).write_text("\n".join([",".join(names), *lines, ""]))


@pytest.fixture
def pooled():
    """Write the files of three hospitals, and all of their rows in another."""
    tables = hospitals()
    for i, table in enumerate(tables):
        write(f"h-{i}.csv", table, backwards=i == 1)
    found = {name: [x for table in tables for x in table[name]] for name in NAMES}
    write("all.csv", found)
    return found


@pytest.mark.parametrize(
    ("on_missing", "gaps"), [("drop", [[1, 2, 0], [2, 4, 0]]),
                             ("mean", [[1, 0, 2], [2, 0, 4]])],
)  # fmt: skip
def test_three_hospitals_equal_their_pooled_table(on_missing, gaps, pooled, capsys):
    """The report says what was done to gaps, and what coefficients compare with."""
    linear = pytest.importorskip("sklearn.linear_model")
    assert main([*WORDS, "--on-missing", on_missing, "--out", "run"]) == 0
    told = capsys.readouterr().out

    parts = [[np.nan if x is None else x for x in pooled["age"]]]
    for name, word in (("sex", "M"), ("ward", "B"), ("ward", "C")):
        parts.append([np.nan if x is None else x == word for x in pooled[name]])
    X, y = np.array(parts, float).T, np.array(pooled["ill"])
    if on_missing == "drop":
        whole = ~np.isnan(X).any(axis=1)
        X, y = X[whole], y[whole]
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    scale = X.std(axis=0)
    best = linear.LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    best.fit(X / scale, y)
    expected = [*(best.coef_[0] / scale), best.intercept_[0]]
    found = summary_of("run")
    names = ["age", "sex=M", "ward=B", "ward=C", "intercept"]
    assert list(found["coefficients"]) == names
    assert_allclose(list(found["coefficients"].values()), expected, rtol=1e-4)
    assert found["gaps"] == {"on_missing": on_missing, "nodes": gaps}
    assert found["baseline"] == {"sex": "F", "ward": "A"}
    assert found["positive_class"] == "yes"
    for words in ("2 of node 1, 4 of node 2", "sex=F, ward=A", "probability of yes"):
        assert words in told


def both(words, tmp_path):
    """Run a job on three ranks and in one process; return both results."""
    given = [*words, "--quiet", "--out"]
    ranks = [word for word in given if word not in ("--nodes", "3")]
    assert mpiexec(3, "-m", "dadmm.run", *ranks, "mpi", cwd=tmp_path).code == 0
    assert main([*given, "alone"]) == 0
    assert summary_of("mpi").get("gaps") == summary_of("alone").get("gaps")
    return np.load("mpi/result.npz"), np.load("alone/result.npz")


@pytest.mark.mpi
@pytest.mark.parametrize(
    "words",
    [
        (*WORDS, "--topology", "chain", "--on-missing", "mean", "--standardise"),
        (*WORDS, "--on-missing", "mean", "--data", "all.csv"),
        ("--problem", "ridge", "--data", "sparse.npz", "--nodes", "3"),
        ("--problem", "ridge", "--data", "weighted.npz", "--weight", "w", "--nodes",
         "3"),
    ],
    ids=["own files", "one file", "sparse", "weighted"],
)  # fmt: skip
def test_tables_over_mpi_are_those_of_one_process(words, pooled, tmp_path):
    np.savez("weighted.npz", X=X, y=Y, w=np.abs(Y))
    many, one = both(words, tmp_path)

    assert set(many.files) == set(one.files)
    for name in {"coef", "intercept", "feature_names"} & {*one.files}:
        assert_array_equal(many[name], one[name])


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


def test_a_run_is_not_resumed_with_other_categories(pooled, capsys):
    """Renamed categories leave the numbers as they were."""
    words = [*WORDS, "--on-missing", "drop", "--quiet", "--out", "run"]
    assert main([*words, "--max-iter", "3", "--checkpoint-every", "1"]) == 0
    for i in range(3):
        path = Path(f"h-{i}.csv")
        path.write_text(path.read_text().replace("A", "AA"))

    assert "another table" in refused(capsys, "--resume", "run", "--max-iter", "9")


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
    with np.load("run/result.npz") as found:
        assert_allclose(found["coef"].mean(axis=0), best, rtol=1e-4, atol=1e-6)
