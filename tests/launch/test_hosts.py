"""Runs across emulated hosts that share a disk, and across sites that do not."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.emulation.network import AGENT
from tests.support.emulation import network, reached_by
from tests.support.processes import PROGRAMS, Job, find_mpiexec, python, variables
from tests.support.runs import assert_same_arrays, summary_of

pytestmark = pytest.mark.mpi

HOSTS = ("host0", "host1", "host2")
CLEAN = "exec env -i HOME=/ SHELL=/bin/sh PATH=/usr/sbin:/usr/bin:/sbin:/bin"
OPTIONS = "while case $1 in -*) true ;; *) false ;; esac; do shift; done"
# At a site its own folder is at the path `site`, and those of others are hidden. The
# caller is at a site, too.
ON_SITE = f"""{OPTIONS}
host=$1
shift
exec {AGENT} "$host" "umount 'FOLDER/machines' 'FOLDER/site' 2>/dev/null;" \\
    "mount --bind 'FOLDER/machines/$host' 'FOLDER/site' &&" \\
    "mount -t tmpfs tmpfs 'FOLDER/machines' &&" "$@"
"""
REFUSED = (2, 255, 141)  # the last two: mpiexec of Intel MPI


@pytest.fixture(scope="module")
def cluster():
    """Three hosts without limits."""
    with network(hosts=3) as hosts:
        yield hosts


def write_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def local(folder, hosts, *arguments):
    """Return the command local, with the Python and the MPI of the tests."""
    (folder / "hosts.txt").write_text("\n".join(hosts))
    words = (sys.executable, PROGRAMS / "local.py", find_mpiexec(), "--hostfile")
    return [*map(str, (*words, folder / "hosts.txt", *arguments))]


def processes_of(cluster, host):
    """Return the process numbers, as seen here, of the processes on a host."""
    readlink = cluster.command(host, ["readlink", "/proc/self/ns/net"])
    namespace = subprocess.check_output(readlink, text=True, timeout=60).strip()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns" / "net") == namespace:
                found.append(int(entry.name))
    return found


def test_a_lost_host_ends_the_run_and_is_named(cluster, tmp_path):
    """All its processes are killed during a run, which can be resumed."""
    # as ssh: another directory, and no variables of the caller
    ssh = write_script(tmp_path / "ssh", f'{OPTIONS}\ncd /\n{CLEAN} {AGENT} "$@"')
    rest = ("--tolerance", 0, "--max-iter", 10**8, "--quiet", "--out", "run")
    hosts = ("host0:2", "host1 slots=2")
    words = local(tmp_path, hosts, "--checkpoint-every", 20, *rest)
    job = Job(cluster.command(0, words), tmp_path, variables(**reached_by(ssh)))
    saved = tmp_path / "run" / "checkpoints"
    job.wait_until(lambda: saved.exists() and len(list(saved.iterdir())) > 1)
    processes = processes_of(cluster, 1)
    assert len(processes) >= 3  # two ranks and a daemon
    for process in processes:
        os.kill(process, signal.SIGKILL)
    ended = job.end()

    assert ended.code not in (0, 2, 3)
    assert "host host1 was lost" in ended.said[-2]
    assert "run has a checkpoint of iteration" in ended.said[-1]


@pytest.fixture
def machines(tmp_path):
    """Three sites, each with its own files; the folder of all of them."""
    rng = np.random.default_rng(7)
    for rank, host in enumerate(HOSTS):
        folder = tmp_path / "machines" / host / "data"
        folder.mkdir(parents=True)
        rows = rng.normal(size=(20 + 10 * rank, 4)) @ rng.normal(size=(4, 4))
        rows[0, 0] = np.nan
        np.savetxt(folder / f"site-{rank}.csv", rows, "%.17g", ",")
    (tmp_path / "site").mkdir()
    return tmp_path / "machines"


def test_a_run_of_three_sites_equals_one_in_a_process(cluster, machines, tmp_path):
    """The first site alone has the results, and each the rows that were filled in."""
    on_site = ON_SITE.replace("FOLDER", str(tmp_path))
    on_site = write_script(tmp_path / "onsite", on_site)
    ssh = write_script(tmp_path / "ssh", f'{CLEAN} {on_site} "$@"')
    flags = ("--data", "data/site-{rank}.csv", "--n-components", 1, "--max-iter", 9)
    flags += ("--topology", "chain", "--out", "run")

    def start(*more):
        unseen = ("--no-record", "--no-checkpoint")
        command = shlex.join(local(tmp_path, HOSTS, *flags, *unseen, *more))
        there = f"cd '{tmp_path / 'site'}' && exec {command}"
        words = cluster.command(0, [str(on_site), "host0", there])
        return Job(words, None, variables(**reached_by(ssh))).end()

    counted = [cluster.counters()]
    ended = start()
    counted.append(cluster.counters())
    assert ended.code == 0, ended.err
    (tmp_path / "data").mkdir()
    for file in machines.glob("*/data/*"):
        shutil.copy(file, tmp_path / "data")
    alone = python("-m", "dadmm.run", "--nodes", 3, *flags, cwd=tmp_path).end()
    assert alone.code == 0, alone.err

    first = machines / "host0" / "run"
    assert_same_arrays(tmp_path / "run" / "result.npz", first / "result.npz")
    summary = summary_of(first)
    assert summary["node_hosts"] == list(HOSTS)
    assert summary["hosts"] == dict.fromkeys(HOSTS, 1)
    before, after = (sum(host["tx_bytes"] for host in hosts) for hosts in counted)
    assert after - before > summary["bytes_between_hosts"] > 0
    for rank, host in enumerate(HOSTS):
        name = f"imputed-0000{rank}.npz"
        (path,) = (machines / host / "run").glob("imputed-*")
        assert path.name == name
        assert path.stat().st_mode & 0o777 == 0o600
        with np.load(path) as filled:
            assert filled["samples"].shape == (20 + 10 * rank, 4)
        if rank:
            assert {f.name for f in (machines / host).glob("*")} == {"data", "run"}
            assert [f.name for f in (machines / host / "run").iterdir()] == [name]
    again = start("--overwrite")
    assert again.code in REFUSED, again.err
    assert "host1" in again.err
