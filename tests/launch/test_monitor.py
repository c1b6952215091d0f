"""Jobs under a launch command: their output, failed ranks, hanging and stalled jobs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.base.run_folder import read_ranks
from tests.support.processes import PROGRAMS, Job, find_mpiexec, variables
from tests.support.run_folders import write_checkpoint, write_run

TIMEOUT = 60
RESUME = "resume with ./launch/local -n 4 --resume run"

pytestmark = pytest.mark.mpi


def command(*words: object, **options: object) -> list[str]:
    """Return the command that runs a command under `run_job`."""
    start = [sys.executable, str(PROGRAMS / "run_job.py"), json.dumps(options)]
    return [*start, *map(str, words)]


def run_script(script: str, cwd: Path, *words: str, **options: object):
    """Run a shell script in place of mpiexec to its end."""
    words = command("/bin/sh", "-c", script, *words, **options)
    return Job(words, cwd, variables()).end()


def start_script(script: str, folder: Path, **more: str) -> subprocess.Popen:
    """Start a shell script in place of mpiexec, with pipes for its output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    words = command("/bin/sh", "-c", script)
    return subprocess.Popen(words, cwd=folder, env=variables(**more), **pipes)


def test_output_passes_unchanged_and_at_once(tmp_path):
    """Each stream by itself, with its carriage returns, while the job runs."""
    job = start_script(
        "printf 'a\\r\\0\\377'; printf 'b\\r' >&2; "
        "until test -e go; do sleep 0.05; done; printf 'c' >&2",
        tmp_path,
    )
    assert job.stdout is not None
    assert job.stderr is not None
    assert job.stdout.read(4) == b"a\r\0\xff"
    assert job.stderr.read(2) == b"b\r"
    (tmp_path / "go").touch()
    out, err = job.communicate(timeout=TIMEOUT)

    assert (out, err, job.returncode) == (b"", b"c", 0)


def test_long_output_passes_completely_or_is_not_read(tmp_path):
    """Longer than a pipe holds; unread as in `./launch/local | head`."""
    job = start_script("seq 100000; seq 100000 >&2", tmp_path)
    out, err = job.communicate(timeout=TIMEOUT)
    assert out == err == "".join(f"{k}\n" for k in range(1, 100001)).encode()
    job = start_script("sleep 0.3; seq 100000; touch done", tmp_path)
    assert job.stdout is not None
    job.stdout.close()
    job.stdout = None
    job.communicate(timeout=TIMEOUT)

    assert job.returncode == 0
    assert (tmp_path / "done").exists()


def test_a_process_that_keeps_the_output_open_is_not_waited_for(tmp_path):
    """As the daemons of some MPIs do; no temporary file is left."""
    (tmp_path / "tmp").mkdir()
    script = "sleep 600 & echo $! >pid; exit 3"
    job = start_script(script, tmp_path, TMPDIR=str(tmp_path / "tmp"))
    try:
        assert job.wait(TIMEOUT) == 3
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        job.communicate(timeout=TIMEOUT)
    assert not list((tmp_path / "tmp").iterdir())


REPORT = "import dadmm.exchange.launch_link as l; l.connect_to_launcher()"
RANK_ENDS = f"PMI_RANK=2 PMI_SIZE=4 {shlex.quote(sys.executable)} -c '{REPORT}'"


def test_a_run_without_results_has_failed_whatever_its_code(tmp_path):
    """Open MPI ends with 0 when it has lost a host."""
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 9, range(4))
    ended = run_script(f"printf {folder} >$DADMM_RUN_FILE", tmp_path)

    assert ended.code == 1
    assert ended.said[-1].endswith(RESUME)


def test_an_mpiexec_that_hangs_after_the_end_of_a_rank_is_ended(tmp_path):
    """As Intel MPI's, if MPI had not started in the rank; even if it ignores TERM."""
    script = f"trap '' TERM; {RANK_ENDS}; for k in $(seq 300); do sleep 0.2; done"
    ended = run_script(script, tmp_path, patience=0.2)

    assert ended.code == 128 + signal.SIGKILL
    assert ended.said[:2] == [
        "dadmm: a rank has ended, but mpiexec has not; ending the job",
        "dadmm: node 2 (rank 2) ended first, for an unknown reason",
    ]


def test_a_run_that_tolerates_failed_ranks_is_not_ended(tmp_path):
    """With ULFM, the other ranks continue."""
    script = f"{RANK_ENDS}; sleep 1; echo on"
    ended = run_script(script, tmp_path, "--with-ft", patience=0.2)

    assert (ended.code, ended.out) == (0, "on\n")


def test_the_folder_of_a_run_on_other_hosts_is_that_of_its_arguments(tmp_path):
    """Rank 0 cannot report it; the folder of an earlier run is not used."""
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 9, range(4))
    ended = run_script("exit 9", tmp_path, folder="run")
    assert ended.said[-1].endswith(RESUME)

    os.utime(folder / "config.toml", (0, 0))
    ended = run_script("exit 9", tmp_path, folder="run")
    assert ended.said[-1].startswith("dadmm: the folder of the run is not known on")


def test_a_stalled_run_is_noticed(tmp_path):
    """A rank was stopped, or a host was lost; the run is not ended."""
    rows = tmp_path / "run" / "parts" / "history-00000.csv"
    rows.parent.mkdir(parents=True)
    rows.touch()
    script = f"printf {rows.parents[1]} >$DADMM_RUN_FILE; sleep 1.5; rm {rows}"
    ended = run_script(script, tmp_path, stall=0.5)

    assert ended.said[0].startswith("dadmm: no iteration has ended for 0.5 s: iterat")


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
    name = f"dadmm: node {rank} (rank {rank} on {os.uname().nodename}) was"
    assert ended.said[-2].startswith(name)
    assert "killed by SIGKILL" in ended.said[-2]
    assert ended.said[-1] == f"dadmm: run has a checkpoint of iteration 33; {RESUME}"


def test_an_exception_of_a_rank_is_repeated(tmp_path):
    ended = start_job(tmp_path, PROGRAMS / "failing_rank.py", 3, "raise").end()

    assert ended.code == 1
    assert ended.err.count("Traceback") == 1
    assert ended.said[-2] == (
        f"dadmm: node 3 (rank 3 on {os.uname().nodename}) failed: "
        "RuntimeError: this was to be expected"
    )
    assert "no complete checkpoint" in ended.said[-1]


def test_a_full_disk_is_reported_once(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, and a system that lets it mount a tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "dadmm-test", str(disk)]
    if subprocess.run(mount, capture_output=True, timeout=30).returncode:
        pytest.skip("needs a system that lets root mount a tmpfs")
    try:
        job = start_job(disk, "-m", "dadmm.run", "--record-edges")
        wait_for_rows(job, disk / "run")
        write_checkpoint(disk / "run", 33, range(4))
        (disk / "ballast").write_bytes(bytes(2**16))
        ended = job.end()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False, timeout=30)

    assert ended.code == 2, ended
    assert len(ended.said) == 2
    assert "cannot write to run: No space left on device" in ended.said[0]
    assert ended.said[1].endswith(RESUME)


def test_a_successful_run_is_not_explained(tmp_path):
    ended = start_job(tmp_path, "-m", "dadmm.run", arguments=("--max-iter", 5)).end()

    assert (ended.code, ended.err) == (0, "")
    assert "after 5 iterations" in ended.out
