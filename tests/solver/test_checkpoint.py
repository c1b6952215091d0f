"""A run that was ended goes on as if it had not, or says why it cannot."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm.run
from dadmm import Schedule, Sending, Topology
from dadmm.core.errors import CheckpointError
from dadmm.data import datasets, shard
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA
from dadmm.runs import row_files
from dadmm.runs.folder import RunFolder
from dadmm.solver import checkpoint
from dadmm.solver.checkpoint import Checkpoints
from tests.support.runs import history_of, refused, summary_of
from tests.support.solving import solve

RING = Topology.ring(6)
BLOCKS = shard.split(datasets.synthetic(120, 8, 2, 0.2, 0)[0], 6)
SENDING = {
    "everything": Sending(),
    "float32": Sending(payload="float32"),
    "quantised": Sending(payload="quantised:4"),
    "censored": Sending(censor=1e-2),
    "every": Sending(send_every=3),
    "asleep": Sending(edge_sleep=0.95),  # a third of the edges, by turns
    "all": Sending(payload="quantised:5", censor=1e-2, send_every=2, edge_sleep=0.9),
    "lossy": Sending(drop_probability=0.3),
}
SCHEDULES = {"always": None, "matchings": Schedule.matchings(RING)}


def ppca(**settings):
    """Run D-PPCA on the ring, not quite to its end."""
    problems = [PPCA(block, 2) for block in BLOCKS]
    return solve(problems, RING, **({"max_iter": 45, "init": "shared"} | settings))


def assert_same(whole, again, since):
    """Compare all numbers of two runs, of which the second has rows since then."""
    assert (again.iterations, again.reason) == (whole.iterations, whole.reason)
    assert_array_equal(again.theta, whole.theta)
    assert_array_equal(again.eta, whole.eta)
    for mine, other in zip(again.penalties, whole.penalties, strict=True):
        assert_array_equal(mine, other)
    assert_array_equal(again.objectives, whole.objectives)
    assert_array_equal(again.ending.trail, whole.ending.trail)
    words = [run.ending.words(converged=run.converged) for run in (again, whole)]
    assert words[0] == words[1]
    for name, count in again.traffic._asdict().items():
        if not name.startswith("tree"):  # the set-up is not repeated
            assert_array_equal(count, getattr(whole.traffic, name))
    for column in ("objective", "primal", "dual", "residual", "quiet", "bytes"):
        assert_array_equal(again.history[column], whole.history[column][since:])


WAYS = list(SENDING)


@pytest.mark.parametrize(
    ("scheme", "how", "coordinates"),
    [(name, WAYS[0], "units") for name in SCHEMES]
    + [("snap", how, "units") for how in WAYS[1:-1]]
    + [("fixed", "lossy", "raw"), *(("vp_nap", how, "raw") for how in WAYS[:-1:2])],
)
def test_a_resumed_run_has_the_bits_of_a_whole_one(tmp_path, scheme, how, coordinates):
    odd = (len(scheme) + len(how)) % 2
    settings = {"scheme": scheme, "sending": SENDING[how], "tolerance": 0}
    settings["coordinates"] = coordinates
    settings["schedule"] = SCHEDULES["matchings" if odd else "always"]
    at = 17 + len(how)

    whole = ppca(**settings)

    assert (whole.traffic.lost > 0) == (how == "lossy")
    ppca(checkpoints=Checkpoints(tmp_path), **(settings | {"max_iter": at}))
    again = ppca(checkpoints=Checkpoints(tmp_path, resume=True), **settings)
    assert_same(whole, again, at)


@pytest.mark.parametrize(
    ("stopping", "agreement", "before", "every"),
    [("optimality", "neighbours", *cut) for cut in ((1, 1), (6, 1), (13, 3), (15, 3))]
    + [("residuals", "neighbours", 6, 1), ("objective", "neighbours", 13, 3)]
    + [("residuals", "global", 1, 1), ("objective", "global", 6, 1)],
)
def test_a_resumed_run_converges_when_it_would_have(
    tmp_path, stopping, agreement, before, every
):
    """Wherever it was cut, also between the verdict and the end that follows."""
    scheme = "global_balance" if agreement == "global" else "snap"
    settings = {"stopping": stopping, "agreement": agreement, "scheme": scheme}
    settings["sending"] = Sending(send_every=every)
    settings |= {"max_iter": 1500, "tolerance": 0.1, "t_max": 8}
    whole = ppca(**settings)
    at = whole.iterations - before
    ppca(**{**settings, "max_iter": at}, checkpoints=Checkpoints(tmp_path))
    again = ppca(**settings, checkpoints=Checkpoints(tmp_path, resume=True))

    assert whole.converged
    assert_same(whole, again, at)


def test_saving_changes_nothing_and_the_last_two_are_kept(tmp_path):
    """By count every seventh, by the clock every other round, and at the end."""
    settings = {"tolerance": 0, "max_iter": 60}
    whole, clock = ppca(**settings), tmp_path / "clock"
    ppca(**settings, checkpoints=Checkpoints(tmp_path, every=7, saves=False))
    assert list(tmp_path.iterdir()) == []
    by_count = ppca(**settings, checkpoints=Checkpoints(tmp_path, every=7))
    by_clock = ppca(**settings, checkpoints=Checkpoints(clock, seconds=1e-9))

    assert_same(whole, by_count, 0)
    assert_same(whole, by_clock, 0)
    assert checkpoint.kept(tmp_path) == [56, 60]
    assert checkpoint.kept(clock) == [54, 60]


def test_an_incomplete_checkpoint_is_passed_over(tmp_path):
    whole = ppca(tolerance=0)
    ppca(tolerance=0, max_iter=30, checkpoints=Checkpoints(tmp_path, every=8))
    checkpoint.path_of(tmp_path, 30, 4).unlink()

    again = ppca(tolerance=0, checkpoints=Checkpoints(tmp_path, resume=True))

    assert_same(whole, again, 24)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoint of iteration 20."""
    folder = tmp_path_factory.mktemp("saved")
    ppca(tolerance=0, max_iter=20, checkpoints=Checkpoints(folder))
    return folder


@pytest.fixture
def run(saved, tmp_path):
    """A copy of it."""
    shutil.copytree(saved, tmp_path / "run")
    return tmp_path / "run"


def assert_refused(folder, culprit, **settings):
    settings = {"tolerance": 0} | settings
    with pytest.raises(CheckpointError, match=culprit):
        ppca(checkpoints=Checkpoints(folder, resume=True), **settings)


def changed(name, change):
    """Return a change of one array, None to leave it out."""

    def apply(about, arrays):
        rest = {key: value for key, value in arrays.items() if key != name}
        return about, rest if change is None else rest | {name: change(arrays[name])}

    return apply


FILES = [  # what is changed in the file of node 5, and what the error names
    *((changed(name, None), "00000020") for name in ("theta", "penalty/eta", "eta")),
    (changed("theta", lambda own: own[:0]), "00000020"),
    (changed("stopping", lambda own: own[None]), "00000020"),
    (changed("eta", lambda own: own.astype(str)), "00000020"),
    (lambda about, arrays: (["x"], arrays), "00000020"),
    (lambda about, arrays: ({}, {"theta": np.array([None])}), "00000020"),
    (lambda about, arrays: (about | {"format": 2}, arrays), "format 2"),
    (lambda about, arrays: (about | {"node": 1}, arrays), "another node"),
    (lambda about, arrays: (about | {"version": "0"}, arrays), "another version"),
]


@pytest.mark.parametrize(("change", "culprit"), FILES)
def test_what_is_not_of_this_run_is_refused(run, change, culprit):
    """Its checksum is right."""
    file = checkpoint.path_of(run, 20, 5)
    checkpoint.write(file, *change(*checkpoint.read(file)))
    assert_refused(run, culprit)


def test_files_that_are_not_there_are_named(run, tmp_path):
    assert_refused(tmp_path / "none", "none")
    checkpoint.path_of(run, 20, 3).unlink()
    assert_refused(run, "node 3")


def test_a_damaged_file_is_noticed(run):
    file, rng = checkpoint.path_of(run, 20, 5), np.random.default_rng(0)
    whole = file.read_bytes()
    damaged = [whole[:length] for length in (0, 3, 4, 100, -1, -5)]
    for _ in range(10):
        data = bytearray(whole)
        data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        damaged.append(bytes(data))
    for data in damaged:
        file.write_bytes(data)
        assert_refused(run, "node-00005.npz is damaged")


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"eta0": 11.0}, "configuration"),
        ({"sending": Sending(payload="float32")}, "configuration"),
        ({"schedule": SCHEDULES["matchings"]}, "graph"),
        ({"max_iter": 19}, "max_iter"),
    ],
)
def test_another_run_is_refused(run, change, culprit):
    assert_refused(run, culprit, **change)


def main(*words):
    return dadmm.run.main([str(word) for word in words])


COMMON = ("--topology", "ring", "--nodes", 5, "--n-samples", 60, "--dimension", 6)
COMMON += ("--init", "shared")
ENDLESS = (*COMMON, "--tolerance", 0, "--quiet")


@pytest.fixture(autouse=True)
def current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def assert_same_files(edges=False):
    """Assert that run has the results and rows of whole."""
    found, wanted = (dict(np.load(f"{name}/result.npz")) for name in ("run", "whole"))
    assert found.keys() == wanted.keys()
    for name in wanted.keys() - {"tree_messages", "tree_bytes"}:  # of the last session
        assert_array_equal(found[name], wanted[name], strict=True)
    if edges:
        assert (
            Path("run/edges.csv").read_bytes() == Path("whole/edges.csv").read_bytes()
        )
    assert history_of("run") == history_of("whole")


def test_a_command_line_goes_on_in_the_same_folder(capsys):
    common = (*ENDLESS, "--record-edges", "--record-angle", "--max-iter")
    main(*common, 50, "--out", "whole")
    main(*common, 20, "--out", "run")
    assert main("--resume", "run", "--max-iter", 33) == 0
    assert main("--resume", "run", "--max-iter", 50) == 0

    assert_same_files(edges=True)
    assert checkpoint.kept(Path("run")) == [33, 50]
    for key in ("iterations", "reason", "messages", "bytes", "metrics"):
        assert summary_of("run")[key] == summary_of("whole")[key]


def test_rows_of_several_sessions_add_up():
    """Killed over MPI, where each node has a part, and in one process, which has one.

    The second time after a save, so that rows of all three sessions are needed.
    """
    common = (*ENDLESS, "--max-iter", 60)
    main(*common, "--out", "whole")
    with pytest.raises(KeyboardInterrupt):
        killed_after(34, *common, "--checkpoint-every", 15, "--out", "run")
    lines = Path("run/parts/history-00000.csv").read_text().splitlines(keepends=True)
    for i in range(5):
        own = [line for line in lines if line.split(",")[1] == str(i)]
        half = own[-1][:9] if i == 3 else ""  # of a line
        Path(f"run/parts/history-{i:05d}.csv").write_text("".join(own) + half)
    list_as_over_mpi()
    with pytest.raises(KeyboardInterrupt):
        killed_after(50, "--resume", "run")

    assert main("--resume", "run") == 0

    assert summary_of("run")["resumed_after"] == 45
    assert_same_files()


def test_the_seconds_of_a_resumed_run_are_of_its_last_session(capsys, monkeypatch):
    clock = itertools.count()  # every phase takes one second
    monkeypatch.setattr(dadmm.admm.clock, "perf_counter", lambda: next(clock))
    main(*ENDLESS, "--max-iter", 20, "--out", "run")
    first = summary_of("run")["seconds"]
    assert main("--resume", "run", "--max-iter", 23, "--no-quiet") == 0
    last = summary_of("run")["seconds"]

    for name in ("solve", "exchange", "update"):
        assert first["of_all_sessions"][name] == first[name]
        assert last[name] == pytest.approx(3 / 20 * first[name])
        assert last["of_all_sessions"][name] == pytest.approx(first[name] + last[name])
    assert "iteration 20" in capsys.readouterr().out


def list_as_over_mpi():
    """List the files of a run of five ranks, as when it began."""
    own = RunFolder.open(Path("run")).run
    RunFolder(Path("run"), 5, run=own).save()


def killed_after(t, *words):
    def kill(self, now, run):
        record(self, now, run)
        if now == t:
            self.sync()
            raise KeyboardInterrupt

    record = row_files.RowFiles.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_files.RowFiles, "__call__", kill)
        main(*words)


def test_what_cannot_be_resumed_is_told_and_nothing_is_lost(capsys):
    main(*COMMON, "--quiet", "--checkpoint-every", 50, "--out", "done")
    assert not Path("done/checkpoints").exists()
    main(*COMMON, "--quiet", "--max-iter", 9, "--out", "run")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    again = ("--resume", "run", "--max-iter", 20)
    for culprit, *words in (
        ("done", "--resume", "done"),
        ("none", "--resume", "none"),
        ("--max-iter", "--resume", "run"),
        ("--eta0", *again, "--eta0", 3),
        ("--compare-centralised", *again, "--no-compare-centralised"),  # a column less
        ("--out", *again, "--out", "x"),
        ("--nodes", *again, "--nodes", 7),
        ("--overwrite", *again, "--overwrite"),
    ):
        assert culprit in refused(capsys, *words)
    file = checkpoint.path_of(Path("run"), 9, 2)
    file.write_bytes(b"")
    assert str(file) in refused(capsys, *again)
    file.write_bytes(before[file])
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert after == before


def test_rows_of_a_node_that_are_not_there_are_missed(capsys):
    main(*ENDLESS, "--max-iter", 20, "--out", "run")
    Path("run/parts").mkdir()
    lines = Path("run/history.csv").read_bytes().splitlines()[1:]
    for name in ("history.csv", "summary.json", "result.npz"):  # as after a kill
        Path("run", name).unlink()
    for node in range(5):
        own = [line for line in lines if line.split(b",")[1] == b"%d" % node]
        part = Path(f"run/parts/history-{node:05d}.csv")
        part.write_bytes(b"".join(map(row_files.sealed, own)))
    list_as_over_mpi()
    rows = part.read_bytes()
    part.unlink()
    assert "rows" in refused(capsys, "--resume", "run", "--max-iter", 30)

    part.write_bytes(rows)
    assert main("--resume", "run", "--max-iter", 30) == 0
    main(*ENDLESS, "--max-iter", 30, "--out", "whole")
    assert_same_files()


def test_other_data_are_refused(capsys):
    rows = datasets.synthetic(60, 6, 2, 0.2, 0)[0]
    np.save("rows.npy", rows)
    common = ("--data", "rows.npy", "--nodes", 4, "--n-components", 2, "--quiet")
    main(*common, "--max-iter", 5, "--out", "run")
    rows[17, 3] += 1e-9
    np.save("rows.npy", rows)

    assert "node-00001" in refused(capsys, "--resume", "run", "--max-iter", 20)


def test_merged_rows_that_were_changed_are_noticed(capsys):
    main(*ENDLESS, "--max-iter", 20, "--out", "run")
    file = Path("run/history.csv")
    rows = file.read_text()
    file.write_text(rows.replace("5", "6", 1))
    assert file.name in refused(capsys, "--resume", "run", "--max-iter", 30)

    file.write_text(rows)
    assert main("--resume", "run", "--max-iter", 30) == 0


def test_a_run_that_died_while_it_removed_its_parts_keeps_all_rows():
    """The merged rows count; those parts that are still there are not all of them."""
    common = (*ENDLESS, "--max-iter", 30)
    main(*common, "--out", "whole")
    main(*common, "--max-iter", 20, "--out", "run")
    Path("run/parts").mkdir()
    lines = Path("run/history.csv").read_text().splitlines(keepends=True)[1:]
    left = [line for line in lines if line.split(",")[1] == "3"]
    Path("run/parts/history-00003.csv").write_text("".join(left))
    list_as_over_mpi()

    assert main("--resume", "run", "--max-iter", 30) == 0

    assert history_of("run") == history_of("whole")
