"""mpi4py with the settings that dadmm needs, and what all uses of it share.

These are two collectives outside the iterations, ways to wait, and what MPI offers
when a rank fails (ULFM). Other modules take MPI from here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from time import monotonic

import mpi4py
import numpy as np

from dadmm.comm.launch_link import tell_launcher
from dadmm.comm.traffic import count_outside
from dadmm.core.errors import ConfigError

mpi4py.rc.thread_level = "single"  # one thread calls MPI; some MPIs are faster then
# Open MPI's own waits then sleep instead of yielding when ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")
tell_launcher(inside="MPI_Init")
from mpi4py import MPI as MPI  # noqa: E402 (other modules take it from here)

tell_launcher(inside="")

SHORT = 56  # bytes of an array that is sent with its length, in one call
MOST_BYTES = 2**30  # in one call; an MPI without large counts has less than 2 GiB
POLL_INTERVAL = 50e-6  # seconds; the usual timer makes it 100e-6; 200e-6 is as good
LONG_WAIT = 1.0  # seconds; after them another rank is late, stopped or gone
LONG_INTERVAL = 2e-3  # seconds between tests then, which leaves the cores to others
MOST_CORES = 4096  # of a host
_test_all = MPI.Request.Testall


def short_name() -> str:
    """Return the name and version of the MPI library."""
    version = MPI.Get_library_version()
    line = version.strip("\0").strip().splitlines()[0].partition(",")[0]
    return " ".join(line.replace("Version:", "").split())


def wait_sleeping(request: MPI.Request, n_bytes: int = 0) -> None:
    """Count a collective, and wait for it by testing and sleeping in turns.

    A blocking collective would use the cores until the last rank arrives. Ranks that
    still import modules or write files need them: with blocking collectives 20 ranks on
    2 cores took 1.2 times as long to start.
    """
    count_outside(n_bytes)
    pause = 1e-3
    while not request.Test():
        time.sleep(pause)
        pause = min(1.02 * pause, 0.05)  # a rank may wait for minutes


def duplicate(comm: MPI.Comm) -> MPI.Comm:
    """Return a communicator of the same ranks whose messages are apart."""
    copy, request = comm.Idup()
    wait_sleeping(request)
    return copy


def gather(
    comm: MPI.Comm, own: np.ndarray, everywhere: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays of all ranks one after the other, and their lengths.

    They are one-dimensional and of one type. If not ``everywhere``, ranks other than 0
    return nothing and zeros. Short arrays take one call if all ranks get them.
    """
    first = _first_row(own)[: None if everywhere else 8]
    rows = np.zeros((comm.size, len(first)), dtype=np.uint8)
    equal = comm.Iallgather if everywhere else comm.Igather
    wait_sleeping(equal(first, rows), first.nbytes)
    lengths = rows[:, :8].copy().view(np.int64)[:, 0]
    if everywhere and lengths.max() * own.itemsize <= SHORT:
        used = np.arange(SHORT) < lengths[:, None] * own.itemsize
        return rows[:, 8:][used].view(own.dtype), lengths
    whole = np.empty(int(lengths.sum()), own.dtype)
    unequal = comm.Iallgatherv if everywhere else comm.Igatherv
    wait_sleeping(unequal(own, [whole, lengths.tolist()]), own.nbytes)
    return whole, lengths


def broadcast(comm: MPI.Comm, array: np.ndarray) -> np.ndarray:
    """Return the one-dimensional array of rank 0; all ranks pass the same type."""
    is_mine, row = comm.rank == 0, _first_row(array)
    wait_sleeping(comm.Ibcast(row), row.nbytes * is_mine)
    n_bytes = int(row[:8].view(np.int64)[0]) * array.itemsize
    if n_bytes <= SHORT:
        return row[8 : 8 + n_bytes].view(array.dtype)
    found = array if is_mine else np.empty(n_bytes, np.uint8).view(array.dtype)
    for part in parts(found):
        wait_sleeping(comm.Ibcast(part), part.nbytes * is_mine)
    return found


def parts(*arrays: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the bytes of arrays in parts that any MPI can send, without copies."""
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for begin in range(0, len(data), MOST_BYTES):
            yield data[begin : begin + MOST_BYTES]


def _first_row(array: np.ndarray) -> np.ndarray:
    """Return the length of an array, and its bytes if they are few."""
    row = np.zeros(8 + SHORT, dtype=np.uint8)
    row[:8].view(np.int64)[0] = len(array)
    if array.nbytes <= SHORT:
        row[8 : 8 + array.nbytes] = array.view(np.uint8)
    return row


def waiting(wait: str, crowded: bool) -> Callable[[Sequence[MPI.Request]], None]:
    """Return the function that waits for requests, by one of `dadmm.comm.WAITS`."""
    polls = crowded if wait == "auto" else wait == "poll"
    return poll if polls else block


def poll(requests: Sequence[MPI.Request], interval: float = POLL_INTERVAL) -> None:
    """Wait for requests by testing and sleeping in turns; after long, sleep longer.

    A turn tests once per message: MPICH receives about one message per test, and a
    single test per turn made dense graphs twice as slow.
    """
    tests, long = len(requests) // 2 + 1, monotonic() + LONG_WAIT
    while True:
        for _ in range(tests):
            if _test_all(requests):
                return
        is_long = monotonic() > long
        if is_long or interval:
            time.sleep(LONG_INTERVAL if is_long else interval)


def block(requests: Sequence[MPI.Request]) -> None:
    """Wait for requests without sleeping, unless another rank is stopped or gone."""
    poll(requests, 0.0)


def find_hosts(comm: MPI.Comm) -> tuple[np.ndarray, bool]:
    """Return a hash of the host of each rank, and whether this host is crowded.

    It is if it has more ranks than cores they may use. A host is a host name and a
    network namespace. Some launchers pin each rank to a core, so ranks send theirs.
    """
    network = "/proc/self/ns/net"
    space = os.stat(network).st_ino if os.path.exists(network) else 0
    name = f"{os.uname().nodename} {space}".encode()
    code = np.frombuffer(blake2b(name, digest_size=8).digest(), dtype=np.uint8)
    allowed = np.zeros(MOST_CORES, dtype=np.uint8)
    allowed[list(os.sched_getaffinity(0))] = 1
    mine = np.concatenate([code, np.packbits(allowed)])
    everyone = np.empty((comm.size, len(mine)), dtype=np.uint8)
    wait_sleeping(comm.Iallgather(mine, everyone), mine.nbytes)
    hosts = everyone[:, :8].copy().view(np.uint64)[:, 0]
    here = everyone[hosts == hosts[comm.rank]]
    cores = np.unpackbits(np.bitwise_or.reduce(here[:, 8:])).sum()
    return hosts, bool(len(here) > cores)


def is_fault_tolerant() -> bool:
    """Return whether ranks can continue after another rank has failed."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 (its name)
    return enabled == "1" and "Open MPI" in MPI.Get_library_version()


def check_fault_tolerance() -> None:
    """Raise a ConfigError if this MPI ends all ranks when one fails."""
    if not is_fault_tolerant():
        raise ConfigError(
            "on_failure = continue needs Open MPI 5, started by mpiexec --with-ft "
            f"ulfm, got {short_name()}; start it so, or leave on_failure at abort"
        )


def failed_ranks(comm: MPI.Comm, error: BaseException) -> list[int]:
    """Return the ranks that are known to have failed, if ``error`` may report one."""
    if isinstance(error, MPI.Exception) and is_fault_tolerant():
        return ranks_in(comm.Get_failed(), comm)
    return []


def agree(comm: MPI.Comm, yes: bool) -> bool:
    """Return on all ranks whether ``yes`` is true on all and none has failed."""
    count_outside(np.intc().nbytes)
    try:
        return bool(comm.Agree(int(yes)))
    except MPI.Exception:
        return False


def ranks_in(group: MPI.Group, comm: MPI.Comm) -> list[int]:
    """Return the ranks in ``comm`` of the processes of a group."""
    return list(group.Translate_ranks(list(range(group.size)), comm.Get_group()))


def leave(code: int | None = None) -> None:
    """End this process without MPI_Finalize, after another rank has failed.

    Open MPI 5.0 may wait in MPI_Finalize for the failed ranks, forever (its issue
    11404). When all ranks exit like this, the job ends with code 0. Ranks that have not
    exited yet are not affected.
    """
    if code is None:
        code = int(hasattr(sys, "last_value"))  # 1 after an uncaught exception
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
