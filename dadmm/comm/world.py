"""The processes of a run: a single one, or the ranks that a launcher started."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dadmm.comm import identity, traffic
from dadmm.comm.launch_link import wait_until_read
from dadmm.comm.tree import TAG, TreeReduction, Value, pack, receive, unpack
from dadmm.core import errors
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Array, Matrix
from dadmm.core.ranks import rank_and_size
from dadmm.graphs.placement import hosts_of
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
Record = dict[str, Any]  # what JSON can hold, by name
SHORT = 56  # bytes of an array that is sent with its length, in one call
MOST_BYTES = 2**30  # in one call; an MPI without large counts has less than 2 GiB


class World:
    """The processes of a run, for set-up, results and errors: not for the iterations.

    All processes call a method, in the same order, except `hosted`, `dead`, `abort` and
    `end`.
    """

    #: the rank of each node; None if rank i has node i, or in a single process
    hosts: Integers | None = None
    shrunk = False  #: whether ranks have failed and the others have continued

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        self.comm = self._all = comm  #: None in a single process
        self.rank, self.size = 0, 1
        self.library = "none (one process)"  #: name and version of the MPI library
        self._before = traffic.outside.copy()
        if comm is not None:
            from dadmm.comm import mpi

            self._mpi, self.library = mpi, mpi.short_name()
            self.rank, self.size = comm.rank, comm.size

    def joined(self, own: Array, everywhere: bool) -> tuple[Array, Array]:
        """Return the one-dimensional arrays of all ranks in order, and their lengths.

        All have one type. If not ``everywhere``, only rank 0 gets them, others zeros.
        Short arrays take one call if all ranks get them.
        """
        comm = self.comm
        if comm is None:
            return own, np.array([len(own)])
        first = np.zeros(8 + SHORT if everywhere else 8, dtype=np.uint8)
        first[:8].view(np.int64)[0] = len(own)
        if everywhere and own.nbytes <= SHORT:
            first[8 : 8 + own.nbytes] = own.view(np.uint8)
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

    def share(self, value: Any) -> Any:
        """Return what rank 0 passes, as JSON can hold it, on every rank."""
        return self.told(None if self.rank else value)[0]

    def told(self, value: Any, everywhere: bool = True) -> list[Any]:
        """Return what each rank passes, as JSON can hold it, on all ranks or rank 0."""
        own = np.frombuffer(json.dumps(value).encode(), np.uint8)
        data, lengths = self.joined(own, everywhere)
        if self.rank and not everywhere:
            return []
        texts = np.split(data, lengths.cumsum()[:-1])
        return [json.loads(text.tobytes()) for text in texts]

    def gather(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks, in order, on rank 0; no rows elsewhere."""
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        return self.joined(rows.reshape(-1), False)[0].reshape(-1, rows.shape[1])

    def gather_nodes(self, blocks: Sequence[Matrix]) -> Matrix:
        """Return the rows of all nodes, in order, on rank 0; no rows elsewhere."""
        rows = self.gather(np.vstack(blocks))
        if self.hosts is None:
            return rows
        sizes = self.joined(np.array([len(block) for block in blocks]), False)[0]
        if self.rank:
            return rows
        owner = np.argsort(self.hosts, kind="stable")  # of each block
        return rows[np.argsort(np.repeat(owner, sizes), kind="stable")]

    def scatter(self, blocks: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Return the arrays of each node of this process; rank 0 passes those of all.

        A rank gets a message with types and shapes, and then array by array, each sent
        from its own memory.
        """
        comm = self.comm
        if comm is None:
            return [[*arrays] for arrays in blocks]
        hosts = np.arange(self.size) if self.hosts is None else self.hosts
        wait_sleeping(comm.Ibarrier())
        if self.rank:
            (kinds,) = unpack(receive(comm, 0))
            found = [[np.empty(shape, kind) for kind, shape in own] for own in kinds]
            for part in parts(*chain(*found)):
                comm.Recv(part, 0, TAG)
            return found
        for rank in range(1, self.size):
            theirs = [blocks[i] for i in np.flatnonzero(hosts == rank).tolist()]
            kinds = [[(each.dtype.str, each.shape) for each in own] for own in theirs]
            for data in chain([pack(kinds)], parts(*chain(*theirs))):
                traffic.count_outside(len(data))
                comm.Send(data, rank, TAG)
        return [[*blocks[i]] for i in np.flatnonzero(hosts == 0).tolist()]

    def reduce(self, graph: Topology, values: Sequence[Value], *how: Value) -> Value:
        """Return the values of all nodes merged, by default added, on every rank.

        ``values`` are of the nodes of this process, ``how`` the other arguments of
        `TreeReduction.reduce`. The bits do not depend on the processes.
        """
        hosted = self.hosted(graph.n_nodes)
        with self.tree(graph) as tree:
            return tree.reduce(dict(zip(hosted, values, strict=True)), *how)

    @contextmanager
    def tree(self, graph: Topology) -> Iterator[TreeReduction]:
        """Yield a tree over the nodes of all ranks, whose messages are apart."""
        if self.comm is None:
            yield TreeReduction(graph)
            return
        private = duplicate(self.comm)
        yield TreeReduction(graph, private, self.hosts)
        private.Free()

    def hosted(self, n_nodes: int) -> list[int]:
        """Return the nodes of this process, in order."""
        if self.hosts is None:
            return list(range(n_nodes)) if self.comm is None else [self.rank]
        return [int(i) for i in np.flatnonzero(self.hosts == self.rank)]

    def share_nodes(self, own: Sequence[int], n_nodes: int) -> None:
        """Set ``hosts``, given the nodes of this process; raise on all ranks."""
        nodes, counts = self.joined(np.array(own, dtype=np.int64), True)
        ranks = np.repeat(np.arange(self.size), counts)
        self.hosts = hosts_of(nodes, ranks, n_nodes, self.size)

    def sent(self) -> tuple[int, int]:
        """Return calls of this rank, and on rank 0 bytes of all, outside the loop."""
        calls, n_bytes = (traffic.outside - self._before).tolist()
        return calls, int(self.gather(np.array([[n_bytes]])).sum())

    def adopt(self, comm: MPI.Comm) -> None:
        """Continue with a communicator of the ranks that are left."""
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.shrunk = True

    def check_fault_tolerance(self) -> None:
        """Raise a ConfigError if this MPI ends all ranks when one fails."""
        if self.comm is not None:
            self._mpi.check_fault_tolerance()

    def dead(self, error: BaseException) -> list[int]:
        """Return the ranks that are known to have failed, if ``error`` reports one."""
        return [] if self.comm is None else self._mpi.failed_ranks(self.comm, error)

    def leave(self, code: int) -> None:
        """End this process without MPI_Finalize, when all that are left call this."""
        if self.comm is not None:
            self._mpi.agree(self.comm, True)
            self._mpi.leave(code)

    def abort(self, error: BaseException) -> None:
        """Print the traceback and end the processes of all ranks."""
        try:
            lines = "".join(traceback.format_exception(error))
            sys.stderr.write(f"dadmm: rank {self.rank} failed:\n{lines}")
            sys.stderr.flush()
        finally:  # there may be no memory for the text
            self.end(1)

    def end(self, code: int) -> None:
        """End the processes of all ranks, also of failed ones, with this exit code."""
        try:
            wait_until_read(sys.stderr)  # MPICH may drop text that comes with the end
        finally:
            if self._all is None:
                raise SystemExit(code)
            self._all.Abort(code)


def wait_sleeping(request: MPI.Request, n_bytes: int = 0) -> None:
    """Count a collective, and wait for it by testing and sleeping in turns.

    It leaves the cores to ranks that still import modules or write files: with blocking
    collectives 20 ranks on 2 cores took 1.2 times as long to start.
    """
    traffic.count_outside(n_bytes)
    pause = 1e-3
    while not request.Test():
        time.sleep(pause)
        pause = min(1.02 * pause, 0.05)  # a rank may wait for minutes


def duplicate(comm: MPI.Comm) -> MPI.Comm:
    """Return a communicator of the same ranks whose messages are apart."""
    copy, request = comm.Idup()
    wait_sleeping(request)
    return copy


def parts(*arrays: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the bytes of arrays in parts that any MPI can send, without copies."""
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for begin in range(0, len(data), MOST_BYTES):
            yield data[begin : begin + MOST_BYTES]


def connect() -> World:
    """Return the processes of this run; start MPI only if a launcher started it."""
    launched = rank_and_size()
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if launched is not None:
        rank, size = launched
        try:
            from dadmm.comm.mpi import MPI

            world = World(MPI.COMM_WORLD)
            if size == 1 or world.size > 1:
                return world
            reason = (
                f"mpiexec started {size} processes, but mpi4py uses another MPI, "
                f"{world.library!r}, and sees only one; use the mpiexec of that "
                "library, or set MPI4PY_LIBMPI to the libmpi of this mpiexec"
            )
        except (ImportError, RuntimeError) as error:  # of mpi4py
            reason = (
                f"mpi4py cannot load an MPI library ({' '.join(str(error).split())}); "
                "install one with pip install mpich, set MPI4PY_LIBMPI to the "
                "libmpi of this mpiexec, or run without mpiexec, with --nodes"
            )
    elif tasks.isdigit() and int(tasks) > 1:
        rank = int(os.environ.get("SLURM_PROCID", "1"))
        reason = (
            f"srun started {tasks} tasks, but no MPI connects them, so each would be a "
            "run of its own; use srun --mpi=pmi2 or --mpi=pmix, as your MPI needs it, "
            "or srun -n 1 for a run in one process"
        )
    else:
        return World()
    if rank > 0:  # one process prints the error
        raise SystemExit(2)
    raise ConfigError(reason)


def collectively(world: World, step: Callable[..., T], *args: object) -> T:
    """Return ``step(*args)``; if it fails, raise the lowest rank's error on all."""
    checks = Checks(world)
    value = checks.run(lambda: step(*args))
    checks.gather()
    return value


def from_rank_0(world: World, step: Callable[[], Any]) -> Any:
    """Return what ``step()`` returns on rank 0, as JSON; if it fails, raise on all."""
    checks = Checks(world)
    value = checks.run(str if world.rank else step)
    return checks.gather(value=value)[0]["value"]


@dataclass
class Checks:
    """Steps that each rank does by itself, and one collective that checks them all."""

    world: World
    step: int = 0
    failure: DadmmError | None = None
    failed_at: int = 0  # the step
    facts: dict[int, identity.Facts] = field(default_factory=dict)  # by step

    def run(self, step: Callable[[], T]) -> T:
        """Return ``step()``; None if it fails, or if one before has failed."""
        self.step += 1
        if self.failure is None:
            self.failed_at = self.step
            try:
                return step()
            except DadmmError as error:
                self.failure = error
            except MemoryError as error:
                reason, world = str(error).partition("\n")[0], self.world
                where = "" if world.comm is None else f" on rank {world.rank}"
                self.failure = DadmmError(
                    f"there is not enough memory{where} ({reason or 'none is left'}); "
                    "use fewer samples, dimensions or nodes per host"
                )
        return None  # type: ignore[return-value]

    def compare(self, facts: Callable[[], identity.Facts]) -> None:
        """Note facts that must be the same on all ranks; a step like others."""
        found = self.run(facts)
        if found is not None:
            self.facts[self.step] = found

    def gather(self, **own: object) -> list[Record]:
        """Return the record of each rank, which JSON can hold, on every rank.

        Raise a DadmmError on all ranks for the first step that failed, with the message
        of the lowest rank on which it did, or whose facts differ. Ranks send hashes of
        their facts, and the facts only if hashes differ.
        """
        world, failure = self.world, self.failure
        hashes = {k: identity.digest(v) for k, v in self.facts.items()}
        mine: Record = {"own": own, "hashes": hashes}
        if failure is not None:
            message = f"rank {world.rank}: {failure}" if world.rank else str(failure)
            mine = {"hashes": hashes, "failed_at": self.failed_at, "message": message}
            mine["kind"] = type(failure).__name__
        everyone = world.told(mine)
        for step in range(1, self.step + 1):
            for them in everyone:
                if them.get("failed_at") == step:
                    if failure is not None and str(failure) == them["message"]:
                        raise failure
                    raise getattr(errors, them["kind"], DadmmError)(them["message"])
            if len({them["hashes"].get(str(step)) for them in everyone}) > 1:
                identity.raise_difference(world.told(dict(self.facts[step])))
        return [them["own"] for them in everyone]


def host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename
