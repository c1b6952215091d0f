"""What the launcher sees of a job: what it says, its folder, which rank ends first.

The last some MPIs do not tell: when a rank dies they end the others, and name any one.
"""

from __future__ import annotations

import contextlib
import csv
import math
import os
import select
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launch.base.environment import say
from launch.mpi.pulse import Pulse

TAIL = 1 << 16  # bytes of what was said last that are kept
IDLE = 0.5  # seconds between looks whether mpiexec is gone and left its streams open
PATIENCE = 15  # seconds that mpiexec may take to end after one of its ranks has
BACKLOG = 4096  # ranks that report at once
COUNTERS = ("/proc/vmstat", "/sys/fs/cgroup/memory.events")


class Witness:
    """Passes on what mpiexec and its ranks say, unchanged, and remembers the end of it.

    Each rank of this machine holds a connection to it, which the kernel closes when the
    rank ends, before it closes anything else (see `dadmm.exchange.launch_link`). It is
    closed before an MPI can know, and ends others; and closed connections come up here
    in the order in which they were closed.

    Attributes
    ----------
    first : int or None
        The rank that ended first, as far as ranks have reported.
    """

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="dadmm-")
        self._file = Path(self._place.name, "run")
        self.variables = {"DADMM_RUN_FILE": str(self._file)}
        self.first: int | None = None
        self._said = bytearray()
        self._kills = memory_kills()
        self._ranks: dict[socket.socket, int] = {}
        self._streams = 0
        self._pulse = Pulse()
        self._due = math.inf  # when mpiexec must have ended, too
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # a path too long: then nobody can report
            self._door.bind(f"{self._file}.ranks")
            self._door.listen(BACKLOG)
            self._selector.register(self._door, selectors.EVENT_READ, self._open)

    @property
    def folder(self) -> Path | None:
        """The folder of the run, if there is one: rank 0 leaves its path."""
        try:
            return Path(self._file.read_text())
        except OSError:
            return None

    @property
    def tail(self) -> str:
        """What was said last, by mpiexec and all ranks."""
        return self._said.decode(errors="replace")

    @property
    def at_line_start(self) -> bool:
        """Whether what was said last ended its line."""
        return self._said[-1:] in (b"", b"\n")

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed somebody for memory since the start."""
        return memory_kills() > self._kills

    def has_seen(self, rank: int) -> bool:
        """Return whether a rank has been on this machine and has reported."""
        return rank in self._ranks.values()

    def watch(
        self, process: subprocess.Popen[bytes], overdue: Callable[[], None]
    ) -> None:
        """Pass on what a process says until it has ended.

        If it has not, long after one of its ranks, somebody else must end it:
        ``overdue`` is called, once.
        """
        actions = {process.stdout: self._pass_out, process.stderr: self._pass_err}
        for stream, action in actions.items():
            assert stream is not None
            self._selector.register(stream, selectors.EVENT_READ, action)
        self._streams = len(actions)
        while self._streams:
            ready = self._selector.select(IDLE)
            for key, _ in ready:
                key.data(key.fileobj)
            if not ready and process.poll() is not None:
                return  # somebody else, who lives on, holds the stream open
            if words := self._pulse.look(self.folder):
                say(words)
            if time.monotonic() > self._due:
                self._due = math.inf
                overdue()

    def _pass_out(self, stream: Any) -> None:
        self._pass_on(stream, 1)

    def _pass_err(self, stream: Any) -> None:
        self._pass_on(stream, 2)

    def _pass_on(self, stream: Any, target: int) -> None:
        chunk = os.read(stream.fileno(), TAIL)
        if not chunk:
            self._selector.unregister(stream)
            self._streams -= 1
        self._said += chunk
        del self._said[:-TAIL]
        with contextlib.suppress(OSError):  # nobody listens, but the job goes on
            write(target, chunk)

    def _open(self, door: socket.socket) -> None:
        """Let a rank in."""
        with contextlib.suppress(OSError):
            line, _ = door.accept()
            self._selector.register(line, selectors.EVENT_READ, self._hear)

    def _hear(self, line: socket.socket) -> None:
        """Hear from a rank: its number first, and in the end that it is gone."""
        word = b""
        with contextlib.suppress(OSError):
            word = line.recv(16)
        if word:
            self._ranks[line] = int(word)
            return
        self._selector.unregister(line)
        line.close()
        if self.first is None:
            self.first = self._ranks.get(line)
            self._due = time.monotonic() + PATIENCE

    def __enter__(self) -> Witness:
        """Return the witness."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        for line in self._ranks:
            line.close()
        self._door.close()
        self._selector.close()
        self._place.cleanup()


def write(target: int, chunk: bytes) -> None:
    """Write all of a chunk, waiting where there is no room."""
    while chunk:
        try:
            chunk = chunk[os.write(target, chunk) :]
        except BlockingIOError:
            select.select([], [target], [])


def roster(folder: Path) -> list[dict[str, str]]:
    """Return rank, node, host and process of all ranks of a run, or nothing."""
    try:
        with open(folder / "ranks.csv", newline="") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []


def memory_kills() -> int:
    """Return how many processes the kernel says it has killed for want of memory."""
    found = 0
    for counter in COUNTERS:
        with contextlib.suppress(OSError):
            words = Path(counter).read_text().split()
            if "oom_kill" in words:
                found += int(words[words.index("oom_kill") + 1])
    return found
