"""The processes of a run: a single one, or the ranks that a launcher started."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import identity, traffic
from dadmm.comm.tree import Finish, Merge, Stacked, TreeReduction, tree_of
from dadmm.core import errors
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Matrix
from dadmm.core.ranks import rank_and_size
from dadmm.graphs.placement import hosts_of
from dadmm.graphs.topology import Integers, Topology

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


class World:
    """The processes of a run, for set-up, results and errors; this is a single one.

    `dadmm.comm.mpi_world.MPIWorld` are the ranks of MPI; `joined` and `share_array` are
    its collectives, and the others use these. Every method is collective: all processes
    call it, in the same order. The exceptions are `dead`, `abort` and `end`.
    """

    rank = 0  #: of this process
    size = 1  #: number of processes
    comm: MPI.Comm | None = None  #: the communicator; None in a single process
    #: the rank of each node; None if rank i has node i, or in a single process
    hosts: Integers | None = None
    library = "none (one process)"  #: name and version of the MPI library
    shrunk = False  #: whether ranks have failed and the others have continued

    def __init__(self) -> None:
        self._before = traffic.outside.copy()

    def joined(
        self, own: NDArray[Any], everywhere: bool
    ) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the one-dimensional arrays of all ranks in order, and their lengths.

        If not ``everywhere``, ranks other than 0 return nothing and zeros.
        """
        return own, np.array([len(own)])

    def share_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the one-dimensional array of rank 0 on every rank.

        All ranks pass an array of the same type.
        """
        return array

    def share(self, text: str) -> str:
        """Return the text of rank 0 on every rank."""
        return self.share_array(_as_bytes(text)).tobytes().decode()

    def texts(self, text: str, everywhere: bool = True) -> list[str]:
        """Return the texts of all ranks, in order, on every rank, or on rank 0."""
        data, lengths = self.joined(_as_bytes(text), everywhere)
        if self.rank and not everywhere:
            return []
        parts = np.split(data, lengths.cumsum()[:-1])
        return [part.tobytes().decode() for part in parts]

    def gather(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks, in order, on rank 0; no rows elsewhere."""
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        return self.joined(rows.reshape(-1), False)[0].reshape(-1, rows.shape[1])

    def gather_nodes(self, blocks: Sequence[Matrix]) -> Matrix:
        """Return the rows of all nodes, in order, on rank 0; no rows elsewhere.

        ``blocks`` are the rows of each node of this process.
        """
        own = np.vstack(blocks)
        numbers, lengths = self.joined(own.reshape(-1), False)
        rows, sizes = numbers.reshape(-1, own.shape[1]), lengths // own.shape[1]
        if self.hosts is None:
            return rows
        if len(self.hosts) > self.size:
            sizes = self.joined(np.array([len(block) for block in blocks]), False)[0]
        if self.rank:
            return rows
        owner = np.argsort(self.hosts, kind="stable")  # of each block
        return rows[np.argsort(np.repeat(owner, sizes), kind="stable")]

    def scatter(self, blocks: Sequence[Matrix]) -> list[Matrix]:
        """Return the blocks of the nodes of this process; rank 0 passes all blocks."""
        return [*blocks]

    def reduce(
        self,
        graph: Topology,
        values: Sequence[Any],
        merge: Merge | Stacked = np.add,
        finish: Finish | None = None,
    ) -> Any:
        """Return the values of all nodes merged, by default added, on every rank.

        ``values`` are of the nodes of this process. They are merged along a
        spanning tree of the graph, so the bits do not depend on the processes; see
        `TreeReduction.reduce`.
        """
        hosted = self.hosted(len(graph))
        with self.tree(graph) as tree:
            return tree.reduce(dict(zip(hosted, values, strict=True)), merge, finish)

    def tree(self, graph: Topology) -> AbstractContextManager[TreeReduction]:
        """Return a tree over the nodes of all ranks, whose messages are apart."""
        return tree_of(graph, self.comm, self.hosts)

    def hosted(self, n_nodes: int) -> list[int]:
        """Return the nodes of this process, in order."""
        if self.comm is None:
            return list(range(n_nodes))
        if self.hosts is None:
            return [self.rank]
        return [int(i) for i in np.flatnonzero(self.hosts == self.rank)]

    def share_nodes(self, own: Sequence[int], n_nodes: int) -> None:
        """Set ``hosts``, given the nodes of this process; raise on all ranks."""
        nodes, counts = self.joined(np.array(own, dtype=np.int64), True)
        ranks = np.repeat(np.arange(self.size), counts)
        self.hosts = hosts_of(nodes, ranks, n_nodes, self.size)

    def compare(self, facts: identity.Facts) -> None:
        """Raise a DadmmError on all ranks if their facts differ.

        Ranks send a hash, and the facts only if hashes differ.
        """
        if len(set(self.texts(f"{identity.digest(facts):x}"))) > 1:
            identity.raise_difference(
                [json.loads(text) for text in self.texts(json.dumps(dict(facts)))]
            )

    def sent(self) -> tuple[int, int]:
        """Return the calls and bytes outside the iterations, on rank 0.

        The calls are of this rank, the bytes of all ranks.
        """
        calls, n_bytes = (traffic.outside - self._before).tolist()
        return calls, int(self.gather(np.array([[n_bytes]])).sum())

    def adopt(self, comm: MPI.Comm) -> None:
        """Continue with a communicator of the ranks that are left."""

    def check_fault_tolerance(self) -> None:
        """Raise a ConfigError if this MPI ends all ranks when one fails."""

    def dead(self, error: BaseException) -> list[int]:
        """Return the ranks that are known to have failed, if ``error`` reports one."""
        return []

    def leave(self, code: int) -> None:
        """End this process, when all that are left call this."""
        self.end(code)

    def abort(self, error: BaseException) -> None:
        """Print the traceback and end the processes of all ranks."""
        raise error

    def end(self, code: int) -> None:
        """End the processes of all ranks with this exit code."""
        raise SystemExit(code)


def connect() -> World:
    """Return the processes of this run; start MPI only if a launcher started it."""
    launched = rank_and_size()
    if launched is None:
        _check_step()
        return World()
    rank, size = launched
    try:
        from dadmm.comm.mpi_world import MPIWorld

        world = MPIWorld()
        if size == 1 or world.size > 1:
            return world
        reason = (
            f"mpiexec started {size} processes, but mpi4py sees only one: it uses "
            f"{world.library!r}, which is not this mpiexec's MPI; use the mpiexec of "
            "that library, or set MPI4PY_LIBMPI to the libmpi of this mpiexec"
        )
    except (ImportError, RuntimeError) as error:  # of mpi4py
        reason = (
            f"mpi4py cannot load an MPI library ({' '.join(str(error).split())}); "
            "install one with pip install 'dadmm[mpi]', set MPI4PY_LIBMPI to the "
            "libmpi of this mpiexec, or run without mpiexec, with --nodes"
        )
    if rank > 0:  # one process prints the error
        raise SystemExit(2)
    raise ConfigError(reason)


def _check_step() -> None:
    """Raise if this is one of several tasks of Slurm that no MPI connects."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if tasks.isdigit() and int(tasks) > 1:
        if os.environ.get("SLURM_PROCID") != "0":  # one process prints the error
            raise SystemExit(2)
        raise ConfigError(
            f"srun started {tasks} tasks, but no MPI connects them, so each would be a "
            "run of its own; use srun --mpi=pmi2 or --mpi=pmix, as your MPI needs it, "
            "or srun -n 1 for a run in one process"
        )


def world_of(comm: MPI.Comm | None) -> World:
    """Return the ranks of a communicator; without one, this process alone."""
    if comm is None:
        return World()
    from dadmm.comm.mpi_world import MPIWorld

    return MPIWorld(comm)


def collectively(world: World, step: Callable[..., T], *args: Any) -> T:
    """Return ``step(*args)`` of this rank; if it fails on a rank, raise on all.

    The DadmmError has the message of the lowest rank on which the step failed.
    """
    checks = Checks(world)
    value = checks.run(lambda: step(*args))
    checks.gather()
    return value


def from_rank_0(world: World, step: Callable[[], str]) -> str:
    """Return the text that ``step()`` returns on rank 0; if it fails, raise on all."""
    return world.share(collectively(world, str if world.rank else step))


class Checks:
    """Steps that each rank does by itself, and one collective that checks them all.

    After a step that failed on this rank, further ones are left out. `gather` raises.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._step = 0
        self._failure, self._failed_at = DadmmError(), -1
        self._facts: dict[int, identity.Facts] = {}  # by step

    def run(self, step: Callable[[], T]) -> T:
        """Return ``step()``; None if this or an earlier step fails."""
        self._step += 1
        if self._failed_at < 0:
            try:
                return step()
            except DadmmError as error:
                self._failure, self._failed_at = error, self._step
            except MemoryError as error:
                reason = str(error).partition("\n")[0] or "none is left"
                self._failed_at = self._step
                self._failure = DadmmError(
                    f"there is not enough memory ({reason}); use fewer samples, "
                    "dimensions or nodes per host"
                )
        return None  # type: ignore[return-value]

    def compare(self, facts: Callable[[], identity.Facts]) -> None:
        """Note facts that must be the same on all ranks; a step like others."""
        found = self.run(facts)
        if found is not None:
            self._facts[self._step] = found

    def gather(self, **own: Any) -> list[dict[str, Any]]:
        """Return the record of each rank, which JSON can hold, on every rank.

        Raise a DadmmError on all ranks for the first step that failed, with the message
        of the lowest rank on which it did, or whose facts differ. Ranks send hashes of
        their facts, and the facts only if hashes differ.
        """
        mine: dict[str, Any] = {"own": own}
        if self._failed_at >= 0:
            where = f"rank {self._world.rank}: " if self._world.rank else ""
            message = f"{where}{self._failure}"
            kind = type(self._failure).__name__
            mine = {"failed_at": self._failed_at, "kind": kind, "message": message}
        mine["hashes"] = {k: identity.digest(v) for k, v in self._facts.items()}
        everyone = [json.loads(text) for text in self._world.texts(json.dumps(mine))]
        for step in range(1, self._step + 1):
            failed = [them for them in everyone if them.get("failed_at") == step]
            if failed:
                message = failed[0]["message"]
                if str(self._failure) == message:
                    raise self._failure
                raise getattr(errors, failed[0]["kind"], DadmmError)(message)
            if len({them["hashes"].get(str(step)) for them in everyone}) > 1:
                self._world.compare(self._facts[step])
        return [them["own"] for them in everyone]


def _as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename
