"""The link from this process to `launch/local`, which watches the ranks of a job."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import stat
import sys
import termios
import threading
import time
from array import array
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from dadmm.core.ranks import rank_and_size

if TYPE_CHECKING:
    import socket

BEAT = 2.0  # seconds between two lines that say what this rank does
_launcher: int | None = None  # the connection to the launch command


def tell_launcher(**facts: object) -> None:
    """Tell the launch command, if any, as a line of JSON; never wait for it."""
    if _launcher is not None:
        with suppress(OSError):
            os.write(_launcher, json.dumps(facts).encode() + b"\n")


def connect_to_launcher() -> None:
    """Open a connection to ``launch/local``, by which it sees when this rank ends.

    Call it before MPI starts: Intel MPI's mpiexec does not report a rank that ends
    before that. The kernel closes the connection when the process ends, before those of
    MPI. A rank on another host connects over TCP, in a thread, since a firewall may let
    it wait.
    """
    path = os.environ.get("DADMM_MONITOR", "")
    remote = os.environ.get("DADMM_MONITOR_TCP", "")  # host, port and secret
    if not path:
        return
    import socket

    with suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)  # if the launch command is suspended
        line.connect(path)
        _greet(line, "")
    if _launcher is not None or remote:
        atexit.register(tell_launcher, inside="MPI_Finalize")
        threading.Thread(target=_beat, args=(remote,), daemon=True).start()


def _greet(line: socket.socket, secret: str) -> None:
    """Keep a connection to the launch command, and tell it who this rank is."""
    global _launcher
    import resource

    about = {"host": os.uname().nodename, "process": os.getpid()}
    about |= zip(("rank", "size"), rank_and_size() or (0, 1), strict=True)
    line.sendall(f"{secret}{json.dumps(about)}\n".encode())
    most = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1024)
    handle = fcntl.fcntl(line, fcntl.F_DUPFD_CLOEXEC, most - 16)
    os.set_blocking(handle, False)
    _launcher = handle


def _beat(remote: str) -> None:
    """Tell the launcher for ever what the main thread does.

    A process that is stopped, or whose main thread keeps Python's lock, is silent.
    """
    is_remote = _launcher is None
    if is_remote:
        import socket

        host, port, secret = remote.split()
        try:
            with socket.create_connection((host, int(port)), 30) as line:
                _greet(line, f"{secret}\n")
        except OSError:
            return
    main = threading.main_thread().ident or 0
    while True:
        time.sleep(BEAT)
        frame = sys._current_frames().get(main)
        if frame is not None:
            states = {"states": _states()} if is_remote else {}
            tell_launcher(**doing(frame), **states)
        del frame


def _states() -> dict[str, str]:
    """Return the states of the other ranks of this host that do not run or sleep."""
    parent, found = os.getppid(), {}
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{parent}/task"):  # any may have started them
            with open(f"/proc/{parent}/task/{thread}/children") as file:
                processes = file.read().split()
            for process in processes:
                with suppress(OSError), open(f"/proc/{process}/stat") as file:
                    letter = file.read().rpartition(")")[2].strip()[:1]
                    if letter not in "RS":
                        found[process] = letter
    return found


def doing(frame: FrameType | None) -> dict[str, object]:
    """Return the iteration, where a thread is, and whether it waits for messages.

    It waits if it is in a function of this folder, which may call others that work.
    """
    iteration, waits, at = 0, False, ""
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if not at:
            at = f"{name} ({os.path.basename(file)}:{frame.f_lineno})"
            waits = os.path.dirname(file) == os.path.dirname(__file__)
        if name == "iterate" and file.endswith("loop.py"):
            iteration = frame.f_locals.get("t", 0)
        frame = frame.f_back
    return {"iteration": iteration, "waits": waits, "at": at}


def wait_until_read(stream: TextIO, limit: float = 1.0) -> None:
    """Wait until a pipe is empty, or for ``limit`` seconds."""
    with suppress(OSError, AttributeError):  # not a pipe, or no stream
        file, expiry, left = stream.fileno(), time.monotonic() + limit, array("i", [1])
        while stat.S_ISFIFO(os.fstat(file).st_mode) and left[0]:
            fcntl.ioctl(file, termios.FIONREAD, left)
            if time.monotonic() > expiry:
                return
            time.sleep(1e-3)
