"""A communicator that records every byte that its process hands over to be sent.

`install` puts it in the place of MPI in all modules of `dadmm.comm`. Whatever is
not on the lists below raises: a new way of sending has to be added here first.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from dadmm.comm import mpi

QUIET = {
    "rank", "size", "Get_group", "Recv", "Recv_init", "Ibarrier", "Free", "Abort",
    "Improbe",
}  # fmt: skip
MAKING = {"Dup", "Split", "Split_type"}
SENDING = {  # and who gets what a rank puts in; None: the rank that is named
    **dict.fromkeys(("Iallreduce", "Iallgather", "Iallgatherv"), "everybody"),
    **dict.fromkeys(("Ireduce", "Igather", "Igatherv"), "rank 0"),
    "Send": None, "Isend": None,
}  # fmt: skip
LIBRARY = {
    "Exception", "Request", "REQUEST_NULL", "IN_PLACE", "MAX", "MIN", "SUM",
    "COMM_TYPE_SHARED", "UNDEFINED", "Get_library_version", "Status", "BYTE",
}  # fmt: skip


class Sent(NamedTuple):
    """What was handed over, by which method, and who gets it."""

    method: str
    to: str
    data: bytes


class Unknown(AttributeError):
    """Something is used that may send in a way that is not recorded."""


class Request(MPI.Prequest):
    """A persistent send, which records what is in its buffer when it starts."""

    def record(self) -> None:
        self.comm.record("Send_init", self.to, self.buffer)

    def Start(self) -> None:
        self.record()
        super().Start()


class Comm:
    """A communicator whose process is overheard; it shares its tape with its copies."""

    def __init__(self, real: Any, tape: list[Sent]) -> None:
        self.real, self.tape = real, tape

    def __getattr__(self, name: str) -> Any:
        if name not in QUIET | MAKING | SENDING.keys():
            raise Unknown(f"{name} of a communicator is not recorded")
        real = getattr(self.real, name)
        if name in QUIET:
            return real
        if name in MAKING:
            return lambda *args, **more: Comm(real(*args, **more), self.tape)

        def send(buffer: Any, *args: Any, **more: Any) -> Any:
            to = SENDING[name] or f"rank {more['dest'] if 'dest' in more else args[0]}"
            self.record(name, to, buffer)
            return real(buffer, *args, **more)

        return send

    def record(self, method: str, to: str, buffer: Any) -> None:
        array = buffer[0] if isinstance(buffer, list | tuple) else buffer
        self.tape.append(Sent(method, to, np.ascontiguousarray(array).tobytes()))

    def Idup(self) -> tuple[Comm, Any]:
        real, request = self.real.Idup()
        return Comm(real, self.tape), request

    def Send_init(self, buffer: Any, dest: int) -> Request:
        request = Request(self.real.Send_init(buffer, dest))
        request.comm, request.buffer, request.to = self, buffer, f"rank {dest}"
        return request

    def Scatter(self, sent: Any, received: Any) -> None:
        if self.real.rank == 0:
            self.record("Scatter", "everybody", sent)
        self.real.Scatter(sent, received)

    def Ibcast(self, buffer: Any, root: int = 0) -> Any:
        if self.real.rank == root:
            self.record("Ibcast", "everybody", buffer)
        return self.real.Ibcast(buffer, root=root)

    def Bcast(self, buffer: Any, root: int = 0) -> None:
        self.Ibcast(buffer, root).Wait()

    def Allreduce(self, sent: Any, received: Any, op: Any) -> None:
        own = received if sent is MPI.IN_PLACE else sent
        self.record("Allreduce", "everybody", own)
        self.real.Allreduce(sent, received, op=op)


class Library:
    """What `dadmm.comm` may use of mpi4py.MPI."""

    def __init__(self, world: Comm) -> None:
        self.COMM_WORLD = world

    def __getattr__(self, name: str) -> Any:
        if name in LIBRARY:
            return getattr(MPI, name)
        raise Unknown(f"MPI.{name} is not recorded")


def start_all(requests: list[Any]) -> None:
    """Start persistent requests, and record those that send."""
    for request in requests:
        if isinstance(request, Request):
            request.record()
    MPI.Prequest.Startall(requests)


def install() -> Comm:
    """Record from now on; return the communicator of all ranks, with its tape."""
    world = Comm(MPI.COMM_WORLD, [])
    library = Library(world)
    for name, module in list(sys.modules.items()):
        if name.startswith("dadmm.comm.") and hasattr(module, "MPI"):
            module.MPI = library
    assert mpi.MPI is library
    mpi._start = start_all
    return world
