"""How ranks wait for requests inside the iterations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import WAITS
from dadmm.comm.collectives import wait_sleeping
from dadmm.comm.mpi_library import MPI
from dadmm.core.schema import choice

POLL_INTERVAL = 50e-6  # seconds; the usual timer makes it 100e-6; 200e-6 is as good
MOST_CORES = 4096  # of a host
_test_all = MPI.Request.Testall


def waiting(wait: str, crowded: bool) -> Callable[[Sequence[MPI.Request]], Any]:
    """Return the function that waits for requests.

    Parameters
    ----------
    wait : str
        One of `WAITS`.
    crowded : bool
        Whether this host has more ranks than cores they may use.
    """
    choice(WAITS).check("wait", wait)
    if wait == "auto":
        wait = "poll" if crowded else "block"
    return poll if wait == "poll" else MPI.Request.Waitall


def poll(requests: Sequence[MPI.Request]) -> None:
    """Wait for requests by testing and sleeping in turns.

    A turn tests once per message: MPICH receives about one message per test, and a
    single test per turn made dense graphs twice as slow.
    """
    tests = len(requests) // 2 + 1
    while True:
        for _ in range(tests):
            if _test_all(requests):
                return
        time.sleep(POLL_INTERVAL)


class Hosts(NamedTuple):
    """The hosts of all ranks."""

    of_ranks: NDArray[np.uint64]  # (size,), a hash of the host of each rank
    crowded: bool  # whether this host has more ranks than cores they may use


def find_hosts(comm: MPI.Comm) -> Hosts:
    """Return the hosts of all ranks, by one collective.

    A host is a host name and a network namespace. Ranks send a hash of it, and the
    cores that they may use: some launchers pin each rank to one.
    """
    network = "/proc/self/ns/net"
    space = os.stat(network).st_ino if os.path.exists(network) else 0
    name = f"{os.uname().nodename} {space}".encode()
    mine = np.zeros(8 + MOST_CORES // 8, dtype=np.uint8)
    mine[:8] = np.frombuffer(blake2b(name, digest_size=8).digest(), dtype=np.uint8)
    allowed = np.zeros(MOST_CORES, dtype=np.uint8)
    allowed[list(os.sched_getaffinity(0))] = 1
    mine[8:] = np.packbits(allowed)
    everyone = np.empty((comm.size, len(mine)), dtype=np.uint8)
    wait_sleeping(comm.Iallgather(mine, everyone), mine)
    hosts = everyone[:, :8].copy().view(np.uint64)[:, 0]
    here = everyone[hosts == hosts[comm.rank]]
    cores = np.unpackbits(np.bitwise_or.reduce(here[:, 8:])).sum()
    return Hosts(hosts, bool(len(here) > cores))
