"""The processes of a run: a single one, or the ranks that a launcher started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.interfaces import World
from dadmm.core.layout import Matrix, Vector
from dadmm.exchange.launch_link import rank_and_size

T = TypeVar("T")


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

    def total(self, rows: Matrix) -> Vector:
        return np.asarray(rows.sum(axis=0))

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
    from dadmm.exchange.mpi_world import MPIWorld

    world = MPIWorld()
    rank, size = launched
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
        failure = error if isinstance(error, DadmmError) else _too_large(error)
        mine = f"rank {world.rank}: {failure}" if world.rank else str(failure)
    message = world.first(mine)
    if message is not None:
        raise failure if str(failure) == message else DadmmError(message)
    return value  # type: ignore[return-value]


def _too_large(error: MemoryError) -> DadmmError:
    reason = str(error).partition("\n")[0] or "none is left"
    return DadmmError(
        f"there is not enough memory ({reason}); use fewer samples, dimensions or "
        "nodes per host"
    )


def host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename
