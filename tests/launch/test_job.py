"""Jobs under the launch commands: signals, output, failed ranks and why, several hosts.

Lost hosts are in `tests/campaigns/faults`.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.emulation.network import AGENT
from dadmm.core import files
from dadmm.runs.folder import LOCK
from launch import job
from launch.diagnosis import Seen, explain, read_ranks
from launch.job import StopHandler, report_end
from tests.support.emulation import network, reached_by
from tests.support.processes import (
    PROGRAMS,
    ROOT,
    TIMEOUT,
    Job,
    comes_true,
    find_mpiexec,
    python,
    variables,
)
from tests.support.runs import (
    assert_same_arrays,
    summary_of,
    write_checkpoint,
    write_program,
    write_run,
)

pytestmark = pytest.mark.mpi

RECORDED = ROOT / "tests" / "launch" / "recorded"  # output of MPIs and Slurm
RESUME = "./launch/local -n 4 --resume"


def command(*words: object, **options: object) -> list[str]:
    start = [sys.executable, str(PROGRAMS / "run_job.py"), json.dumps(options)]
    return [*start, *map(str, words)]


def start(script: str, cwd: Path, *words: str, **options: object) -> Job:
    """Start a shell script in place of mpiexec."""
    line = command("/bin/sh", "-c", script, *words, **options)
    return Job(line, cwd, variables(TMPDIR=str(cwd)))


def as_rank(rank: int, script: str = "", **facts: object) -> str:
    """Return a shell command that is a rank, which says something and runs a script."""
    words = f"link.connect_to_launcher(); link.tell_launcher(**{facts}); {script}"
    code = f"import time, dadmm.comm.launch_link as link; {words}"
    return f"PMI_RANK={rank} PMI_SIZE=4 {shlex.join([sys.executable, '-c', code])}"


@pytest.mark.parametrize(
    ("first", "second", "code", "log"),
    [
        (signal.SIGINT, None, 0, "ready USR1"),
        (signal.SIGHUP, None, 0, "ready USR1"),
        (signal.SIGTERM, "", 9, "ready USR1 TERM"),
        (signal.SIGTERM, "deaf", 128 + signal.SIGKILL, "ready USR1"),
    ],
)
def test_the_first_signal_is_usr1_for_mpiexec_and_the_second_ends_it(
    tmp_path, first, second, code, log
):
    on_term = "" if second == "deaf" else "echo TERM; exit 9"
    script = f"""exec >>log
        trap 'echo INT' INT
        trap '{on_term}' TERM
        trap 'echo USR1; {"exit 0" if second is None else ""}' USR1
        echo ready
        for i in $(seq 600); do sleep 0.1; done"""
    started, file = start(script, tmp_path, grace=1), tmp_path / "log"
    started.wait_until(lambda: file.exists() and "ready" in file.read_text())
    os.killpg(started.process.pid, first)
    if second is not None:
        started.wait_until(lambda: "USR1" in file.read_text())
        time.sleep(0.5)
        assert started.process.poll() is None
        os.killpg(started.process.pid, signal.SIGINT)
    ended = started.end()

    assert ended.code == code
    assert file.read_text().split() == log.split()
    assert second is not None or len(ended.err.splitlines()) == 1


def test_a_signal_to_a_process_and_then_to_its_group_counts_once(monkeypatch):
    """As timeout(1) sends it."""
    now, alarms, stop = iter([0.0, 0.1, 0.2, 5.0]), [], StopHandler()
    monkeypatch.setattr(job.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(job.signal, "alarm", alarms.append)
    counts = [(stop(signal.SIGTERM), stop.count)[1] for _ in range(4)]

    assert (counts, alarms) == ([1, 1, 1, 2], [job.GRACE])


def test_output_passes_unchanged_and_at_once(tmp_path):
    """Each stream by itself, also more than a pipe holds, or unread as by `head`."""
    wait = "for i in $(seq 6000); do test -e go && break; sleep 0.01; done"
    script = f"printf 'a\\r\\0\\377'; printf 'b\\r' >&2; {wait}; seq 100000 >&2"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    pipes |= {"cwd": tmp_path, "env": variables()}
    with subprocess.Popen(command("/bin/sh", "-c", script), **pipes) as job:
        assert job.stdout.read(4) == b"a\r\0\xff"
        assert job.stderr.read(2) == b"b\r"
        (tmp_path / "go").touch()
        out, err = job.communicate(timeout=TIMEOUT)
    assert (out, job.returncode) == (b"", 0)
    assert err == "".join(f"{k}\n" for k in range(1, 100001)).encode()
    unread = command("/bin/sh", "-c", "sleep 0.3; seq 100000; touch done")
    with subprocess.Popen(unread, **pipes) as job:
        job.stdout.close()
        assert job.wait(TIMEOUT) == 0
    assert (tmp_path / "done").exists()


def test_a_process_that_keeps_the_output_open_is_not_waited_for(tmp_path):
    """As the daemons of some MPIs do; no temporary file is left."""
    job = start("sleep 600 & echo $! >pid; exit 3", tmp_path)
    try:
        assert job.end().code == 3
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert [path.name for path in tmp_path.iterdir()] == ["pid"]


@pytest.mark.parametrize(
    ("begun", "tolerant", "ranks"),
    [
        (False, True, 1),
        pytest.param(True, False, 1, marks=pytest.mark.slow),
        (True, True, 1),
        (True, True, 4),  # as PRRTE sometimes does (openpmix/prrte issue 1839)
    ],
)
def test_an_mpiexec_that_hangs_after_the_end_of_a_rank_is_ended(
    tmp_path, begun, tolerant, ranks
):
    """Even if it ignores TERM; with ULFM, a run that has begun goes on."""
    facts = {"folder": str(write_run(tmp_path / "run"))} if begun else {}
    goes_on = begun and tolerant and ranks < 4
    last, words = "" if goes_on else "sleep 60", ["--with-ft"] * tolerant
    all_ranks = " & ".join(as_rank(3 - k, **facts) for k in range(ranks))
    script = f"trap '' TERM; {all_ranks} & wait; sleep 2; echo on; {last}"
    ended = start(script, tmp_path, *words, patience=0.2, grace=1).end()

    if goes_on:
        assert ended.out == "on\n"
    else:
        assert ended.code == 128 + signal.SIGKILL
        assert "mpiexec" in ended.said[0]
        unseen = ranks < 4  # of which one may have ended before
        assert not (unseen and "rank 3" in ended.said[1])


def test_ranks_without_mpiexec_are_killed(tmp_path):
    """Such as a rank that waits for a message, and so does not handle TERM."""
    wait = "import os; print(os.getpid(), file=open('pid', 'w')); time.sleep(300)"
    script = f"trap '' TERM; {as_rank(0, wait)} & until test -s pid; do sleep 0.1; done"
    ended = start(f"{script}; sleep 1; exit 9", tmp_path, left=0.2).end()

    assert ended.code == 9
    line = Path("/proc", (tmp_path / "pid").read_text().strip(), "cmdline")
    # that of a zombie is empty
    assert comes_true(lambda: not (line.exists() and line.read_bytes()))


def test_the_folder_of_a_failed_run_is_found(tmp_path):
    """Rank 0 reports it, or it is that of the arguments, if it is not older.

    What an earlier run left there is not a result of this job.
    """
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 9, range(4))
    ended = start(as_rank(0, folder=str(folder)), tmp_path).end()
    assert ended.code == 1
    assert ended.said[-1].endswith(f"{RESUME} run")
    later, before = time.time() + TIMEOUT, time.time() - 1
    for changed, script, found in (
        (later, "exit 9", True),
        (before, "exit 9", False),
        (later, f"{as_rank(1)}; exit 9", False),  # rank 0 is here, and named none
    ):
        os.utime(folder / "config.toml", (changed, changed))
        ended = start(script, tmp_path, folder="run").end()
        assert ended.said[-1].endswith(f"{RESUME} run") is found
        (folder / "summary.json").touch()
        ended = start(script, tmp_path, folder="run").end()
        assert ("complete" in ended.said[-1]) is found
        (folder / "summary.json").unlink()


def test_an_mpiexec_that_was_killed_is_named(tmp_path):
    """Not the rank that ended first, which only followed it."""
    ended = start(f"{as_rank(2)}; kill -KILL $$", tmp_path).end()
    assert ended.code == 128 + signal.SIGKILL
    assert "mpiexec" in ended.said[0]


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_killed_rank_is_named(tmp_path, rank):
    mpiexec = find_mpiexec() or pytest.skip("there is no mpiexec")
    run = ("dadmm.run", "--topology", "chain", "--tolerance", 0, "--max-iter", 10**8)
    words = (mpiexec, "-n", 4, sys.executable, "-m", *run, "--quiet", "--out", "run")
    job, folder = Job(command(*words), tmp_path, variables()), tmp_path / "run"
    parts = [folder / "parts" / f"history-{k:05d}.csv" for k in range(4)]
    job.wait_until(lambda: all(part.exists() for part in parts))
    write_checkpoint(folder, 33, range(4))
    row, host = read_ranks(folder)[rank], os.uname().nodename
    assert (row["rank"], row["host"]) == (str(rank), host)
    os.kill(int(row["pid"]), signal.SIGKILL)
    ended = job.end()

    assert ended.code not in (0, 2, 3)
    assert f"node {rank} (rank {rank} on {host})" in ended.said[-2]
    assert "SIGKILL" in ended.said[-2]
    assert "iteration 33" in ended.said[-1]
    assert ended.said[-1].endswith(f"{RESUME} run")


class Watched:
    """What a monitor has seen of a job of four ranks, of which rank 2 ended first."""

    first, out_of_memory, has_stalled = 2, False, False

    def __init__(self, tail: str, connected: str) -> None:
        self.tail, self.connected, self.ranks = tail, connected, {}
        self.sees_rank_0 = connected == "here"

    def said(self, name: str) -> list[int]:
        return [4]

    def has_seen(self, rank: int, anywhere: bool = False) -> bool:
        return rank > 0 or self.connected == "here" or bool(self.connected and anywhere)


RAISED = "dadmm: rank 3 failed:\nTraceback (most recent call last):\nOSError: x\n"
MPICH = (RECORDED / "mpich-sigkill.txt").read_text()


@pytest.mark.parametrize(
    ("code", "tail", "connected", "results", "result", "said"),
    [
        (137, RAISED, "here", False, 1, "node 3"),  # MPICH's may be of another rank
        (137, "killed\n", "here", False, 137, "dadmm: node 2"),
        (255, "", "here", True, 1, "complete"),  # a kill after the results
        (3, "", "here", True, 3, ""),
        (9, MPICH, "here", False, 9, "dadmm: node 2"),
        (9, MPICH, "elsewhere", False, 9, "probably node 2"),  # its end is seen late
        (9, MPICH, "", False, 9, "an unknown rank"),  # rank 0 may have ended first
    ],
)
def test_the_code_is_one_of_dadmm_and_a_rank_is_named_if_all_were_seen(
    tmp_path, capfd, code, tail, connected, results, result, said
):
    if results:
        (tmp_path / "summary.json").touch()
    folder = tmp_path if results else None

    watched = Watched(tail, connected)
    assert report_end(code, "resume", watched, folder, False) == result
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(("script", "code"), [("", 0), ("import os; os._exit(0)", 1)])
def test_a_rank_that_ends_without_a_last_word_has_failed(tmp_path, script, code):
    ended = start(as_rank(2, script), tmp_path).end()
    assert (ended.code, "failed" in ended.err) == (code, bool(code))


RANK_2, ANY = "node 2 (rank 2 on vm)", "an unknown rank"
EXPECTED = "RuntimeError: this was to be expected"
TRACEBACK = "Traceback (most recent call last):\n"
FIRST = f"iteration 3\rdadmm: rank 1 failed:\n{TRACEBACK}  File x\nKeyError: 'a'\n\n"
FIRST += "During handling of the above exception, another exception occurred:\n\n"
FIRST += TRACEBACK + "OSError: [Errno 28] No space left\ndadmm: rank 3 failed:\n"
ABSENT = "ModuleNotFoundError: No module named 'dadmm'"
SPREAD = ("north", "north", "south", "east")  # ranks that do not reach the monitor
TWO, FOUR = ("host0", "host0", "host1", "host1"), ("host0", "host1", "host2", "host3")
# what is printed, the rank that the monitor saw end first, the start and words of the
# sentence, and the hosts of the run, if there are several
CASES = [
    ("mpich-sigkill", 2, RANK_2, "SIGKILL or ended by itself"),
    ("mpich-sigsegv", 2, RANK_2, "SIGINT or SIGQUIT or SIGSEGV"),
    ("mpich-exit", 2, RANK_2, "ended first"),
    ("openmpi-sigkill", None, RANK_2, "was killed by SIGKILL"),
    ("openmpi-sigsegv", None, RANK_2, "was killed by SIGSEGV"),
    ("openmpi-exit", None, RANK_2, "code 5"),
    ("intel-sigkill", 2, RANK_2, "was killed by SIGKILL"),
    ("intel-sigsegv", None, RANK_2, "was killed by SIGSEGV"),
    ("intel-exit", 2, RANK_2, "exited by itself"),
    # MPICH and Intel MPI name ranks that they ended themselves
    ("mpich-sigkill", None, ANY, "SIGKILL or ended by itself"),
    ("mpich-sigsegv", None, ANY, "SIGINT or SIGQUIT or SIGSEGV"),
    ("mpich-exit", None, "the job", "exit code 9"),
    ("intel-sigkill", None, ANY, "probably killed by SIGKILL"),
    ("intel-exit", None, ANY, "probably killed by SIGKILL"),
    # dadmm's own report is more precise
    ("mpich-exception", 0, RANK_2, EXPECTED),
    ("openmpi-exception", 0, RANK_2, EXPECTED),
    ("intel-exception", 0, RANK_2, EXPECTED),
    (FIRST, None, "node 1 (rank 1 on vm)", "OSError: [Errno 28] No space left"),
    (2 * f'{TRACEBACK}  File "x"\n{ABSENT}\n', None, ANY, ABSENT),
    ("slurm-sigkill", None, RANK_2, "was killed by SIGKILL"),
    ("slurm-memory", None, RANK_2, "memory ran out"),
    ("slurm-time", None, ANY, "time limit"),
    ("slurm-exit", None, RANK_2, "exit code 1"),
    # MPICH names the host
    ("mpich-sigkill at south", None, "node 2 (rank 2 on south)", "SIGKILL", SPREAD),
    ("mpich-sigkill at north", None, ANY, "on north", SPREAD),
    ("mpich-sigkill at 10.0.0.2", None, ANY, "on 10.0.0.2", SPREAD),
    # but not one that was lost, unless there is only one other
    ("mpich-lost-host", None, "host host1 was lost", "ranks", TWO),
    ("mpich-unreachable", None, "host host1 was lost", "ranks", TWO),
    ("openmpi-lost-host", None, "host host1 was lost", "ranks", TWO),
    ("intel-lost-host", None, "host host1 was lost", "ranks", TWO),
    ("mpich-lost-host", None, "one of the hosts", "host1, host2, host3", FOUR),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_failed_rank_is_named_if_it_is_known(tmp_path, case):
    name, first, who, words, *hosts = case
    name, _, host = name.partition(" at ") if "\n" not in name else (name, "", "")
    text = name if "\n" in name else (RECORDED / f"{name}.txt").read_text()
    text = text.replace("RUNNING AT vm", f"RUNNING AT {host or 'vm'}")
    run = write_run(tmp_path / "run", *hosts)
    sentence, advice = explain(RESUME, text, run, 9, Seen(first))

    assert sentence.startswith(who)
    assert words in sentence
    assert "no complete checkpoint" in advice
    if name == "openmpi-sigkill":  # by the kernel, if that has killed a process
        seen = Seen(out_of_memory=True)
        assert "memory ran out" in explain(RESUME, text, run, 9, seen)[0]


def test_the_advice_names_the_last_complete_checkpoint(tmp_path):
    """A later one lacks the file of a node; the folder is quoted for a shell."""
    run = write_run(tmp_path / "my run")
    refused = (RESUME, "dadmm: error: x", run, 2, Seen())
    assert explain(*refused) == explain(RESUME, "", run, 3, Seen()) == []
    for iteration, nodes in ((80, range(4)), (120, range(4)), (160, (0, 1, 3))):
        write_checkpoint(run, iteration, nodes)
    _, advice = explain(RESUME, "", run, 1, Seen())

    assert "iteration 120" in advice
    assert advice.endswith(f"{RESUME} 'my run'")
    assert RESUME not in explain(RESUME, "", None, 1, Seen())[1]
    assert f"{RESUME} FOLDER" in explain(RESUME, "", None, 1, Seen(here=False))[1]
    assert explain(RESUME, "dadmm: error: x", None, 2, Seen()) == []
    # a full disk has its own message, so that only the advice is added
    assert explain(*refused) == [advice]
    later = Seen(since=time.time() + 9)
    assert explain(*refused[:4], later) == []  # it was resumed and refused
    with (run / LOCK).open("w") as file:  # the run of another job
        assert files.lock(file.fileno())
        assert explain(*refused) == []
    (run / "summary.json").touch()
    assert explain(*refused) == []


def test_the_command_diagnose_reads_a_folder_and_a_file(tmp_path):
    folder = write_run(tmp_path / "run")
    write_checkpoint(folder, 40, range(4))
    diagnose = (ROOT / "launch", "diagnose")
    words = (folder, RECORDED / "slurm-sigkill.txt", "sbatch x --resume")
    ended = python(*diagnose, *words, cwd=tmp_path).end()

    assert ended.code == 0
    reason, advice = ended.out.splitlines()
    assert RANK_2 in reason
    assert advice.endswith("sbatch x --resume run")
    ended = python(*diagnose).end()
    assert (ended.code, len(ended.said)) == (2, 1)


HOSTS = ("host0", "host1", "host2")
# no variables of the caller, as ssh
CLEAN = "exec env -i HOME=/ SHELL=/bin/sh PATH=/usr/sbin:/usr/bin:/sbin:/bin"
# At a site its own folder is at the path `site`, and those of others are hidden. The
# caller is at a site, too.
ON_SITE = f"""while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
exec {AGENT} "$host" "umount 'FOLDER/machines' 'FOLDER/site' 2>/dev/null;" \\
    "mount --bind 'FOLDER/machines/$host' 'FOLDER/site' &&" \\
    "mount -t tmpfs tmpfs 'FOLDER/machines' &&" "$@"
"""
FLAGS = ("--data", "data/site-{rank}.csv", "--n-components", 1, "--max-iter", 9)
FLAGS += ("--topology", "chain", "--out", "run")
UNSEEN = ("--no-record", "--no-checkpoint")
REFUSED = (2, 255, 141)  # the last two: mpiexec of Intel MPI


@pytest.fixture
def cluster():
    with network(hosts=3) as hosts:
        yield hosts


def test_a_run_of_three_sites_equals_one_in_a_process(cluster, tmp_path):
    """The first site alone has the results, and each the rows that were filled in."""
    rng, machines = np.random.default_rng(7), tmp_path / "machines"
    for folder in ("data", "site", *(f"machines/{host}/data" for host in HOSTS)):
        (tmp_path / folder).mkdir(parents=True)
    for rank, host in enumerate(HOSTS):
        rows, file = rng.normal(size=(20 + 10 * rank, 4)), f"data/site-{rank}.csv"
        rows[0, 0] = np.nan
        np.savetxt(tmp_path / file, rows @ np.tri(4), "%.17g", ",")
        shutil.copy(tmp_path / file, machines / host / "data")
    (tmp_path / "hosts.txt").write_text("\n".join(HOSTS))
    text = ON_SITE.replace("FOLDER", str(tmp_path))
    on_site = write_program(tmp_path / "onsite", text)
    ssh = write_program(tmp_path / "ssh", f'{CLEAN} {on_site} "$@"')

    def start(*more):
        words = (sys.executable, PROGRAMS / "local.py", find_mpiexec(), "--hostfile")
        words = (*words, tmp_path / "hosts.txt", *FLAGS, *UNSEEN, *more)
        there = f"cd '{tmp_path / 'site'}' && exec {shlex.join(map(str, words))}"
        command = cluster.command(0, [str(on_site), "host0", there])
        return Job(command, None, variables(**reached_by(ssh))).end()

    counted = [cluster.counters()]
    ended = start()
    assert ended.code == 0, ended.err
    counted.append(cluster.counters())
    alone = python("-m", "dadmm.run", "--nodes", 3, *FLAGS, cwd=tmp_path).end()
    assert alone.code == 0, alone.err

    first = machines / "host0" / "run"
    assert_same_arrays(tmp_path / "run" / "result.npz", first / "result.npz")
    summary = summary_of(first)
    assert summary["node_hosts"] == list(HOSTS)
    assert summary["hosts"] == dict.fromkeys(HOSTS, 1)
    before, after = (sum(host["tx_bytes"] for host in hosts) for hosts in counted)
    assert after - before > summary["bytes_between_hosts"] > 0
    for rank, host in enumerate(HOSTS):
        (path,) = (machines / host / "run").glob("imputed-*")
        assert path.name == f"imputed-0000{rank}.npz"
        assert path.stat().st_mode & 0o777 == 0o600
        with np.load(path) as filled:
            assert filled["samples"].shape == (20 + 10 * rank, 4)
        if rank:
            assert {f.name for f in (machines / host).glob("*")} == {"data", "run"}
            assert list((machines / host / "run").iterdir()) == [path]
    again = start("--overwrite")
    assert again.code in REFUSED, again.err  # others do not know whose folder it is
    assert "host1" in again.err
