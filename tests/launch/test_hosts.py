"""A run across sites: emulated hosts with their own files, which share a network.

Lost hosts are in `tests/campaigns/faults`.
"""

import shlex
import shutil
import sys

import numpy as np
import pytest

from benchmarks.emulation.network import AGENT
from tests.support.emulation import network, reached_by
from tests.support.processes import PROGRAMS, Job, find_mpiexec, python, variables
from tests.support.runs import assert_same_arrays, summary_of

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


def write_script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cluster():
    with network(hosts=3) as hosts:
        yield hosts


@pytest.mark.mpi
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
    on_site = write_script(tmp_path / "onsite", text)
    ssh = write_script(tmp_path / "ssh", f'{CLEAN} {on_site} "$@"')

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
