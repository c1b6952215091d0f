"""The processes of a run: a single one, or the ranks that a launcher started."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dadmm.comm import identity, traffic
from dadmm.comm.launch_link import wait_until_read
from dadmm.comm.tree import TAG, TreeReduction, Value, receive
from dadmm.core import errors, version
from dadmm.core.documents import Table
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Array, Matrix
from dadmm.core.ranks import rank_and_size
from dadmm.graphs.placement import hosts_of
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
SHORT = 56  # bytes of an array that is sent with its length, in one call
MOST_BYTES = 2**30  # in one call; an MPI without large counts has less than 2 GiB


class World:
    """The processes of a run, for set-up, results and errors: not for the iterations.

    All processes call a method, in the same order, except `hosted`, `abort` and `end`.
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

            self.library = mpi.LIBRARY
            self.rank, self.size = comm.rank, comm.size

    def gather(self, own: Array, everywhere: bool = False) -> Array:
        """Return the rows of all ranks, in order, on rank 0 or everywhere; else none.

        All have one type, and equal rows. Short ones take one call if all ranks get
        them.
        """
        comm = self.comm
        if comm is None:
            return own
        own = np.ascontiguousarray(own)
        head = np.zeros(8 + SHORT * everywhere, dtype=np.uint8)
        head[:8].view(np.int64)[0] = len(own)
        if everywhere and own.nbytes <= SHORT:
            head[8 : 8 + own.nbytes] = own.reshape(-1).view(np.uint8)
        heads = np.zeros((comm.size, len(head)), dtype=np.uint8)
        equal = comm.Iallgather if everywhere else comm.Igather
        wait_sleeping(equal(head, heads), head.nbytes)
        lengths = heads[:, :8].copy().view(np.int64)[:, 0]  # zeros where none arrive
        whole = np.empty((int(lengths.sum()), *own.shape[1:]), own.dtype)
        counts = lengths * math.prod(own.shape[1:])
        if everywhere and counts.max() * own.itemsize <= SHORT:
            used = np.arange(SHORT) < counts[:, None] * own.itemsize
            whole.reshape(-1).view(np.uint8)[:] = heads[:, 8:][used]
            return whole
        unequal = comm.Iallgatherv if everywhere else comm.Igatherv
        wait_sleeping(unequal(own, [whole, counts.tolist()]), own.nbytes)
        return whole

    def gather_json(self, value: Any, everywhere: bool = True) -> list[Any]:
        """Return what each rank passes, as JSON can hold it, on all ranks or rank 0."""
        line = np.frombuffer(f"{json.dumps(value)}\n".encode(), np.uint8)
        lines = self.gather(line, everywhere).tobytes().splitlines()
        return [json.loads(each) for each in lines]

    def gather_nodes(self, blocks: Sequence[Matrix]) -> Matrix:
        """Return the rows of all nodes, in order, on rank 0; no rows elsewhere."""
        rows = self.gather(np.vstack(blocks))
        if self.hosts is None:
            return rows
        sizes = self.gather(np.array([len(block) for block in blocks]))
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
        if self.rank:
            kinds = json.loads(receive(comm, 0))
            found = [[np.empty(shape, kind) for kind, shape in own] for own in kinds]
            for piece in pieces(chain(*found)):
                comm.Recv(piece, 0, TAG)
            return found
        hosts = np.arange(self.size) if self.hosts is None else self.hosts
        for rank in range(1, self.size):
            theirs = [blocks[i] for i in np.flatnonzero(hosts == rank).tolist()]
            kinds = [[(each.dtype.str, each.shape) for each in own] for own in theirs]
            for data in chain([json.dumps(kinds).encode()], pieces(chain(*theirs))):
                traffic.outside += 1, len(data)
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
        private, request = self.comm.Idup()
        wait_sleeping(request)
        yield TreeReduction(graph, private, self.hosts)
        private.Free()

    def hosted(self, n_nodes: int) -> list[int]:
        """Return the nodes of this process, in order."""
        if self.hosts is None:
            return list(range(n_nodes)) if self.comm is None else [self.rank]
        return [int(i) for i in np.flatnonzero(self.hosts == self.rank)]

    def share_nodes(self, own: Sequence[int], n_nodes: int) -> None:
        """Set ``hosts``, given the nodes of this process; raise on all ranks."""
        pairs = np.array([(i, self.rank) for i in own], np.int64).reshape(-1, 2)
        nodes, ranks = self.gather(pairs, True).T
        self.hosts = hosts_of(nodes, ranks, n_nodes, self.size)

    def sent(self) -> tuple[int, int]:
        """Return calls of this rank, and on rank 0 bytes of all, outside the loop."""
        calls, n_bytes = (traffic.outside - self._before).tolist()
        return calls, int(self.gather(np.array([n_bytes])).sum())

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
            if self._all is not None:
                self._all.Abort(code)


def wait_sleeping(request: MPI.Request, n_bytes: int = 0) -> None:
    """Count a collective, and wait for it by testing and sleeping in turns.

    It leaves the cores to ranks that still import modules or write files: with blocking
    collectives 20 ranks on 2 cores took 1.2 times as long to start.
    """
    traffic.outside += 1, n_bytes
    pause = 1e-3
    while not request.Test():
        time.sleep(pause)
        pause = min(1.02 * pause, 0.05)  # a rank may wait for minutes


def pieces(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the bytes of arrays in pieces that any MPI can send, without copies."""
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
    failure: DadmmError | None = None

    def run(self, step: Callable[[], T]) -> T:
        """Return ``step()``; None if it fails, or if one before has failed."""
        if self.failure is None:
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

    def gather(
        self, facts: Callable[[], identity.Facts] | None = None, **own: object
    ) -> list[Table]:
        """Return the record of each rank, which JSON can hold, on every rank.

        Raise a DadmmError on all ranks if a step has failed, with the message of the
        lowest rank on which one has, or if the versions or the ``facts`` of ranks
        differ. Ranks send a hash of these, and the facts only if hashes differ.
        """
        world, found, mine = self.world, dict[str, str](), Table(own=own)
        if facts is not None and world.comm is not None:
            found = {"dadmm": version.__version__, "numpy": np.__version__}
            found |= self.run(facts) or {}
            mine["hash"] = identity.digest(found)
        if (failure := self.failure) is not None:
            message = f"rank {world.rank}: {failure}" if world.rank else str(failure)
            mine = {"failure": [type(failure).__name__, message]}
        everyone = world.gather_json(mine)
        failures = [each["failure"] for each in everyone if "failure" in each]
        for kind, message in failures[:1]:
            if failure is not None and str(failure) == message:
                raise failure
            raise getattr(errors, kind, DadmmError)(message)
        if len({each.get("hash") for each in everyone}) > 1:
            identity.raise_difference(world.gather_json(found))
        return [each["own"] for each in everyone]
