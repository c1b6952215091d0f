"""The folder of a run: filled in parts, finished at a stroke, its own files only."""

import json
import os
import re
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dadmm import Topology
from dadmm.cli.job import check_unseen
from dadmm.core import files
from dadmm.core.errors import OutputError
from dadmm.run import main
from dadmm.runs import row_files
from dadmm.runs.config import RunConfig
from dadmm.runs.folder import NAME, Results, RunFolder
from dadmm.runs.row_files import PARTS, RowFiles, Stride
from dadmm.show import plot
from tests.support.problems import quadratics
from tests.support.processes import mpiexec
from tests.support.runs import TINY, contents, run_of

SMALL = (*TINY, "--checkpoint-every", 5, "--missing-fraction", 0.1, "--record-edges")


def begin(*words, iterations=7):
    given = (*SMALL, "--max-iter", iterations, "--out", "run", *words)
    return main([*map(str, given)])


def go_on(way, iterations=11):
    """Replace the run in the folder, or resume it."""
    if way == "overwrite":
        return begin("--overwrite", iterations=iterations)
    return main(["--resume", "run", "--max-iter", str(iterations)])


WAYS = pytest.mark.parametrize("way", ["overwrite", "resume"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run that may go on."""
    place = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert begin() == 0
    return place / "run"


@pytest.fixture
def folder(finished):
    """A copy of it, in the current folder, beside files of the user's."""
    shutil.copytree(finished, "run")
    for name in ("notes.txt", "parts/own.csv", "00000010/node-00000.npz"):
        Path("mine", name).parent.mkdir(parents=True, exist_ok=True)
        Path("mine", name).write_text("years of work")
    return Path("run")


def test_what_is_not_listed_stays_and_all_that_is_listed_goes(folder):
    """Also the results of a part of the graph, if they are of the same run."""
    own = ("notes.txt", "parts/wheel.stl", "checkpoints/model.pt", "part-00001/a.txt",
           "checkpoints/00000007/notes.txt", "parts/history-mine.csv",
           "part-00002/config.toml", "imputed-00009.npz")  # fmt: skip
    for name in own:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")

    def plant(name, run):
        (folder / name).mkdir()
        (folder / name / "summary.json").touch()
        RunFolder(folder / name, 3, {"summary.json"}, run).save()

    plant("part-00004", "another")
    plant("part-00003", RunFolder.open(folder).run)
    assert begin("--overwrite", "--no-record-edges", iterations=6) == 0
    assert not (folder / "edges.csv").exists()  # of the run of before
    assert not (folder / "checkpoints" / "00000007" / "node-00000.npz").exists()
    plant("part-00003", RunFolder.open(folder).run)
    assert go_on("resume", 8) == 0
    assert not (folder / "part-00003").exists()
    assert (folder / "part-00004" / "summary.json").exists()
    assert {(folder / name).read_text() for name in own} == {"mine"}


@WAYS
@pytest.mark.parametrize("culprit", ["parts/history-00000.csv", "manifest.json"])
def test_what_is_not_of_the_run_is_left_alone(folder, way, culprit, capsys):
    """A file that the manifest does not list, and a folder without a manifest."""
    if culprit == "manifest.json":
        (folder / culprit).unlink()
    else:
        (folder / culprit).parent.mkdir()
        (folder / culprit).write_text("mine")
    before = contents(folder)

    assert go_on(way) == 2
    assert contents(folder) == before
    assert culprit in capsys.readouterr().err


ABOUT = {"program": "dadmm", "run": "a", "nodes": 3, "files": [], "checksums": {}}
STRANGE = [
    "../mine/notes.txt", "/etc/passwd", "notes.txt", "parts/../notes.txt", "", ".",
    "checkpoints/*/../../notes.txt", "CONFIG.TOML", "config.toml\n", "part-00001/",
    ".lock", 7, None, ["config.toml"], "\ud800",
]  # fmt: skip
DAMAGED = [
    *(json.dumps(ABOUT | {"files": ["config.toml", name]}) for name in STRANGE),
    *(json.dumps(ABOUT | wrong) for wrong in ({"run": 7}, {"program": "npm"},
      {"nodes": -1}, {"files": "config.toml"})),
    "", "[]", "7", "{", "\udcff", "[" * 10_000, " " * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_manifest_that_is_none_or_names_other_files_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    create = lambda path: RunFolder.create(str(path), "name", True, 3)  # noqa: E731
    for use in (RunFolder.open, create):
        with pytest.raises(OutputError, match=r"manifest\.json") as caught:
            use(tmp_path)
        assert "\n" not in str(caught.value)

    assert os.listdir(tmp_path) == ["manifest.json"]  # not even a lock


def test_every_file_of_a_run_is_listed_under_a_name_that_a_manifest_may_have(folder):
    found = set(RunFolder.open(folder).names)
    listed = {str(folder / name) for name in found}
    found |= {f"{k}.{form}" for k in plot.KINDS for form in plot.FORMATS}

    assert all(map(NAME.holds, found))
    written = {name for name, text in contents(folder).items() if text is not None}
    written = {re.sub(r"-\d{5}\b", "-#", name) for name in written}
    written = {re.sub(r"checkpoints/\d+/", "checkpoints/*/", name) for name in written}
    assert written - listed == {"run/.lock", "run/manifest.json"}


def test_a_run_that_was_killed_while_its_folder_was_made_starts_again(monkeypatch):
    """After every step, and without --overwrite: batch jobs do not say it."""
    held = []  # errors, whose frames must not hold the lock
    for name in ("manifest.json", "config.toml"):
        with monkeypatch.context() as patch:

            def kill(old, new, replace=os.replace, last=name, patch=patch, **folders):
                if new == last:  # before the file takes its place
                    patch.setattr(os, "unlink", lambda *words, **more: None)
                    raise KeyboardInterrupt  # and the draft stays
                replace(old, new, **folders)

            patch.setattr(os, "replace", kill)
            with pytest.raises(KeyboardInterrupt) as caught:
                begin()
            held.append(caught)

    assert begin() == 0
    assert not list(Path("run").glob(".*.draft"))


PLACES = [
    "config.toml", "summary.json", "result.npz", "history.csv", "edges.csv",
    "imputed-00001.npz", "manifest.json", ".lock", "parts", "checkpoints",
    "checkpoints/00000010", "checkpoints/00000010/node-00000.npz", "failure.txt",
    ".config.toml.draft", ".manifest.json.draft", ".summary.json.draft",
]  # fmt: skip
PLANTS = {
    "link": lambda path: path.symlink_to(Path("mine/notes.txt").absolute()),
    "link to a folder": lambda path: path.symlink_to(Path("mine").absolute()),
    "FIFO": os.mkfifo,
    "hard link": lambda path: os.link("mine/notes.txt", path),
}


@WAYS
@pytest.mark.parametrize("plant", PLANTS)
def test_nothing_is_written_through_what_was_planted(folder, finished, plant, way):
    """Wherever a run writes: it is refused, or the name is replaced and not the file.

    No link is removed either.
    """
    before = contents("mine")
    for place in PLACES:
        shutil.rmtree(folder)
        shutil.copytree(finished, folder)
        path = folder / place
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        PLANTS[plant](path)
        code = go_on(way)

        assert contents("mine") == before, place
        if plant != "hard link":
            assert code == 2, place
            assert path.is_symlink() or path.is_fifo(), place


@pytest.mark.parametrize("place", ["checkpoints", "parts"])
def test_folders_that_become_links_during_a_run_are_not_followed(
    folder, monkeypatch, place
):
    record, before = row_files.RowFiles.__call__, contents("mine")

    def swap(self, t, nodes):
        if t == 8:
            (folder / place).rename("away")
            (folder / place).symlink_to(Path("mine").absolute())
        return record(self, t, nodes)

    monkeypatch.setattr(row_files.RowFiles, "__call__", swap)

    assert go_on("overwrite") == 2
    assert contents("mine") == before


def lock(folder, first=False):
    found = RunFolder(folder)
    found.lock(first)
    return found


def test_folders_by_default_are_new_ones(monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    made = [RunFolder.create(None, "ring", True, 3).path for _ in range(3)]

    assert [*map(str, made)] == [f"runs/ring-now{end}" for end in ("", "-2", "-3")]


def test_a_folder_in_which_a_run_is_at_work_is_refused(tmp_path):
    first, other = RunFolder.create(str(tmp_path), "name", False, 3), lock(tmp_path)
    rows = tmp_path / PARTS / "history-00000.csv"
    rows.write_text("1,0,0\n")
    who = f"{tmp_path} .process {os.getpid()} on {os.uname().nodename}"

    for held in (first, other):
        with pytest.raises(OutputError, match=who):
            RunFolder.create(str(tmp_path), "name", True, 3)
        assert rows.read_text() == "1,0,0\n"
        held.release()
    RunFolder.create(str(tmp_path), "name", True, 3).clear_earlier()
    assert not rows.exists()


def test_a_lock_of_somebody_else_stays(tmp_path):
    """It would be emptied, for the name of the process; nor is it a hard link."""
    own = tmp_path / ".lock"
    for text in ("my own lock", "process 1 on here\nand more", ""):
        own.write_text(text)
        if not text:
            os.link(own, tmp_path / "mine")
        with pytest.raises(OutputError, match=r"\.lock"):
            lock(tmp_path, first=True)
        assert own.read_text() == text


def test_a_rank_that_does_not_see_the_folder_writes_no_rows(tmp_path):
    """On another machine; settings for which it would write are an error."""
    folder, silent = tmp_path / "elsewhere", RunConfig(record=False, checkpoint=False)
    for config, remedy in (
        (RunConfig(record=True), "--no-record --no-checkpoint "),
        (replace(silent, on_failure="continue"), "--on-failure abort"),
    ):
        with pytest.raises(OutputError, match=remedy):
            check_unseen(config, folder)
    check_unseen(silent, folder)
    RowFiles(RunFolder(folder), 3, [3], [], None, {}, 0, Stride()).close()
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(OutputError, match="elsewhere"):
        check_unseen(silent, folder)


@pytest.fixture
def apart(tmp_path):
    """A job of two ranks, each in a folder of its own, without a shared file system."""
    code = "import os, sys; from dadmm.core.ranks import rank_and_size; "
    code += "os.chdir(str(rank_and_size()[0])); "
    code += "from dadmm.cli.job import main; sys.exit(main())"
    for name in "01":
        (tmp_path / name).mkdir()
    return partial(mpiexec, 2, "-c", code, "--out", "run", "--max-iter", 2)


@pytest.mark.mpi
def test_a_rank_does_not_write_into_the_folder_of_another_run(
    tmp_path, apart, monkeypatch
):
    """One that has not ended, and is where rank 0 has made the folder of this run."""
    monkeypatch.chdir(tmp_path / "1")
    begin()
    (tmp_path / "1" / "run" / PARTS).mkdir(exist_ok=True)
    before = contents(tmp_path / "1")
    refused = apart(cwd=tmp_path)

    assert (refused.code, "another run" in refused.err) == (2, True)
    assert contents(tmp_path / "1") == before


@pytest.mark.mpi
def test_an_earlier_run_stays_if_a_rank_elsewhere_refuses_to_replace_it(
    tmp_path, apart
):
    silent = ("--no-record", "--no-record-edges", "--no-checkpoint")
    assert apart(*silent, cwd=tmp_path).code == 0
    before = contents(tmp_path / "0")
    refused = apart("--overwrite", cwd=tmp_path)
    after = contents(tmp_path / "0")

    assert refused.code == 2
    assert "--no-record" in refused.err
    lock = str(tmp_path / "0" / "run" / ".lock")  # has the number of a process
    assert {k for k in before if before[k] != after.get(k)} == {lock}
    assert apart(*silent, "--overwrite", cwd=tmp_path).code == 0


@pytest.fixture
def fresh(tmp_path):
    return RunFolder.create(str(tmp_path / "run"), "name", False, 3).path


@pytest.mark.parametrize("iterations", [1, 5000])
def test_a_failure_to_write_ends_the_run_in_good_order(fresh, monkeypatch, iterations):
    """The callback asks all to stop when a block is full; closing raises the error."""
    device = lambda path, root, flags: os.open("/dev/full", os.O_RDWR)  # noqa: E731
    monkeypatch.setattr(files, "open_plain", device)
    parts = RowFiles(RunFolder(fresh), 0, [0], [(0,)], None, {}, 0, Stride())
    run = run_of(quadratics(1), Topology.complete(1), max_iter=1)
    said = [parts(t, run) for t in range(1, iterations + 1)]

    assert said[0] is None
    assert said[-1] == (None if iterations == 1 else "output")
    with pytest.raises(OutputError, match="No space left"):
        parts.close()
    assert all(part._file.closed for part in parts._files)  # else it fails at exit


def test_results_come_before_rows_and_the_summary_last_of_them(fresh, monkeypatch):
    """A folder with a summary has all results; a failure leaves no draft."""
    parts = RowFiles(RunFolder(fresh), 0, [0], [(0,)], [(0, 1)], {}, 0, Stride())
    order, replace = [], os.replace
    parts.close()

    def note(old, new, **folders):
        order.append(new)
        replace(old, new, **folders)

    monkeypatch.setattr(os, "replace", note)
    with pytest.raises(TypeError):
        RunFolder.open(fresh).finish(parts, Results({"converged": {1, 2}}, {}))
    assert order == ["result.npz"]
    assert not {"summary.json", ".summary.json.draft"} & {*os.listdir(fresh)}
    RunFolder.open(fresh).finish(parts, Results({"converged": True}, {}))
    written = [name for name in order[1:] if name != "manifest.json"]
    assert written == ["result.npz", "summary.json", "history.csv", "edges.csv"]
