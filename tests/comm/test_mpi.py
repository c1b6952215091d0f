"""Over MPI: the same bits as in one process, and what happens when things go wrong."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import FAULTY, fault, mpiexec, planned, program
from tests.support.runs import history_of, rows_of, summary_of

pytestmark = pytest.mark.mpi

FOREVER = ("--tolerance", 0, "--max-iter", 10**8, "--quiet")


def test_any_number_of_nodes_per_rank_has_the_same_bits():
    step = 1 if os.environ.get("DADMM_ALL") else 48
    ended = mpiexec(7, *program("hosted.py"), step, timeout=500 * 48 / step)

    assert ended.code == 0, ended.err
    runs, stopped, silent, lost = map(int, ended.out.split())
    assert runs >= 55 + 200 // step
    assert stopped >= 8
    assert silent >= 8
    assert lost == 3


def test_a_library_user_may_pass_a_communicator():
    ended = mpiexec(4, *program("library.py"))

    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) == 11


def misfortune(event, cwd):
    """Run a job without end on a chain of 4, and let something happen to rank 3.

    With plain python: nothing but the main job itself takes care of the other ranks.
    """
    words = ("--topology", "chain", "--out", "run", *FOREVER)
    return mpiexec(4, FAULTY, *words, cwd=cwd, **planned(fault(3, event)))


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("Exception", 1),
        ("SystemExit", 1),  # not an error, but all other ranks would wait for ever
        pytest.param("KeyboardInterrupt", 1, marks=pytest.mark.slow),
        ("ProblemError", 2),
        ("SIGKILL", None),
    ],
)
def test_an_error_on_one_rank_ends_the_job(tmp_path, event, code):
    ended = misfortune(event, tmp_path)

    assert not (tmp_path / "run" / "summary.json").exists()
    assert ended.code == code or (code is None and ended.code)
    if code is not None:
        (said,) = ended.said
        assert "rank 3" in said
        assert ended.err.count("Traceback") == (event != "ProblemError")


@pytest.mark.parametrize("who", ["a rank", "mpiexec"])
def test_a_signal_stops_all_in_good_order(tmp_path, who):
    """To a rank in iteration 7, in the third round of three: all know by the fourth."""
    folder = tmp_path / "run"
    if who == "a rank":
        ended = misfortune("SIGTERM", tmp_path)
    else:
        words = ("-m", "dadmm.run", "--out", "run", *FOREVER)
        job = processes.mpi_python(4, *words, cwd=tmp_path)
        parts = [folder / "parts" / f"history-0000{k}.csv" for k in range(4)]
        job.wait_until(lambda: all(part.exists() for part in parts))
        job.signal(signal.SIGUSR1)
        ended = job.end()

    assert (ended.code, ended.said) == (0, [])
    summary = summary_of(folder)
    assert (summary["reason"], summary["converged"]) == ("signal", False)
    assert summary["iterations"] == 12 or who == "mpiexec"
    assert (folder / "result.npz").exists()
    rows = [[*map(int, row[:2])] for row in history_of(folder)[1:]]
    every = range(1, summary["iterations"] + 1)
    assert sorted(rows) == [[t, node] for t in every for node in range(4)]


def test_processes_that_each_think_they_are_alone_are_told_so(tmp_path):
    """A launcher of another MPI than the library's: one sentence from all, code 2."""
    usual = processes.find_mpiexec()
    if usual is None:
        pytest.skip("no MPI library to mismatch")
    is_open = "OMPI_ALLOW_RUN_AS_ROOT" in processes.settings_of(usual)
    prefix = "PMI" if is_open else "OMPI_COMM_WORLD"
    given = [{f"{prefix}_RANK": k, f"{prefix}_SIZE": "3"} for k in "012"]
    run = "-m", "dadmm.run"
    jobs = [processes.python(*run, cwd=tmp_path, **each) for each in given]
    ended = [job.end() for job in jobs]

    assert [(each.code, len(each.said)) for each in ended] == [(2, 1), (2, 0), (2, 0)]
    assert not any("Traceback" in each.err for each in ended)
    assert not list(tmp_path.iterdir())


DISKS = {  # with a size of which a run needs more
    "64k": ("--record-edges", *FOREVER, "--max-seconds", 60),  # fills during the run
    "128k": ("--tolerance", 0, "--max-iter", 150),  # fills at the end
}


@pytest.mark.parametrize("size", DISKS)
def test_a_full_disk_is_one_sentence_and_results_are_rescued(tmp_path, size):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={size}", "x", disk)
    if os.geteuid() or subprocess.run(mount, check=False, timeout=30).returncode:
        pytest.skip("needs root, and a system that lets it mount a tmpfs")
    words = ("-m", "dadmm.run", *DISKS[size], "--out", disk / "run")
    try:
        ended = mpiexec(4, *words, cwd=tmp_path, TMPDIR=str(tmp_path))
        names = [path.name for path in (disk / "run").rglob("*")]
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False, timeout=30)

    assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False), ended
    (line,) = ended.said
    assert f"{disk}/run" in line
    (rescued,) = tmp_path.glob("run-rescued*")
    assert str(rescued) in line
    assert not [f for f in names if f.endswith(".draft") or f == "summary.json"]


@pytest.mark.slow
def test_neither_memory_nor_open_files_grow(tmp_path):
    """In half a minute; in thirty minutes: see `tests/campaigns/faults/README.md`."""
    words = ("-m", "dadmm.run", "--record-edges", "--out", "run", *FOREVER)
    job = processes.mpi_python(4, *words, "--max-seconds", 60, cwd=tmp_path)
    table, found = tmp_path / "run" / "ranks.csv", []
    job.wait_until(table.exists)
    for seconds in (15, 30):
        time.sleep(seconds)
        ranks = [Path("/proc", row["pid"]) for row in rows_of(table)]
        texts = [(rank / "status").read_text() for rank in ranks]
        memory = [int(text.partition("RssAnon:")[2].split()[0]) for text in texts]
        files = sum(len([*(rank / "fd").iterdir()]) for rank in ranks)
        found.append((sum(memory), files))
    assert job.end().code == 0

    (before, files), (after, more_files) = found
    assert after < 1.05 * before + 5000  # kilobytes
    assert more_files <= files
