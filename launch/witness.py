"""What the launcher sees of a job: what it says, its folder, which rank ends first.

The last some MPIs do not tell: when a rank dies they end the others, and name any one.
"""

from __future__ import annotations

import contextlib
import csv
import os
import select
import selectors
import subprocess
import tempfile
from pathlib import Path

TAIL = 1 << 16  # bytes of what was said last that are kept
LOOKING, IDLE = 0.05, 0.5  # seconds between looks: for the folder, and afterwards
COUNTERS = ("/proc/vmstat", "/sys/fs/cgroup/memory.events")


class Witness:
    """Passes on what mpiexec and its ranks say, unchanged, and remembers the end of it.

    Attributes
    ----------
    folder : Path or None
        Of the run, once there is one; rank 0 leaves its path in `DADMM_RUN_FILE`.
    first : list of int
        The processes of this host that were the first to end; several, if they ended
        while nobody looked.
    """

    def __init__(self) -> None:
        handle, self._file = tempfile.mkstemp(prefix="dadmm-run-")
        os.close(handle)
        self.variables = {"DADMM_RUN_FILE": self._file}
        self.folder: Path | None = None
        self.first: list[int] = []
        self._said = bytearray()
        self._selector = selectors.DefaultSelector()
        self._kills = memory_kills()

    @property
    def tail(self) -> str:
        """What was said last, by mpiexec and all ranks."""
        return self._said.decode(errors="replace")

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed somebody for memory since the start."""
        return memory_kills() > self._kills

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what a process says until it has ended."""
        for stream, target in ((process.stdout, 1), (process.stderr, 2)):
            assert stream is not None
            self._selector.register(stream, selectors.EVENT_READ, target)
        open_streams = 2
        while open_streams:
            ready = self._selector.select(IDLE if self.folder else LOOKING)
            ended = [key.data[0] for key, _ in ready if isinstance(key.data, tuple)]
            if ended:
                self._ended(ended)
            for key, _ in ready:
                if isinstance(key.data, int) and not self._pass_on(key.fd, key.data):
                    self._selector.unregister(key.fileobj)
                    open_streams -= 1
            if self.folder is None:
                self._look()
            if not ready and process.poll() is not None:
                return  # somebody else, who lives on, holds the stream open

    def _pass_on(self, source: int, target: int) -> bool:
        """Pass on what there is; return whether there may be more."""
        chunk = os.read(source, TAIL)
        self._said += chunk
        del self._said[:-TAIL]
        with contextlib.suppress(OSError):  # nobody listens, but the job goes on
            write(target, chunk)
        return bool(chunk)

    def _look(self) -> None:
        """Find the run's folder, and watch the ranks that are on this host."""
        with contextlib.suppress(OSError):
            path = Path(self._file).read_text()
            if path:
                self.folder = Path(path)
                here = os.uname().nodename
                ranks = [row for row in roster(self.folder) if row["host"] == here]
                self._watch_ranks([int(row["pid"]) for row in ranks])

    def _watch_ranks(self, pids: list[int]) -> None:
        if not hasattr(os, "pidfd_open"):  # a system other than Linux
            return
        for pid in pids:
            try:
                end = os.pidfd_open(pid)
            except ProcessLookupError:
                self.first.append(pid)
            except OSError:  # an old system, or too many ranks: nobody is watched
                return
            else:
                self._selector.register(end, selectors.EVENT_READ, (pid,))

    def _ended(self, pids: list[int]) -> None:
        """Remember who ended first, and watch no longer."""
        self.first = self.first or pids
        watched = list(self._selector.get_map().values())
        for key in watched:
            if isinstance(key.data, tuple):
                self._selector.unregister(key.fd)
                os.close(key.fd)

    def __enter__(self) -> Witness:
        """Return the witness."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind."""
        self._ended([])
        self._selector.close()
        with contextlib.suppress(OSError):
            os.unlink(self._file)


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
