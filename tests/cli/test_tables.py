"""Tables of a run: where columns are found, and files that are read block by block."""

from itertools import count
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy import sparse
from scipy.io import savemat

from dadmm.__main__ import main_of
from dadmm.cli import predict as predicting
from dadmm.cli import progress, setup
from dadmm.comm.world import Checks, World
from dadmm.core.errors import ShardError
from dadmm.data import encoding, files, shard
from dadmm.graphs.topology import Topology
from dadmm.models.model import Model, Origin, load_model
from dadmm.run import main
from dadmm.runs.config import RunConfig
from tests.support.runs import arrays_of, refused, run_job, summary_of

rng = np.random.default_rng(5)
X, Y = rng.standard_normal((12, 3)), rng.standard_normal(12)
NODES = np.arange(12) * 5 % 7 % 3
BOTH = np.column_stack([X, Y])
TEXT = {"delimiter": ",", "fmt": "%.17g", "comments": ""}


def write_forms():
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
    named = np.column_stack([X[:, :1], NODES, Y, X[:, 1:]])
    np.savetxt("nodes-named.csv", named, header="a,node,y,b,c", **TEXT)
    np.savez("nodes.npz", X=np.column_stack([NODES, X]), y=Y)
    for i, rows in enumerate(shard.split(BOTH, 3)):
        np.savez(f"part-{i}.npz", X=rows[:, :-1], y=rows[:, -1])


def shards(source, n_nodes=3, **settings):
    write_forms()
    config = RunConfig(**({"problem": "ridge", "data": source} | settings))
    load = setup.read_own if config.is_local else setup.share_file
    checks = Checks(world := World())
    data = load(world, config, Topology.ring(n_nodes), checks)
    checks.gather()
    return data


XS, ABC = "x0 x1 x2", "a b c"


@pytest.mark.parametrize(
    ("source", "target", "labels", "names"),
    [
        ("last.npy", None, None, XS), ("last.npy", "-1", None, XS),
        ("first.npy", "0", None, "x1 x2 x3"), ("last.csv", None, None, XS),
        ("head.csv", "price", None, ABC), ("named.npz", "y", None, XS),
        ("named.npz::X", None, None, XS), ("names.npz", None, None, "u v w"),
        ("named.mat", None, None, XS), ("one.npz", "3", None, XS),
        ("part-{rank}.npz", None, None, XS), ("sparse.npz", None, None, XS),
        ("x.parquet", None, None, ABC),
        ("last.npy", None, "nodes.npy", XS), ("named.npz", None, "nodes.npy", XS),
        ("first.npy", "0", "nodes.npy", "x1 x2 x3"),
        ("nodes.npz", None, "0", "x1 x2 x3"),
        ("nodes-last.csv", None, "-1", XS), ("nodes-last.csv", "3", "4", XS),
        ("nodes-named.csv", "y", "node", ABC), ("nodes-named.csv", "2", "1", ABC),
    ],
)  # fmt: skip
def test_target_and_labels_are_found(source, target, labels, names):
    data = shards(source, target=target, labels=labels)

    assert data.encoding.feature_names == tuple(names.split())
    for i, own in data.rows.items():
        expected = BOTH[i == NODES] if labels else shard.split(BOTH, 3)[i]
        assert sparse.issparse(own.X) == (source == "sparse.npz")
        found = own.X.toarray() if sparse.issparse(own.X) else own.X
        assert_array_equal(np.column_stack([found, own.y]), expected)
        assert found.flags.c_contiguous


def test_ppca_of_a_sparse_table_is_that_of_the_dense_one():
    write_forms()
    found = []
    for data in ("sparse.npz", "last.npy"):
        folder = run_job("--n-components", 1, "--nodes", 3, "--data", data, out=data[0])
        assert main_of("predict")([str(folder), data, "--out", f"{data}.csv"]) == 0
        found.append((summary_of(folder)["scores"], Path(f"{data}.csv").read_text()))

    assert found[0] == found[1]


def test_names_do_not_control_the_terminal(capsys):
    words = ["a\x1b[2J", "b\nc", "d\x9b31m", "e\u202e", "f" * 500]
    rows = [f'"{word}",{k % 3}.5' for k, word in enumerate(words * 3)]
    Path("odd.csv").write_text("\n".join(["c\x1b[31m,y", *rows]))
    given = ["--problem", "ridge", "--data", "odd.csv", "--target", "y"]

    for more in (["--nodes", "2", "--out", "odd"], ["--dry-run"]):
        assert main([*given, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if not line.isprintable()] == []
        assert any("d\\x9b31m" in line for line in lines)
    assert max(map(len, Path("odd/summary.json").read_text().splitlines())) > 500


WIDTH = 5
AXES = rng.standard_normal((2, WIDTH)) * [[3.0], [2.0]]
TABLE = rng.standard_normal((400, 2)) @ AXES + 0.3 * rng.standard_normal((400, WIDTH))
TABLE += np.arange(WIDTH)
WEIGHTS = np.where(np.arange(400) % 7, rng.random(400), 0.0)
HOLES = np.where(rng.random(TABLE.shape) < 0.01, np.nan, TABLE)


def save(file: str, rows: np.ndarray) -> str:
    if file.endswith(".npy"):
        np.save(file, rows)
    else:
        columns = {f"c{k}": column for k, column in enumerate(rows.T)}
        parquet.write_table(pyarrow.table(columns), file, row_group_size=30)
    return file


def make_small(monkeypatch) -> None:
    """Let blocks have 20 rows of 6 numbers, and pieces 7 rows."""
    monkeypatch.setattr(files, "BLOCK", 20 * 8 * (WIDTH + 1))
    monkeypatch.setattr(encoding, "PIECE", 7 * (WIDTH + 1))


@pytest.mark.parametrize(
    ("problem", "flags", "file"),
    [
        ("least_squares", "", "x.npy"),
        ("least_squares", "--weight -1 --target 4", "x.parquet"),
        ("ridge", "--standardise --no-fit-intercept", "x.npy"),
        ("lasso", "--alpha 5", "x.parquet"),
        ("ppca", "--n-components 2", "x.parquet"),
        ("ppca", "--n-components 2 --standardise", "x.npy"),
        ("ridge", "--on-missing drop", "x.npy"),
        ("ridge", "--on-missing mean", "x.parquet"),
        ("ppca", "--n-components 2 --on-missing drop", "x.npy"),
        ("ppca", "--n-components 2 --on-missing keep --max-iter 30", "x.parquet"),
    ],
)
def test_blocks_give_the_result_of_rows_in_memory(monkeypatch, problem, flags, file):
    rows = HOLES if "--on-missing" in flags else TABLE
    save(file, np.column_stack([TABLE, WEIGHTS]) if "--weight" in flags else rows)
    words = ("--problem", problem, "--data", file, *flags.split(), "--nodes", 3)
    words += ("--tolerance", 1e-10, "--topology", "ring")
    found = []
    for out in ("whole", "blocks"):
        folder = run_job(*words, out=out)
        found.append((load_model(folder), summary_of(folder)))
        make_small(monkeypatch)

    (whole, summary), (model, other) = found
    for name, part in whole.parameters.items():
        assert_allclose(model.parameters[name], part, rtol=1e-9, atol=1e-9)
    assert model.origin._replace(iterations=0) == whole.origin._replace(iterations=0)
    for name in ("scores", "standard_errors"):
        assert other[name] == pytest.approx(summary[name], rel=1e-9)
    for name in ("rows_by_node", "gaps"):
        assert other.get(name) == summary.get(name)


def test_a_run_says_what_it_reads(monkeypatch, capsys):
    monkeypatch.setattr(setup, "LARGE", 0)
    given = ["--problem", "ridge", "--data", save("x.npy", TABLE), "--nodes", "3"]
    assert main([*given, "--out", "run"]) == 0

    assert capsys.readouterr().out.startswith("reading x.npy, ")


def test_rows_of_a_large_file_are_not_kept(monkeypatch):
    make_small(monkeypatch)
    made = shards(save("x.npy", TABLE)).rows.values()

    for rows, expected in zip(made, shard.split(TABLE, 3), strict=True):
        assert isinstance(rows.X, encoding.RowBlocks)
        assert max(map(len, rows.X)) == 7 * 6 // 4  # there are 4 features
        assert_allclose(np.column_stack([rows.X.toarray(), rows.y]), expected)


@pytest.mark.parametrize(("value", "flag"), [(np.nan, "--on-missing"), (np.inf, "inf")])
def test_the_row_of_a_bad_entry_is_that_of_the_node(monkeypatch, capsys, value, flag):
    bad = TABLE.copy()
    bad[134 + 101, 2] = value  # of node 1
    make_small(monkeypatch)
    words = ("--problem", "ridge", "--data", save("x.npy", bad), "--nodes", 3)
    line = refused(capsys, *words, "--out", "run")

    assert all(word in line for word in ("node 1", "row 101", flag))


def test_a_node_maps_only_its_rows_of_an_npy_file(home, monkeypatch):
    """The memory map of each block is kept, to see which pages were touched."""
    kept, size = [], 2**26
    open_memmap = np.lib.format.open_memmap
    np.save("x.npy", np.ones((size // 64, 8)))
    monkeypatch.setattr(files, "BLOCK", size // 128)
    monkeypatch.setattr(
        np.lib.format, "open_memmap",
        lambda *given, **how: kept.append(open_memmap(*given, **how)) or kept[-1],
    )  # fmt: skip
    frames = shard.open_tables("x.npy", 16, [3], whole=False)[3]

    assert sum(frame.n_rows for frame in frames) == size // 64 // 16
    maps = Path("/proc/self/smaps").read_text().split(f"{home.resolve()}/x.npy\n")
    touched = [part.partition("Rss:")[2].split()[0] for part in maps[1:]]
    assert len(touched) >= len(kept) - 1 > 7
    assert sum(map(int, touched)) * 1024 < size // 2  # a sixteenth, and pages around it


def test_a_node_reads_only_its_row_groups_of_a_parquet_file(monkeypatch):
    save("x.parquet", TABLE)
    groups = parquet.ParquetFile("x.parquet").metadata
    content = bytearray(Path("x.parquet").read_bytes())
    for k in range(groups.num_row_groups):
        column = groups.row_group(k).column(0)
        if not 134 <= 30 * k + 29 < 267 + 29:
            start = column.dictionary_page_offset or column.data_page_offset
            content[start : start + 20] = b"\xff" * 20
    Path("x.parquet").write_bytes(content)
    make_small(monkeypatch)

    frames = [*shard.open_tables("x.parquet", 3, [1], whole=False)[1]]
    found = np.vstack([np.column_stack([*own.columns.values()]) for own in frames])
    assert_allclose(found, TABLE[134:267])
    assert [own.first for own in frames] == [0, 16, 46, 76, 106]
    with pytest.raises(ShardError, match="parquet"):
        [*shard.open_tables("x.parquet", 3, [2], whole=False)[2]]


def test_tables_with_text_are_not_cut(monkeypatch):
    table = pyarrow.table({"a": ["u", "v"] * 50, "b": range(100)})
    parquet.write_table(table, "x.parquet", row_group_size=10)
    monkeypatch.setattr(files, "BLOCK", 64)

    (frame,) = files.open_blocks("x.parquet", slice(20, 60), whole=False)
    assert frame.n_rows == 40


def test_weights_reach_a_problem_that_takes_them():
    np.savetxt("w.csv", np.column_stack([X, np.abs(Y), Y]), header="a,b,c,w,y", **TEXT)
    words = "--problem ridge --data w.csv --weight w --nodes 3 --alpha 1 "
    folder = run_job(*f"{words} --no-fit-intercept --tolerance 1e-8".split())

    V = np.abs(Y)[:, None]
    best = np.linalg.solve(X.T @ (V * X) + np.eye(3), X.T @ (V[:, 0] * Y))
    assert_allclose(arrays_of(folder)["coef"].mean(axis=0), best, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_many_rows_are_predicted_in_blocks_with_all_digits(kind, monkeypatch, capsys):
    own = encoding.Encoding({"x0": (), "x1": ()}, "y", ("no", "yes"))
    fit = {"coef": np.array([1.0, 2.0]), "intercept": np.array(0.1)}
    model = Model("logistic", own, fit, Origin("certified", "", 12, 1e-3, 90))
    model.save("model.json")
    np.save("rows.npy", X[:11, :2])
    np.savetxt("rows.csv", X[:11, :2], header="x0,x1", **TEXT)
    minutes = count(step=60)
    monkeypatch.setattr(predicting, "BLOCK", 4)
    monkeypatch.setattr(progress, "monotonic", lambda: next(minutes))
    monkeypatch.delenv("DADMM_PROGRESS", raising=False)

    assert main_of("predict")(["model.json", f"rows.{kind}", "--out", "out.csv"]) == 0
    header, *lines = Path("out.csv").read_text().splitlines()
    assert header == "prediction,p(no),p(yes)"
    labels, *odds = zip(*(line.split(",") for line in lines), strict=True)
    expected = model.predict_proba({"x0": X[:11, 0], "x1": X[:11, 1]}).T
    assert_array_equal(np.array(odds, float), expected)
    assert [name == "yes" for name in labels] == (expected[1] > 0.5).tolist()
    said = capsys.readouterr().err.splitlines()
    assert kind == "csv" or [line.split()[1] for line in said] == ["4/11", "8/11"]
