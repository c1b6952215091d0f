"""Jobs under the launch commands: signals, output, failed ranks, the monitor."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.diagnosis import read_ranks
from launch.job import report_end
from tests.support.processes import (
    PROGRAMS,
    ROOT,
    Job,
    default_signals,
    find_mpiexec,
    variables,
)
from tests.support.run_folders import write_checkpoint, write_run

pytestmark = pytest.mark.mpi

TIMEOUT = 60
RESUME = "./launch/local -n 4 --resume run"
# An mpiexec that logs signals. It ends on USR1 unless STAY is set, and on TERM.
POLITE = """
exec >>log
trap 'echo INT' INT
trap 'echo TERM; exit 9' TERM
trap 'echo USR1; test "$STAY" || exit 0' USR1
echo ready
for i in $(seq 600); do sleep 0.1; done
"""
STAYING = "STAY=1\n" + POLITE
IGNORING_TERM = STAYING.replace("'echo TERM; exit 9'", "''")


def command(*words: object, **options: object) -> list[str]:
    """Return the command that runs a command under `run_job`."""
    start = [sys.executable, str(PROGRAMS / "run_job.py"), json.dumps(options)]
    return [*start, *map(str, words)]


def run_script(script: str, cwd: Path, *words: str, **options: object):
    """Run a shell script in place of mpiexec to its end."""
    words = command("/bin/sh", "-c", script, *words, **options)
    return Job(words, cwd, variables()).end()


def as_rank(rank: int, script: str = "", **facts: object) -> str:
    """Return a shell command that is a rank, which says something and runs a script."""
    words = f"link.connect_to_launcher(); link.tell_launcher(**{facts}); {script}"
    code = f"import time, dadmm.comm.launch_link as link; {words}"
    return f"PMI_RANK={rank} PMI_SIZE=4 {shlex.join([sys.executable, '-c', code])}"


@pytest.fixture
def start(tmp_path):
    """A function that starts a shell script in place of mpiexec, with pipes."""
    jobs = []

    def start(script, **more):
        jobs.append(
            subprocess.Popen(
                command("/bin/sh", "-c", script, grace=1),
                cwd=tmp_path,
                env=variables(**more),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=default_signals,
            )
        )
        return jobs[-1]

    yield start
    for job in jobs:
        if job.poll() is None:
            job.kill()
            job.communicate(timeout=TIMEOUT)


def wait_for(word, folder):
    """Wait until the script has logged a word."""
    end, log = time.monotonic() + TIMEOUT, folder / "log"
    while not (log.exists() and word in log.read_text().split()):
        assert time.monotonic() < end, f"mpiexec did not log {word}"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 42", 42), ("kill -KILL $$", 128 + signal.SIGKILL), ("cat; exit 0", 0)],
)
def test_the_exit_code_of_mpiexec_is_passed_on(tmp_path, script, code):
    """As a shell does for signals; and mpiexec has no input to wait for."""
    assert run_script(script, tmp_path).code == code


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_reaches_mpiexec_as_usr1(start, tmp_path, signum):
    """And as nothing else, although the whole process group was signalled."""
    job = start(POLITE)
    wait_for("ready", tmp_path)
    os.killpg(job.pid, signum)
    _, messages = job.communicate(timeout=TIMEOUT)

    assert job.returncode == 0
    assert (tmp_path / "log").read_text().split() == ["ready", "USR1"]
    assert len(messages.splitlines()) == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_the_second_signal_terminates_the_job(start, tmp_path, deaf):
    """timeout(1) signals its child and then its group, which counts once.

    A job that ignores TERM is killed after a few seconds.
    """
    job = start(IGNORING_TERM if deaf else STAYING)
    wait_for("ready", tmp_path)
    job.send_signal(signal.SIGTERM)
    os.killpg(job.pid, signal.SIGTERM)
    wait_for("USR1", tmp_path)
    time.sleep(0.5)
    assert job.poll() is None
    os.killpg(job.pid, signal.SIGINT)

    assert job.wait(TIMEOUT) == (128 + signal.SIGKILL if deaf else 9)
    log = ["ready", "USR1", "TERM"][: 2 if deaf else 3]
    assert (tmp_path / "log").read_text().split() == log


def test_output_passes_unchanged_and_at_once(start, tmp_path):
    """Each stream by itself, with its carriage returns, while the job runs.

    More of it than a pipe holds, or unread as in `./launch/local | head`.
    """
    job = start(
        "printf 'a\\r\\0\\377'; printf 'b\\r' >&2; "
        "until test -e go; do sleep 0.05; done; seq 100000 >&2"
    )
    assert job.stdout.read(4) == b"a\r\0\xff"
    assert job.stderr.read(2) == b"b\r"
    (tmp_path / "go").touch()
    out, err = job.communicate(timeout=TIMEOUT)
    assert (out, job.returncode) == (b"", 0)
    assert err == "".join(f"{k}\n" for k in range(1, 100001)).encode()
    job = start("sleep 0.3; seq 100000; touch done")
    job.stdout.close()
    job.stdout = None
    job.communicate(timeout=TIMEOUT)

    assert job.returncode == 0
    assert (tmp_path / "done").exists()


def test_a_process_that_keeps_the_output_open_is_not_waited_for(start, tmp_path):
    """As the daemons of some MPIs do; no temporary file is left."""
    (tmp_path / "tmp").mkdir()
    job = start("sleep 600 & echo $! >pid; exit 3", TMPDIR=str(tmp_path / "tmp"))
    try:
        assert job.wait(TIMEOUT) == 3
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        job.communicate(timeout=TIMEOUT)
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("begun", "tolerant"), [(False, True), (True, False), (True, True)]
)
def test_an_mpiexec_that_hangs_after_the_end_of_a_rank_is_ended(
    tmp_path, begun, tolerant
):
    """As Intel MPI's, if MPI had not started in the rank; even if it ignores TERM.

    With ULFM, the other ranks of a run go on, but not those of one that has not begun.
    """
    facts = {"folder": str(write_run(tmp_path / "run"))} if begun else {}
    script = f"trap '' TERM; {as_rank(2, **facts)}; sleep 2; echo on; sleep 60"
    if begun and tolerant:
        script = script.replace("; sleep 60", "")
    words = ["--with-ft"] if tolerant else []
    ended = run_script(script, tmp_path, *words, patience=0.2, grace=1)

    if begun and tolerant:
        assert ended.out == "on\n"
    else:
        assert ended.code == 128 + signal.SIGKILL
        assert "mpiexec" in ended.said[0]
        assert "rank 2" not in ended.said[1]  # an unseen rank may have ended before


def test_ranks_without_mpiexec_are_killed(tmp_path):
    """Such as a rank that waits for a message, and so does not handle TERM."""
    wait = "import os; print(os.getpid(), file=open('pid', 'w')); time.sleep(300)"
    script = f"trap '' TERM; {as_rank(0, wait)} & until test -s pid; do sleep 0.1; done"
    ended = run_script(f"{script}; sleep 1; exit 9", tmp_path, left=0.2)

    assert ended.code == 9
    line = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    end = time.monotonic() + TIMEOUT
    while line.exists() and line.read_bytes():  # that of a zombie is empty
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_folder_of_a_failed_run_is_found(tmp_path):
    """Rank 0 reports it, or it is that of the arguments, unless it is an earlier one.

    A run without results has failed: Open MPI ends with 0 when it has lost a host.
    """
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 9, range(4))
    ended = run_script(as_rank(0, folder=str(folder)), tmp_path)
    assert ended.code == 1
    assert ended.said[-1].endswith(RESUME)
    os.utime(folder / "config.toml", 2 * (time.time() + TIMEOUT,))
    ended = run_script("exit 9", tmp_path, folder="run")
    assert ended.said[-1].endswith(RESUME)

    os.utime(folder / "config.toml", (0, 0))
    ended = run_script("exit 9", tmp_path, folder="run")
    assert RESUME not in ended.said[-1]


FOREVER = ("--tolerance", 0, "--max-iter", 10**8, "--quiet")


def start_job(folder: Path, *program, arguments=FOREVER) -> Job:
    """Start a job of four ranks under a launch command and a real mpiexec."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    job = [mpiexec, "-n", 4, sys.executable, *program, "--out", "run", *arguments]
    return Job(command(*job), folder, variables())


def wait_for_rows(job: Job, folder: Path) -> None:
    """Wait until all ranks iterate."""
    parts = [folder / "parts" / f"history-{k:05d}.csv" for k in range(4)]
    job.wait_until(lambda: all(part.exists() for part in parts))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_is_named(tmp_path, rank):
    job = start_job(tmp_path, "-m", "dadmm.run", "--topology", "chain")
    wait_for_rows(job, tmp_path / "run")
    write_checkpoint(tmp_path / "run", 33, range(4))
    row = read_ranks(tmp_path / "run")[rank]
    assert (row["rank"], row["host"]) == (str(rank), os.uname().nodename)
    os.kill(int(row["pid"]), signal.SIGKILL)
    ended = job.end()

    assert ended.code not in (0, 2, 3)
    assert f"node {rank} (rank {rank} on {os.uname().nodename})" in ended.said[-2]
    assert "SIGKILL" in ended.said[-2]
    assert "iteration 33" in ended.said[-1]
    assert ended.said[-1].endswith(RESUME)


class Seen:
    """What a monitor has seen of a job of four ranks, of which rank 2 ended first."""

    first, out_of_memory, has_stalled = 2, False, False

    def __init__(self, tail: str = "", connected: str = "here") -> None:
        self.tail, self.connected = tail, connected

    def said(self, name: str) -> list[int]:
        return [4]

    def has_seen(self, rank: int, anywhere: bool = False) -> bool:
        return rank > 0 or self.connected == "here" or bool(self.connected and anywhere)


RAISED = "dadmm: rank 3 failed:\nTraceback (most recent call last):\nOSError: x\n"


@pytest.mark.parametrize(
    ("code", "tail", "results", "result"),
    [
        (137, RAISED, False, 1),  # MPICH may return the code of a rank that it killed
        (137, "killed\n", False, 137),
        (255, "", True, 1),  # a kill after the results
        (3, "", True, 3),
    ],
)
def test_the_exit_code_is_one_of_dadmm(tmp_path, capfd, code, tail, results, result):
    if results:
        (tmp_path / "summary.json").touch()
    folder = tmp_path if results else None

    assert report_end(code, "resume", Seen(tail), folder, False) == result
    assert (tmp_path.name in capfd.readouterr().err) == (results and code == 255)


@pytest.mark.parametrize("connected", ["here", "elsewhere", ""])
def test_a_rank_is_named_only_if_all_were_seen(capfd, connected):
    """In set-up, one that has not connected may have ended first.

    The end of a rank of another host may be seen late.
    """
    tail = (ROOT / "tests/launch/recorded/mpich-sigkill.txt").read_text()

    assert report_end(9, "resume", Seen(tail, connected), None, False) == 9
    said = capfd.readouterr().err
    assert ("node 2" in said) == bool(connected)
    assert ("probably node 2" in said) == (connected == "elsewhere")
