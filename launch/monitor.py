"""Watch a running job: pass on its output, see which rank ends first, see stalls.

The first rank to end is needed because MPICH and Intel MPI end the other ranks when one
dies, and then name any of them.
"""

import contextlib
import fcntl
import json
import math
import os
import re
import secrets
import select
import selectors
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from launch.console import print_message

TAIL = 1 << 16  # bytes of output, and of a rank's last line, that are kept
POLL = 0.5  # seconds between checks whether mpiexec ended and left its streams open
PATIENCE = 15  # seconds in which mpiexec must end after one of its ranks
LEFT = 3  # seconds in which ranks must end after mpiexec
BACKLOG = 4096  # ranks that may connect at once
SILENT = 8  # seconds without a word of a rank, which speaks every 2 s
STALL = 60  # seconds in which no rank finishes an iteration, or a step of set-up
CUT, ANSWERS = "cut", "answers"  # of a silent rank on another host
INSIDE = "inside"  # of one that is in a function of MPI, with Python's lock
STATES = {  # of a process that says nothing, by the letter of /proc
    "R": "is busy in compiled code, and says nothing",
    "T": "is stopped by a signal (kill -CONT {} lets it go on)",
    "t": "is stopped by a debugger",
    "D": "waits for a disk or a file system",
    "Z": "has ended, and its parent has not noticed",
    CUT: "was cut off, or its host is down",
    ANSWERS: "is stopped, or busy in compiled code; its host answers",
    INSIDE: "waits in {} for other ranks",
}
# how many times as long a silent rank may stay in a state in which it may compute
MOST = {"R": math.inf, INSIDE: math.inf, ANSWERS: 4}
OOM_COUNTERS = ("/proc/vmstat", "/sys/fs/cgroup/memory.events")


class Rank:
    """What a rank has said: lines of JSON objects, whose newest entries count."""

    def __init__(self, is_here: bool = True) -> None:
        self.facts: dict[str, Any] = {}  # its rank; of rank 0, the run's folder
        self.is_here = is_here  # on this host
        self.heard = time.monotonic()  # when it spoke last
        self.moved = time.monotonic()  # when it was last known to get on
        self.probed = False  # since it spoke last
        self._rest = b""  # of a line that is not complete

    @property
    def name(self) -> str:
        """The rank, with its host and process."""
        known = self.facts
        return (
            f"rank {known.get('rank', '?')} (process {known.get('process', '?')} on "
            f"{known.get('host', 'this host')})"
        )

    def hear(self, data: bytes) -> None:
        """Take what a rank has sent."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest, self.heard, self.probed = rest[-TAIL:], time.monotonic(), False
        before = self._place
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, RecursionError):
                self.facts |= json.loads(line)
        if self._place != before:
            self.moved = self.heard

    @property
    def _place(self) -> tuple[Any, ...]:
        """What changes when a rank gets on: outside the iterations, the function."""
        iteration, waits = self.facts.get("iteration"), self.facts.get("waits")
        function = str(self.facts.get("at")).partition(" (")[0]
        return iteration, waits, None if iteration or waits else function


class Monitor:
    """Pass on the output of mpiexec unchanged, and keep what a diagnosis needs.

    Each rank holds a connection to the monitor (see `dadmm.comm.launch_link`), by which
    it says who it is and what it does. When a rank on this host ends, the kernel closes
    the connection before the MPI can notice the end and kill other ranks. Closed
    connections arrive in the order in which they were closed. If the job is `spread`
    over hosts, ranks of others connect over TCP, and must know a secret. Their ends
    arrive in order, too, unless packets are lost.
    """

    def __init__(self, stall_seconds: float = 0.0, spread: bool = False) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="dadmm-")
        address = str(Path(self._directory.name, "ranks"))
        self._secret = secrets.token_hex(16).encode() + b"\n"
        self.variables = {"DADMM_MONITOR": address}
        self._ended: list[Rank] = []  # connections that were closed, in order
        self._early: set[int] = set()  # ranks that ended before they could connect
        self.has_stalled = False  # whether the job was ended for this reason
        self.ranks: dict[socket.socket, Rank] = {}
        self._output = bytearray()
        self._oom_kills = count_oom_kills()
        self._streams = 0
        self._told: dict[str, float] = {}  # by sentence: when it may be said again
        self._ends_after = stall_seconds or math.inf  # seconds of a stall
        self._deadline = math.inf  # when mpiexec must have ended
        self._selector = selectors.DefaultSelector()
        self._server = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # the path is too long: no rank can connect
            self._server.bind(address)
            self._server.listen(BACKLOG)
            self._selector.register(self._server, selectors.EVENT_READ, self._accept)
        self._remote, self._is_spread = socket.socket(), spread
        if spread:
            self._remote.bind(("", 0))
            self._remote.listen(BACKLOG)
            self._selector.register(self._remote, selectors.EVENT_READ, self._accept)
            words = os.uname().nodename, self._remote.getsockname()[1]
            told = (*words, self._secret.decode().strip())
            self.variables["DADMM_MONITOR_TCP"] = " ".join(map(str, told))

    def said(self, name: str) -> list[Any]:
        """Return what ranks on this host have said by this name."""
        own = (rank for rank in self.ranks.values() if rank.is_here)
        return [rank.facts[name] for rank in own if name in rank.facts]

    @property
    def folder(self) -> Path | None:
        """The folder of the run, which rank 0 reports; None without one."""
        return next(map(Path, self.said("folder")), None)

    @property
    def first(self) -> int | None:
        """The rank that ended first, as far as is known; None if none has ended."""
        if self._early:
            return min(self._early)
        return self._ended[0].facts.get("rank") if self._ended else None

    def has_seen(self, rank: int, anywhere: bool = False) -> bool:
        """Return whether a rank, on this host or anywhere, has connected or ended."""
        ranks = (each for each in self.ranks.values() if each.is_here or anywhere)
        return rank in [*self._early, *(each.facts.get("rank") for each in ranks)]

    @property
    def sees_rank_0(self) -> bool:
        """Whether rank 0 runs on this host, and can reach this monitor."""
        return self.has_seen(0) or (bool(self.ranks) and not self._is_spread)

    @property
    def tail(self) -> str:
        """The end of the output of mpiexec and all ranks."""
        return self._output.decode(errors="replace")

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process for memory since the start."""
        return count_oom_kills() > self._oom_kills

    def watch(
        self,
        process: subprocess.Popen[bytes],
        end: Callable[[str], None],
        tolerant: bool = False,
    ) -> None:
        """Pass on the output of a process until it has ended.

        `end` is called with the reason if the process still runs `PATIENCE` seconds
        after the first rank has ended, or after the last one if a `tolerant` run has
        begun, which may go on; and if nothing happens for `stall_seconds`.
        """
        for target, stream in ((1, process.stdout), (2, process.stderr)):
            action = partial(self._pass_on, target)
            self._selector.register(stream, selectors.EVENT_READ, action)  # type: ignore
        self._streams = 2
        while True:
            busy = self._serve(POLL if self._streams else 0)
            if not busy and (not self._streams or process.poll() is not None):
                return  # another process may hold the streams open
            if not self.has_stalled and self._check_stall():
                self.has_stalled = True
                end("the job stands still")
            if time.monotonic() > self._deadline:
                self._deadline = math.inf
                left = max(self.said("size"), default=0) - len(self._ended)
                if not (tolerant and self.folder and left > 0):
                    end("a rank has ended, but mpiexec has not")

    def end_left(self) -> None:
        """Kill the ranks on this host that still run `LEFT` seconds after mpiexec.

        An mpiexec that was killed cannot end them, and a rank that waits for a message
        handles TERM only when it arrives.
        """
        end = time.monotonic() + LEFT
        while running := [
            line for line, k in self.ranks.items() if k.is_here and line.fileno() >= 0
        ]:
            if time.monotonic() > end:
                break
            self._serve(POLL)
        for connection in running:
            size = struct.calcsize("3i")  # process, user and group of the other end
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            with contextlib.suppress(OSError):
                os.kill(struct.unpack("3i", peer)[0], signal.SIGKILL)

    def _serve(self, timeout: float) -> bool:
        """Handle what arrives; return whether anything did."""
        ready = self._selector.select(timeout)
        for key, _ in ready:
            key.data(key.fileobj)
        return bool(ready)

    def _pass_on(self, target: int, stream: Any) -> None:
        chunk = os.read(stream.fileno(), TAIL)
        if not chunk:
            self._selector.unregister(stream)
            self._streams -= 1
        self._output += chunk
        del self._output[:-TAIL]
        with contextlib.suppress(OSError):  # the reader is gone, but the job continues
            while chunk:
                try:
                    chunk = chunk[os.write(target, chunk) :]
                except BlockingIOError:
                    select.select([], [target], [])

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            action = self._identify
            if server is self._server:
                self.ranks[connection], action = Rank(), self._receive
            self._selector.register(connection, selectors.EVENT_READ, action)

    def _identify(self, connection: socket.socket) -> None:
        """Take a connection from another host for a rank if it knows the secret."""
        data, size = b"", len(self._secret)
        with contextlib.suppress(OSError):
            data = connection.recv(TAIL)
        self._selector.unregister(connection)
        if not secrets.compare_digest(data[:size], self._secret):
            connection.close()
            return
        connection.setblocking(False)
        self.ranks[connection] = Rank(is_here=False)
        self._selector.register(connection, selectors.EVENT_READ, self._receive)
        self.ranks[connection].hear(data[size:])

    def _receive(self, connection: socket.socket) -> None:
        """Receive what a rank says, or the end of its connection."""
        data, rank = b"", self.ranks[connection]
        with contextlib.suppress(OSError):
            data = connection.recv(TAIL)
        if data:
            rank.hear(data)
            return
        self._selector.unregister(connection)
        connection.close()
        is_first = rank.is_here and not any(other.is_here for other in self._ended)
        self._ended.append(rank)
        if is_first or all(line.fileno() < 0 for line in self.ranks):
            self._deadline = time.monotonic() + PATIENCE

    def _check_stall(self) -> bool:
        """Say which rank is silent, or keeps all waiting; return whether to end it all.

        Only a silent rank that does not compute ends a job. One that works may need
        long for an iteration. On another host, a rank that nobody sees may do either.
        """
        now, known, ends = time.monotonic(), False, False
        waits: list[bool] = []  # inside MPI; if all do, none works
        lines = {rank: line for line, rank in self.ranks.items() if line.fileno() >= 0}
        for rank, line in lines.items():
            silent = now - rank.heard
            waits.append(False)
            if silent > SILENT / 2 and not (rank.probed or rank.is_here):
                rank.probed = True
                with contextlib.suppress(OSError):
                    line.send(b"\n")  # which its host confirms, and it never reads
            if silent > SILENT:
                state, inside = self._state(rank, line), rank.facts.get("inside")
                # MPICH waits in a busy loop
                state = INSIDE if inside and state in ("R", "S", ANSWERS) else state
                what = inside if state == INSIDE else rank.facts.get("process")
                told = STATES.get(state, "is frozen").format(what)
                self._say(f"{rank.name} {told}", rank.heard)
                known = known or state not in ("R", ANSWERS)
                most = self._ends_after * MOST.get(state, 1)
                ends = ends or silent > most
                waits[-1] = state == INSIDE and silent > self._ends_after
        ranks = list(lines)
        self._check_missing(ranks, now)
        moved = max((rank.moved for rank in ranks), default=math.inf)
        if not known and now - moved > STALL:
            late = [rank for rank in ranks if not rank.facts.get("waits")][:3]
            words = [f"{k.name} is in {k.facts.get('at', 'set-up')}" for k in late]
            told = "; ".join(words) or "all ranks of this host wait for messages"
            self._say(f"no iteration has ended: {told}", moved)
        return ends or (bool(waits) and all(waits))

    def _state(self, rank: Rank, line: socket.socket) -> str:
        """Return the state of a silent rank: a letter of /proc, `CUT` or `ANSWERS`."""
        process = rank.facts.get("process")
        if rank.is_here:
            return state_of(process)
        for other in self.ranks.values():  # ranks of its host see its process
            states = other.facts.get("states")
            same = other.facts.get("host") == rank.facts.get("host")
            if same and isinstance(states, dict) and str(process) in states:
                return str(states[str(process)])
        unsent = array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(line, termios.TIOCOUTQ, unsent)  # what was not confirmed
        return CUT if unsent[0] else ANSWERS

    def _check_missing(self, ranks: list[Rank], now: float) -> None:
        """Say which ranks have not connected, while no rank iterates.

        If one of them has no process on the only host, it ended before it connected,
        and mpiexec, which may not have noticed, must end, too.
        """
        facts = [rank.facts for rank in self.ranks.values()]
        size = max((each.get("size", 0) for each in facts), default=0)
        first = min((rank.moved for rank in ranks), default=math.inf)
        iterates = any(each.get("iteration") for each in facts)
        if now - first > SILENT and not (iterates or self._early):
            known = {each.get("rank") for each in facts}
            missing = set(range(size)) - known
            found = {} if self._is_spread or not missing else self._find_processes()
            # without processes of known ranks, it cannot be known
            ended = missing - found.keys() if found.keys() & known else set()
            for rank in sorted(missing)[:3]:
                told = " and has ended" if rank in ended else ""
                process = found.get(rank)
                if state := STATES.get(state_of(process)):
                    told = f": process {process} {state.format(process)}"
                self._say(f"rank {rank} has not reported to this command{told}", first)
            if ended:
                self._early = ended
                self._deadline = min(self._deadline, now + PATIENCE)

    def _find_processes(self) -> dict[int, int]:
        """Return the processes of this job on this host, by rank."""
        from dadmm.core.ranks import LAUNCHERS

        found: dict[int, int] = {}
        own = f"DADMM_MONITOR={self.variables['DADMM_MONITOR']}"
        for place in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # it has ended, or is somebody else's
                words = place.read_text(errors="replace").split("\0")
                if own in words:
                    known = dict(word.partition("=")[::2] for word in words)
                    ranks = (known.get(rank, "") for rank, _ in LAUNCHERS)
                    process = int(place.parent.name)
                    found |= {int(rank): process for rank in ranks if rank.isdigit()}
        return found

    def _say(self, sentence: str, since: float) -> None:
        """Print a sentence at first, and then at doubled intervals."""
        now = time.monotonic()
        if now >= self._told.get(sentence, 0.0):
            seconds = now - since
            self._told[sentence] = now + max(seconds, STALL)
            print_message(f"{sentence}, for {seconds:.0f} s; Ctrl-C twice ends the job")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections and remove the temporary files."""
        for connection in [*self.ranks, self._server, self._remote]:
            connection.close()
        self._selector.close()
        self._directory.cleanup()


def state_of(process: object) -> str:
    """Return the state of a process of this host, a letter; "" if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2][1]
    return ""


def count_oom_kills() -> int:
    """Return how many processes the kernel has killed for memory."""
    kills = 0
    for counter in OOM_COUNTERS:
        with contextlib.suppress(OSError):
            found = re.search(r"^oom_kill (\d+)", Path(counter).read_text(), re.M)
            kills += int(found[1]) if found else 0
    return kills
