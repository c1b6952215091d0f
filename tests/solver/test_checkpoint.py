"""A run that was ended goes on as if it had not, or says why it cannot."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import dadmm
from dadmm import Schedule, Sending, Topology
from dadmm.core.errors import CheckpointError
from dadmm.data import datasets, shard
from dadmm.penalty import SCHEMES
from dadmm.runs import row_files
from dadmm.runs.folder import RunFolder
from dadmm.solver import checkpoint
from dadmm.solver.checkpoint import Checkpoints
from tests.support import runs
from tests.support.runs import refused, run_job, summary_of
from tests.support.shards import GRAPH, PPCAS, built
from tests.support.solving import solve
from tests.support.tables import table

RING = Topology.ring(6)
SYNTHETIC = shard.split(datasets.synthetic(120, 8, 2, 0.2, 0)[0], 6)
ENDLESS = {"init": "shared", "max_iter": 40, "tolerance": 0}
ENDING = {"init": "shared", "tolerance": 0.1, "t_max": 8}
METRIC = ("lasso", "logistic", "huber", "multinomial")
SENDING = [
    {"payload": "float32"},
    {"payload": "quantised:4"},
    {"censor": 1e-2},
    {"send_every": 3},
    {"edge_sleep": 0.95},  # a third of the edges, by turns
    {"payload": "quantised:5", "censor": 1e-2, "send_every": 2, "edge_sleep": 0.9},
]
LOSSY = {"scheme": "fixed", "drop_probability": 0.3, "coordinates": "raw"}
GLOBAL = {"agreement": "global", "scheme": "global_balance"}


def run_of(name, **settings):
    """Solve one of these problems."""
    if name in METRIC:
        return solve(table(name, 6), RING, **settings)
    if name in PPCAS:
        blocks, usual = PPCAS[name]
        tight = {"tolerance": 1e-6} if name in ("merged", "gaps") else {}
        return solve(built(blocks), GRAPH, **(usual | tight | settings))
    usual = ENDLESS if name == "endless" else ENDING
    return solve(built(SYNTHETIC), RING, **(usual | settings))


def assert_same(again, whole, since):
    """Compare all numbers of two runs; the first has rows since then."""
    for name in ("iterations", "reason", "status", "why", "theta", "eta", "objectives",
                 "solution", "objective", "subspace_bound"):  # fmt: skip
        assert_array_equal(getattr(again, name), getattr(whole, name), err_msg=name)
    for mine, other in zip(again.penalties, whole.penalties, strict=True):
        assert_array_equal(mine, other)
    assert_array_equal(again.ending.trail, whole.ending.trail)
    assert len({run.ending.words(run.converged) for run in (again, whole)}) == 1
    for name, count in again.traffic._asdict().items():
        if not name.startswith("tree"):  # the set-up is not repeated
            assert_array_equal(count, getattr(whole.traffic, name))
    for column in ("objective", "primal", "dual", "residual", "quiet", "bytes"):
        assert_array_equal(again.history[column], whole.history[column][since:])
    if whole.start is not None:
        assert again.start[1:] == whole.start[1:]
    if whole.certificate is not None:
        assert again.certificate.gap == whole.certificate.gap


@pytest.mark.parametrize(
    ("name", "settings", "cut"),  # after an iteration, before the end, or in the middle
    [("endless", {"scheme": scheme}, 17) for scheme in SCHEMES]
    + [("endless", sending, 20) for sending in SENDING]
    + [("endless", {"scheme": "vp_nap", "coordinates": "raw"} | SENDING[-1], 20)]
    + [("endless", LOSSY, 20)]
    + [(name, {}, 3) for name in (*PPCAS, *METRIC)]
    + [(name, {}, 0.5) for name in ("raw", "merged", "gaps", "logistic", "huber")]
    + [("ending", {}, -1), ("ending", {"send_every": 3}, -13), ("ending", {}, -6)]
    + [("ending", {"stopping": "residuals"}, -6)]
    + [("ending", {"stopping": "objective", "send_every": 3}, -13)]
    + [("ending", {"stopping": "residuals"} | GLOBAL, -1)]
    + [("ending", {"stopping": "objective"} | GLOBAL, -6)],
)
def test_a_resumed_run_has_the_bits_of_a_whole_one(tmp_path, name, settings, cut):
    seen, given = [], dict(settings)
    ways = {key: given.pop(key) for key in settings if key in vars(Sending())}
    given |= {"sending": Sending(**ways)}
    if "payload" in ways:
        given["schedule"] = Schedule.matchings(RING)

    def watch(t, run):
        record = getattr(run.kind, "record", None)
        seen.append(run.state.coordinates | {"so far": getattr(record, "changes", 0)})

    whole = run_of(name, **given, callbacks=[watch])
    at = int(cut * whole.iterations) if isinstance(cut, float) else cut
    at = at if at > 0 else whole.iterations + at
    known = seen[-1]
    run_of(name, **given | {"max_iter": at}, checkpoints=Checkpoints(tmp_path))
    keep = Checkpoints(tmp_path, resume=True)
    again = run_of(name, **given, checkpoints=keep, callbacks=[watch])

    assert 0 < at < whole.iterations
    assert whole.converged or name == "endless"
    assert (whole.traffic.lost > 0) == ("drop_probability" in ways)
    assert_same(again, whole, at)
    for key, value in known.items():
        assert_array_equal(seen[-1][key], value, err_msg=key)
    if whole.coordinates != "raw":  # the sums of set-up are not repeated
        assert again.traffic.tree_bytes.sum() < whole.traffic.tree_bytes.sum()


def test_saving_changes_nothing_and_the_last_whole_one_of_two_is_used(tmp_path):
    clock, brief = tmp_path / "clock", {"sending": Sending("quantised:4")}
    whole = run_of("endless", **brief)
    run_of("endless", checkpoints=Checkpoints(tmp_path, every=7, saves=False), **brief)
    assert list(tmp_path.iterdir()) == []
    by_count = run_of("endless", checkpoints=Checkpoints(tmp_path, every=7), **brief)
    by_clock = run_of("endless", checkpoints=Checkpoints(clock, seconds=1e-9), **brief)

    assert_same(by_count, whole, 0)
    assert_same(by_clock, whole, 0)
    assert checkpoint.kept(tmp_path) == [35, 40]
    assert checkpoint.kept(clock) == [36, 40]
    checkpoint.path_of(tmp_path, 40, 4).unlink()
    keep = Checkpoints(tmp_path, resume=True)
    assert_same(run_of("endless", checkpoints=keep, **brief), whole, 35)


def test_the_time_before_the_first_iteration_does_not_count(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(checkpoint, "monotonic", lambda: now[0])
    keep, wait = Checkpoints(tmp_path), lambda t, run: now.__setitem__(0, 100.0)
    run_of("endless", max_iter=12, checkpoints=keep, callbacks=[wait])
    assert checkpoint.kept(tmp_path) == [12]


def test_another_run_needs_another_folder_for_its_checkpoints(tmp_path):
    """It would be resumed from the later ones of the first."""
    keep = Checkpoints(tmp_path, every=5)
    run_of("endless", checkpoints=keep)
    other = {"eta0": 11.0, "max_iter": 20, "checkpoints": keep}
    with pytest.raises(CheckpointError, match="resume"):
        run_of("endless", **other)
    shutil.rmtree(tmp_path / checkpoint.FOLDER)
    run_of("endless", **other)
    again = Checkpoints(tmp_path, resume=True)
    assert run_of("endless", eta0=11.0, checkpoints=again).iterations == 40


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoint of iteration 20."""
    folder = tmp_path_factory.mktemp("saved")
    run_of("endless", max_iter=20, checkpoints=Checkpoints(folder))
    return folder


def with_array(name, change, by=None):
    return lambda about, arrays: (about, arrays | {name: change(arrays[by or name])})


def about(**facts):
    return lambda about, arrays: (about | facts, arrays)


@pytest.mark.parametrize(
    ("change", "culprit", "settings"),
    [
        (lambda about, arrays: (["x"], arrays), "0020", {}),
        (lambda about, arrays: (about, {"theta": arrays["theta"]}), "0020", {}),
        (with_array("theta", lambda own: own[:0]), "0020", {}),
        (with_array("stopping", lambda own: own[None]), "0020", {}),
        (with_array("eta", lambda own: own.astype(str)), "0020", {}),
        (with_array("unknown", lambda own: own, "theta"), "0020", {}),
        (about(format=2), "format 2", {}),
        (about(node=1), "another node", {}),
        (about(version="0"), "another version", {}),
        (about(), "configuration", {"eta0": 11.0}),
        (about(), "configuration", {"sending": Sending(payload="float32")}),
        (about(), "graph", {"schedule": Schedule.matchings(RING)}),
        (about(), "max_iter", {"max_iter": 19}),
    ],
)
def test_what_is_not_of_this_run_is_refused(saved, tmp_path, change, culprit, settings):
    """The checksum of the files of nodes 0 and 5 is right."""
    shutil.copytree(saved, tmp_path / "run")
    for node in (0, 5):
        file = checkpoint.path_of(tmp_path / "run", 20, node)
        checkpoint.write(file, *change(*checkpoint.read(file)))
    keep = Checkpoints(tmp_path / "run", resume=True)
    with pytest.raises(CheckpointError, match=culprit):
        run_of("endless", checkpoints=keep, **settings)


def test_a_damaged_file_or_one_that_is_not_there_is_named(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "run")
    file = checkpoint.path_of(tmp_path / "run", 20, 5)
    whole, rng = file.read_bytes(), np.random.default_rng(0)
    damaged = [whole[:length] for length in (0, 3, 4, 100, -1, -5)]
    for place in rng.integers(len(whole), size=8).tolist():
        bits = bytes([whole[place] ^ 1 << int(rng.integers(8))])
        damaged.append(whole[:place] + bits + whole[place + 1 :])
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(CheckpointError, match=r"node-00005.npz is damaged"):
            checkpoint.read(file)
    file.unlink()
    for folder, culprit in ((tmp_path / "run", "node 5"), (tmp_path / "none", "none")):
        with pytest.raises(CheckpointError, match=culprit):
            run_of("endless", checkpoints=Checkpoints(folder, resume=True))


SMALL = ("--topology", "ring", "--nodes", 5, "--n-samples", 60, "--dimension", 6)
SMALL += ("--init", "shared", "--tolerance", 0, "--record-edges")
SMALL += ("--record-angle", "--max-iter")


@pytest.fixture
def whole():
    """A folder whose run/ is to become like whole/, of 30 iterations with edges."""
    run_job(*SMALL, 30, out="whole")


def assert_same_files():
    """Assert that run has the results and rows of whole."""
    results = [Path(name, "result.npz") for name in ("run", "whole")]
    runs.assert_same_arrays(*results, but=("tree_messages", "tree_bytes"))
    for name in ("history.csv", "edges.csv"):
        assert runs.history_of("run", name) == runs.history_of("whole", name)
    for key in ("iterations", "reason", "messages", "bytes", "metrics"):
        assert summary_of("run")[key] == summary_of("whole")[key]


def killed_after(t, *words):
    """Run until an iteration, in which the process is interrupted."""

    def kill(self, now, run):
        record(self, now, run)
        if now == t:
            self.sync()
            raise KeyboardInterrupt

    record = row_files.RowFiles.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_files.RowFiles, "__call__", kill)
        with pytest.raises(KeyboardInterrupt):
            run_job(*words)


def divide(name):
    """Make a part for each node of the rows of one process, as over MPI."""
    lines = Path(f"run/parts/{name}-00000.csv").read_text().splitlines(keepends=True)
    for i in range(5):
        own = [line for line in lines if line.split(",")[1] == str(i)]
        half = own[-1][:9] if i == 3 else ""  # of a line
        Path(f"run/parts/{name}-{i:05d}.csv").write_text("".join(own) + half)


def test_rows_of_several_sessions_add_up(whole, capsys):
    """Killed as over MPI, with a part for each node, then in one process."""
    killed_after(18, *SMALL, 30, "--checkpoint-every", 8)
    divide("history")
    divide("edges")
    RunFolder(Path("run"), 5, run=RunFolder.open(Path("run")).run).save()
    part = Path("run/parts/history-00004.csv")
    part.rename("part")
    assert "rows" in refused(capsys, "--resume", "run")
    Path("part").rename(part)
    killed_after(26, "--resume", "run")
    run_job("--resume", "run")

    assert summary_of("run")["resumed_after"] == 24
    assert_same_files()


def test_a_command_line_goes_on_in_the_same_folder(whole, monkeypatch):
    clock = itertools.count()  # every phase takes one second
    monkeypatch.setattr(dadmm.admm.state, "perf_counter", lambda: next(clock))
    first = summary_of(run_job(*SMALL, 10))["seconds"]
    last = summary_of(run_job("--resume", "run", "--max-iter", 15))["seconds"]
    run_job("--resume", "run", "--max-iter", 30)

    assert_same_files()
    assert checkpoint.kept(Path("run")) == [15, 30]
    for name in ("solve", "exchange", "update"):
        assert first["of_all_sessions"][name] == first[name]
        assert last[name] == pytest.approx(5 / 10 * first[name])
        assert last["of_all_sessions"][name] == pytest.approx(first[name] + last[name])
