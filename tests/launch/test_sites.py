"""Three sites: machines with their own names and files, which share only a network."""

import json
import shlex
import shutil
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.emulation.network import AGENT
from tests.support.emulation import network, reached_by
from tests.support.processes import PROGRAMS, Job, find_mpiexec, python, variables

pytestmark = pytest.mark.mpi

# At a site its own folder is at the path `site`, and those of others are hidden. The
# caller is at a site, too.
ON_SITE = """#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
exec {agent} "$host" "umount '{folder}/machines' '{folder}/site' 2>/dev/null;" \\
    "mount --bind '{folder}/machines/$host' '{folder}/site' &&" \\
    "mount -t tmpfs tmpfs '{folder}/machines' &&" "$@"
"""
# As ssh: no variables of the caller
SSH = """#!/bin/sh
exec env -i HOME=/ SHELL=/bin/sh PATH=/usr/sbin:/usr/bin:/sbin:/bin {folder}/onsite "$@"
"""
HOSTS = ("host0", "host1", "host2")
FLAGS = ("--problem", "ridge", "--topology", "chain", "--out", "run")
UNSEEN = ("--no-record", "--no-checkpoint")
REFUSED = (2, 255, 141)  # the last two: mpiexec of Intel MPI


@pytest.fixture
def site(tmp_path):
    """The folder that each machine has with its own files."""
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
    for name, text in {"onsite": ON_SITE, "ssh": SSH}.items():
        (tmp_path / name).write_text(text.format(agent=AGENT, folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    return tmp_path / "site"


@pytest.fixture
def start(site):
    """A function that starts the command local at the first site."""
    on_site = str(site.parent / "onsite")
    env = variables(**reached_by(site.parent / "ssh"))
    with network(hosts=3) as sites:

        def start(*flags):
            local = [sys.executable, PROGRAMS / "local.py", find_mpiexec()]
            data = ("--data", "data/site-{rank}.csv")
            command = [*local, "--hostfile", site.parent / "hosts.txt", *data, *flags]
            there = f"cd '{site}' && exec {shlex.join(map(str, command))}"
            return Job(sites.command(0, [on_site, "host0", there]), None, env)

        yield start


def test_a_run_of_three_sites_equals_one_in_a_process(site, start):
    """Each site has its own file; the first one alone has the results."""
    ended = start(*FLAGS, *UNSEEN).end()
    assert ended.code == 0, ended.err

    here, machines = site.parent, site.parent / "machines"
    (here / "data").mkdir()
    for rank, host in enumerate(HOSTS):
        shutil.copy(machines / host / "data" / f"site-{rank}.csv", here / "data")
    data = ("--data", "data/site-{rank}.csv", "--nodes", 3)
    alone = python("-m", "dadmm.run", *data, *FLAGS, cwd=here).end()
    assert alone.code == 0, alone.err
    with (
        np.load(here / "run" / "result.npz") as one,
        np.load(machines / "host0" / "run" / "result.npz") as other,
    ):
        assert set(one) == set(other)
        for name in one:
            assert_array_equal(one[name], other[name])
    summary = json.loads((machines / "host0" / "run" / "summary.json").read_text())
    assert summary["node_hosts"] == list(HOSTS)
    for host in HOSTS[1:]:
        assert [path.name for path in (machines / host).iterdir()] == ["data"]


def test_without_a_shared_folder_the_remedy_is_named(site, start):
    ended = start(*FLAGS).end()

    assert ended.code in REFUSED, ended.err
    assert (
        "dadmm: error: rank 1: run, made by rank 0, is not there on host1; --out must "
        "lie on a file system that all ranks share, or use --no-record --no-checkpoint "
        "(docs/sites.md)"
    ) in ended.said


def test_filled_rows_stay_at_their_site(site, start):
    """A site without the folder of the run makes its own for them."""
    machines = site.parent / "machines"
    for rank, host in enumerate(HOSTS):
        path = machines / host / "data" / f"site-{rank}.csv"
        header, first, *rest = path.read_text().splitlines()
        gap = first.partition(",")[2]
        path.write_text("\n".join([header, f",{gap}", *rest]))
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
    assert "run on host1 is not that of this run; remove it there" in again.err
