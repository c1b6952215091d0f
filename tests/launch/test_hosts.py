"""Many hosts: host files in either form, and runs across hosts with nothing but ssh."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.emulation.hosts import OVER_TCP, spread
from benchmarks.emulation.network import AGENT
from launch.base.environment import UsageError
from launch.mpi import hostfile, ranks
from tests.support.emulation import network
from tests.support.processes import (
    ROOT,
    Job,
    find_mpiexec,
    python,
    settings_of,
    variables,
)

pytestmark = pytest.mark.mpi


@pytest.fixture
def written(tmp_path):
    """A way to write a host file."""

    def write(text: str) -> str:
        (tmp_path / "hosts.txt").write_text(text)
        return str(tmp_path / "hosts.txt")

    return write


# Reading


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("a:2\nb\n", "a a b"),  # MPICH and Intel MPI
        ("a slots=2\nb slots = 1 max_slots=4\n", "a a b"),  # Open MPI
        ("a max-slots=9\n", "a"),
        ("# ours\n\n  node-1.site:1  # the first\n10.0.0.2\n", "node-1.site 10.0.0.2"),
        ("b\nb\na\nb\n", "b b b a"),  # as PBS writes it
    ],
)
def test_both_forms_are_understood(written, text, places):
    """A line without a number is one rank, and the lines of one host add up."""
    assert hostfile.read(written(text)) == places.split()


@pytest.mark.parametrize("line", ["a:", "a:0", "a:two", "a slots=", "a b", "a cores=2"])
def test_a_bad_line_is_named(written, line):
    """With both forms, and what stands there."""
    file = written(f"ok:1\n{line}\n")
    with pytest.raises(UsageError) as raised:
        hostfile.read(file)

    assert str(raised.value) == (
        f"line 2 of {file} must be a host and its ranks, as node1:4 or "
        f"node1 slots=4, got {line!r}"
    )


def test_other_mistakes_are_one_sentence(written, tmp_path):
    """No file, no host, and fewer slots than ranks."""
    with pytest.raises(UsageError, match=r"cannot read the host file .*: No su"):
        hostfile.read(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="names no host; write one in a line"):
        hostfile.read(written("# nobody\n"))
    with pytest.raises(UsageError, match="3 slots, too few for -n 4; give"):
        hostfile.first(["a", "a", "b"], 4)
    assert hostfile.first(["a", "a", "b"], 2) == ["a", "a"]
    assert hostfile.first(["a", "a", "b"], None) == ["a", "a", "b"]


# Telling an MPI


BLOCKS, IN_TURN = ["b", "b", "a"], ["b", "a", "b"]


@pytest.mark.parametrize(
    ("places", "banner", "file", "words"),
    [
        (BLOCKS, "HYDRA build details:", "b:2\na:1\n", "-machinefile FILE"),
        (BLOCKS, "Intel(R) MPI Library", "b:2\na:1\n", "-machinefile FILE"),
        (BLOCKS, "(Open MPI) 5", "b\nb\na\n", "--hostfile FILE --map-by seq -x V"),
        (IN_TURN, "HYDRA build details:", "b\na\n", "-f FILE -ppn 1"),
        (IN_TURN, "(Open MPI) 5", "b\na\nb\n", "--hostfile FILE --map-by seq -x V"),
    ],
)
def test_each_mpi_gets_its_own_form(monkeypatch, places, banner, file, words):
    """Open MPI hands no variables on to other hosts, unless told of each."""
    monkeypatch.setattr(ranks, "banner", lambda mpiexec: banner)
    chosen = {"OMP_NUM_THREADS": "1", "HOME": "/root"}
    with ranks.on_hosts("mpiexec", places, ["job"], chosen) as command:
        name = command[2]
        words = words.replace("FILE", name).replace("V", "OMP_NUM_THREADS")

        assert Path(name).read_text() == file
        assert command == ["mpiexec", *words.split(), "-n", "3", "job"]
    assert not Path(name).exists()


@pytest.mark.parametrize("given", ["flag", "config", "resume", "none"])
def test_a_run_that_shall_outlive_its_ranks_is_started_so(monkeypatch, tmp_path, given):
    """Whoever says so: the command line, a file of settings, or the run to resume."""
    monkeypatch.setattr(ranks, "banner", lambda mpiexec: "mpirun (Open MPI) 5.0.11")
    (tmp_path / "config.toml").write_text('on_failure = "continue"\n')
    words = {
        "flag": ["--on-failure=continue"],
        "config": ["--config", str(tmp_path / "config.toml")],
        "resume": ["--resume", str(tmp_path)],
        "none": ["--config", str(tmp_path / "absent.toml")],
    }[given]
    lasting = [] if given == "none" else ["--with-ft", "ulfm"]

    assert ranks.outliving("mpiexec", words) == lasting
    with ranks.on_hosts("mpiexec", ["a", "b"], ["job", *words], {}) as command:
        assert ("--with-ft" in command) == (given != "none")
    monkeypatch.setattr(ranks, "banner", lambda mpiexec: "HYDRA")
    assert ranks.outliving("mpiexec", words) == []


def test_emulated_hosts_are_reached_by_our_stand_in_for_ssh(monkeypatch):
    """By an argument of Hydra's, or by a variable."""
    monkeypatch.setattr(ranks, "banner", lambda mpiexec: "HYDRA")
    with ranks.on_hosts("mpiexec", ["host0"], ["job"], {}, AGENT) as command:
        assert f"-launcher-exec {ROOT}/benchmarks/emulation/onhost" in " ".join(command)
    assert OVER_TCP["PRTE_MCA_plm_ssh_agent"] == f"{ROOT}/benchmarks/emulation/onhost"


# Four hosts

NET = "/proc/self/ns/net"
HOSTS = "host0:2\nhost1 slots=3\nhost2\nhost3:2\n"
# As ssh does: another folder, and nothing of the caller's variables
SSH = f"""#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
cd /
exec env -i HOME=/ SHELL=/bin/sh PATH=/usr/sbin:/usr/bin:/sbin:/bin \\
    {ROOT}/benchmarks/emulation/onhost "$@"
"""
# launch/local as it is, in the environment of the tests instead of one of its own
LOCAL = """
import os, sys
sys.path.insert(0, sys.argv[1])
from launch.mpi import commands
launcher = commands.Launcher(sys.executable, sys.argv[2], dict(os.environ))
commands.prepare = lambda *_: launcher
try:
    sys.exit(commands.local(sys.argv[3:]))
except commands.UsageError as error:
    sys.exit(f"dadmm: {error}")
"""


@pytest.fixture(scope="module")
def cluster():
    """Four hosts without limits."""
    with network(hosts=4) as hosts:
        yield hosts


@pytest.fixture
def by_ssh(tmp_path):
    """The variables of a user who reaches hosts by a command of their own."""
    agent = tmp_path / "ssh"
    agent.write_text(SSH)
    agent.chmod(0o755)
    names = (
        "HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC",
        "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent",
    )  # fmt: skip
    chosen = {"HYDRA_LAUNCHER": "ssh", "I_MPI_HYDRA_BOOTSTRAP": "ssh"}
    return OVER_TCP | chosen | dict.fromkeys(names, str(agent))


def test_a_run_across_four_hosts_has_the_bits_of_a_local_one(
    cluster, by_ssh, written, tmp_path
):
    """launch/local with a host file, over TCP; and one process on this host."""
    rest = ("--topology", "grid", "--max-iter", "40", "--tolerance", "0", "--quiet")
    before = cluster.counters()
    words = ("--hostfile", written(HOSTS), "--out", tmp_path / "spread", *rest)
    start = [sys.executable, "-c", LOCAL, ROOT, find_mpiexec(), *words]
    command = cluster.command(0, [str(word) for word in start])
    ended = Job(command, tmp_path, variables(**by_ssh)).end()
    assert ended.code == 0, ended.err
    alone = python("-m", "dadmm.run", "--nodes", 8, "--out", tmp_path / "alone", *rest)
    assert alone.end().code == 0

    with (
        np.load(tmp_path / "alone" / "result.npz") as one,
        np.load(tmp_path / "spread" / "result.npz") as other,
    ):
        assert set(one) == set(other)
        for name in one:
            assert_array_equal(one[name], other[name])
    summary = json.loads((tmp_path / "spread" / "summary.json").read_text())
    assert summary["hosts"] == {"host0": 2, "host1": 3, "host2": 1, "host3": 2}
    travelled = sum(
        after["tx_bytes"] - first["tx_bytes"]
        for first, after in zip(before, cluster.counters(), strict=True)
    )
    assert travelled > summary["bytes_between_hosts"] > 0


def test_a_lost_host_ends_the_run_and_is_named(cluster, by_ssh, written, tmp_path):
    """All its processes die at once in the middle of a run, and it can be resumed."""
    words = ("--hostfile", written("host0:2\nhost1:2\n"), "--checkpoint-every", 20)
    rest = ("--tolerance", 0, "--max-iter", 10**8, "--quiet", "--out", "run")
    start = [
        sys.executable,
        "-c",
        LOCAL,
        ROOT,
        find_mpiexec(),
        *words,
        *rest,
    ]
    command = cluster.command(0, [str(word) for word in start])
    job = Job(command, tmp_path, variables(**by_ssh))
    saved = tmp_path / "run" / "checkpoints"
    job.wait_until(lambda: saved.exists() and len(list(saved.iterdir())) > 1)
    there = processes_of(cluster, 1)
    assert len(there) >= 3  # two ranks and what started them
    for process in there:
        os.kill(process, signal.SIGKILL)
    ended = job.end()

    assert ended.code not in (0, 2, 3)
    lost, on = ended.said[-2:]
    assert lost == "dadmm: host host1 was lost, and the ranks on it with it"
    assert "run has a checkpoint of iteration" in on


def processes_of(cluster, host):
    """Return the processes that run on a host, by the numbers that they have here."""
    shown = subprocess.check_output(cluster.command(host, ["readlink", NET]), text=True)
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns" / "net") == shown.strip():
                found.append(int(entry.name))
    return found


def test_a_pbs_job_whose_chunks_alternate_has_all_ranks_of_a_host_together(
    cluster, by_ssh, written, tmp_path
):
    """Its list of hosts is no host file of any MPI's."""
    hosts = written("host0\nhost1\nhost0\nhost1\n")
    words = ("--max-iter", "20", "--placement", "ranks", "--out", tmp_path / "run")
    start = [sys.executable, ROOT / "launch", "pbs", *words]
    told = {"PBS_NODEFILE": hosts, "DADMM_ENVIRONMENT": sys.prefix, "DADMM_PIN": "no"}
    command = cluster.command(0, [str(word) for word in start])
    ended = Job(command, tmp_path, variables(**by_ssh | told)).end()

    assert ended.code == 0, ended.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["node_hosts"] == ["host0", "host0", "host1", "host1"]


ABOUT = """
import os, sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
near = comm.Split_type(MPI.COMM_TYPE_SHARED).size
mine = f"{os.uname().nodename} {near} {os.environ.get('OMP_NUM_THREADS')} {os.getcwd()}"
found = comm.gather(mine)
if found:
    print(*found, sep="\\n")
"""


@pytest.mark.parametrize("cyclic", [False, True])
def test_ranks_on_other_hosts_have_our_variables_and_folder(
    cluster, by_ssh, tmp_path, cyclic
):
    """Each is where it should be, and those of a host know that they share memory."""
    chosen, places = variables(**by_ssh), spread(4, 2, cyclic)
    job = [sys.executable, "-c", ABOUT]
    with ranks.on_hosts(find_mpiexec(), places, job, chosen) as command:
        ended = Job(cluster.command(0, command), tmp_path, chosen).end()

    assert ended.code == 0, ended.err
    assert settings_of(find_mpiexec())["OMP_NUM_THREADS"] == "1"
    said = [f"{host} 2 1 {tmp_path}" for host in places]
    assert ended.out.splitlines() == said
