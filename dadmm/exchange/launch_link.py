"""This process and the launcher that started it: mpiexec, srun, or `launch/local`."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from array import array
from typing import Any

# (rank, size) as the launchers of MPICH and Intel MPI, Open MPI, PMIx and Slurm say it
LAUNCHERS = (
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"),
)


def rank_and_size() -> tuple[int, int] | None:
    """Return rank and number of processes as a launcher says, None without one."""
    for rank, size in LAUNCHERS:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return None


def connect_to_launcher() -> None:
    """Let a launcher on this machine know of this rank, and know when it ends.

    That is before MPI starts: Intel MPI's mpiexec does not mind a rank that ends before
    it has. The connection is never closed but by the kernel, when the process ends
    however it does. As it closes the highest file first, this comes before all that an
    MPI sees.
    """
    path = os.environ.get("DADMM_RUN_FILE")
    if not path:
        return
    rank, _ = rank_and_size() or (0, 1)
    import fcntl
    import resource
    import socket

    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1024)
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)  # for a launcher that was stopped
        line.connect(f"{path}.ranks")
        fcntl.fcntl(line, fcntl.F_DUPFD_CLOEXEC, most - 16)
        line.sendall(str(rank).encode())  # last: whom it hears of, it takes for alive


def wait_until_read(stream: Any, limit: float = 1.0) -> None:
    """Wait until the reader of a pipe has taken all that is in it, or time is up."""
    import fcntl
    import termios

    with contextlib.suppress(OSError, AttributeError):  # no such file, or no stream
        file, expiry, left = stream.fileno(), time.monotonic() + limit, array("i", [1])
        while stat.S_ISFIFO(os.fstat(file).st_mode) and left[0]:
            fcntl.ioctl(file, termios.FIONREAD, left)
            if time.monotonic() > expiry:
                return
            time.sleep(1e-3)
