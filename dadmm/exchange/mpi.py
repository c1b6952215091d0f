"""The exchange over MPI, one node per rank. The only file that imports mpi4py."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpi4py
import numpy as np

mpi4py.rc.thread_level = "single"  # one thread talks; some MPIs are faster for it
# Open MPI's own waits then sleep instead of yielding when ranks outnumber cores.
os.environ.setdefault("OMPI_MCA_threads_pthreads_yield_strategy", "nanosleep")
from mpi4py import MPI  # noqa: E402

from dadmm.core.errors import ConfigError, TopologyError  # noqa: E402
from dadmm.core.layout import Matrix  # noqa: E402
from dadmm.exchange import (
    WAITS,
    identity,
)
from dadmm.exchange.launcher import until_read  # noqa: E402
from dadmm.graphs.topology import Topology  # noqa: E402

NAP = 50e-6  # seconds asked for; about 100 with the usual timer. 50 to 200 are alike
SHORT = 8192  # bytes of a message that every MPI sends off without asking the receiver
_start, _done = MPI.Prequest.Startall, MPI.Request.Testall


class Plan(NamedTuple):
    """The requests of a swap."""

    started: list[Any]
    awaited: list[Any]  # before the swap is over
    late: list[Any]  # sends that may be over later


class MPIExchange:
    """One message per directed edge and swap, by persistent point-to-point requests.

    A swap is over when all messages are in. Sends to other hosts may take longer: those
    of MPICH over TCP are over when the receiver has confirmed them, a second latency.
    So there rows are sent from two copies in turn, and a swap waits for the sends of
    the one before last. Long messages need both ends to take part: these it sees
    through.

    Parameters
    ----------
    comm : MPI.Comm
        Duplicated, so that no message of the caller's can be mistaken for ours.
    topology : Topology
        With as many nodes as the communicator has ranks.
    width : int
        Bytes of the longest message.
    survives : bool
        Whether to go on when other ranks die, which takes an MPI with ULFM.
    wait : {"auto", "block", "nap"}
        How to wait: inside MPI ("block"), which is quickest when every rank has a core
        to itself, or by testing and sleeping in turns ("nap"), which leaves the core to
        the ranks that are waited for. "auto" naps where ranks outnumber cores.
    """

    def __init__(
        self,
        comm: Any,
        topology: Topology,
        width: int,
        wait: str = "auto",
        survives: bool = False,
    ) -> None:
        if survives:
            check_fault_tolerance()
        if topology.n_nodes != comm.size:
            raise TopologyError(
                f"the graph has {topology.n_nodes} nodes but MPI started {comm.size} "
                f"processes; run mpiexec -n {topology.n_nodes}"
            )
        self._comm = comm.Dup()
        self._made_of = width, wait, survives
        self.lost = MPI.Exception if survives else ()
        self._wait = waiting(self._comm, wait)
        rank = self._comm.rank
        neighbours = topology.neighbours[rank]
        shape = len(neighbours), width
        out, box = np.zeros(shape, dtype=np.uint8), np.zeros(shape, dtype=np.uint8)
        self._lengths = np.zeros(len(neighbours), dtype=np.int64)
        self._sent = np.zeros((len(neighbours), 2), dtype=np.int64)
        self.hosted = (rank,)
        self.outbox, self.inbox = {rank: out}, {rank: box}
        self.lengths = {rank: self._lengths}
        self._neighbours, self._out = neighbours, out
        self._receives = [
            self._comm.Recv_init(box[k], j) for k, j in enumerate(neighbours)
        ]
        self._sends: dict[tuple[int, int, int], Any] = {}  # by source, row and length
        self._planned = self._lengths.tobytes()
        self._plans = [Plan([], [], [])] * 2  # of these lengths, used in turn
        self._far = elsewhere(self._comm, neighbours)
        self._sources = (out, *(out.copy() for _ in range(2 * self._far)))
        self._pending: list[list[Any]] = [[], []]  # late sends, by turn
        self._turn = 0
        self._started, _, self._late = self._plans[0]
        self._swaps = 0  # by this plan, and not yet counted
        self._posted = np.empty((self._comm.size, 0))
        self._poll: Any = MPI.REQUEST_NULL
        self.polls = 0

    def swap(self) -> None:
        """Send every outbox row that has a length, and receive one in return."""
        lengths = self._lengths.tobytes()
        if lengths != self._planned:
            self._count()
            self._planned = lengths
            self._plans = [self._plan(turn) for turn in (0, 1)]
            self._started, _, self._late = self._plans[0]
        if self._late:
            self._swap_late()
        else:
            _start(self._started)
            self._wait(self._started)
        self._swaps += 1

    def _swap_late(self) -> None:
        """Send copies, and wait for what comes in and for the sends before last."""
        turn = self._turn = 1 - self._turn
        plan = self._plans[turn]
        self._wait(self._pending[turn])
        np.copyto(self._sources[1 + turn], self._out)
        self._pending[turn] = plan.late
        _start(plan.started)
        self._wait(plan.awaited)

    def _count(self) -> None:
        """Count what was sent by this plan; to do so in each swap took 3 us."""
        lengths = np.frombuffer(self._planned, dtype=np.int64)
        self._sent[:, 0] += self._swaps * (lengths > 0)
        self._sent[:, 1] += self._swaps * lengths
        self._swaps = 0

    def _plan(self, turn: int) -> Plan:
        """Return the requests of these lengths; a row's are made once for each."""
        late = self._far and self._lengths.max(initial=0) <= SHORT
        source = 1 + turn if late else 0
        due = [(source, k, n) for k, n in enumerate(self._lengths.tolist()) if n]
        for key in due:
            if key not in self._sends:
                _, k, n = key
                row, j = self._sources[source][k, :n], self._neighbours[k]
                self._sends[key] = self._comm.Send_init(row, j)
        receives = [self._receives[k] for _, k, _ in due]
        sends = [self._sends[key] for key in due]
        both = receives + sends
        return Plan(both, receives, sends) if late else Plan(both, both, [])

    def post(self, rows: Matrix) -> None:
        """Start to share this node's row with all nodes, without blocking."""
        if self._posted.shape[1] != rows.shape[1]:
            self._posted = np.empty((self._comm.size, rows.shape[1]))
        self._row = rows  # kept until it is sent
        self._poll = self._comm.Iallgather(rows, self._posted)
        self.polls += 1

    def read(self) -> Matrix:
        """Return the rows posted last."""
        self._wait([self._poll])
        return self._posted

    def collect(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks in node order, on every rank."""
        return collect(self._comm, rows)

    def agree(self, finished: bool) -> bool:
        """Return whether all ranks have finished and none has died.

        A rank that has not wakes up those that still wait for messages.
        """
        if not self.lost:
            return finished
        if not finished:
            self._comm.Revoke()
        return _agree(self._comm, finished)

    def mourn(self) -> None:
        """Raise that ranks have died, on all that are left."""
        raise MPI.Exception(MPI.ERR_PROC_FAILED)

    def survive(
        self, last: int, plan: Callable[[Sequence[int]], tuple[Sequence[int], Topology]]
    ) -> tuple[MPIExchange, list[int], int]:
        """Return an exchange among survivors, who they are, and where they go on.

        Parameters
        ----------
        last : int
            The last iteration that this rank has finished.
        plan : callable
            Given the nodes that are alive, returns those among whom this rank goes on,
            and their graph.

        Returns
        -------
        exchange : MPIExchange
        alive : list of int
            All survivors, by their numbers before.
        t : int
            The last iteration that all of them have finished.
        """
        self._give_up()
        while True:
            everyone = self._comm.Shrink()
            try:
                alive, t = _alive(everyone, self._comm), np.array([last])
                everyone.Allreduce(MPI.IN_PLACE, t, op=MPI.MIN)
                part, graph = plan(alive)
                among = everyone.Split(part[0], key=self._comm.rank)
                exchange = MPIExchange(among, graph, *self._made_of)
                whole = True
            except MPI.Exception:  # somebody else has died meanwhile
                everyone.Revoke()
                whole = False
            if _agree(everyone, whole):
                atexit.register(leave)
                return exchange, alive, int(t[0])

    def _give_up(self) -> None:
        """Let all requests end in error, or MPI waits for them when the job ends."""
        plans = [request for plan in self._plans for request in plan.started]
        for request in (*plans, self._poll):
            with contextlib.suppress(MPI.Exception):
                request.Wait()

    @property
    def comm(self) -> Any:
        """A communicator of these ranks, for the caller to keep."""
        return self._comm.Dup()

    @property
    def sent(self) -> dict[int, np.ndarray]:
        """Messages and bytes to each neighbour so far."""
        self._count()
        return {self.hosted[0]: self._sent}

    @property
    def collectives(self) -> tuple[int, int]:
        """How many rows were posted, and the bytes of all nodes in them."""
        return self.polls, self.polls * self._posted.nbytes

    def close(self) -> None:
        """Free the requests and the communicator."""
        for requests in (*self._pending, [self._poll]):
            self._wait(requests)
        for request in (*self._receives, *self._sends.values()):
            request.Free()
        self._comm.Free()


def check_fault_tolerance() -> None:
    """Raise if this MPI ends all ranks when one of them dies."""
    if not fault_tolerant():
        library = _short_name(MPI.Get_library_version())
        raise ConfigError(
            "on_failure = continue needs Open MPI 5 started as mpiexec --with-ft ulfm, "
            f"and this is {library} without; start it so, or leave on_failure at abort"
        )


def fault_tolerant() -> bool:
    """Return whether ranks outlive others that die."""
    enabled = os.environ.get("OMPI_MCA_mpi_ft_enable")  # noqa: SIM112 (its name)
    return enabled == "1" and "Open MPI" in MPI.Get_library_version()


def leave(code: int | None = None) -> None:
    """End this process, which has survived others, without ending MPI.

    Open MPI 5.0 may wait for the dead in MPI_Finalize, for ever (its issue 11404).
    Ranks that leave like this end the job with code 0 when all have left, and disturb
    nobody who has not.
    """
    if code is None:
        code = int(hasattr(sys, "last_value"))  # of an exception that nobody caught
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _agree(comm: Any, yes: bool) -> bool:
    """Return whether all say yes and none has died; the same on all survivors."""
    try:
        return bool(comm.Agree(int(yes)))
    except MPI.Exception:
        return False


def _alive(survivors: Any, comm: Any) -> list[int]:
    """Return the ranks that survivors had in a communicator."""
    group, before = survivors.Get_group(), comm.Get_group()
    return list(group.Translate_ranks(list(range(survivors.size)), before))


def compare(comm: Any, facts: identity.Facts) -> None:
    """Raise, on all ranks, if they do not hold the same facts.

    That takes one small reduction; only if they differ, the facts themselves are sent.
    """
    code = np.array([identity.digest(facts)], dtype=np.uint64)
    mine = np.concatenate([code, ~code])
    most = np.empty_like(mine)
    asleep(comm.Iallreduce(mine, most, op=MPI.MAX))
    if most[0] == ~most[1]:  # the largest is the smallest
        return
    everyone = [json.loads(text) for text in texts(comm, json.dumps(dict(facts)))]
    error = identity.disagreement(everyone)
    if error is not None:
        raise error


def texts(comm: Any, text: str) -> list[str]:
    """Return the texts of all ranks, in order, on every rank."""
    mine = np.frombuffer(text.encode(), dtype=np.uint8)
    counts = np.empty(comm.size, dtype=np.int64)
    asleep(comm.Iallgather(np.array([mine.size]), counts))
    everything = np.empty(counts.sum(), dtype=np.uint8)
    asleep(comm.Iallgatherv(mine, [everything, counts.tolist()]))
    parts = np.split(everything, counts.cumsum()[:-1])
    return [part.tobytes().decode() for part in parts]


def collect(comm: Any, rows: Matrix) -> Matrix:
    """Return the rows of all ranks in order, on every rank."""
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    counts = np.empty(comm.size, dtype=np.int64)
    asleep(comm.Iallgather(np.array([len(rows)]), counts))
    width = rows.shape[1]
    everything = np.empty((int(counts.sum()), width))
    asleep(comm.Iallgatherv(rows, [everything, (counts * width).tolist()]))
    return everything


def waiting(comm: Any, wait: str) -> Callable[[list[Any]], Any]:
    """Return the function that waits for requests."""
    if wait not in WAITS:
        raise ConfigError(f"unknown wait {wait!r}; choose one of {', '.join(WAITS)}")
    if wait == "auto":
        wait = "nap" if crowded(comm) else "block"
    return nap if wait == "nap" else MPI.Request.Waitall


def elsewhere(comm: Any, ranks: Sequence[int]) -> bool:
    """Return whether some of these ranks are on another host."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    here = comm.Get_group().Translate_ranks(list(ranks), host.Get_group())
    host.Free()
    return MPI.UNDEFINED in list(here)


def crowded(comm: Any) -> bool:
    """Return whether the ranks of this host outnumber the cores they may use."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    allowed = os.sched_getaffinity(0)
    mine = np.zeros(4096, dtype=np.uint8)
    mine[list(allowed)] = 1
    cores = np.empty_like(mine)  # of all: some launchers pin each rank to its own
    asleep(host.Iallreduce(mine, cores, op=MPI.MAX))
    ranks = host.size
    host.Free()
    return ranks > int(cores.sum())


def nap(requests: list[Any]) -> None:
    """Wait for requests by looking and sleeping in turns.

    A turn has as many looks as messages are due: MPICH takes in about one message per
    look, and one look per nap made dense graphs twice as slow.
    """
    looks = len(requests) // 2 + 1
    while True:
        for _ in range(looks):
            if _done(requests):
                return
        time.sleep(NAP)


def _short_name(version: str) -> str:
    """Return name and number of an MPI library from its many words."""
    line = version.strip("\0").strip().splitlines()[0].partition(",")[0]
    return " ".join(line.replace("Version:", "").split())


def asleep(request: Any) -> None:
    """Wait for a collective by looking and sleeping in turns.

    Ranks that still import, or write, need the cores: blocking collectives would keep
    them busy until the last rank comes (the start of 20 ranks on 2 took 1.2 times as
    long).
    """
    while not request.Test():
        time.sleep(1e-3)


class World:
    """All ranks of a run, for set-up and for errors; never used inside the loop."""

    def __init__(self, comm: Any = None) -> None:
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self._all = self.comm
        self.rank, self.size = self.comm.rank, self.comm.size
        self.number = self.rank  # as mpiexec knows it
        self.library = _short_name(MPI.Get_library_version())
        self.outlived = False  # whether ranks have died and these have gone on

    def outlive(self, comm: Any) -> None:
        """Be the world of those that are left, or of one part of them."""
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.outlived = True

    def leave(self, code: int) -> None:
        """End this process as one that has survived others, when all have come here."""
        _agree(self.comm, True)
        leave(code)

    def become(self, rank: int) -> None:
        """Number the ranks anew, from now on; this one has the given number.

        Rank 0 must stay: it speaks for all.
        """
        self.comm = self.comm.Split(0, key=rank)
        self.rank = self.comm.rank

    def share(self, text: str) -> str:
        """Return rank 0's text on every rank."""
        data = np.frombuffer(text.encode(), dtype=np.uint8)
        return self.share_array(data).tobytes().decode()

    def share_array(self, array: np.ndarray) -> np.ndarray:
        """Return rank 0's one-dimensional array on every rank; types must agree."""
        length = np.array([array.size])
        asleep(self.comm.Ibcast(length))
        buffer = array.copy() if self.rank == 0 else np.empty(length[0], array.dtype)
        asleep(self.comm.Ibcast(buffer))
        return buffer

    def first(self, text: str | None) -> str | None:
        """Return the text of the lowest rank that has one, on every rank."""
        lacking = self.size
        bid = np.array([lacking if text is None else self.rank])
        lowest = np.empty_like(bid)
        asleep(self.comm.Iallreduce(bid, lowest, op=MPI.MIN))
        if lowest[0] == lacking:
            return None
        data = np.frombuffer((text or "").encode(), dtype=np.uint8)
        length = np.array([data.size])
        self.comm.Bcast(length, root=lowest[0])
        mine = self.rank == lowest[0]
        buffer = data.copy() if mine else np.empty(length[0], np.uint8)
        self.comm.Bcast(buffer, root=lowest[0])
        return buffer.tobytes().decode()

    def texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order, on every rank."""
        return texts(self.comm, text)

    def compare(self, facts: identity.Facts) -> None:
        """Raise, on all ranks, if they do not hold the same facts."""
        compare(self.comm, facts)

    def check_fault_tolerance(self) -> None:
        """Raise if this MPI ends all ranks when one of them dies."""
        check_fault_tolerance()

    def scatter(self, blocks: Sequence[Matrix] | None) -> Matrix:
        """Return this rank's block of rows of those that rank 0 holds."""
        asleep(self.comm.Ibarrier())
        shape = np.empty(2, dtype=np.int64)
        shapes = None if blocks is None else np.array([b.shape for b in blocks])
        self.comm.Scatter(shapes, shape)
        block = np.empty(shape)
        if blocks is None:
            self.comm.Recv(block, source=0)
            return block
        for rank in range(1, self.size):
            self.comm.Send(np.ascontiguousarray(blocks[rank]), dest=rank)
        return blocks[0]

    def collect(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks in order, on every rank."""
        return collect(self.comm, rows)

    def dead(self, error: BaseException) -> list[int]:
        """Return which ranks have died, as far as is known, if that is the error."""
        if not isinstance(error, MPI.Exception) or not fault_tolerant():
            return []
        group = self.comm.Get_group()
        failed = self.comm.Get_failed()
        return list(failed.Translate_ranks(list(range(failed.size)), group))

    def abort(self, error: BaseException) -> None:
        """Print this rank's traceback and end the whole job at once."""
        lines = "".join(traceback.format_exception(error))
        sys.stderr.write(f"dadmm: rank {self.rank} failed:\n{lines}")
        sys.stderr.flush()
        self.end(1)

    def end(self, code: int) -> None:
        """End the whole job at once; MPI then names the rank that mpiexec knows.

        First mpiexec's helper on this host takes in what was said: of an end and words
        that come together, MPICH's may pass on the end alone.
        """
        until_read(sys.stderr)
        self._all.Abort(code)
