"""The exchange over MPI, one node per rank."""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import fault_tolerance
from dadmm.comm.collectives import collect, count, wait_sleeping
from dadmm.comm.mpi_library import MPI
from dadmm.comm.mpi_wait import find_hosts, waiting
from dadmm.comm.wire import Box
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology

SHORT = 8192  # bytes of a message that every MPI sends eagerly
_start = MPI.Prequest.Startall


class Plan(NamedTuple):
    """The persistent requests of a swap."""

    started: list[MPI.Prequest]
    awaited: list[MPI.Prequest]  # complete at the end of the swap
    late: list[MPI.Prequest]  # sends that may complete later


class Posted(NamedTuple):
    """The rows of a collective: those of this rank, and those of all."""

    own: Matrix
    all: Matrix


class MPIExchange:
    """One message per directed edge and swap, by persistent point-to-point requests.

    A swap ends when all messages are received. Sends to other hosts may complete later:
    those of MPICH over TCP wait for a confirmation of the receiver, a second latency.
    So rows to other hosts are sent from two copies in turn, and a swap waits for the
    sends of the swap before the last. Messages longer than `SHORT` need both ends to
    take part; a swap waits for all of these.

    Parameters
    ----------
    comm : MPI.Comm
        Duplicated, so that messages of the caller do not interfere.
    topology : Topology
        With as many nodes as the communicator has ranks.
    size : int
        Entries of theta in a message.
    survives : bool
        Whether to continue when other ranks fail, which needs an MPI with ULFM.
    wait : {"auto", "block", "poll"}
        How to wait: inside MPI ("block"), which is fastest when every rank has a core,
        or by testing and sleeping in turns ("poll"), which leaves the core to other
        ranks. "auto" polls if a host has more ranks than cores.
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
            fault_tolerance.check_fault_tolerance()
        self._comm, request = comm.Idup()
        wait_sleeping(request)
        self._made_of = size, wait, survives
        self.rank_failure: tuple[type[Exception], ...] = ()
        if survives:
            self.rank_failure = (MPI.Exception,)
        rank = self._comm.rank
        neighbours = topology.neighbours[rank]
        hosts, crowded = find_hosts(self._comm)
        self._wait = waiting(wait, crowded)
        self._far = bool((hosts[list(neighbours)] != hosts[rank]).any())
        self.nodes = np.array([rank])
        self.arcs = np.arange(*topology.offsets[rank : rank + 2])
        n_edges = len(neighbours)
        self.outbox, self.inbox = Box(n_edges, size, True), Box(n_edges, size, True)
        self.begin = 0
        self.lengths = np.zeros(n_edges, dtype=np.int64)
        self._sent = np.zeros((n_edges, 2), dtype=np.int64)
        self._neighbours = neighbours
        self._receives: dict[tuple[int, int], Any] = {}  # by row and first byte
        self._sends: dict[tuple[int, ...], Any] = {}  # by source, row, first, length
        self._planned = 0, self.lengths.tobytes()
        self._plans = [Plan([], [], [])] * 2  # of these lengths, used in turn
        copies = [self.outbox.rows.copy() for _ in range(2 * self._far)]
        self._sources = (self.outbox.rows, *copies)
        self._pending: list[list[MPI.Prequest]] = [[], []]  # late sends, by turn
        self._turn = 0
        self._started, _, self._late = self._plans[0]
        self._swaps = 0  # with this plan, not yet counted
        self._posted: dict[str, Posted] = {}
        self._open: list[MPI.Request] = []  # collectives under way
        self.collectives = np.zeros(2, dtype=np.int64)

    def swap(self) -> None:
        """Send every message that has a length, and receive one in return."""
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
        np.copyto(self._sources[1 + turn], self.outbox.rows)
        self._pending[turn] = plan.late
        _start(plan.started)
        self._wait(plan.awaited)

    def _count(self) -> None:
        """Count the messages of this plan; counting in each swap took 3 us."""
        lengths = np.frombuffer(self._planned[1], dtype=np.int64)
        self._sent[:, 0] += self._swaps * (lengths > 0)
        self._sent[:, 1] += self._swaps * lengths
        self._swaps = 0

    def _plan(self, turn: int) -> Plan:
        """Return the requests for the current lengths; each is made once and kept."""
        late = self._far and self.lengths.max(initial=0) <= SHORT
        source, first = 1 + turn if late else 0, self.begin
        receives, sends = [], []
        for k, n in enumerate(self.lengths.tolist()):
            if n:
                receives.append(self._receive(k, first))
                sends.append(self._send(source, k, first, n))
        both = receives + sends
        return Plan(both, receives, sends) if late else Plan(both, both, [])

    def _receive(self, k: int, first: int) -> MPI.Prequest:
        if (k, first) not in self._receives:
            row, j = self.inbox.rows[k, first:], self._neighbours[k]
            self._receives[k, first] = self._comm.Recv_init(row, j)
        request: MPI.Prequest = self._receives[k, first]
        return request

    def _send(self, source: int, k: int, first: int, n: int) -> MPI.Prequest:
        key = source, k, first, n
        if key not in self._sends:
            row, j = self._sources[source][k, first : first + n], self._neighbours[k]
            self._sends[key] = self._comm.Send_init(row, j)
        request: MPI.Prequest = self._sends[key]
        return request

    def post(self, name: str, rows: Matrix) -> None:
        """Start to share this node's row with all nodes, without blocking."""
        shape = self._comm.size, rows.shape[1]
        if name not in self._posted or self._posted[name].all.shape != shape:
            self._posted[name] = Posted(np.empty((1, shape[1])), np.empty(shape))
        own, all_rows = self._posted[name]
        own[...] = rows  # MPI reads it until the request completes
        self._open.append(self._comm.Iallgather(own, all_rows))
        self.collectives += 1, all_rows.nbytes

    def read(self, name: str) -> Matrix:
        """Return the rows posted before the last swap."""
        return self._posted[name].all

    def collect(self, rows: Matrix, everywhere: bool = True) -> Matrix:
        """Return the rows of all ranks, on every rank, or on rank 0 alone."""
        return collect(self._comm, rows, everywhere)

    def all_finished(self, finished: bool) -> bool:
        """Return whether all ranks have finished and none has failed.

        A rank that has not finished revokes the communicator, so that ranks that wait
        for messages raise.
        """
        if not self.rank_failure:
            return finished
        if not finished:
            self._comm.Revoke()
        return fault_tolerance.agree(self._comm, finished)

    def raise_failed(self) -> NoReturn:
        """Raise that a rank has failed."""
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    def shrink(
        self, last: int, plan: Callable[[Sequence[int]], tuple[Sequence[int], Topology]]
    ) -> tuple[MPIExchange, list[int], int]:
        """Return an exchange without the failed ranks.

        Parameters
        ----------
        last : int
            The last iteration that this rank has finished.
        plan : callable
            Takes the nodes that are left. Returns the nodes of this rank's component
            and their graph.

        Returns
        -------
        exchange : MPIExchange
        alive : list of int
            The nodes that are left, of all components, by their previous numbers.
        t : int
            The last iteration that all of them have finished.
        """
        self._complete_requests()
        while True:
            everyone = self._comm.Shrink()
            try:
                alive, t = fault_tolerance.alive(everyone, self._comm), np.array([last])
                count(t)
                everyone.Allreduce(MPI.IN_PLACE, t, op=MPI.MIN)
                part, graph = plan(alive)
                among = everyone.Split(part[0], key=self._comm.rank)
                exchange = MPIExchange(among, graph, *self._made_of)
                whole = True
            except MPI.Exception:  # another rank has failed meanwhile
                everyone.Revoke()
                whole = False
            if fault_tolerance.agree(everyone, whole):
                atexit.register(fault_tolerance.leave)
                return exchange, alive, int(t[0])

    def _complete_requests(self) -> None:
        """Complete all requests, with errors; MPI waits for open ones at its end."""
        plans = [request for plan in self._plans for request in plan.started]
        for request in (*plans, *self._open):
            with contextlib.suppress(MPI.Exception):
                request.Wait()

    @property
    def private_comm(self) -> Any:
        """The communicator of the messages; between swaps nothing is under way."""
        return self._comm

    @property
    def comm(self) -> Any:
        """A new communicator of these ranks, which the caller keeps."""
        return self._comm.Dup()

    @property
    def sent(self) -> NDArray[np.int64]:
        """Messages and bytes to each neighbour so far, (E, 2)."""
        self._count()
        return self._sent

    def close(self) -> None:
        """Free the requests and the communicator."""
        for pending in self._pending:
            self._wait(pending)
        self._wait(self._open)
        for request in (*self._receives.values(), *self._sends.values()):
            request.Free()
        self._comm.Free()
