"""Over MPI: the same bits as in one process, and what happens when things go wrong."""

import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dadmm.run
from tests.support.processes import (
    FAULTY,
    fault,
    find_mpiexec,
    mpi_python,
    mpiexec,
    planned,
    program,
    python,
    settings_of,
)
from tests.support.runs import assert_same_arrays, history_of, summary_of

pytestmark = pytest.mark.mpi

RANKS = 4
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
    assert len(ended.out.splitlines()) == 13


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
        job = mpi_python(4, "-m", "dadmm.run", "--out", "run", *FOREVER, cwd=tmp_path)
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
    if find_mpiexec() is None:
        pytest.skip("no MPI library to mismatch")
    is_open = "OMPI_ALLOW_RUN_AS_ROOT" in settings_of(find_mpiexec())
    prefix = "PMI" if is_open else "OMPI_COMM_WORLD"
    given = [{f"{prefix}_RANK": k, f"{prefix}_SIZE": "3"} for k in "012"]
    jobs = [python("-m", "dadmm.run", cwd=tmp_path, **each) for each in given]
    ended = [job.end() for job in jobs]

    assert [(each.code, len(each.said)) for each in ended] == [(2, 1), (2, 0), (2, 0)]
    assert not any("Traceback" in each.err for each in ended)
    assert not list(tmp_path.iterdir())


DATA = ("--n-components", 2, "--data")
BAD = {  # command lines, and the culprit that is named
    "unknown scheme": (("--scheme", "vpp"), "'vpp'"),
    "fewer nodes than ranks": (("--nodes", 3), "3 nodes"),
    "an infinite value on one rank": ((*DATA, "inf-{rank}.npy"), "rank 2: node 2: "),
    "a column that no rank observes": ((*DATA, "nan-{rank}.npy"), "column 3"),
    "other columns on one rank": ((*DATA, "columns-{rank}.npy"), "node 1"),
    "no file on one rank": ((*DATA, "missing-{rank}.npy"), "rank 3: node 3: "),
    "too few files": (("--nodes", 5, *DATA, "x-{rank}.npy"), "5 nodes"),
    "a folder that is not empty": (("--out", "taken"), "taken"),
}
DISKS = {  # with a size of which a run needs more
    "64k": ("--record-edges", *FOREVER, "--max-seconds", 60),  # fills during the run
    "128k": ("--tolerance", 0, "--max-iter", 150),  # fills at the end
}
BAD |= {k: ((*more, "--out", f"{k}/run"), f"{k}/run") for k, more in DISKS.items()}
FEW = ("--payload", "quantised:5", "--edge-sleep", 0.4, "--censor", 0.1)
SHORT = ("--n-components", 2, "--record-edges", "--max-iter")
GOOD = {  # others are in placed.py
    "a file per rank": (*SHORT, 12, "--data", "part-{rank}.npy", "--record-angle"),
    "labels": (*SHORT, 12, "--data", "labelled.csv", "--labels", -1),
    "turns": (*SHORT, 30, "--topology", "a.edges,b.edges", *FEW, "--send-every", 2),
}
SPEAKING = {
    "strict": ("--max-iter", 3, "--strict", "--out", "strict"),
    "in time": (*FOREVER, "--max-seconds", 0.3, "--out", "in-time"),
    "dry": ("--dry-run", "--scheme", "ap"),
    "version": ("--version",),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder full of good and bad files, with small file systems where allowed."""
    path = tmp_path_factory.mktemp("cases")
    samples = np.random.default_rng(0).standard_normal((40, 6))
    labelled = np.column_stack([samples, np.arange(40) % RANKS])
    np.savetxt(path / "labelled.csv", labelled, delimiter=",", fmt="%.17g")
    for k in range(RANKS):
        own = samples[10 * k : 10 * k + 8 + k].copy()
        np.save(path / f"part-{k}.npy", own)
        np.save(path / f"columns-{k}.npy", own[:, : 5 if k == 1 else 6])
        if k != 3:
            np.save(path / f"missing-{k}.npy", own)
        np.save(path / f"nan-{k}.npy", np.where(np.arange(6) == 3, np.nan, own))
        own[5, 3] = np.inf if k == 2 else np.nan
        np.save(path / f"inf-{k}.npy", own)
    (path / "a.edges").write_text("0 1\n2 3\n")
    (path / "b.edges").write_text("1 2\n3 0\n")
    (path / "taken").mkdir()
    (path / "taken" / "thesis.tex").write_text("years of work")
    mounted = []
    for size in DISKS if os.geteuid() == 0 else ():
        (path / size).mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "x", path / size]
        if subprocess.run(command, check=False, timeout=30).returncode:
            (path / size).rmdir()
        else:
            mounted.append(path / size)
    yield path
    for disk in mounted:
        subprocess.run(["umount", "--lazy", disk], check=False, timeout=30)


@pytest.fixture(scope="module")
def reports(folder):
    """What every rank of one start did with every command line."""
    absent = {name for name in DISKS if not (folder / name).exists()}
    cases = {name: words for name, (words, _) in BAD.items() if name not in absent}
    cases |= {name: (*words, "--out", f"ranks/{name}") for name, words in GOOD.items()}
    plain = {name: [*map(str, words)] for name, words in (cases | SPEAKING).items()}
    (folder / "cases.json").write_text(json.dumps(plain))
    words = (*program("each.py"), "cases.json", "reports.json")
    ended = mpiexec(RANKS, *words, cwd=folder, TMPDIR=str(folder))
    assert ended.code == 0, ended.err
    return json.loads((folder / "reports.json").read_text())


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(reports, folder, name):
    if name not in reports:
        pytest.skip("needs root, and a system that lets it mount a tmpfs")
    report, (line, end) = reports[name], reports[name]["err"][0].split("\n")

    assert line.startswith("dadmm: error: ")
    assert BAD[name][1] in line
    assert name not in DISKS or f"{folder}/run-rescued" in line
    assert end == ""
    assert report["err"][1:] == [""] * (RANKS - 1)
    assert report["codes"] == [2] + [0] * (RANKS - 1)
    assert report["out"] == ""
    assert not (folder / "runs").exists()
    assert [path.name for path in (folder / "taken").iterdir()] == ["thesis.tex"]
    files = [path.name for path in (folder / name).rglob("*")]
    assert not [f for f in files if f.endswith(".draft") or f == "summary.json"]


@pytest.mark.parametrize("name", GOOD)
def test_the_main_job_writes_the_same_over_mpi(reports, folder, name, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = [str(word) for word in GOOD[name]]
    here, there = Path("alone") / name, Path("ranks") / name
    assert dadmm.run.main([*arguments, "--nodes", "4", "--out", str(here)]) == 0

    assert reports[name]["codes"] == [0] * RANKS
    assert reports[name]["err"] == [""] * RANKS
    for file in ("config.toml", "edges.csv"):
        assert (here / file).read_text() == (there / file).read_text()
    for file in here.glob("*.npz"):
        assert_same_arrays(file, there / file.name)
    assert history_of(here) == history_of(there)
    ours, alone = summary_of(there), summary_of(here)
    for key in ("iterations", "messages", "bytes", "silent_messages", "metrics"):
        assert ours[key] == alone[key]
    assert (ours["silent_messages"] > 0) == (name == "turns")


def test_only_rank_0_speaks(reports, folder):
    for name in SPEAKING:
        assert reports[name]["err"] == [""] * RANKS
        code = 3 if name == "strict" else 0
        assert reports[name]["codes"] == [code] + [0] * (RANKS - 1)
    assert reports["dry"]["out"].count('scheme = "ap"\n') == 1
    assert reports["version"]["out"] == f"dadmm {dadmm.__version__}\n"
    summary = summary_of(folder / "in-time")
    assert (summary["reason"], summary["converged"]) == ("max_seconds", False)
    assert len(history_of(folder / "in-time")) == 1 + RANKS * summary["iterations"]
