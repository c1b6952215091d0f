"""Tables of a run: where columns are found, what nodes agree on, and what is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
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


def test_arrays_of_other_names_are_found():
    data = shards("named.npz::rows", target="z")

    assert_array_equal(np.vstack([rows.X for rows in data.rows.values()]), 3 * X)
    assert_array_equal(np.hstack([rows.y for rows in data.rows.values()]), 2 * Y)


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


def test_a_parquet_file_is_read_by_rows():
    import pyarrow
    from pyarrow import parquet

    columns = dict(zip("abcy", BOTH.T, strict=True))
    parquet.write_table(pyarrow.table(columns), "x.parquet", row_group_size=5)
    data = shards("x.parquet")

    assert data.encoding.feature_names == ("a", "b", "c")
    for i, expected in enumerate(shard.split(BOTH, 3)):
        assert_array_equal(data.rows[i].X, expected[:, :-1])


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

WARDS = (["A", "B"], ["A"], ["A", "C"])


def hospitals() -> list[dict[str, list]]:
    """Return the columns of each file; None is a missing entry."""
    draw = np.random.default_rng(3)
    tables = []
    for i, wards in enumerate(WARDS):
        n = 20 + i
        age, ward = draw.integers(20, 80, n).tolist(), draw.choice(wards, n).tolist()
        sex = draw.choice(["F", "M"], n).tolist()
        ill = (np.array(age) + 20 * draw.standard_normal(n) > 50).tolist()
        for k in range(i):
            age[3 * k] = None
            sex[3 * k + 1] = None
        ill = ["yes" if one else "no" for one in ill]
        columns = {"age": age, "ward": ward, "sex": sex, "ill": ill}
        names = sorted(columns, reverse=i == 1)
        tables.append({name: columns[name] for name in names})
    return tables


def write_hospitals() -> None:
    for i, table in enumerate(hospitals()):
        rows = zip(*table.values(), strict=True)
        lines = [",".join("" if x is None else str(x) for x in row) for row in rows]
        Path(f"h-{i}.csv").write_text("\n".join([",".join(table), *lines, ""]))


WORDS = ("--problem", "logistic", "--data", "h-{rank}.csv", "--target", "ill",
         "--tolerance", "1e-8", "--quiet")  # fmt: skip


def result_of(folder: str) -> dict:
    return json.loads(Path(folder, "summary.json").read_text())


@pytest.mark.parametrize(
    ("on_missing", "rows"), [("drop", [[1, 2, 0], [2, 4, 0]]),
                             ("mean", [[1, 0, 2], [2, 0, 4]])],
)  # fmt: skip
def test_three_hospitals_equal_their_pooled_table(on_missing, rows, capsys):
    """Also standardised: then only the penalty differs, and here there is none."""
    linear = pytest.importorskip("sklearn.linear_model")
    write_hospitals()
    words = [*WORDS[:-1], "--on-missing", on_missing, "--nodes", "3", "--alpha", "0"]
    assert main([*words, "--out", "plain"]) == 0
    told = capsys.readouterr().out
    assert main([*words, "--standardise", "--out", "standard"]) == 0

    columns: dict[str, list] = {name: [] for name in ("age", "ward", "sex", "ill")}
    for table in hospitals():
        for name, values in table.items():
            columns[name] += values
    parts = [np.array([np.nan if x is None else x for x in columns["age"]], float)]
    for name, words in (("sex", "M"), ("ward", "BC")):
        for word in words:
            parts.append(
                np.array(
                    [np.nan if x is None else x == word for x in columns[name]], float
                )
            )
    pooled, y = np.column_stack(parts), np.array(columns["ill"])
    if on_missing == "drop":
        whole = ~np.isnan(pooled).any(axis=1)
        pooled, y = pooled[whole], y[whole]
    else:
        pooled = np.where(np.isnan(pooled), np.nanmean(pooled, axis=0), pooled)
    scale = pooled.std(axis=0)
    best = linear.LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    best.fit(pooled / scale, y)
    expected = [*(best.coef_[0] / scale), best.intercept_[0]]
    for folder in ("plain", "standard"):
        found = result_of(folder)
        names = ["age", "sex=M", "ward=B", "ward=C", "intercept"]
        assert list(found["coefficients"]) == names
        if folder == "plain":
            assert_allclose(list(found["coefficients"].values()), expected, rtol=1e-4)
        assert found["gaps"] == {"on_missing": on_missing, "nodes": rows}
    assert (
        f"6 rows with missing entries {'dropped' if on_missing == 'drop' else ''}"
        in told
    )
    assert "2 of node 1, 4 of node 2" in told


@pytest.mark.mpi
@pytest.mark.parametrize("more", [("drop",), ("mean", "--standardise")])
def test_hospitals_over_mpi_are_those_of_one_process(more, tmp_path):
    write_hospitals()
    words = [*WORDS, "--topology", "chain", "--on-missing", *more]
    assert mpiexec(3, "-m", "dadmm.run", *words, "--out", "mpi", cwd=tmp_path).code == 0
    assert main([*words, "--nodes", "3", "--out", "alone"]) == 0

    with np.load("mpi/result.npz") as many, np.load("alone/result.npz") as one:
        assert set(many.files) == set(one.files)
        for name in ("coef", "intercept", "feature_names"):
            assert_array_equal(many[name], one[name])
    assert result_of("mpi")["gaps"] == result_of("alone")["gaps"]


def test_ppca_of_a_sparse_table_is_that_of_the_dense_one():
    words = ["--n-components", "1", "--nodes", "3", "--quiet"]
    np.save("dense.npy", BOTH)
    for source in ("sparse.npz", "dense.npy"):
        assert main([*words, "--data", source, "--out", source[:5]]) == 0
    assert result_of("spars")["scores"] == result_of("dense")["scores"]
    again = predict(["spars", "sparse.npz", "--out", "sparse.csv"])
    assert again == predict(["dense", "dense.npy", "--out", "dense.csv"]) == 0
    assert Path("sparse.csv").read_text() == Path("dense.csv").read_text()


@pytest.mark.mpi
@pytest.mark.parametrize("source", ["all.csv", "sparse.npz"])
def test_a_single_file_over_mpi_is_that_of_one_process(source, tmp_path):
    if source == "all.csv":
        tables = hospitals()
        names = ("age", "ward", "sex", "ill")
        lines = [",".join(names)]
        for table in tables:
            for row in zip(*(table[name] for name in names), strict=True):
                lines.append(",".join("" if x is None else str(x) for x in row))
        Path("all.csv").write_text("\n".join(lines))
    problem = "logistic" if source == "all.csv" else "ridge"
    words = ["--problem", problem, "--data", source, "--quiet"]
    words += ["--on-missing", "mean"] if source == "all.csv" else []
    assert mpiexec(3, "-m", "dadmm.run", *words, "--out", "mpi", cwd=tmp_path).code == 0
    assert main([*words, "--nodes", "3", "--out", "alone"]) == 0

    with np.load("mpi/result.npz") as many, np.load("alone/result.npz") as one:
        assert_array_equal(many["coef"], one["coef"])
    assert result_of("mpi").get("gaps") == result_of("alone").get("gaps")


@pytest.mark.mpi
def test_a_conflict_over_mpi_is_one_sentence(tmp_path):
    write_hospitals()
    Path("h-2.csv").write_text("age,ill,sex,ward\nold,no,F,A\nyoung,yes,F,A\n")
    words = [*WORDS, "--on-missing", "drop"]
    ended = mpiexec(3, "-m", "dadmm.run", *words, cwd=tmp_path)

    assert ended.code == 2
    assert "column 'age' is text on node 2, but numbers on node 0; give" in ended.err
    assert "Traceback" not in ended.err


def test_a_dry_run_lists_names_and_categories_of_the_files_it_sees(capsys):
    write_hospitals()
    Path("h-1.csv").unlink()
    assert main([*WORDS[:-1], "--features", "sex,ward", "--on-missing", "drop",
                 "--dry-run"]) == 0  # fmt: skip
    out = capsys.readouterr().out

    assert '# - names of columns in h-0.csv: "sex", "ward", "ill"' in out
    assert '# - categories of \'ward\' in h-2.csv: "A", "C"' in out
    assert '# - classes of \'ill\' in h-0.csv: "no", "yes"' in out
    assert "h-1.csv" not in out
    assert "age" not in out.replace("messages", "").replace("average", "")
    assert main([*WORDS[:-1], "--dry-run"]) == 2
    assert "has no entry in 2 of 22 rows" in capsys.readouterr().err


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


def test_a_report_says_what_categories_and_classes_compare_with(capsys):
    write_hospitals()
    words = [*WORDS[:-1], "--on-missing", "drop", "--nodes", "3", "--out", "run"]
    assert main(words) == 0
    out = capsys.readouterr().out

    assert "\ncategories compare with sex=F, ward=A\n" in out
    assert "\na positive coefficient raises the probability of yes\n" in out
    assert result_of("run")["baseline"] == {"sex": "F", "ward": "A"}
    assert result_of("run")["positive_class"] == "yes"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nodes", "4"], "node 3: cannot read h-3.csv: No such file or directory; "
         "check the path and the number of nodes"),
        (["--nodes", "3", "--problem", "multinomial", "--problem-settings",
          '{"n_classes": 3}'], "n_classes is 3, but the target has 2 classes; leave"),
    ],
)  # fmt: skip
def test_numbers_of_nodes_and_classes_that_do_not_go_are_refused(
    words, sentence, capsys
):
    write_hospitals()
    assert main([*WORDS, "--on-missing", "drop", *words]) == 2

    assert sentence in capsys.readouterr().err


def test_a_single_file_is_checked_before_it_is_divided(capsys):
    """So rows are numbered as in the file, and a node with few rows does not matter."""
    Path("all.csv").write_text("a,y\n1,2\n3,4\n5,6\n,1\n")
    words = ["--problem", "ridge", "--data", "all.csv", "--nodes", "2", "--quiet"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "error: column 'a' has no entry in 1 of 4 rows, first in row 3; use" in told
    Path("all.csv").write_text("a,y\n1,2\n3,4\n5,6\n?,1\n")
    assert main([*words, "--on-missing", "drop"]) == 2

    assert "column 'a' has numbers, but '?' in row 3; leave" in capsys.readouterr().err


def test_a_run_is_not_resumed_with_other_categories(capsys):
    """Renamed categories leave the numbers as they were."""
    write_hospitals()
    words = [*WORDS, "--on-missing", "drop", "--nodes", "3", "--out", "run"]
    assert main([*words, "--max-iter", "3", "--checkpoint-every", "1"]) == 0
    for i in range(3):
        path = Path(f"h-{i}.csv")
        path.write_text(path.read_text().replace("A", "AA"))
    assert main(["--resume", "run", "--max-iter", "9"]) == 2

    assert "is of another table" in capsys.readouterr().err


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
