"""How ranks wait for requests inside the iterations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dadmm.exchange import check_wait
from dadmm.exchange.collectives import wait_sleeping
from dadmm.exchange.mpi_library import MPI

POLL_INTERVAL = 50e-6  # seconds; the usual timer makes it 100e-6; 200e-6 is as good
_test_all = MPI.Request.Testall


def waiting(host: MPI.Comm, wait: str) -> Callable[[Sequence[MPI.Request]], Any]:
    """Return the function that waits for requests.

    Parameters
    ----------
    host : MPI.Comm
        The ranks of this host.
    wait : str
        One of `WAITS`.
    """
    check_wait(wait)
    if wait == "auto":
        wait = "poll" if crowded(host) else "block"
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


def crowded(host: MPI.Comm) -> bool:
    """Return whether this host has more ranks than cores they may use."""
    allowed = os.sched_getaffinity(0)
    mine = np.zeros(4096, dtype=np.uint8)
    mine[list(allowed)] = 1
    cores = np.empty_like(mine)  # of all ranks: some launchers pin each rank to one
    wait_sleeping(host.Iallreduce(mine, cores, op=MPI.MAX), mine)
    return bool(host.size > int(cores.sum()))
