"""The exchange over MPI: messages between the nodes of different ranks."""

from __future__ import annotations

import atexit
import contextlib
from typing import NamedTuple, NoReturn

import numpy as np

from dadmm.comm import mpi_library
from dadmm.comm.exchange import Exchange, Plan
from dadmm.comm.mpi_library import MPI, agree
from dadmm.comm.traffic import Counter, count, count_outside, counter
from dadmm.comm.wire import BRIEF, ETA, HEADER, PAYLOAD, Bytes
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Integers, Topology

SHORT = 8192  # bytes of a message that every MPI sends eagerly
_start = MPI.Prequest.Startall


class Parcel(NamedTuple):
    """What this rank and another send each other in a swap: one message each way."""

    rank: int
    sent: Integers  # rows, in the order of their edges
    received: Integers  # rows, in the order of the edges towards them
    begin: int  # first byte in a buffer


class MPIExchange(Exchange):
    """One message per pair of ranks and swap, by persistent point-to-point requests.

    A message has what the rows of one rank send to those of the other, see `Box.pack`;
    edges between nodes of one rank are copied. If each message has one row, as with one
    node per rank, it is sent from the outbox itself.

    A swap ends when all messages are received. Sends to other hosts may complete later:
    MPICH over TCP waits for a confirmation of the receiver, a second latency. So these
    are sent from two copies in turn, and a swap waits for the sends of the swap before
    the last. A message longer than `SHORT` needs both ends, so a swap waits for it.

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
        nodes: Integers | None = None,
        hosts: Integers | None = None,
        wait: str = "auto",
        survives: bool = False,
    ) -> None:
        if survives:
            mpi_library.check_fault_tolerance()
            self.rank_failure = (MPI.Exception,)
        self.private_comm = self._comm = mpi_library.duplicate(comm)
        self._made_of, self.rank = (size, wait, survives), comm.rank
        hosts = np.arange(len(topology)) if hosts is None else hosts
        super().__init__(topology, size, nodes, hosts)
        machines, crowded = mpi_library.find_hosts(self._comm)
        self._wait = mpi_library.waiting(wait, crowded)
        self._far = bool((machines[self.peers] != machines[self.rank]).any())
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
        self._parcel_bytes = np.zeros(len(self._parcels), dtype=np.int64)
        self._parcels_sent = counter(len(self._parcels))
        self._open: list[MPI.Request] = []  # collectives under way
        self._n_hosted = np.bincount(hosts, minlength=comm.size)
        self._by_node = np.argsort(np.argsort(hosts, kind="stable"))

    def _make_parcels(self) -> None:
        """Make a parcel for each other rank, and buffers for all of them."""
        back, begin, parcels = self._back, 0, []
        for rank in np.unique(self.peers[self.peers != self.rank]).tolist():
            rows = np.flatnonzero(self.peers == rank)
            sent, received = (rows[np.argsort(k[rows])] for k in (self.arcs, back))
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
            self._unpack()
        self._swaps += 1
        if self._open:
            self._wait(self._open)
            self._open = []

    def _pack(self, buffer: Bytes) -> None:
        """Write the message to each rank."""
        lengths, flags = self.lengths, self.outbox.fields["flags"]
        head = 2 * ETA - self.begin
        for parcel, n in zip(self._parcels, self._parcel_bytes.tolist(), strict=True):
            rows = due = parcel.sent
            if self.begin == BRIEF or n < len(rows) * (head + self.width):
                rows = rows[lengths[rows] > 0]
                due = rows[(flags[rows] & PAYLOAD) > 0]
            data = buffer[parcel.begin : parcel.begin + n]
            self.outbox.pack(rows, due, self.begin, self.width, data)

    def _unpack(self) -> None:
        """Read the message of each rank."""
        for parcel in self._parcels:
            rows = parcel.received
            if not self._all_present:
                rows = rows[self.lengths[rows] > 0]
            data = self._buffers[0][parcel.begin :]
            self.inbox.unpack(rows, self.begin, self.width, data)

    def _count(self) -> None:
        """Count the messages of this plan; counting in each swap took 3 us."""
        count(self._sent, np.frombuffer(self._planned[2], np.int64), self._swaps)
        count(self._parcels_sent, self._parcel_bytes, self._swaps)
        self._swaps = 0

    def _plan(self, turn: int) -> tuple[list[MPI.Prequest], ...]:
        """Return the requests for the current lengths."""
        lengths, most = self.lengths, 2 * ETA - self.begin + self.width
        most += HEADER.itemsize * (self.begin == BRIEF)
        self._all_present = bool(lengths.all())
        sums = [int(lengths[parcel.sent].sum()) for parcel in self._parcels]
        self._parcel_bytes = np.array(sums, dtype=np.int64)
        late = self._far and self._parcel_bytes.max(initial=0) <= SHORT
        receives, sends = [], []
        for parcel, n in zip(self._parcels, sums, strict=True):
            if n:
                receives.append(self._request(0, parcel, len(parcel.received) * most))
                sends.append(self._request(2 + turn if late else 1, parcel, n))
        both = receives + sends
        return (both, receives, sends) if late else (both, both, [])

    def _request(self, buffer: int, parcel: Parcel, n: int) -> MPI.Prequest:
        """Return the request to receive (buffer 0) or send n bytes; it is made once."""
        begin = parcel.begin + self.begin * self._by_row
        key = buffer, begin, n
        if key not in self._made:
            make = self._comm.Send_init if buffer else self._comm.Recv_init
            self._made[key] = make(
                self._buffers[buffer][begin : begin + n], parcel.rank
            )
        return self._made[key]

    def post(self, name: str, rows: Matrix) -> None:
        own, counts = rows[self.node_order], self._n_hosted * rows.shape[1]
        everyone = np.empty((len(self.hosts), rows.shape[1]))
        self._posted[name] = everyone
        if (counts == counts[0]).all():
            self._open.append(self._comm.Iallgather(own, everyone))
        else:
            whole = [everyone, counts.tolist()]
            self._open.append(self._comm.Iallgatherv(own, whole))
        self.collectives += 1, everyone.nbytes

    def read(self, name: str) -> Matrix:
        return self._posted[name][self._by_node]

    def collect(self, numbers: Matrix, everywhere: bool = True) -> Matrix:
        own = np.ascontiguousarray(numbers, dtype=np.float64)
        return mpi_library.gather(self._comm, own, everywhere)[0]

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
        if not self.rank_failure:
            return finished
        if not finished:
            self._comm.Revoke()  # so that ranks that wait for messages raise
        return agree(self._comm, finished)

    def raise_failed(self) -> NoReturn:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    def shrink(self, last: int, plan: Plan) -> tuple[MPIExchange, list[int], int]:
        # complete all requests, with errors: MPI waits for open ones at its end
        for request in (*self._plans[0][0], *self._plans[1][0], *self._open):
            with contextlib.suppress(MPI.Exception):
                request.Wait()
        while True:
            everyone = self._comm.Shrink()
            try:
                alive = mpi_library.ranks_in(everyone.Get_group(), self._comm)
                t = np.array([last])
                count_outside(t.nbytes)
                everyone.Allreduce(MPI.IN_PLACE, t, op=MPI.MIN)
                part, (size, wait, survives) = plan(alive), self._made_of
                among = everyone.Split(part.nodes[0], key=self._comm.rank)
                exchange = MPIExchange(
                    among, part.topology, size, part.own, part.hosts, wait, survives
                )
                whole = True
            except MPI.Exception:  # another rank has failed meanwhile
                everyone.Revoke()
                whole = False
            if agree(everyone, whole):
                atexit.register(mpi_library.leave)
                return exchange, alive, int(t[0])

    def _free(self) -> None:
        """Complete late sends, and free all requests."""
        self._wait([*self._pending[0], *self._pending[1]])
        for request in self._made.values():
            request.Free()
        self._made, self._pending = {}, [[], []]

    def close(self) -> None:
        self._wait(self._open)
        self._free()
        self._comm.Free()
