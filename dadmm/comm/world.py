"""The processes of a run: a single one, or the ranks that a launcher started."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import identity
from dadmm.comm.launch_link import rank_and_size
from dadmm.comm.tree import Merge, TreeReduction
from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Matrix
from dadmm.graphs.topology import Topology

T = TypeVar("T")


class World(Protocol):
    """The processes of a run, for set-up, results and errors.

    Every method is collective: all processes call it, in the same order. The exceptions
    are ``dead``, ``abort`` and ``end``.
    """

    rank: int  # of this process, from 0
    size: int  # number of processes
    number: int  # rank as mpiexec numbers it; `renumber` does not change it
    comm: Any  # the communicator (`mpi4py.MPI.Comm`), or None in a single process
    library: str  # name and version of the MPI library
    shrunk: bool  # whether ranks have failed and the others have continued

    def share(self, text: str, root: int = 0) -> str:
        """Return the text of rank ``root`` on every rank."""

    def share_array(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        """Return the one-dimensional array of rank ``root`` on every rank.

        All ranks pass an array of the same type.
        """

    def first(self, text: str | None) -> str | None:
        """Return the text of the lowest rank that has one, on every rank."""

    def texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order, on every rank."""

    def gather_texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order, on rank 0; [] elsewhere."""

    def gather(self, rows: Matrix) -> Matrix:
        """Return the rows of all ranks, in order, on rank 0; no rows elsewhere."""

    def scatter(self, blocks: Sequence[Matrix] | None) -> Matrix:
        """Return this rank's block of those that rank 0 passes; others pass None."""

    def reduce(
        self,
        graph: Topology,
        values: Sequence[Any],
        merge: Merge = ...,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Return the values of all nodes merged, by default added, on every rank.

        They are merged along a spanning tree of the graph, so the bits do not depend on
        the processes; see `dadmm.comm.tree`. ``values`` are those of
        the nodes of this process. With ``finish``, every rank gets what it returns for
        the merged values, which only rank 0 has.
        """

    def compare(self, facts: Mapping[str, str]) -> None:
        """Raise a DadmmError on all ranks if their facts differ."""

    def check_fault_tolerance(self) -> None:
        """Raise a ConfigError if this MPI ends all ranks when one fails."""

    def sent(self) -> tuple[int, int]:
        """Return the calls and bytes outside the iterations, on rank 0.

        The calls are those of this rank; the bytes are those of all ranks.
        """

    def renumber(self, rank: int) -> None:
        """Give this process another rank; rank 0 stays rank 0."""

    def adopt(self, comm: Any) -> None:
        """Continue with a communicator of the ranks that are left."""

    def dead(self, error: BaseException) -> list[int]:
        """Return the ranks that are known to have failed, if ``error`` reports one."""

    def leave(self, code: int) -> None:
        """End this process, when all that are left call this."""

    def abort(self, error: BaseException) -> None:
        """Print the traceback and end the processes of all ranks."""

    def end(self, code: int) -> None:
        """End the processes of all ranks with this exit code."""


class SerialWorld:
    """The only process of a run, which hosts all nodes; MPI is not started."""

    rank, number, size, comm = 0, 0, 1, None
    library = "none (one process)"
    shrunk = False

    def share(self, text: str, root: int = 0) -> str:
        return text

    def share_array(self, array: NDArray[Any], root: int = 0) -> NDArray[Any]:
        return array

    def first(self, text: str | None) -> str | None:
        return text

    def texts(self, text: str) -> list[str]:
        return [text]

    def gather_texts(self, text: str) -> list[str]:
        return [text]

    def gather(self, rows: Matrix) -> Matrix:
        return rows

    def scatter(self, blocks: Sequence[Matrix] | None) -> Matrix:
        raise AssertionError("a single process has no other ranks to scatter to")

    def reduce(
        self,
        graph: Topology,
        values: Sequence[Any],
        merge: Merge = np.add,
        finish: Callable[[Any], Any] | None = None,
    ) -> Any:
        return TreeReduction(graph).reduce(dict(enumerate(values)), merge, finish)

    def compare(self, facts: Mapping[str, str]) -> None:
        """Do nothing: there is no other rank to compare with."""

    def check_fault_tolerance(self) -> None:
        """Do nothing: no other process can fail."""

    def sent(self) -> tuple[int, int]:
        return 0, 0

    def renumber(self, rank: int) -> None:
        """Do nothing: there is one rank."""

    def adopt(self, comm: Any) -> None:
        """Do nothing: no process can be lost."""

    def dead(self, error: BaseException) -> list[int]:
        return []

    def leave(self, code: int) -> None:
        raise SystemExit(code)

    def abort(self, error: BaseException) -> None:
        raise error

    def end(self, code: int) -> None:
        raise SystemExit(code)


def connect() -> World:
    """Return the processes of this run; start MPI only if a launcher started it."""
    launched = rank_and_size()
    if launched is None:
        return SerialWorld()
    rank, size = launched
    try:
        from dadmm.comm.mpi_world import MPIWorld
    except (ImportError, RuntimeError) as error:  # of mpi4py
        if rank > 0:  # one process prints the error
            raise SystemExit(2) from None
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"mpi4py cannot load an MPI library ({reason}); install one with pip "
            "install 'dadmm[mpi]', set MPI4PY_LIBMPI to the libmpi of this mpiexec, "
            "or run without mpiexec, with --nodes"
        ) from None

    world = MPIWorld()
    if world.size == 1 and size > 1:
        if rank > 0:  # one process prints the error
            raise SystemExit(2)
        raise ConfigError(
            f"mpiexec started {size} processes, but mpi4py sees only one: it uses "
            f"{world.library!r}, which is not this mpiexec's MPI; use the mpiexec of "
            "that library, or set MPI4PY_LIBMPI to the libmpi of this mpiexec"
        )
    return world


def collectively(world: World, step: Callable[..., T], *args: Any) -> T:
    """Return ``step(*args)`` of this rank, if it succeeds on every rank.

    Raises
    ------
    DadmmError
        On all ranks, with the message of the lowest rank on which the step failed.
    """
    value, mine, failure = None, None, DadmmError()
    try:
        value = step(*args)
    except (DadmmError, MemoryError) as error:
        failure = _as_input_error(error)
        mine = _message(world, failure)
    message = world.first(mine)
    if message is not None:
        _raise(message, failure)
    return value  # type: ignore[return-value]


def from_rank_0(world: World, step: Callable[[], str]) -> str:
    """Return, on every rank, the text that ``step()`` returns on rank 0.

    Raises
    ------
    DadmmError
        On all ranks, if the step fails.
    """
    answer, failure = {}, DadmmError()
    if world.rank == 0:
        try:
            answer["text"] = step()
        except (DadmmError, MemoryError) as error:
            failure = _as_input_error(error)
            answer["error"] = str(failure)
    answer = json.loads(world.share(json.dumps(answer)))
    if "error" in answer:
        raise DadmmError(answer["error"]) if world.rank else failure
    return str(answer["text"])


class Checks:
    """Steps that each rank does by itself, and one collective that checks them all.

    After a step that failed on this rank, further ones are left out. `gather` raises.

    Parameters
    ----------
    world : World
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
            except (DadmmError, MemoryError) as error:
                self._failure = _as_input_error(error)
                self._failed_at = self._step
        return None  # type: ignore[return-value]

    def compare(self, facts: Callable[[], identity.Facts]) -> None:
        """Note facts that must be the same on all ranks; a step like others."""
        found = self.run(facts)
        if found is not None:
            self._facts[self._step] = found

    def gather(self, **own: Any) -> list[dict[str, Any]]:
        """Return a record of each rank, in order, on every rank.

        Ranks send hashes of their facts. They send the facts only if hashes differ.

        Parameters
        ----------
        own : dict of str to object
            The record of this rank, which JSON can hold.

        Raises
        ------
        DadmmError
            On all ranks, for the first step that failed, with the message of the
            lowest rank on which it did, or whose facts differ.
        """
        mine: dict[str, Any] = {"own": own}
        if self._failed_at >= 0:
            message = _message(self._world, self._failure)
            mine = {"failed_at": self._failed_at, "message": message}
        mine["hashes"] = {k: identity.digest(v) for k, v in self._facts.items()}
        everyone = [json.loads(text) for text in self._world.texts(json.dumps(mine))]
        for step in range(1, self._step + 1):
            failed = [them for them in everyone if them.get("failed_at") == step]
            if failed:
                _raise(failed[0]["message"], self._failure)
            if len({them["hashes"].get(str(step)) for them in everyone}) > 1:
                self._world.compare(self._facts[step])
        return [them["own"] for them in everyone]


def _raise(message: str, own: DadmmError) -> NoReturn:
    """Raise the error with this message: this rank's, which keeps its type, or not."""
    raise own if str(own) == message else DadmmError(message)


def _message(world: World, error: DadmmError) -> str:
    return f"rank {world.rank}: {error}" if world.rank else str(error)


def _as_input_error(error: DadmmError | MemoryError) -> DadmmError:
    return error if isinstance(error, DadmmError) else _too_large(error)


def _too_large(error: MemoryError) -> DadmmError:
    reason = str(error).partition("\n")[0] or "none is left"
    return DadmmError(
        f"there is not enough memory ({reason}); use fewer samples, dimensions or "
        "nodes per host"
    )


def host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename
