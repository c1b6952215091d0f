"""MPI calls outside the iterations: each is counted, and waits without using a core."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dadmm.comm import identity
from dadmm.comm.mpi_library import MPI
from dadmm.core.layout import Matrix

# calls, and bytes sent, of this process outside the iterations
outside = np.zeros(2, dtype=np.int64)
SHORT = 248  # bytes of a text that is sent with its length, in one call


def count(*sent: NDArray[Any]) -> None:
    """Count a call outside the iterations, and the bytes that this process sends."""
    outside[:] += 1, sum(array.nbytes for array in sent)


def wait_sleeping(request: MPI.Request, *sent: NDArray[Any]) -> None:
    """Count a collective, and wait for it by testing and sleeping in turns.

    A blocking collective would use the cores until the last rank arrives. Ranks that
    still import modules or write files need them: with blocking collectives 20 ranks on
    2 cores took 1.2 times as long to start.
    """
    count(*sent)
    while not request.Test():
        time.sleep(1e-3)


def compare(comm: MPI.Comm, facts: identity.Facts) -> None:
    """Raise on all ranks if their facts differ.

    The ranks reduce a hash. They send the facts themselves only if the hashes differ.
    """
    code = np.array([identity.digest(facts)], dtype=np.uint64)
    mine = np.concatenate([code, ~code])
    most = np.empty_like(mine)
    wait_sleeping(comm.Iallreduce(mine, most, op=MPI.MAX), mine)
    if most[0] == ~most[1]:  # the largest hash is the smallest
        return
    everyone = [json.loads(text) for text in texts(comm, json.dumps(dict(facts)))]
    error = identity.disagreement(everyone)
    if error is not None:
        raise error


def least_of_all(comm: MPI.Comm, number: int) -> int:
    """Return the least number of all ranks, each from 0 to 255."""
    mine = np.array([number], dtype=np.uint8)
    least = np.empty_like(mine)
    wait_sleeping(comm.Iallreduce(mine, least, op=MPI.MIN), mine)
    return int(least[0])


def texts(comm: MPI.Comm, text: str) -> list[str]:
    """Return the texts of all ranks, in order, on every rank.

    This takes one call if all are short, and two otherwise.
    """
    data = text.encode()
    mine = short_row(data)
    rows = np.empty((comm.size, len(mine)), dtype=np.uint8)
    wait_sleeping(comm.Iallgather(mine, rows), mine)
    lengths = rows[:, :8].copy().view(np.int64)[:, 0]
    if lengths.max() <= SHORT:
        return [row_text(row) for row in rows]
    own = np.frombuffer(data, dtype=np.uint8)
    everything = np.empty(int(lengths.sum()), dtype=np.uint8)
    wait_sleeping(comm.Iallgatherv(own, [everything, lengths.tolist()]), own)
    return _split(everything, lengths)


def short_row(data: bytes) -> NDArray[np.uint8]:
    """Return the length of data, and the data themselves if they are short."""
    row = np.zeros(8 + SHORT, dtype=np.uint8)
    row[:8].view(np.int64)[0] = len(data)
    if len(data) <= SHORT:
        row[8 : 8 + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return row


def row_text(row: NDArray[np.uint8]) -> str:
    """Return the short text of a row."""
    length = int(row[:8].view(np.int64)[0])
    return row[8 : 8 + length].tobytes().decode()


def gather_texts(comm: MPI.Comm, text: str) -> list[str]:
    """Return the texts of all ranks, in order, on rank 0."""
    mine = np.frombuffer(text.encode(), dtype=np.uint8)
    everything, counts = _joined(comm, mine[:, None], everywhere=False)
    return _split(everything, counts)


def _split(everything: NDArray[Any], lengths: NDArray[Any]) -> list[str]:
    parts = np.split(everything, lengths.cumsum()[:-1])
    return [part.tobytes().decode() for part in parts]


def collect(comm: MPI.Comm, rows: Matrix, everywhere: bool = True) -> Matrix:
    """Return the rows of all ranks in order, on every rank or on rank 0 alone.

    A rank that receives nothing returns no rows.
    """
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    return _joined(comm, rows, everywhere)[0]


def _joined(
    comm: MPI.Comm, mine: NDArray[Any], everywhere: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows (n, width) of all ranks, and the number of rows of each.

    Ranks that receive nothing return no rows and zeros.
    """
    names = ("Iallgather", "Iallgatherv") if everywhere else ("Igather", "Igatherv")
    equal, unequal = (getattr(comm, name) for name in names)
    length, lengths = np.array([len(mine)]), np.zeros(comm.size, dtype=np.int64)
    wait_sleeping(equal(length, lengths), length)
    width = mine.shape[1]
    everything = np.empty((int(lengths.sum()), width), mine.dtype)
    wait_sleeping(unequal(mine, [everything, (lengths * width).tolist()]), mine)
    return everything, lengths
