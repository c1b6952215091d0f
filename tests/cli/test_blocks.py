"""Files that are read block by block: equal to rows in memory, and own rows only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pytest
from numpy.testing import assert_allclose
from pyarrow import parquet

from dadmm.cli import setup, tables
from dadmm.core.errors import ShardError
from dadmm.data import encoding, files, shard
from dadmm.data.encoding import RowBlocks
from dadmm.models.model import load_model
from dadmm.run import main
from tests.support.runs import refused, summary_of

NODES, WIDTH = 3, 5
rng = np.random.default_rng(11)
AXES = rng.standard_normal((2, WIDTH)) * [[3.0], [2.0]]
TABLE = rng.standard_normal((400, 2)) @ AXES + 0.3 * rng.standard_normal((400, WIDTH))
TABLE += np.arange(WIDTH)
WEIGHTS = np.where(np.arange(400) % 7, rng.random(400), 0.0)
HOLES = np.where(rng.random(TABLE.shape) < 0.01, np.nan, TABLE)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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


def run(out: str, *words: str):
    """Return the model and the summary of a run."""
    flags = ["--nodes", str(NODES), "--tolerance", "1e-10", "--topology", "ring"]
    assert main([*words, *flags, "--out", out, "--quiet"]) == 0
    return load_model(out), summary_of(out)


CASES = [
    ("least_squares", []),
    ("least_squares", ["--weight", "-1", "--target", "4"]),
    ("least_squares", ["--no-fit-intercept"]),
    ("ridge", ["--standardise"]),
    ("lasso", ["--alpha", "5"]),
    ("ppca", ["--n-components", "2"]),
    ("ppca", ["--n-components", "2", "--standardise"]),
    *(("ridge", ["--on-missing", way]) for way in ("drop", "mean")),
    *(("ppca", ["--n-components", "2", "--on-missing", w]) for w in ("drop", "keep")),
]


@pytest.mark.parametrize("file", ["x.npy", "x.parquet"])
@pytest.mark.parametrize(("problem", "flags"), CASES)
def test_blocks_give_the_result_of_rows_in_memory(monkeypatch, file, problem, flags):
    """PPCA with gaps needs the rows that have them, and keeps all in memory."""
    rows = HOLES if "--on-missing" in flags else TABLE
    save(file, np.column_stack([TABLE, WEIGHTS]) if "--weight" in flags else rows)
    words = ["--problem", problem, "--data", file, *flags]
    whole, summary = run("whole", *words)
    make_small(monkeypatch)
    model, other = run("blocks", *words)

    for name, part in whole.parameters.items():
        assert_allclose(model.parameters[name], part, rtol=1e-9, atol=1e-9)
    assert model.origin[:2] == whole.origin[:2]
    assert model.origin.n_rows == whole.origin.n_rows
    for name in ("scores", "standard_errors"):
        assert other[name] == pytest.approx(summary[name], rel=1e-9)
    for name in ("rows_by_node", "gaps"):
        assert other.get(name) == summary.get(name)


def test_a_run_says_what_it_reads_and_keeps_no_rows(monkeypatch, capsys):
    made = []

    def note(config, data, n_nodes, own=setup.problems):
        made.extend(data.rows.values())
        return own(config, data, n_nodes)

    monkeypatch.setattr(tables, "LARGE", 0)
    monkeypatch.setattr(setup, "problems", note)
    make_small(monkeypatch)
    words = ["--problem", "ridge", "--data", save("x.npy", TABLE), "--nodes", "3"]
    assert main([*words, "--out", "run"]) == 0

    assert capsys.readouterr().out.startswith("reading x.npy, ")
    for rows, expected in zip(made, shard.split(TABLE, NODES), strict=True):
        assert isinstance(rows.X, RowBlocks)
        assert max(map(len, rows.X)) == 7 * 6 // 4  # there are 4 features
        assert_allclose(np.column_stack([rows.X.toarray(), rows.y]), expected)


@pytest.mark.parametrize(("value", "flag"), [(np.nan, "--on-missing"), (np.inf, "inf")])
def test_the_row_of_a_bad_entry_is_that_of_the_node(monkeypatch, capsys, value, flag):
    bad = TABLE.copy()
    bad[134 + 101, 2] = value  # of node 1
    make_small(monkeypatch)

    line = refused(capsys, "--problem", "ridge", "--data", save("x.npy", bad),
                   "--nodes", "3", "--out", "run")  # fmt: skip
    assert "node 1" in line
    assert "row 101" in line
    assert flag in line


def test_a_node_maps_only_its_rows_of_an_npy_file(monkeypatch):
    """The memory map of each block is kept, to see which pages were touched."""
    kept, size = [], 2**26
    open_memmap = np.lib.format.open_memmap
    rows = open_memmap("x.npy", "w+", np.float64, (size // 64, 8))
    rows[:] = 1.0
    rows.flush()
    del rows
    monkeypatch.setattr(files, "BLOCK", size // 128)
    monkeypatch.setattr(
        np.lib.format, "open_memmap",
        lambda *given, **how: kept.append(open_memmap(*given, **how)) or kept[-1],
    )  # fmt: skip
    frames = shard.open_tables("x.npy", 16, [3], whole=False)[3]

    assert sum(frame.n_rows for frame in frames) == size // 64 // 16
    assert len(kept) > 8
    maps = Path("/proc/self/smaps").read_text().split(f"{Path('x.npy').resolve()}\n")
    touched = [part.partition("Rss:")[2].split()[0] for part in maps[1:]]
    assert len(touched) >= len(kept) - 1
    assert sum(map(int, touched)) * 1024 < size // 2  # a sixteenth, and pages around it


def test_a_node_reads_only_its_row_groups_of_a_parquet_file(monkeypatch):
    """All other groups are damaged."""
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

    frames = [*shard.open_tables("x.parquet", NODES, [1], whole=False)[1]]
    found = np.vstack([np.column_stack([*own.columns.values()]) for own in frames])
    assert_allclose(found, TABLE[134:267])
    assert [own.first for own in frames] == [0, 16, 46, 76, 106]
    with pytest.raises(ShardError, match=r"x\.parquet"):
        [*shard.open_tables("x.parquet", NODES, [2], whole=False)[2]]


def test_tables_with_text_are_not_cut(monkeypatch):
    table = pyarrow.table({"a": ["u", "v"] * 50, "b": range(100)})
    parquet.write_table(table, "x.parquet", row_group_size=10)
    monkeypatch.setattr(files, "BLOCK", 64)

    (frame,) = files.open_blocks("x.parquet", slice(20, 60), whole=False)
    assert frame.n_rows == 40
