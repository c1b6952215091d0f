"""The exchange over MPI, one node per rank."""

from __future__ import annotations

import atexit
import contextlib
from typing import NamedTuple, NoReturn

import numpy as np

from dadmm.comm import mpi_library
from dadmm.comm.exchange import Exchange, Plan
from dadmm.comm.mpi_library import MPI, agree
from dadmm.comm.traffic import Counter, count, count_outside
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology

SHORT = 8192  # bytes of a message that every MPI sends eagerly
_start = MPI.Prequest.Startall


class Requests(NamedTuple):
    """The persistent requests of a swap."""

    started: list[MPI.Prequest]
    awaited: list[MPI.Prequest]  # complete at the end of the swap
    late: list[MPI.Prequest]  # sends that may complete later


class MPIExchange(Exchange):
    """One message per directed edge and swap, by persistent point-to-point requests.

    A swap ends when all messages are received. Sends to other hosts may complete later:
    over TCP, MPICH waits for a confirmation of the receiver, a second latency.
    So rows to other hosts are sent from two copies in turn, and a swap waits for the
    sends of the swap before the last. Messages longer than `SHORT` need both ends to
    take part; a swap waits for all of these.

    Parameters
    ----------
    comm : MPI.Comm
        Duplicated, so that messages of the caller do not interfere.
    topology, size
        As in `Exchange`, with as many nodes as the communicator has ranks.
    wait : {"auto", "block", "poll"}
        How to wait: inside MPI ("block"), which is fastest when every rank has a core,
        or by testing and sleeping in turns ("poll"), which leaves the core to other
        ranks. "auto" polls if a host has more ranks than cores.
    survives : bool
        Whether to continue when other ranks fail, which needs an MPI with ULFM.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        topology: Topology,
        size: int,
        wait: str = "auto",
        survives: bool = False,
    ) -> None:
        if survives:
            mpi_library.check_fault_tolerance()
            self.rank_failure = (MPI.Exception,)
        self._comm, rank = mpi_library.duplicate(comm), comm.rank
        self._made_of = size, wait, survives
        super().__init__(topology, size, np.array([rank]), by_row=True)
        peers = topology.indices[self.arcs]
        self._peers = peers.tolist()  # the rank at the other end of each row
        hosts, crowded = mpi_library.find_hosts(self._comm)
        self._wait = mpi_library.waiting(wait, crowded)
        self._far = bool((hosts[peers] != hosts[rank]).any())
        copies = [self.outbox.rows.copy() for _ in range(2 * self._far)]
        self._buffers = (self.inbox.rows, self.outbox.rows, *copies)
        self._made: dict[tuple[int, ...], MPI.Prequest] = {}
        self._planned = 0, self.lengths.tobytes()
        self._plans = [Requests([], [], [])] * 2  # of these lengths, used in turn
        self._started, _, self._late = self._plans[0]
        self._pending: list[list[MPI.Prequest]] = [[], []]  # late sends, by turn
        self._turn = 0
        self._swaps = 0  # with this plan, not yet counted
        self._posted: dict[str, tuple[Matrix, Matrix]] = {}  # own row, all rows
        self._open: list[MPI.Request] = []  # collectives under way

    def swap(self) -> None:
        planned = self.begin, self.lengths.tobytes()
        if planned != self._planned:
            self._count()
            self._planned = planned
            self._plans = [self._plan(turn) for turn in (0, 1)]
            self._started, _, self._late = self._plans[0]
        if self._late:
            self._swap_late()
        else:
            _start(self._started)
            self._wait(self._started)
        self._swaps += 1
        if self._open:
            self._wait(self._open)
            self._open = []

    def _swap_late(self) -> None:
        """Send copies; wait for the receives and the sends of the swap before last."""
        turn = self._turn = 1 - self._turn
        plan = self._plans[turn]
        self._wait(self._pending[turn])
        np.copyto(self._buffers[2 + turn], self.outbox.rows)
        self._pending[turn] = plan.late
        _start(plan.started)
        self._wait(plan.awaited)

    def _count(self) -> None:
        """Count the messages of this plan; counting in each swap took 3 us."""
        count(self._sent, np.frombuffer(self._planned[1], np.int64), self._swaps)
        self._swaps = 0

    def _plan(self, turn: int) -> Requests:
        """Return the requests for the current lengths."""
        late = self._far and self.lengths.max(initial=0) <= SHORT
        source, width = 2 + turn if late else 1, self.inbox.rows.shape[1]
        used = [(row, n) for row, n in enumerate(self.lengths.tolist()) if n]
        receives = [self._request(0, row, width - self.begin) for row, _ in used]
        sends = [self._request(source, row, n) for row, n in used]
        both = receives + sends
        return Requests(both, receives, sends) if late else Requests(both, both, [])

    def _request(self, buffer: int, row: int, n: int) -> MPI.Prequest:
        """Return the request for n bytes of a buffer's row; it is made once and kept.

        Rows of the first buffer are received, rows of the others are sent.
        """
        key = buffer, row, self.begin, n
        if key not in self._made:
            make = self._comm.Send_init if buffer else self._comm.Recv_init
            data = self._buffers[buffer][row, self.begin : self.begin + n]
            self._made[key] = make(data, self._peers[row])
        return self._made[key]

    def post(self, name: str, rows: Matrix) -> None:
        own, everyone = rows.copy(), np.empty((self._comm.size, rows.shape[1]))
        self._posted[name] = own, everyone  # MPI uses both until the next swap
        self._open.append(self._comm.Iallgather(own, everyone))
        self.collectives += 1, everyone.nbytes

    def read(self, name: str) -> Matrix:
        return self._posted[name][1]

    def collect(self, rows: Matrix, everywhere: bool = True) -> Matrix:
        flat = np.ascontiguousarray(rows, dtype=np.float64).reshape(-1)
        found, _ = mpi_library.gather(self._comm, flat, everywhere)
        return found.reshape(-1, rows.shape[1])

    def all_finished(self, finished: bool) -> bool:
        if not self.rank_failure:
            return finished
        if not finished:
            self._comm.Revoke()  # so that ranks that wait for messages raise
        return agree(self._comm, finished)

    def raise_failed(self) -> NoReturn:
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    def shrink(self, last: int, plan: Plan) -> tuple[MPIExchange, list[int], int]:
        self._complete_requests()
        while True:
            everyone = self._comm.Shrink()
            try:
                alive = mpi_library.ranks_in(everyone.Get_group(), self._comm)
                t = np.array([last])
                count_outside(t)
                everyone.Allreduce(MPI.IN_PLACE, t, op=MPI.MIN)
                part, graph = plan(alive)
                among = everyone.Split(part[0], key=self._comm.rank)
                exchange = MPIExchange(among, graph, *self._made_of)
                whole = True
            except MPI.Exception:  # another rank has failed meanwhile
                everyone.Revoke()
                whole = False
            if agree(everyone, whole):
                atexit.register(mpi_library.leave)
                return exchange, alive, int(t[0])

    def _complete_requests(self) -> None:
        """Complete all requests, with errors; MPI waits for open ones at its end."""
        plans = [request for plan in self._plans for request in plan.started]
        for request in (*plans, *self._open):
            with contextlib.suppress(MPI.Exception):
                request.Wait()

    @property
    def private_comm(self) -> MPI.Comm:
        return self._comm

    @property
    def sent(self) -> Counter:
        self._count()
        return self._sent

    def close(self) -> None:
        for pending in self._pending:
            self._wait(pending)
        self._wait(self._open)
        for request in self._made.values():
            request.Free()
        self._comm.Free()
