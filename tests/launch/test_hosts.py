"""Runs across emulated hosts that share a disk, and across sites that do not."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.emulation.network import AGENT
from tests.support.emulation import network, reached_by
from tests.support.processes import (
    PROGRAMS,
    Job,
    find_mpiexec,
    python,
    variables,
)

pytestmark = pytest.mark.mpi

CLEAN = "exec env -i HOME=/ SHELL=/bin/sh PATH=/usr/sbin:/usr/bin:/sbin:/bin"
OPTIONS = "while case $1 in -*) true ;; *) false ;; esac; do shift; done"
# As ssh: another directory, and no variables of the caller
SSH = f'#!/bin/sh\n{OPTIONS}\ncd /\n{CLEAN} {AGENT} "$@"\n'
# At a site its own folder is at the path `site`, and those of others are hidden. The
# caller is at a site, too.
ON_SITE = f"""#!/bin/sh
{OPTIONS}
host=$1
shift
exec {AGENT} "$host" "umount 'FOLDER/machines' 'FOLDER/site' 2>/dev/null;" \\
    "mount --bind 'FOLDER/machines/$host' 'FOLDER/site' &&" \\
    "mount -t tmpfs tmpfs 'FOLDER/machines' &&" "$@"
"""


def write_script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def local(*arguments: object) -> list[str]:
    """Return the command local, with the Python and the MPI of the tests."""
    words = [sys.executable, PROGRAMS / "local.py", find_mpiexec(), *arguments]
    return [str(word) for word in words]


def assert_same_results(one: Path, other: Path) -> None:
    with np.load(one / "result.npz") as one, np.load(other / "result.npz") as other:
        assert set(one) == set(other)
        for name in one:
            assert_array_equal(one[name], other[name])


@pytest.fixture(scope="module")
def cluster():
    """Four hosts without limits."""
    with network(hosts=4) as hosts:
        yield hosts


@pytest.fixture
def by_ssh(tmp_path):
    """The variables of a user who reaches hosts by another command than ssh."""
    return reached_by(write_script(tmp_path / "ssh", SSH))


@pytest.fixture
def start_local(cluster, by_ssh, tmp_path):
    """A function that starts the command local on host 0, with a host file."""

    def start(hosts: str, *arguments: object) -> Job:
        (tmp_path / "hosts.txt").write_text(hosts)
        words = local("--hostfile", tmp_path / "hosts.txt", *arguments)
        return Job(cluster.command(0, words), tmp_path, variables(**by_ssh))

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

    assert_same_results(tmp_path / "alone", tmp_path / "spread")
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
    assert "host host1 was lost" in ended.said[-2]
    assert "run has a checkpoint of iteration" in ended.said[-1]


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


# Three sites: machines with their own names and files, which share only a network

HOSTS = ("host0", "host1", "host2")
FLAGS = ("--problem", "ridge", "--topology", "chain", "--out", "run")
UNSEEN = ("--no-record", "--no-checkpoint")
REFUSED = (2, 255, 141)  # the last two: mpiexec of Intel MPI


@pytest.fixture
def machines(tmp_path):
    """The folder of the machines, each with its own file of data."""
    rng = np.random.default_rng(7)
    for rank, host in enumerate(HOSTS):
        folder = tmp_path / "machines" / host / "data"
        folder.mkdir(parents=True)
        X = rng.normal(size=(20 + 10 * rank, 3))
        rows = np.column_stack([X, X @ [1.5, -2.0, 0.5] + rng.normal(size=len(X))])
        names = {"header": "age,dose,pressure,days", "comments": ""}
        np.savetxt(folder / f"site-{rank}.csv", rows, "%.17g", ",", **names)
    (tmp_path / "site").mkdir()
    (tmp_path / "hosts.txt").write_text("\n".join(HOSTS))
    return tmp_path / "machines"


@pytest.fixture
def start(machines, tmp_path):
    """A function that starts the command local at the first site."""
    text = ON_SITE.replace("FOLDER", str(tmp_path))
    on_site = write_script(tmp_path / "onsite", text)
    ssh = write_script(tmp_path / "ssh", f'#!/bin/sh\n{CLEAN} {on_site} "$@"\n')
    with network(hosts=3) as sites:

        def start(*flags):
            data = ("--data", "data/site-{rank}.csv")
            command = local("--hostfile", tmp_path / "hosts.txt", *data, *flags)
            there = f"cd '{tmp_path / 'site'}' && exec {shlex.join(command)}"
            words = sites.command(0, [str(on_site), "host0", there])
            return Job(words, None, variables(**reached_by(ssh)))

        yield start


def test_a_run_of_three_sites_equals_one_in_a_process(machines, start, tmp_path):
    """Each site has its own file; the first one alone has the results."""
    ended = start(*FLAGS, *UNSEEN).end()
    assert ended.code == 0, ended.err

    (tmp_path / "data").mkdir()
    for file in machines.glob("*/data/*"):
        shutil.copy(file, tmp_path / "data")
    data = ("--data", "data/site-{rank}.csv", "--nodes", 3)
    alone = python("-m", "dadmm.run", *data, *FLAGS, cwd=tmp_path).end()
    assert alone.code == 0, alone.err
    assert_same_results(tmp_path / "run", machines / "host0" / "run")
    summary = json.loads((machines / "host0" / "run" / "summary.json").read_text())
    assert summary["node_hosts"] == list(HOSTS)
    for host in HOSTS[1:]:
        assert [path.name for path in (machines / host).iterdir()] == ["data"]


def test_filled_rows_stay_at_their_site(machines, start):
    """A site without the folder of the run makes its own for them."""
    for file in machines.glob("*/data/*"):
        header, first, *rest = file.read_text().splitlines()
        file.write_text("\n".join([header, "," + first.partition(",")[2], *rest]))
    few = ("--n-components", 1, "--max-iter", 5, "--out", "run")
    ended = start(*few, *UNSEEN).end()
    assert ended.code == 0, ended.err

    for rank, host in enumerate(HOSTS):
        (path,) = (machines / host / "run").glob("imputed-*")
        assert path.name == f"imputed-0000{rank}.npz"
        assert path.stat().st_mode & 0o777 == 0o600
        with np.load(path) as filled:
            assert filled["samples"].shape == (20 + 10 * rank, 4)
    again = start(*few, *UNSEEN, "--overwrite").end()
    assert again.code in REFUSED, again.err
    assert "host1" in again.err
