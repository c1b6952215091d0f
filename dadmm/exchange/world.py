"""The processes of a run: this one alone, or the ranks that a launcher started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dadmm.core.errors import ConfigError, DadmmError
from dadmm.core.layout import Matrix, Vector
from dadmm.exchange.launcher import launched

T = TypeVar("T")


class Alone:
    """A world of one process, in which all nodes live; no MPI is started."""

    rank, number, size, comm = 0, 0, 1, None
    library = "none (one process)"
    outlived = False  # nobody can die alone

    def share(self, text: str) -> str:
        return text

    def share_array(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        return array

    def first(self, text: str | None) -> str | None:
        return text

    def texts(self, text: str) -> list[str]:
        return [text]

    def compare(self, facts: Mapping[str, str]) -> None:
        """Find nothing that differs: there is nobody else."""

    def check_fault_tolerance(self) -> None:
        """Accept anything: nobody can die alone."""

    def scatter(self, blocks: Sequence[Matrix] | None) -> Any:
        raise AssertionError("one process scatters nothing")

    def gather(self, rows: Matrix) -> Matrix:
        return rows

    def gather_texts(self, text: str) -> list[str]:
        return [text]

    def total(self, rows: Matrix) -> Vector:
        return np.asarray(rows.sum(axis=0))

    def sent(self) -> tuple[int, int]:
        """Return what was sent outside of the iterations: calls and bytes."""
        return 0, 0

    def abort(self, error: BaseException) -> None:
        raise error


def connect() -> Any:
    """Return the world of this process. MPI starts here, and only under a launcher."""
    told = launched()
    if told is None:
        return Alone()
    from dadmm.exchange.mpi_world import World

    world = World()
    rank, size = told
    if world.size == 1 and size > 1:
        if rank > 0:  # each process thinks it is alone, so only one may speak
            raise SystemExit(2)
        raise ConfigError(
            f"mpiexec started {size} processes, but to mpi4py each is alone: it uses "
            f"{world.library!r}, which is not this mpiexec's MPI; use the mpiexec of "
            "that library, or set MPI4PY_LIBMPI to the libmpi of this mpiexec"
        )
    return world


def together(world: Any, step: Callable[..., T], *args: Any) -> T:
    """Return ``step(*args)`` of this rank, if it went well on every rank.

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
    said = world.first(mine)
    if said is not None:
        raise failure if str(failure) == said else DadmmError(said)
    return value  # type: ignore[return-value]


def _too_large(error: MemoryError) -> DadmmError:
    reason = str(error).partition("\n")[0] or "it has been used up"
    return DadmmError(
        f"this takes more memory than there is ({reason}); use fewer samples, "
        "dimensions or nodes per host"
    )


def host() -> str:
    """Return the name of this machine."""
    return os.uname().nodename
