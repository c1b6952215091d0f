"""What the launcher says about a job that failed: who, why, and how to go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.mpi import diagnosis, monitor
from tests.support.processes import PROGRAMS, ROOT, Job, find_mpiexec, python, variables

SAID = ROOT / "tests" / "launch" / "recorded"
TIMEOUT = 60
RESUME = "./launch/local -n 4 --resume"

pytestmark = pytest.mark.mpi


def write_run(folder: Path, pids=(11, 12, 13, 14), hosts=("vm",) * 4) -> Path:
    """Make the folder of a run that had begun, of one rank per process."""
    folder.mkdir()
    rows = [f"{k},{k},{hosts[k]},{pid}\n" for k, pid in enumerate(pids)]
    (folder / "ranks.csv").write_text("rank,node,host,pid\n" + "".join(rows))
    (folder / "config.toml").write_text(f'scheme = "auto"\nnodes = {len(pids)}\n')
    return folder


def write_checkpoint(folder: Path, iteration: int, nodes) -> None:
    """Leave the states of some nodes."""
    place = folder / "checkpoints" / f"{iteration:08d}"
    place.mkdir(parents=True)
    for i in nodes:
        (place / f"node-{i:05d}.npz").touch()


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of four ranks on one host, seen from the folder beside it."""
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path / "run")


# Who died, in the words of each MPI

KILLED = "died, it seems of SIGKILL (often the kernel, when memory runs out)"
CRASHED = "SIGSEGV (a mistake in compiled code)"
SEEN = {
    "mpich-sigkill": KILLED,
    "mpich-sigsegv": f"died, it seems of {CRASHED}",
    "mpich-exit": "ended first, and nobody has said why",
    "openmpi-sigkill": KILLED.replace(", it seems", ""),
    "openmpi-sigsegv": f"died of {CRASHED}",
    "openmpi-exit": "ended with code 5",
    "intel-sigkill": KILLED.replace(", it seems", ""),
    "intel-sigsegv": f"died of {CRASHED}",
    "intel-exit": "ended by itself, and has not said why",
}
SOME = "a rank, of which nobody has said which,"
# where nobody watched the ranks, and the words do not tell
UNSEEN = {
    "mpich-sigkill": f"{SOME} {KILLED}",
    "mpich-sigsegv": f"{SOME} died, it seems of {CRASHED}",
    "mpich-exit": "nobody has said what happened (exit code 9)",
    "intel-sigkill": f"{SOME} {KILLED}",
    "intel-exit": f"{SOME} {KILLED}",
}


def pids_in(text: str) -> list[int]:
    """Return the processes of the recorded ranks, by rank."""
    return [int(re.search(f"rank {k} pid (\\d+)", text)[1]) for k in range(4)]


@pytest.mark.parametrize("name", SEEN)
def test_the_rank_that_died_is_named(tmp_path, name):
    """MPICH and Intel MPI name others, too, or instead: so somebody must have seen."""
    text = (SAID / f"{name}.txt").read_text()
    pids = pids_in(text)
    folder = write_run(tmp_path / "run", pids)

    for first in (2, 2 if name in UNSEEN else None):
        said = diagnosis.explain(RESUME, text, folder, 9, first)
        assert said[0] == f"node 2 (rank 2 on vm) {SEEN[name]}"


@pytest.mark.parametrize("name", UNSEEN)
def test_nobody_is_named_whom_nobody_saw(tmp_path, name):
    """MPICH gives the process of a rank that it ended itself: better no name."""
    text = (SAID / f"{name}.txt").read_text()
    pids = pids_in(text)
    folder = write_run(tmp_path / "run", pids)

    said = diagnosis.explain(RESUME, text, folder, 9)
    assert said[0] == UNSEEN[name]


@pytest.mark.parametrize("name", ["mpich", "openmpi", "intel"])
def test_an_exception_is_repeated(run, name):
    """The last line of its traceback; what the MPI adds is not part of it."""
    text = (SAID / f"{name}-exception.txt").read_text()
    said = diagnosis.explain(RESUME, text, run, 1, first=0)

    assert said[0] == (
        "node 2 (rank 2 on vm) failed: RuntimeError: this was to be expected"
    )


def test_the_first_of_several_exceptions_counts(run):
    """With its cause above it, and a progress line before."""
    text = "iteration 3\rdadmm: rank 1 failed:\nTraceback (most recent call last):\n"
    text += "  File x\nKeyError: 'a'\n\nDuring handling of the above exception, "
    text += "another exception occurred:\n\nTraceback (most recent call last):\n"
    text += "OSError: [Errno 28] No space left on device\ndadmm: rank 3 failed:\n"
    said = diagnosis.explain(RESUME, text, run, 1)

    assert said[0].endswith(
        "1 (rank 1 on vm) failed: OSError: [Errno 28] No space left on device"
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("sigkill", f"node 2 (rank 2 on vm) {KILLED.replace(', it seems', '')}"),
        ("memory", "node 2 (rank 2 on vm) was killed by the kernel, as memory ran out"),
        ("time", f"{SOME} was ended by Slurm: time limit"),
        ("exit", "node 2 (rank 2 on vm) ended: Exited with exit code 1"),
    ],
)
def test_what_srun_says_is_understood(run, name, sentence):
    """The first that it names; the others it has ended."""
    text = (SAID / f"slurm-{name}.txt").read_text()

    assert diagnosis.explain(RESUME, text, run, 137)[0] == sentence


@pytest.mark.parametrize("name", ["mpich", "openmpi", "intel"])
def test_a_lost_host_is_named(tmp_path, name):
    """MPICH does not; but where there is one other host, it is that."""
    text = (SAID / f"{name}-lost-host.txt").read_text()
    hosts = ("host0", "host0", "host1", "host1")
    folder = write_run(tmp_path / "run", hosts=hosts)

    said = diagnosis.explain(RESUME, text, folder, 255)
    assert said[0] == "host host1 was lost, and the ranks on it with it"


def test_a_host_that_mpich_lost_is_one_of_several(tmp_path):
    """And before there is a folder, nobody knows."""
    text = (SAID / "mpich-lost-host.txt").read_text()
    folder = write_run(tmp_path / "run", hosts=("host0", "host1", "host2", "host3"))
    few, none = (diagnosis.explain(RESUME, text, f, 255) for f in (folder, None))

    assert few[0].startswith("one of the hosts host1, host2, host3 was lost")
    assert none[0].startswith("mpiexec lost the connection to a host")


def test_the_kernel_is_named_where_it_counts(run):
    """Its counter of processes killed for memory has risen meanwhile."""
    text = (SAID / "openmpi-sigkill.txt").read_text()
    said = diagnosis.explain(RESUME, text, run, 137, out_of_memory=True)

    assert "died of SIGKILL (the kernel killed it, as memory ran out" in said[0]


def test_this_kernel_has_such_a_counter():
    """Or there is none, and nothing rises."""
    assert monitor.memory_kills() >= 0
    if "oom_kill " in Path("/proc/vmstat").read_text():
        counted = Path("/proc/vmstat").read_text().split("oom_kill ")[1].split()[0]
        assert monitor.memory_kills() >= int(counted)


def test_it_is_said_where_nothing_is_known(run):
    """With the exit code, which somebody may know to read."""
    said = diagnosis.explain(RESUME, "", run, 42)

    assert said[0] == "nobody has said what happened (exit code 42)"


# How to go on


def test_the_last_whole_checkpoint_is_named(run):
    """A later one that lacks a node's file is none."""
    for iteration in (80, 120):
        write_checkpoint(run, iteration, range(4))
    write_checkpoint(run, 160, (0, 1, 3))
    said = diagnosis.explain(RESUME, "", run, 1)

    assert said[1] == (
        "run has a checkpoint of iteration 120; "
        "resume with ./launch/local -n 4 --resume run"
    )


def test_the_folder_is_quoted(tmp_path, monkeypatch):
    """The command is to be copied."""
    monkeypatch.chdir(tmp_path)
    folder = write_run(tmp_path / "my run")
    write_checkpoint(folder, 5, range(4))

    said = diagnosis.explain(RESUME, "", folder, 1)
    assert said[1].endswith("resume with ./launch/local -n 4 --resume 'my run'")


def test_without_a_checkpoint_it_says_how_to_have_one(run):
    """And without a folder that there is nothing to resume."""
    assert "no whole checkpoint" in diagnosis.explain(RESUME, "", run, 1)[1]
    assert "--checkpoint-seconds" in diagnosis.explain(RESUME, "", run, 1)[1]
    assert "nothing to resume" in diagnosis.explain(RESUME, "", None, 1)[1]
    assert diagnosis.explain(RESUME, "", None, 1, here=False)[1] == (
        "nothing is known here of a folder of the run: if it has one, resume with "
        f"{RESUME} FOLDER, else start it again"
    )


def test_what_speaks_for_itself_is_left_alone(run):
    """Bad input, a run that did not converge, results that are there."""
    assert diagnosis.explain(RESUME, "dadmm: error: x", run, 2) == []
    assert diagnosis.explain(RESUME, "dadmm: error: x", None, 2) == []
    assert diagnosis.explain(RESUME, "", run, 3) == []
    (run / "summary.json").touch()
    assert diagnosis.explain(RESUME, "", run, 9) == []


def test_bad_input_of_which_nothing_was_heard_is_not_silent():
    """Where mpiexec has lost what a rank said, there is a sentence all the same."""
    (said, _) = diagnosis.explain(RESUME, "\n", None, 2)

    assert said == "nobody has said what happened (exit code 2)"


def test_who_failed_before_it_could_say_who_it_is_is_quoted():
    """As where dadmm is not installed: twenty tracebacks, and the MPI says nothing."""
    text = (
        "Traceback (most recent call last):\n"
        '  File "<frozen runpy>", line 112, in _get_module_details\n'
        "ModuleNotFoundError: No module named 'dadmm'\n"
    )
    (said, _) = diagnosis.explain(RESUME, text * 2, None, 1)

    assert said == (
        "a rank, of which nobody has said which, failed: "
        "ModuleNotFoundError: No module named 'dadmm'"
    )


def test_a_run_that_cannot_write_may_go_on_later(run):
    """A full disk is code 2, and said; when there is room again, the run resumes."""
    write_checkpoint(run, 7, range(4))
    said = diagnosis.explain(RESUME, "dadmm: error: cannot write to run: No", run, 2)

    assert said == [
        "run has a checkpoint of iteration 7; "
        "resume with ./launch/local -n 4 --resume run"
    ]


def test_the_command_reads_a_folder_and_a_file(tmp_path):
    """As a batch script calls it, with what srun said."""
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 40, range(4))
    words = (SAID / "slurm-sigkill.txt", "sbatch launch/slurm.sbatch --resume")
    ended = python(ROOT / "launch", "diagnose", folder, *words, cwd=tmp_path).end()

    assert ended.code == 0
    assert ended.out.splitlines() == [
        "dadmm: node 2 (rank 2 on vm) died of SIGKILL (often the kernel, when memory "
        "runs out)",
        "dadmm: run has a checkpoint of iteration 40; resume with "
        "sbatch launch/slurm.sbatch --resume run",
    ]


# The witness

DRIVER = """
import os, sys
sys.path.insert(0, sys.argv[1])
from launch.mpi import job
sys.exit(job.run_job(sys.argv[2:], dict(os.environ), "./launch/local -n 4 --resume"))
"""


def launch(*command, cwd, **more) -> subprocess.Popen:
    """Start a command under `run_job`."""
    words = [sys.executable, "-c", DRIVER, str(ROOT), *map(str, command)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, cwd=cwd, env=variables(**more), **pipes)


def shell(script: str, cwd: Path) -> subprocess.Popen:
    return launch("/bin/sh", "-c", script, cwd=cwd)


def test_output_passes_unchanged_and_at_once(tmp_path):
    """Before the job goes on: each stream by itself, with its carriage returns."""
    job = shell(
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


def test_much_output_passes_whole(tmp_path):
    """More than a pipe holds, and than is kept."""
    job = shell("seq 100000; seq 100000 >&2", tmp_path)
    out, err = job.communicate(timeout=TIMEOUT)

    assert out == err == "".join(f"{k}\n" for k in range(1, 100001)).encode()


def test_a_reader_that_leaves_does_not_end_the_job(tmp_path):
    """As in `./launch/local | head`: its results are in files."""
    job = shell("sleep 0.3; seq 100000; touch done", tmp_path)
    assert job.stdout is not None
    job.stdout.close()
    job.stdout = None
    job.communicate(timeout=TIMEOUT)

    assert job.returncode == 0
    assert (tmp_path / "done").exists()


def test_a_process_that_lives_on_is_not_waited_for(tmp_path):
    """It holds the stream open, as daemons of launchers do."""
    job = shell("sleep 600 & echo $! >pid; exit 3", tmp_path)
    try:
        assert job.wait(TIMEOUT) == 3
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        job.communicate(timeout=TIMEOUT)


def test_a_run_without_results_failed_whatever_its_code(tmp_path):
    """Open MPI ends with 0 when it has lost a host."""
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 9, range(4))
    job = shell(f"printf {folder} >$DADMM_RUN_FILE", tmp_path)
    _, err = job.communicate(timeout=TIMEOUT)

    assert job.returncode == 1
    assert b"resume with ./launch/local -n 4 --resume run" in err


REPORTS = "import dadmm.exchange.launch_link as l; l.connect_to_launcher()"  # and ends


def test_an_mpiexec_that_does_not_see_a_rank_end_is_ended(tmp_path):
    """As Intel MPI's, if that was before MPI started there; even one deaf to TERM."""
    deaf = f"trap '' TERM; PMI_RANK=2 PMI_SIZE=4 {sys.executable} -c '{REPORTS}'"
    driver = DRIVER.replace("import job", "import job, witness; witness.PATIENCE = 0.2")
    script = f"{deaf}; for k in $(seq 300); do sleep 0.2; done"  # not for ever
    words = [sys.executable, "-c", driver, str(ROOT), "/bin/sh", "-c", script]
    ended = Job(words, tmp_path, variables()).end()

    assert ended.code == 128 + signal.SIGKILL
    assert ended.said[:2] == [
        "dadmm: a rank has ended, and mpiexec does not end the others: ending it",
        "dadmm: node 2 (rank 2) ended first, and nobody has said why",
    ]


def test_a_run_that_outlives_its_ranks_is_not_ended(tmp_path):
    """With ULFM: the others are at work."""
    script = f"PMI_RANK=2 PMI_SIZE=4 {sys.executable} -c '{REPORTS}'; sleep 1; echo on"
    driver = DRIVER.replace("import job", "import job, witness; witness.PATIENCE = 0.2")
    words = [sys.executable, "-c", driver, str(ROOT), "/bin/sh", "-c", script]
    ended = Job([*words, "--with-ft"], tmp_path, variables()).end()

    assert (ended.code, ended.out) == (0, "on\n")


def test_the_folder_of_a_run_on_other_hosts_is_that_of_its_arguments(tmp_path):
    """No rank can leave word of it; and one of an earlier run will not do."""
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 9, range(4))
    driver = DRIVER.replace('--resume"', "--resume\", job.Path('run')")
    command = ["/bin/sh", "-c", "exit 9"]
    words = [sys.executable, "-c", driver, str(ROOT), *command]
    ended = Job(words, tmp_path, variables()).end()
    assert ended.said[-1].endswith("resume with ./launch/local -n 4 --resume run")

    os.utime(folder / "config.toml", (0, 0))
    ended = Job(words, tmp_path, variables()).end()
    assert ended.said[-1].startswith("dadmm: nothing is known here of a folder of the")


def test_a_run_that_writes_nothing_any_more_is_noticed(tmp_path):
    """A frozen rank, or a host that is gone without a word; it is not ended."""
    rows = tmp_path / "run" / "parts" / "history-00000.csv"
    rows.parent.mkdir(parents=True)
    rows.touch()
    script = f"printf {rows.parents[1]} >$DADMM_RUN_FILE; "
    script += (
        f"for k in 1 2 3; do echo $k >>{rows}; sleep 0.2; done; sleep 1; rm {rows}"
    )
    driver = DRIVER.replace("import job", "import job, pulse; pulse.QUIET = 0.5")
    words = [sys.executable, "-c", driver, str(ROOT), "/bin/sh", "-c", script]
    ended = Job(words, tmp_path, variables()).end()

    assert ended.said[0].startswith("dadmm: no iteration has ended for 0.5 s: they are")


def test_no_file_is_left_behind(tmp_path):
    """The one in which rank 0 names the folder."""
    (tmp_path / "tmp").mkdir()
    job = launch("/bin/sh", "-c", "exit 1", cwd=tmp_path, TMPDIR=str(tmp_path / "tmp"))
    job.communicate(timeout=TIMEOUT)

    assert not list((tmp_path / "tmp").iterdir())


# Real jobs

FOREVER = ("--tolerance", 0, "--max-iter", 10**8, "--quiet")


def real_job(tmp_path: Path, *program) -> Job:
    """Start a job of four ranks without end, under the launcher and a real mpiexec."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    words = [mpiexec, "-n", "4", sys.executable, *program, "--out", "run", *FOREVER]
    driver = [sys.executable, "-c", DRIVER, str(ROOT), *map(str, words)]
    return Job(driver, tmp_path, variables())


def wait_for_rows(job: Job, folder: Path) -> None:
    """Wait until all ranks iterate."""
    parts = [folder / "parts" / f"history-{k:05d}.csv" for k in range(4)]
    job.wait_until(lambda: all(part.exists() for part in parts))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_is_named(tmp_path, rank):
    """With whatever MPI there is; a checkpoint that is there can be resumed."""
    job = real_job(tmp_path, "-m", "dadmm.run", "--topology", "chain")
    wait_for_rows(job, tmp_path / "run")
    write_checkpoint(tmp_path / "run", 33, range(4))
    row = monitor.roster(tmp_path / "run")[rank]
    assert (row["rank"], row["host"]) == (str(rank), os.uname().nodename)
    os.kill(int(row["pid"]), signal.SIGKILL)
    ended = job.end()

    assert ended.code not in (0, 2, 3)
    assert "SIGKILL" in ended.said[-2]
    assert ended.said[-2].startswith(
        f"dadmm: node {rank} (rank {rank} on {os.uname().nodename}) died"
    )
    assert ended.said[-1] == (
        "dadmm: run has a checkpoint of iteration 33; "
        "resume with ./launch/local -n 4 --resume run"
    )


def test_an_exception_of_a_rank_is_repeated(tmp_path):
    """After its traceback, which has passed."""
    job = real_job(tmp_path, PROGRAMS / "failing_rank.py", 3, "raise")
    ended = job.end()

    assert ended.code == 1
    assert ended.err.count("Traceback") == 1
    assert ended.said[-2] == (
        f"dadmm: node 3 (rank 3 on {os.uname().nodename}) failed: "
        "RuntimeError: this was to be expected"
    )
    assert "no whole checkpoint" in ended.said[-1]


def test_a_full_disk_is_said_once(tmp_path):
    """By rank 0, with code 2; the launcher adds only how to go on, if that is so."""
    if os.geteuid() != 0:
        pytest.skip("needs root, and a system that lets it mount a tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "dadmm-test", str(disk)]
    if subprocess.run(mount, capture_output=True, timeout=30).returncode:
        pytest.skip("needs a system that lets root mount a tmpfs")
    try:
        job = real_job(disk, "-m", "dadmm.run", "--record-edges")
        wait_for_rows(job, disk / "run")
        write_checkpoint(disk / "run", 33, range(4))
        (disk / "ballast").write_bytes(bytes(2**16))
        ended = job.end()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False, timeout=30)

    assert ended.code == 2, ended
    assert len(ended.said) == 2
    assert "cannot write to run: No space left on device" in ended.said[0]
    assert ended.said[1].endswith("resume with ./launch/local -n 4 --resume run")


def test_a_run_that_ends_well_leaves_only_its_results(tmp_path):
    """And is not explained."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip(f"no mpiexec beside {sys.executable}, nor in DADMM_MPIEXEC")
    words = (mpiexec, "-n", 4, sys.executable, "-m", "dadmm.run", "--max-iter", 5)
    job = launch(*words, "--out", "run", cwd=tmp_path)
    out, err = job.communicate(timeout=TIMEOUT)

    assert (job.returncode, err) == (0, b"")
    assert b"after 5 iterations" in out
    ranks = monitor.roster(tmp_path / "run")
    assert [row["node"] for row in ranks] == ["0", "1", "2", "3"]
