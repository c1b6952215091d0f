"""A run that was ended goes on as if it had not, or says why it cannot."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm.run
from dadmm import Schedule, Sending, Topology, solve
from dadmm.admm import state
from dadmm.admm.stopping import StopState
from dadmm.core.errors import CheckpointError
from dadmm.data import datasets, shard
from dadmm.penalty import SCHEMES
from dadmm.problems import PPCA
from dadmm.resilience import checkpoint
from dadmm.resilience.checkpoint import Checkpoints
from dadmm.results import row_files
from dadmm.results.manifest import Manifest, names_of_run
from tests.support.problems import quadratics

RING = Topology.ring(6)
BLOCKS = shard.split(datasets.synthetic(120, 8, 2, 0.2, 0)[0], 6)
SENDING = {
    "everything": Sending(),
    "float32": Sending(payload="float32"),
    "quantised": Sending(payload="quantised", bits=4),
    "censored": Sending(censor=1e-2),
    "every": Sending(send_every=3),
    "asleep": Sending(edge_sleep=0.95),  # a third of the edges, by turns
    "all": Sending(
        payload="quantised", bits=5, censor=1e-2, send_every=2, edge_sleep=0.9
    ),
}
SCHEDULES = {"always": None, "matchings": Schedule.matchings(RING)}


def ppca(**settings):
    """Run D-PPCA on the ring, not quite to its end."""
    problems = [PPCA(block, 2) for block in BLOCKS]
    return solve(problems, RING, **({"max_iter": 45} | settings))


def assert_same(whole, again, since):
    """Compare all numbers of two runs, of which the second has rows since then."""
    assert (again.iterations, again.reason) == (whole.iterations, whole.reason)
    assert_array_equal(again.theta, whole.theta)
    assert_array_equal(again.eta, whole.eta)
    assert_array_equal(again.objectives, whole.objectives)
    for mine, theirs in zip(again.traffic, whole.traffic, strict=True):
        assert_array_equal(mine, theirs)
    for column in ("objective", "primal", "dual", "residual", "quiet", "bytes"):
        assert_array_equal(again.history[column], whole.history[column][since:])


def interrupted(tmp_path, at, **settings):
    """Run until an iteration, and go on in another run from what the first saved."""
    ppca(max_iter=at, checkpoints=Checkpoints(tmp_path), **settings)
    return ppca(checkpoints=Checkpoints(tmp_path, resume=True), **settings)


@pytest.mark.parametrize(
    ("scheme", "how"),
    dict.fromkeys([(s, "everything") for s in SCHEMES] + [("auto", h) for h in SENDING])
    | dict.fromkeys(("vp_nap", how) for how in SENDING),
)
def test_a_resumed_run_has_the_bits_of_a_whole_one(tmp_path, scheme, how):
    """For every scheme and every way of sending less, some with a schedule."""
    odd = (len(scheme) + len(how)) % 2
    settings = {"scheme": scheme, "sending": SENDING[how], "tolerance": 0}
    settings["schedule"] = SCHEDULES["matchings" if odd else "always"]
    at = 17 + len(how)

    whole = ppca(**settings)

    assert_same(whole, interrupted(tmp_path, at, **settings), at)


@pytest.mark.parametrize("stopping", ["optimality", "residuals", "objective"])
@pytest.mark.parametrize("agreement", ["neighbours", "global"])
@pytest.mark.parametrize(
    ("before", "every"), [(1, 1), (6, 1), (13, 3), (15, 3)]
)
def test_a_resumed_run_converges_when_it_would_have(
    tmp_path, stopping, agreement, before, every
):
    """Wherever it was cut, also between the verdict and the end that follows."""
    scheme = "global_balance" if agreement == "global" else "auto"
    settings = {"stopping": stopping, "agreement": agreement, "scheme": scheme}
    settings["sending"] = Sending(send_every=every)
    settings |= {"max_iter": 1500, "tolerance": 0.05, "t_max": 8}
    whole = ppca(**settings)
    at = whole.iterations - before
    ppca(**{**settings, "max_iter": at}, checkpoints=Checkpoints(tmp_path))
    again = ppca(**settings, checkpoints=Checkpoints(tmp_path, resume=True))

    assert whole.converged
    assert_same(whole, again, at)


@pytest.mark.parametrize("at", range(1, 20, 2))
def test_a_signal_leaves_the_verdict_alone(tmp_path, at):
    """A run that is stopped near its end converges at the same iteration."""
    whole = ppca(max_iter=400, tolerance=0.05)

    def watch(t, nodes):
        return "signal" if t == whole.iterations - at else None

    first = ppca(
        max_iter=400, tolerance=0.05, callbacks=[watch],
        checkpoints=Checkpoints(tmp_path),
    )  # fmt: skip
    if first.converged:  # too late to be stopped
        assert first.iterations == whole.iterations
        return
    assert first.reason == "signal"
    again = ppca(
        max_iter=400, tolerance=0.05, checkpoints=Checkpoints(tmp_path, resume=True)
    )
    assert_same(whole, again, first.iterations)


def test_losses_go_on_where_they_were(tmp_path):
    """Each iteration has its own luck, whoever asks for it."""
    settings = {
        "scheme": "fixed", "sending": Sending(drop_probability=0.3), "tolerance": 0,
        "max_iter": 60,
    }  # fmt: skip
    problems = quadratics(6)
    whole = solve(problems, RING, **settings)
    solve(problems, RING, **(settings | {"max_iter": 23}),
          checkpoints=Checkpoints(tmp_path))  # fmt: skip
    again = solve(problems, RING, **settings,
                  checkpoints=Checkpoints(tmp_path, resume=True))  # fmt: skip

    assert whole.traffic.lost > 0
    assert_same(whole, again, 23)


def test_saving_changes_nothing(tmp_path):
    """By the clock, by count, or not at all: the same numbers."""
    whole = ppca(max_iter=400)

    by_clock = ppca(max_iter=400, checkpoints=Checkpoints(tmp_path, seconds=1e-9))
    assert_same(whole, by_clock, 0)
    by_count = ppca(max_iter=400, checkpoints=Checkpoints(tmp_path, every=7))
    assert_same(whole, by_count, 0)


def test_the_last_two_are_kept(tmp_path):
    """By count every seventh, and the end of a run that has not converged."""
    ppca(tolerance=0, checkpoints=Checkpoints(tmp_path, every=7))
    assert checkpoint.kept(tmp_path) == [42, 45]

    keeper = Checkpoints(tmp_path / "clock", seconds=1e-9)
    ppca(tolerance=0, checkpoints=keeper, max_iter=60)
    assert checkpoint.kept(tmp_path / "clock") == [54, 60]  # every other round


def test_nothing_is_saved_if_not_wanted(tmp_path):
    """Not even at the end."""
    ppca(tolerance=0, checkpoints=Checkpoints(tmp_path, every=7, saves=False))

    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_checkpoint_is_passed_over(tmp_path):
    """The job was killed while it was written; the one before is whole."""
    whole = ppca(tolerance=0)
    ppca(tolerance=0, max_iter=30, checkpoints=Checkpoints(tmp_path, every=8))
    checkpoint.path_of(tmp_path, 30, 4).unlink()

    again = ppca(tolerance=0, checkpoints=Checkpoints(tmp_path, resume=True))

    assert_same(whole, again, 24)


# What cannot be resumed


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


def complaint(folder, **settings):
    """Return what is said when a run cannot be resumed."""
    settings = {"tolerance": 0} | settings
    with pytest.raises(CheckpointError) as told:
        ppca(checkpoints=Checkpoints(folder, resume=True), **settings)
    return str(told.value)


def test_a_folder_without_checkpoints_is_refused(tmp_path):
    """By its name."""
    said = complaint(tmp_path)

    assert said.startswith(f"there is no checkpoint in {tmp_path}")


def test_a_missing_file_is_named(run):
    """With the iteration and the node, where there is no older one."""
    checkpoint.path_of(run, 20, 3).unlink()

    said = complaint(run)

    assert "that of iteration 20 lacks the file of node 3 of 6" in said


@pytest.mark.parametrize("length", [0, 3, 4, 100, -1, -5])
def test_a_file_that_was_cut_short_is_refused(run, length):
    """Wherever it was cut."""
    file = checkpoint.path_of(run, 20, 5)
    file.write_bytes(file.read_bytes()[:length])

    said = complaint(run)

    assert said.startswith(f"the checkpoint {file} is damaged or cut short; remove")


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_byte_is_noticed(run, seed):
    """Anywhere in a file."""
    rng = np.random.default_rng(seed)
    file = checkpoint.path_of(run, 20, int(rng.integers(6)))
    data = bytearray(file.read_bytes())
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    file.write_bytes(data)

    assert "is damaged or cut short" in complaint(run)


def test_the_file_of_another_node_is_noticed(run):
    """Though it is whole."""
    shutil.copy(checkpoint.path_of(run, 20, 1), checkpoint.path_of(run, 20, 2))

    assert "is of another node (1, and here it is 2)" in complaint(run)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"eta0": 11.0}, "configuration"),
        ({"sending": Sending(payload="float32")}, "configuration"),
        ({"schedule": SCHEDULES["matchings"]}, "graph"),
    ],
)
def test_another_run_is_refused(run, change, name):
    """By what is not the same."""
    assert f"is of another {name} (" in complaint(run, **change)


def test_another_version_is_refused(run, monkeypatch):
    """With both numbers."""
    monkeypatch.setattr("dadmm.core.version.__version__", "9.9.9")

    said = complaint(run)

    assert f"is of another version ({dadmm.__version__}, and here it is 9.9.9)" in said


def test_a_run_that_has_come_further_is_refused(run):
    """More iterations are for the user to allow."""
    said = complaint(run, max_iter=19)

    assert said.endswith("max_iter is 19; raise max_iter to go on")


def test_a_run_that_has_come_as_far_as_it_may_has_its_results(run):
    """It was killed after its last iteration, before it could write them."""
    whole = ppca(tolerance=0, max_iter=20)

    again = ppca(tolerance=0, max_iter=20, checkpoints=Checkpoints(run, resume=True))

    assert_same(whole, again, 20)
    for mine, theirs in zip(again.certificate, whole.certificate, strict=True):
        assert_array_equal(mine, theirs)


# The command line


def main(*words):
    """Return the exit code of a command line."""
    return dadmm.run.main([str(word) for word in words])


COMMON = ("--topology", "ring", "--nodes", 5, "--n-samples", 60, "--dimension", 6)


def test_a_command_line_goes_on_in_the_same_folder(tmp_path, monkeypatch, capsys):
    """Results and rows are those of a whole run, bit for bit."""
    monkeypatch.chdir(tmp_path)
    rows = ("--record-edges", "--record-angle", "--tolerance", 0, "--quiet")
    main(*COMMON, *rows, "--max-iter", 50, "--out", "whole")
    main(*COMMON, *rows, "--max-iter", 20, "--out", "run")
    assert main("--resume", "run", "--max-iter", 33) == 0
    assert main("--resume", "run", "--max-iter", 50) == 0

    for name in ("result.npz", "edges.csv"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()
    assert without_times("run") == without_times("whole")
    assert checkpoint.kept(Path("run")) == [33, 50]
    summaries = [
        json.loads(Path(k, "summary.json").read_text()) for k in ("run", "whole")
    ]
    for key in ("iterations", "reason", "messages", "bytes", "metrics"):
        assert summaries[0][key] == summaries[1][key]


def without_times(folder):
    """Return the lines of a history, its seconds aside."""
    lines = Path(folder, "history.csv").read_text().splitlines()
    columns = lines[0].split(",")
    kept = [k for k, name in enumerate(columns) if not name.endswith("_seconds")]
    return [[line.split(",")[k] for k in kept] for line in lines]


def test_a_killed_run_goes_on_from_its_parts(tmp_path, monkeypatch):
    """Rows after the checkpoint are written again, also half a line."""
    monkeypatch.chdir(tmp_path)
    common = (*COMMON, "--tolerance", 0, "--quiet", "--max-iter", 40)
    main(*common, "--out", "whole")
    main(*common, "--checkpoint-every", 15, "--out", "run")
    # as a kill after iteration 34 would leave it: parts, no results, no later state
    lines = Path("run/history.csv").read_text().splitlines(keepends=True)[1:]
    Path("run/parts").mkdir()
    part = Path("run/parts/history-00000.csv")
    part.write_text("".join(lines[: 34 * 5]) + lines[34 * 5][:9])
    for name in ("summary.json", "result.npz", "history.csv"):
        Path("run", name).unlink()
    list_as_over_mpi()
    shutil.rmtree(checkpoint.path_of(Path("run"), 40, 0).parent)

    assert main("--resume", "run") == 0

    assert Path("run/result.npz").read_bytes() == Path("whole/result.npz").read_bytes()
    assert without_times("run") == without_times("whole")


def test_rows_of_several_sessions_add_up(tmp_path, monkeypatch):
    """Killed over MPI, where each node has a part, and in one process, which has one.

    The second time after a save, so that rows of all three sessions are needed.
    """
    monkeypatch.chdir(tmp_path)
    common = (*COMMON, "--tolerance", 0, "--quiet", "--max-iter", 60)
    main(*common, "--out", "whole")
    with pytest.raises(KeyboardInterrupt):
        killed_after(34, *common, "--checkpoint-every", 15, "--out", "run")
    lines = Path("run/parts/history-00000.csv").read_text().splitlines(keepends=True)
    for i in range(5):
        own = [line for line in lines if line.split(",")[1] == str(i)]
        Path(f"run/parts/history-{i:05d}.csv").write_text("".join(own))
    list_as_over_mpi()
    with pytest.raises(KeyboardInterrupt):
        killed_after(50, "--resume", "run")

    assert main("--resume", "run") == 0

    assert json.loads(Path("run/summary.json").read_text())["resumed_after"] == 45
    assert Path("run/result.npz").read_bytes() == Path("whole/result.npz").read_bytes()
    assert without_times("run") == without_times("whole")


def test_the_seconds_of_a_resumed_run_are_of_its_last_session(
    tmp_path, monkeypatch, capsys
):
    """All of them; beside them are those of all sessions, under their own name."""
    monkeypatch.chdir(tmp_path)
    clock = itertools.count()  # every phase takes one second
    monkeypatch.setattr(dadmm.admm.algorithm, "perf_counter", lambda: next(clock))
    main(*COMMON, "--tolerance", 0, "--quiet", "--max-iter", 20, "--out", "run")
    first = json.loads(Path("run/summary.json").read_text())["seconds"]
    assert main("--resume", "run", "--max-iter", 23, "--no-quiet") == 0
    last = json.loads(Path("run/summary.json").read_text())["seconds"]

    for name in ("solve", "exchange", "update"):
        assert first["of_all_sessions"][name] == first[name]
        assert last[name] == pytest.approx(3 / 20 * first[name])
        assert last["of_all_sessions"][name] == pytest.approx(first[name] + last[name])
    said = capsys.readouterr().out
    assert " s since it was resumed after iteration 20 (a node's loop: " in said


def list_as_over_mpi():
    """List the files of a run of five ranks, as when it began."""
    names = names_of_run(5, ranks=5, edges=True, over_mpi=True, saves=True)
    Manifest(Path("run"), names).save()


def killed_after(t, *words):
    """Run a command line that is killed after an iteration."""

    def kill(self, now, nodes):
        record(self, now, nodes)
        if now == t:
            self.sync()
            raise KeyboardInterrupt

    record = row_files.RowFiles.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_files.RowFiles, "__call__", kill)
        main(*words)


def test_halves_of_two_checkpoints_do_not_make_one(tmp_path, monkeypatch):
    """Two sessions died while they saved, each with files of other nodes."""
    monkeypatch.chdir(tmp_path)
    common = (*COMMON, "--tolerance", 0, "--quiet", "--max-iter", 60)
    with pytest.raises(KeyboardInterrupt):
        killed_after(34, *common, "--checkpoint-every", 15, "--out", "run")
    half = checkpoint.path_of(Path("run"), 45, 0)
    half.parent.mkdir()
    half.write_bytes(b"")
    with pytest.raises(KeyboardInterrupt):
        killed_after(40, "--resume", "run")

    assert not half.exists()
    assert checkpoint.kept(Path("run")) == [15, 30]


def test_a_run_that_died_in_its_last_files_brings_its_results(tmp_path, monkeypatch):
    """All iterations are done, and neither result.npz nor a summary is there."""
    monkeypatch.chdir(tmp_path)
    common = (*COMMON, "--tolerance", 0, "--quiet", "--max-iter", 30)
    main(*common, "--out", "whole")
    main(*common, "--out", "run")
    for name in ("summary.json", "result.npz"):
        Path("run", name).unlink()

    assert main("--resume", "run") == 0

    assert Path("run/result.npz").read_bytes() == Path("whole/result.npz").read_bytes()
    assert without_times("run") == without_times("whole")


def test_a_run_that_died_while_it_removed_its_parts_keeps_all_rows(
    tmp_path, monkeypatch
):
    """The merged rows count; those parts that are still there are not all of them."""
    monkeypatch.chdir(tmp_path)
    common = (*COMMON, "--tolerance", 0, "--quiet", "--max-iter", 30)
    main(*common, "--out", "whole")
    main(*common, "--max-iter", 20, "--out", "run")
    Path("run/parts").mkdir()
    lines = Path("run/history.csv").read_text().splitlines(keepends=True)[1:]
    left = [line for line in lines if line.split(",")[1] == "3"]
    Path("run/parts/history-00003.csv").write_text("".join(left))

    assert main("--resume", "run", "--max-iter", 30) == 0

    assert without_times("run") == without_times("whole")


def said_by(capsys, *words):
    """Return the one sentence that a command line gets."""
    capsys.readouterr()
    assert main(*words) == 2
    said = capsys.readouterr().err
    assert said.startswith("dadmm: error: ")
    assert said.count("\n") == 1
    return said


def test_what_cannot_be_resumed_is_told_and_nothing_is_lost(
    tmp_path, monkeypatch, capsys
):
    """A run that converged, one that is not there, and settings of another run."""
    monkeypatch.chdir(tmp_path)
    main(*COMMON, "--quiet", "--out", "done")
    main(*COMMON, "--quiet", "--max-iter", 9, "--out", "run")
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    assert "has converged after" in said_by(capsys, "--resume", "done")
    assert "cannot read none/config.toml" in said_by(capsys, "--resume", "none")
    said = said_by(capsys, "--resume", "run", "--eta0", 3, "--max-iter", 20)
    assert "eta0 is 3.0 but was 10.0 when the run in run began" in said
    said = said_by(capsys, "--resume", "run", "--no-compare-centralised")
    assert "compare_centralised is False but was None" in said  # a column less
    assert "leave out --out" in said_by(capsys, "--resume", "run", "--out", "x")
    said = said_by(capsys, "--resume", "run", "--nodes", 7, "--max-iter", 20)
    assert "nodes is 7 but was 5 when the run in run began" in said
    said = said_by(capsys, "--resume", "run", "--overwrite", "--max-iter", 20)
    assert "overwrite does not go with resume" in said
    assert "raise max_iter" in said_by(capsys, "--resume", "run")
    checkpoint.path_of(Path("run"), 9, 2).write_bytes(b"")
    assert "damaged or cut short" in said_by(
        capsys, "--resume", "run", "--max-iter", 20
    )
    checkpoint.path_of(Path("run"), 9, 2).write_bytes(
        before[checkpoint.path_of(Path("run"), 9, 2)]
    )
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("kind", ["history", "edges"])
def test_rows_of_a_node_that_are_not_there_are_missed(
    tmp_path, monkeypatch, capsys, kind
):
    """The part of one rank is gone, and those of the others are whole."""
    monkeypatch.chdir(tmp_path)
    common = (*COMMON, "--record-edges", "--tolerance", 0, "--quiet")
    main(*common, "--max-iter", 20, "--out", "run")
    Path("run/parts").mkdir()
    for name in ("history", "edges"):  # as a kill would leave them
        lines = Path("run", f"{name}.csv").read_text().splitlines(keepends=True)[1:]
        Path("run", f"{name}.csv").unlink()
        for node in range(5):
            rows = [line for line in lines if line.split(",")[1] == str(node)]
            Path(f"run/parts/{name}-{node:05d}.csv").write_text("".join(rows))
    list_as_over_mpi()
    for name in ("summary.json", "result.npz"):
        Path("run", name).unlink()
    part = Path(f"run/parts/{kind}-00003.csv")
    rows = part.read_text()
    part.unlink()

    said = said_by(capsys, "--resume", "run", "--max-iter", 30)
    assert "some rows of run up to iteration 20 are missing" in said

    part.write_text(rows)
    assert main("--resume", "run", "--max-iter", 30) == 0
    main(*common, "--max-iter", 30, "--out", "whole")
    assert without_times("run") == without_times("whole")
    assert Path("run/edges.csv").read_bytes() == Path("whole/edges.csv").read_bytes()


def test_other_data_are_refused(tmp_path, monkeypatch, capsys):
    """Though the file has the same name and shape."""
    monkeypatch.chdir(tmp_path)
    rows = datasets.synthetic(60, 6, 2, 0.2, 0)[0]
    np.save("rows.npy", rows)
    common = ("--data", "rows.npy", "--nodes", 4, "--n-components", 2, "--quiet")
    main(*common, "--max-iter", 9, "--out", "run")
    rows[17, 3] += 1e-9
    np.save("rows.npy", rows)

    said = said_by(capsys, "--resume", "run", "--max-iter", 20)

    assert "node-00001.npz is of another data (" in said


def test_a_run_that_is_replaced_loses_its_checkpoints(tmp_path, monkeypatch):
    """They are not those of the new run."""
    monkeypatch.chdir(tmp_path)
    main(*COMMON, "--quiet", "--max-iter", 9, "--out", "run")
    main(*COMMON, "--quiet", "--max-iter", 4, "--out", "run", "--overwrite")

    assert checkpoint.kept(Path("run")) == [4]


def test_a_run_that_converged_keeps_no_checkpoints(tmp_path, monkeypatch):
    """It has its results."""
    monkeypatch.chdir(tmp_path)
    main(*COMMON, "--quiet", "--checkpoint-every", 5, "--out", "run")

    assert not Path("run/checkpoints").exists()


# Flat arrays


@pytest.mark.parametrize(
    "value",
    [
        3, -0.0, math.inf, True, None, (), (1, 2.5), [0.1, 0.2],
        StopState(3, 1.0, 7.0, 2),
        {"a": None, "b": {"c": (1, None, (2,))}},
    ],
)  # fmt: skip
def test_values_come_back_as_they_were(value):
    """With their types."""
    again = state.rebuild(value, state.flatten(value))

    assert repr(again) == repr(value)  # -0.0 is not 0.0


def test_arrays_come_back_bit_for_bit(tmp_path):
    """Also what is not a number, from a file that numpy reads by itself."""
    arrays = {
        "x": np.array([[np.nan, -0.0], [np.inf, 5e-324]]),
        "n": np.arange(3, dtype=np.int64),
        "b": np.array([True, False]),
    }
    checkpoint.write(tmp_path / "f.npz", {"node": 3}, state.flatten(arrays))

    about, found = checkpoint.read(tmp_path / "f.npz")
    again = state.rebuild(arrays, found)

    assert about == {"node": 3}
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype
        assert again[name].tobytes() == array.tobytes()
    with np.load(tmp_path / "f.npz") as file:
        assert len(file.files) == 1 + len(arrays)
    data = (tmp_path / "f.npz").read_bytes()
    assert zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "little")
    assert list(itertools.chain(tmp_path.glob("*.draft"))) == []
