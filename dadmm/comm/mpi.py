"""mpi4py with the settings that dadmm needs; waits, failures; an exchange.

All other modules take MPI from here.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple, NoReturn

import mpi4py
import numpy as np

from dadmm.comm import traffic
from dadmm.comm.exchange import Exchange, FindPart
from dadmm.comm.launch_link import tell_launcher
from dadmm.comm.traffic import Counter, count
from dadmm.comm.wire import BRIEF, ETA, HEADER, PAYLOAD, Bytes
from dadmm.comm.world import World, wait_sleeping
from dadmm.core.errors import ConfigError
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers, Topology

mpi4py.rc.thread_level = "single"  # one thread calls MPI; some MPIs are faster then
# Open MPI's own waits then sleep instead of yielding when ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")
tell_launcher(inside="MPI_Init")
from mpi4py import MPI as MPI  # noqa: E402

tell_launcher(inside="")

EAGER = 8192  # bytes of a message that every MPI sends eagerly
POLL_INTERVAL = 50e-6  # seconds; the usual timer makes it 100e-6; 200e-6 is as good
LONG_WAIT = 1.0  # seconds; after them another rank is late, stopped or gone
LONG_INTERVAL = 2e-3  # seconds between tests then, which leaves the cores to others
TIME_TO_LEARN = 1.0  # seconds until a rank knows which rank has failed
VERSION = MPI.Get_library_version().strip("\0").strip()
_NAME = VERSION.splitlines()[0].partition(",")[0].replace("Version:", "")
LIBRARY = " ".join(_NAME.split())  # its name and version
_test_all, _start = MPI.Request.Testall, MPI.Prequest.Startall


def poll(requests: Sequence[MPI.Request], interval: float = POLL_INTERVAL) -> None:
    """Wait for requests by testing and sleeping in turns; after long, sleep longer.

    A turn has a test per message: MPICH receives about one message per test, and a
    single one made dense graphs twice as slow.
    """
    tests, long = len(requests) // 2 + 1, monotonic() + LONG_WAIT
    while True:
        for _ in range(tests):
            if _test_all(requests):
                return
        is_long = monotonic() > long
        if is_long or interval:
            time.sleep(LONG_INTERVAL if is_long else interval)


def find_hosts(comm: MPI.Comm) -> tuple[list[str], bool]:
    """Return the host of each rank, and whether the host of this rank is crowded.

    It is if it has more ranks than cores they may use; some launchers pin each rank to
    a core. A host is a host name and a network namespace.
    """
    network = "/proc/self/ns/net"
    space = os.stat(network).st_ino if os.path.exists(network) else 0
    mine = f"{os.uname().nodename} {space}"
    everyone = World(comm).gather_json([mine, sorted(os.sched_getaffinity(0))])
    here = [set(cores) for host, cores in everyone if host == mine]
    return [host for host, _ in everyone], len(here) > len(set.union(*here))


def is_fault_tolerant() -> bool:
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 (its name)
    return enabled == "1" and "Open MPI" in VERSION


def check_fault_tolerance() -> None:
    if not is_fault_tolerant():
        raise ConfigError(
            "on_failure = continue needs Open MPI 5, started by mpiexec --with-ft "
            f"ulfm, got {LIBRARY}; start it so, or leave on_failure at abort"
        )


def failed_ranks(comm: MPI.Comm, error: BaseException) -> list[int]:
    """Return the ranks that have failed, after an error of a fault-tolerant MPI.

    A rank may learn that others have failed before it learns which.
    """
    if not isinstance(error, MPI.Exception) or not is_fault_tolerant():
        return []
    of_failure = error.Get_error_class() in (MPI.ERR_PROC_FAILED, MPI.ERR_REVOKED)
    end = monotonic() + of_failure * TIME_TO_LEARN
    while not (found := ranks_in(comm.Get_failed(), comm)) and monotonic() < end:
        with contextlib.suppress(MPI.Exception):
            comm.Iprobe()  # which lets MPI work
        time.sleep(LONG_INTERVAL)
    return found


def agree(comm: MPI.Comm, yes: bool) -> bool:
    """Return on all ranks whether ``yes`` is true on all and none has failed."""
    traffic.outside += 1, np.intc().nbytes
    try:
        return bool(comm.Agree(int(yes)))
    except MPI.Exception:
        return False


def ranks_in(group: MPI.Group, comm: MPI.Comm) -> list[int]:
    return list(group.Translate_ranks(list(range(group.size)), comm.Get_group()))


def leave(code: int | None = None) -> None:
    """End this process without MPI_Finalize, after another rank has failed.

    Open MPI 5.0 may wait there for the failed ranks, forever (its issue 11404). When
    all ranks exit like this, the job ends with code 0.
    """
    if code is None:
        code = int(hasattr(sys, "last_value"))  # 1 after an uncaught exception
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


class Parcel(NamedTuple):
    """What this rank and another send each other in a swap: one message each way."""

    rank: int
    sent: Integers  # rows, in the order of their edges
    received: Integers  # rows, in the order of the edges towards them
    begin: int  # first byte in a buffer


class MPIExchange(Exchange):
    """One message per pair of ranks and swap, by persistent point-to-point requests.

    A message has what the rows of one rank send to those of the other, see `Box.pack`;
    if it has one row, as with one node per rank, it is sent from the outbox itself.

    A swap ends when all messages are received. Sends to other hosts may complete later:
    MPICH over TCP waits for a confirmation of the receiver, a second latency. So these
    are sent from two copies in turn, and a swap waits for the sends of the swap before
    the last. A message longer than `EAGER` needs both ends, so a swap waits for it.

    ``comm`` is duplicated. ``wait`` is "block" (test all the time, fastest when every
    rank has a core), "poll" (test and sleep in turns) or "auto" (poll if a host has
    more ranks than cores). If it ``survives``, it continues when other ranks fail.
    """

    private_comm: MPI.Comm

    def __init__(
        self,
        comm: MPI.Comm,
        topology: Topology,
        size: int,
        nodes: Integers,
        hosts: Integers | None = None,
        wait: str = "auto",
        survives: bool = False,
    ) -> None:
        if survives:
            check_fault_tolerance()
            self.rank_failure = (MPI.Exception,)
        self._comm, request = comm.Idup()
        wait_sleeping(request)
        self.private_comm = self._comm
        self._made_of, self.rank = (size, wait, survives), comm.rank
        hosts = np.arange(topology.n_nodes) if hosts is None else hosts
        super().__init__(topology, size, nodes, hosts)
        machines, crowded = find_hosts(self._comm)
        polls = crowded if wait == "auto" else wait == "poll"
        self._wait = partial(poll, interval=POLL_INTERVAL if polls else 0.0)
        peers = np.unique(self.peers).tolist()
        self._far = any(machines[peer] != machines[self.rank] for peer in peers)
        self._back = topology.reverse[self.arcs]
        self._make_parcels()
        self._made: dict[tuple[int, ...], MPI.Prequest] = {}
        self._planned = 0, 0, self.lengths.tobytes()
        # requests of these lengths, used in turn: all, those that are complete at the
        # end of a swap, and sends that may complete later
        self._plans: list[tuple[list[MPI.Prequest], ...]] = [([], [], [])] * 2
        self._pending: list[list[MPI.Prequest]] = [[], []]  # late sends, by turn
        self._turn = 0
        self._swaps = 0  # with this plan, not yet counted
        self._parcel_bytes = np.zeros(len(self._parcels), np.int64)
        self._parcels_sent = np.zeros((len(self._parcels), 2), np.int64)
        self._open: list[MPI.Request] = []  # collectives under way
        self._n_hosted = np.bincount(hosts, minlength=comm.size)
        self._by_node = np.argsort(np.argsort(hosts, kind="stable"))

    def _make_parcels(self) -> None:
        back, begin, parcels = self._back, 0, []
        for rank in np.unique(self.peers[self.peers != self.rank]).tolist():
            rows = np.flatnonzero(self.peers == rank)
            sent = rows[np.argsort(self.arcs[rows])]
            received = rows[np.argsort(back[rows])]
            if self._by_row:
                begin = int(rows[0]) * self.inbox.rows.shape[1]
            parcels.append(Parcel(rank, sent, received, begin))
            begin += len(rows) * (2 * ETA + self.outbox.payload.shape[1])
        self._parcels, space = parcels, max(begin, self.inbox.rows.size)
        boxes = [self.inbox.rows.reshape(-1), self.outbox.rows.reshape(-1)]
        if not self._by_row:
            boxes = [np.empty(space, np.uint8) for _ in boxes]
        copies = [np.empty(space, np.uint8) for _ in range(2 * self._far)]
        self._buffers = (*boxes, *copies)

    def swap(self) -> None:
        planned = self.begin, self.width, self.lengths.tobytes()
        if planned != self._planned:
            if self.begin == BRIEF and self._by_row:  # from now on rows are packed
                self._by_row = False
                self._free()
                self._make_parcels()
            if self._swaps:
                self._count()
            self._planned = planned
            self._plans = [self._plan(turn) for turn in (0, 1)]
        turn = self._turn
        requests, awaited, late = self._plans[turn]
        if late:
            self._turn = 1 - turn
            self._wait(self._pending[turn])  # of the swap before the last
            self._pending[turn] = late
        if not self._by_row:
            self._pack(self._buffers[2 + turn if late else 1])
        elif late:
            np.copyto(self._buffers[2 + turn], self._buffers[1])
        _start(requests)
        if not self._by_row:
            self._swap_here()
        self._wait(awaited)
        if not self._by_row:
            for parcel in self._parcels:
                rows = parcel.received
                if not self._all_present:
                    rows = rows[self.lengths[rows] > 0]
                data = self._buffers[0][parcel.begin :]
                self.inbox.unpack(rows, self.begin, self.width, data)
        self._swaps += 1
        if self._open:
            self._wait(self._open)
            self._open = []

    def _pack(self, buffer: Bytes) -> None:
        lengths, flags = self.lengths, self.outbox.fields["flags"]
        head = 2 * ETA - self.begin
        for parcel, n in zip(self._parcels, self._parcel_bytes.tolist(), strict=True):
            rows = due = parcel.sent
            if self.begin == BRIEF or n < len(rows) * (head + self.width):
                rows = rows[lengths[rows] > 0]
                due = rows[(flags[rows] & PAYLOAD) > 0]
            data = buffer[parcel.begin : parcel.begin + n]
            self.outbox.pack(rows, due, self.begin, self.width, data)

    def _count(self) -> None:
        """Count the messages of this plan; counting in each swap took 3 us."""
        count(self._sent, np.frombuffer(self._planned[2], np.int64), self._swaps)
        count(self._parcels_sent, self._parcel_bytes, self._swaps)
        self._swaps = 0

    def _plan(self, turn: int) -> tuple[list[MPI.Prequest], ...]:
        """Return the requests for the current lengths, see ``_plans``.

        A request to receive (buffer 0) or send so many bytes is made once.
        """
        lengths, most = self.lengths, 2 * ETA - self.begin + self.width
        most += HEADER.itemsize * (self.begin == BRIEF)
        self._all_present = bool(lengths.all())
        sums = [int(lengths[parcel.sent].sum()) for parcel in self._parcels]
        self._parcel_bytes = np.array(sums, dtype=np.int64)
        late = self._far and self._parcel_bytes.max(initial=0) <= EAGER
        receives: list[MPI.Prequest] = []
        sends: list[MPI.Prequest] = []
        for parcel, n in zip(self._parcels, sums, strict=True):
            if not n:
                continue
            begin = parcel.begin + self.begin * self._by_row
            for requests, buffer, size in (
                (receives, 0, len(parcel.received) * most),
                (sends, 2 + turn if late else 1, n),
            ):
                key = buffer, begin, size
                if key not in self._made:
                    make = self._comm.Send_init if buffer else self._comm.Recv_init
                    data = self._buffers[buffer][begin : begin + size]
                    self._made[key] = make(data, parcel.rank)
                requests.append(self._made[key])
        both = receives + sends
        return (both, receives, sends) if late else (both, both, [])

    def post(self, name: str, rows: Matrix) -> None:
        own, counts = rows[self.node_order], self._n_hosted * rows.shape[1]
        everyone = np.empty((len(self.hosts), rows.shape[1]))
        self._posted[name] = everyone
        if (counts == counts[0]).all():
            request = self._comm.Iallgather(own, everyone)
        else:
            request = self._comm.Iallgatherv(own, [everyone, counts.tolist()])
        self._open.append(request)
        self.collectives += 1, everyone.nbytes

    def read(self, name: str) -> Matrix:
        return self._posted[name][self._by_node]

    @property
    def sent(self) -> Counter:
        self._count()
        return self._sent

    @property
    def wire(self) -> Integers:
        self._count()
        ranks = [(self.rank, parcel.rank) for parcel in self._parcels]
        return np.hstack([np.array(ranks, int).reshape(-1, 2), self._parcels_sent])

    def all_finished(self, finished: bool) -> bool:
        if not finished:
            self._comm.Revoke()  # so that ranks that wait for messages raise
        return agree(self._comm, finished)

    def raise_failed(self) -> NoReturn:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    def shrink(self, last: int, find: FindPart) -> tuple[MPIExchange, list[int], int]:
        # complete all requests, with errors: MPI waits for open ones at its end
        for request in (*self._plans[0][0], *self._plans[1][0], *self._open):
            with contextlib.suppress(MPI.Exception):
                request.Wait()
        while True:
            everyone = self._comm.Shrink()
            try:
                alive = ranks_in(everyone.Get_group(), self._comm)
                t = np.array([last])
                traffic.outside += 1, t.nbytes
                everyone.Allreduce(MPI.IN_PLACE, t, op=MPI.MIN)
                part, (size, wait, survives) = find(alive), self._made_of
                among = everyone.Split(part.nodes[0], key=self._comm.rank)
                exchange = MPIExchange(
                    among, part.topology, size, part.own, part.hosts, wait, survives
                )
                whole = True
            except MPI.Exception:  # another rank has failed meanwhile
                everyone.Revoke()
                whole = False
            if agree(everyone, whole):
                atexit.register(leave)
                return exchange, alive, int(t[0])

    def _free(self) -> None:
        self._wait([*self._pending[0], *self._pending[1]])
        for request in self._made.values():
            request.Free()
        self._made, self._pending = {}, [[], []]

    def close(self) -> None:
        self._wait(self._open)
        self._free()
        self._comm.Free()
