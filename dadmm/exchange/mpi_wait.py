"""How ranks wait for requests inside the iterations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dadmm.exchange import check_wait
from dadmm.exchange.collectives import wait_sleeping
from dadmm.exchange.mpi_library import MPI

POLL_INTERVAL = (
    50e-6  # seconds asked for; about 100 with the usual timer. 50 to 200 are alike
)
_done = MPI.Request.Testall


def waiting(comm: Any, wait: str) -> Callable[[list[Any]], Any]:
    """Return the function that waits for requests."""
    check_wait(wait)
    if wait == "auto":
        wait = "poll" if crowded(comm) else "block"
    return poll if wait == "poll" else MPI.Request.Waitall


def poll(requests: list[Any]) -> None:
    """Wait for requests by looking and sleeping in turns.

    A turn has as many looks as messages are due: MPICH takes in about one message per
    look, and one look per nap made dense graphs twice as slow.
    """
    looks = len(requests) // 2 + 1
    while True:
        for _ in range(looks):
            if _done(requests):
                return
        time.sleep(POLL_INTERVAL)


def crowded(comm: Any) -> bool:
    """Return whether the ranks of this host outnumber the cores they may use."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    allowed = os.sched_getaffinity(0)
    mine = np.zeros(4096, dtype=np.uint8)
    mine[list(allowed)] = 1
    cores = np.empty_like(mine)  # of all: some launchers pin each rank to its own
    wait_sleeping(host.Iallreduce(mine, cores, op=MPI.MAX), mine)
    ranks = host.size
    host.Free()
    return ranks > int(cores.sum())
