"""Watch a running job: pass on its output, see which rank ends first, see stalls.

The first rank to end is needed because MPICH and Intel MPI end the other ranks when one
dies, and then name any of them.
"""

import contextlib
import math
import os
import select
import selectors
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from launch.base.messages import print_message

TAIL = 1 << 16  # bytes of output that are kept
POLL = 0.5  # seconds between checks whether mpiexec ended and left its streams open
PATIENCE = 15  # seconds in which mpiexec must end after one of its ranks
LEFT = 3  # seconds in which ranks must end after mpiexec
BACKLOG = 4096  # ranks that may connect at once
STALL = 60  # seconds without rows until the first message; it doubles each time
OOM_COUNTERS = ("/proc/vmstat", "/sys/fs/cgroup/memory.events")


class Monitor:
    """Pass on the output of mpiexec unchanged, and keep what a diagnosis needs.

    Each rank on this host holds a connection to the monitor (see
    `dadmm.comm.launch_link`). When a rank ends, the kernel closes the
    connection before the MPI can notice the end and kill other ranks. Closed
    connections are reported here in the order in which they were closed.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dadmm-")
        self._file = Path(self._directory.name, "run")
        self.variables = {"DADMM_RUN_FILE": str(self._file)}
        self.first: int | None = None  # the rank that ended first, of those connected
        self._output = bytearray()
        self._oom_kills = count_oom_kills()
        self._ranks: dict[socket.socket, int] = {}
        self._streams = 0
        self._stall = StallDetector()
        self._deadline = math.inf  # when mpiexec must have ended
        self._selector = selectors.DefaultSelector()
        self._server = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # the path is too long: no rank can connect
            self._server.bind(f"{self._file}.ranks")
            self._server.listen(BACKLOG)
            self._selector.register(self._server, selectors.EVENT_READ, self._accept)

    @property
    def folder(self) -> Path | None:
        """The folder of the run, which rank 0 writes to a file; None without one."""
        try:
            return Path(self._file.read_text())
        except OSError:
            return None

    @property
    def tail(self) -> str:
        """The end of the output of mpiexec and all ranks."""
        return self._output.decode(errors="replace")

    @property
    def at_line_start(self) -> bool:
        """Whether the output is empty or ends with a newline."""
        return self._output[-1:] in (b"", b"\n")

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process for memory since the start."""
        return count_oom_kills() > self._oom_kills

    def has_seen(self, rank: int) -> bool:
        """Return whether a rank has connected, which only ranks on this host do."""
        return rank in self._ranks.values()

    def watch(
        self, process: subprocess.Popen[bytes], end: Callable[[], None] | None
    ) -> None:
        """Pass on the output of a process until it has ended.

        `end` is called once if the process still runs `PATIENCE` seconds after the
        first rank has ended. None lets it run.
        """
        for target, stream in ((1, process.stdout), (2, process.stderr)):
            assert stream is not None
            action = partial(self._pass_on, target)
            self._selector.register(stream, selectors.EVENT_READ, action)
        self._streams = 2
        while self._streams:
            ready = self._selector.select(POLL)
            for key, _ in ready:
                key.data(key.fileobj)
            if not ready and process.poll() is not None:
                return  # another process holds the streams open
            if sentence := self._stall.check(self.folder):
                print_message(sentence)
            if time.monotonic() > self._deadline:
                self._deadline = math.inf
                if end is not None:
                    end()

    def end_left(self) -> None:
        """Kill the ranks on this host that still run `LEFT` seconds after mpiexec.

        An mpiexec that was killed cannot end them, and a rank that waits for a message
        handles TERM only when it arrives.
        """
        end = time.monotonic() + LEFT
        while time.monotonic() < end:
            ready = self._selector.select(POLL if self._running else 0)
            for key, _ in ready:
                key.data(key.fileobj)
            if not ready and not self._running:
                return
        for connection in self._running:
            size = struct.calcsize("3i")  # process, user and group of the other end
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            with contextlib.suppress(OSError):
                os.kill(struct.unpack("3i", peer)[0], signal.SIGKILL)

    @property
    def _running(self) -> list[socket.socket]:
        return [line for line in self._ranks if line.fileno() >= 0]

    def _pass_on(self, target: int, stream: Any) -> None:
        chunk = os.read(stream.fileno(), TAIL)
        if not chunk:
            self._selector.unregister(stream)
            self._streams -= 1
        self._output += chunk
        del self._output[:-TAIL]
        with contextlib.suppress(OSError):  # the reader is gone, but the job continues
            write_all(target, chunk)

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            self._selector.register(connection, selectors.EVENT_READ, self._receive)

    def _receive(self, connection: socket.socket) -> None:
        """Receive the number of a rank, or the end of its connection."""
        text = b""
        with contextlib.suppress(OSError):
            text = connection.recv(16)
        if text:
            self._ranks[connection] = int(text)
            return
        self._selector.unregister(connection)
        connection.close()
        if self.first is None:
            self.first = self._ranks.get(connection)
            self._deadline = time.monotonic() + PATIENCE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and remove the temporary files."""
        for connection in self._ranks:
            connection.close()
        self._server.close()
        self._selector.close()
        self._directory.cleanup()


class StallDetector:
    """Notice that a run writes no rows any more.

    Ranks write rows every few seconds. An MPI waits for ever for a rank that was
    stopped, and for a host that disappeared without closing its connections. As a long
    iteration looks the same, there is only a message.
    """

    def __init__(self) -> None:
        self._size, self._since, self._limit = -1, math.inf, STALL

    def check(self, folder: Path | None) -> str:
        """Return a sentence if the run in a folder has stalled, else ""."""
        now, size = time.monotonic(), -1
        if folder:
            with contextlib.suppress(OSError):  # not started yet, or writing results
                size = (folder / "parts" / "history-00000.csv").stat().st_size
        if size != self._size or size < 0:
            self._size, self._since, self._limit = size, now, STALL
        if now - self._since < self._limit:
            return ""
        quiet, self._limit = self._limit, 2 * self._limit
        return (
            f"no iteration has ended for {quiet} s: iterations are long, or a rank was "
            "stopped, or a host was lost; Ctrl-C twice ends the job"
        )


def write_all(target: int, chunk: bytes) -> None:
    """Write a chunk to a file descriptor that may be non-blocking."""
    while chunk:
        try:
            chunk = chunk[os.write(target, chunk) :]
        except BlockingIOError:
            select.select([], [target], [])


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed for memory."""
    kills = 0
    for counter in OOM_COUNTERS:
        with contextlib.suppress(OSError):
            words = Path(counter).read_text().split()
            if "oom_kill" in words:
                kills += int(words[words.index("oom_kill") + 1])
    return kills
