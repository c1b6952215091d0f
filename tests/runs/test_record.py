"""What a run remembers: blocks of rows, part files, their merging, and histories."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dadmm import Topology
from dadmm.core.errors import OutputError
from dadmm.run import main
from dadmm.runs import row_files
from dadmm.runs.folder import RunFolder
from dadmm.runs.row_files import PartFile, Stride, merged, sealed, write_rows
from dadmm.runs.stored import StoredRun
from dadmm.solver.checkpoint import NodeFailure
from dadmm.solver.rows import Recorder, RowBuffer
from tests.support.problems import quadratics
from tests.support.runs import TINY, run_job, run_of


@pytest.mark.parametrize(
    ("shape", "seconds", "firsts"), [((2**14, 4), 1e9, [1, 5]), ((1, 1), -1.0, [1, 2])]
)
def test_a_buffer_hands_over_full_and_old_blocks(shape, seconds, firsts, monkeypatch):
    """Four of the larger rows are 2**18 numbers."""
    given = {}
    keep = lambda first, block: given.update({first: block[:, 0, 0].tolist()})  # noqa: E731
    monkeypatch.setattr("dadmm.solver.rows.MOST_SECONDS", seconds)
    buffer = RowBuffer(SimpleNamespace(append=keep))
    for t in range(1, 10 if seconds > 0 else 4):
        buffer.next_rows(*shape)[...] = t

    assert [*given] == firsts
    assert all(block == [*range(k, k + len(block))] for k, block in given.items())


def test_parts_merge_by_iteration_then_node(tmp_path):
    """Whatever the blocks in which a process wrote its rows."""
    header, parts = ("iteration", "node", "x"), []
    for at_once, own in ((3, [0, 1]), (5, [2]), (12, [3, 4, 10])):
        parts.append(tmp_path / f"{at_once}.csv")
        part = PartFile(parts[-1], [(i,) for i in own], header, Stride())
        block = 100.0 * np.arange(1, 13)[:, None, None] + np.array(own)[:, None]
        for first in range(0, 12, at_once):
            part.append(first + 1, block[first : first + at_once])
        part.close()
    write_rows(tmp_path / "all.csv", header, merged(parts, tmp_path / "no such file"))

    found = np.loadtxt(tmp_path / "all.csv", delimiter=",", skiprows=1)
    nodes = (0, 1, 2, 3, 4, 10)
    expected = [(t, i, 100 * t + i) for t in range(1, 13) for i in nodes]
    assert_array_equal(found, expected)


def seal(part, rows, rest=""):
    lines = [sealed(row.encode()) for row in rows.split()]
    part.write_bytes(b"".join(lines) + rest.encode())


def test_rows_of_the_dead_and_lines_cut_short_are_left_out(tmp_path):
    seal(tmp_path / "a.csv", "3,0,2,a 3,0,1,b 4,0,2,c", "4,0")
    seal(tmp_path / "c.csv", "3,2,0,d 3,2,1,e 4,2,0,f")
    (tmp_path / "old.csv").write_text("?\n1,0,1,g\n2,0,2,h\n2,12,0,i\n3,0,2,j\n")
    parts, header = [tmp_path / "a.csv", tmp_path / "c.csv"], ("iteration", "i", "j")
    rows = merged(parts, tmp_path / "old.csv")
    write_rows(tmp_path / "all.csv", header, rows, [0, 2])

    assert (tmp_path / "all.csv").read_text().split() == [
        "iteration,i,j", "2,0,2,h", "3,0,2,a", "3,2,0,d", "4,0,2,c", "4,2,0,f",
    ]  # fmt: skip


def test_a_damaged_row_is_noticed_unless_it_is_left_out(tmp_path):
    seal(tmp_path / "a.csv", "3,0,1.5 4,0,2.5 5,0,3.5")
    data = (tmp_path / "a.csv").read_bytes()
    (tmp_path / "a.csv").write_bytes(data.replace(b"4,0,2.5", b"4,0,2.6"))
    parts, before = [tmp_path / "a.csv"], tmp_path / "none"

    assert list(merged(parts, before, 3)) == [b"3,0,1.5\n"]
    with pytest.raises(OutputError, match=r"a\.csv"):
        list(merged(parts, before))


def test_a_resumed_run_that_loses_nodes_goes_back_by_the_right_rows():
    """Its first row is that of the iteration after the one from which it goes on."""
    run = run_of(quadratics(2), Topology.chain(2), max_iter=1)
    recorder = Recorder(run, {}, True, True, start=100)
    kept = np.array([True, False])
    loss = NodeFailure(105, (1,), ((0,),), (0,), kept, kept)
    for t in range(101, 111):
        run.work.eta_mean[:] = [t, -t]
        recorder(t, run)
    recorder.rewind(loss)
    history = recorder.history(recorder.tables())

    assert_array_equal(history["eta"], np.arange(101, 106)[:, None])
    assert history.edges["eta"].shape == (5, 1)


@pytest.fixture
def short(monkeypatch):
    """Let files of rows be thinned after a few iterations."""
    monkeypatch.setattr(row_files, "MOST_BYTES", 10 * 3 * row_files.NODE_BYTES)


def run_to(folder, iterations, *words):
    more = ("--max-iter", str(iterations), "--record-edges", *words)
    if "--resume" not in words:
        more = (*TINY, *more, "--out", str(folder))
    assert main([*map(str, more)]) == 0
    return StoredRun.read(folder)


def test_rows_of_a_long_run_are_thinned_and_add_up(short, tmp_path, monkeypatch):
    """Also of a run that is resumed, twice, after a stop between two rows.

    What is in both files is the same, and sums of bytes and messages are kept.
    """
    folder = tmp_path / "resumed"
    run_to(folder, 45)
    run_to(folder, 77, "--resume", folder)
    resumed = run_to(folder, 97, "--resume", folder)
    found = run_to(tmp_path / "thin", 97)
    monkeypatch.setattr(row_files, "MOST_BYTES", 10**9)
    whole = run_to(tmp_path / "whole", 97)

    assert_array_equal(whole.iterations, np.arange(1, 98))
    assert found.summary["record_every"] == 16
    rows = np.array([*range(16, 97, 16), 97]) - 1
    for thin in (found, resumed):
        assert_array_equal(thin.iterations, rows + 1)
        for name in ("objective", "primal", "eta"):
            assert_array_equal(thin.column(name), whole.column(name)[rows])
        assert_array_equal(thin.eta, whole.eta[rows])
        for name in ("messages", "bytes"):
            running = whole.column(name).cumsum(axis=0)[rows]
            assert_array_equal(thin.column(name).cumsum(axis=0), running)
        edges = thin.edge_column("bytes").cumsum(axis=0)
        assert_array_equal(edges, whole.edge_column("bytes").cumsum(axis=0)[rows])


def test_rows_of_every_nth_iteration(tmp_path):
    found = run_to(tmp_path / "run", 23, "--record-every", 5)

    assert_array_equal(found.iterations, [5, 10, 15, 20, 23])
    sent = found.column("messages").sum(axis=0)
    assert_array_equal(sent, 23 * found.topology.degrees)


@pytest.mark.parametrize("payload", ["float64", "quantised:4"])
@pytest.mark.parametrize("scheme", ["snap", "nap"])
def test_messages_without_payload_are_known_by_their_bytes(tmp_path, payload, scheme):
    words = ("--censor", 0.5, "--payload", payload, "--scheme", scheme)
    found = run_to(tmp_path / "run", 40, *words)

    silent = ~found.has_payload & (found.edge_column("bytes") > 0)
    assert 0 < silent.sum() == found.summary["silent_messages"]


def test_a_file_of_rows_stays_below_its_limit(tmp_path, monkeypatch):
    """With rows as wide as a run of many digits has them."""
    monkeypatch.setattr(row_files, "MOST_BYTES", 50 * row_files.NODE_BYTES)
    header = row_files.HISTORY
    part, widest = PartFile(tmp_path / "a.csv", [(0,)], header, Stride(1, 1)), 0
    for t in range(1, 2_001):
        part.append(t, np.full((1, 1, len(header) - 2), -t / 7e-300))
        widest = max(widest, (tmp_path / "a.csv").stat().st_size)
    part.close()

    assert widest < 2 * 50 * row_files.NODE_BYTES
    last = (tmp_path / "a.csv").read_text().splitlines()[-1]
    assert last.startswith("2000,0,")


def test_merged_rows_are_read_if_a_run_died_while_it_removed_its_parts(tmp_path):
    folder = run_job(
        "--nodes", 3, "--max-iter", 4, "--tolerance", 0, out=tmp_path / "run"
    )
    before = StoredRun.read(folder).history
    rows = (folder / "history.csv").read_bytes().splitlines()[1:]
    left = [sealed(row) for row in rows if row.split(b",")[1] == b"1"]
    (folder / "parts").mkdir()
    (folder / "parts" / "history-00001.csv").write_bytes(b"".join(left))
    found = RunFolder.open(folder)
    found.names |= {"parts/", "parts/history-#.csv"}
    found.save()

    assert_array_equal(StoredRun.read(folder).history["primal"], before["primal"])
