"""Runs across four emulated hosts, reached by a program like ssh."""

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

from benchmarks.emulation.hosts import spread
from benchmarks.emulation.network import AGENT
from launch.mpi import command_on_hosts
from tests.support.emulation import network, reached_by
from tests.support.processes import (
    PROGRAMS,
    ROOT,
    Job,
    find_mpiexec,
    python,
    settings_of,
    variables,
)

pytestmark = pytest.mark.mpi

# As ssh: another directory, and no variables of the caller
SSH = f"""#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
cd /
exec env -i HOME=/ SHELL=/bin/sh PATH=/usr/sbin:/usr/bin:/sbin:/bin {AGENT} "$@"
"""


@pytest.fixture(scope="module")
def cluster():
    """Four hosts without limits."""
    with network(hosts=4) as hosts:
        yield hosts


@pytest.fixture
def by_ssh(tmp_path):
    """The variables of a user who reaches hosts by another command than ssh."""
    agent = tmp_path / "ssh"
    agent.write_text(SSH)
    agent.chmod(0o755)
    return reached_by(agent)


@pytest.fixture
def start_local(cluster, by_ssh, tmp_path):
    """A function that starts the command local on host 0, with a host file."""

    def start(hosts: str, *arguments: object) -> Job:
        (tmp_path / "hosts.txt").write_text(hosts)
        options = ("--hostfile", tmp_path / "hosts.txt", *arguments)
        local = [sys.executable, PROGRAMS / "local.py", find_mpiexec(), *options]
        command = cluster.command(0, [str(part) for part in local])
        return Job(command, tmp_path, variables(**by_ssh))

    return start


def test_a_run_across_four_hosts_equals_one_in_a_process(
    cluster, start_local, tmp_path
):
    rest = ("--topology", "grid", "--max-iter", "40", "--tolerance", "0", "--quiet")
    before = cluster.counters()
    hosts = "host0:2\nhost1 slots=3\nhost2\nhost3:2\n"
    ended = start_local(hosts, "--out", tmp_path / "spread", *rest).end()
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


def test_a_lost_host_ends_the_run_and_is_named(cluster, start_local, tmp_path):
    """All its processes are killed during a run, which can be resumed."""
    rest = ("--tolerance", 0, "--max-iter", 10**8, "--quiet", "--out", "run")
    job = start_local("host0:2\nhost1:2\n", "--checkpoint-every", 20, *rest)
    saved = tmp_path / "run" / "checkpoints"
    job.wait_until(lambda: saved.exists() and len(list(saved.iterdir())) > 1)
    processes = processes_of(cluster, 1)
    assert len(processes) >= 3  # two ranks and a daemon
    for process in processes:
        os.kill(process, signal.SIGKILL)
    ended = job.end()

    assert ended.code not in (0, 2, 3)
    assert ended.said[-2] == "dadmm: host host1 was lost, and its ranks with it"
    assert "run has a checkpoint of iteration" in ended.said[-1]


def processes_of(cluster, host):
    """Return the process numbers, as seen here, of the processes on a host."""
    readlink = cluster.command(host, ["readlink", "/proc/self/ns/net"])
    namespace = subprocess.check_output(readlink, text=True).strip()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns" / "net") == namespace:
                found.append(int(entry.name))
    return found


def test_a_pbs_job_groups_the_ranks_of_a_host(cluster, by_ssh, tmp_path):
    """Although the hosts alternate in the file of PBS."""
    (tmp_path / "hosts").write_text("host0\nhost1\nhost0\nhost1\n")
    options = ("--max-iter", "20", "--placement", "ranks", "--out", tmp_path / "run")
    start = [sys.executable, ROOT / "launch", "pbs", *options]
    more = {"PBS_NODEFILE": str(tmp_path / "hosts"), "DADMM_ENVIRONMENT": sys.prefix}
    command = cluster.command(0, [str(part) for part in start])
    ended = Job(command, tmp_path, variables(**by_ssh, **more, DADMM_PIN="no")).end()

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
def test_ranks_on_other_hosts_have_our_variables_and_directory(
    cluster, by_ssh, tmp_path, cyclic
):
    """Each rank is on its host and shares memory with the other rank there."""
    environment, hosts = variables(**by_ssh), spread(4, 2, cyclic)
    job = [sys.executable, "-c", ABOUT]
    with command_on_hosts(find_mpiexec(), hosts, job, environment) as command:
        ended = Job(cluster.command(0, command), tmp_path, environment).end()

    assert ended.code == 0, ended.err
    assert settings_of(find_mpiexec())["OMP_NUM_THREADS"] == "1"
    assert ended.out.splitlines() == [f"{host} 2 1 {tmp_path}" for host in hosts]
