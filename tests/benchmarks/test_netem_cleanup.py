"""The end of a network removes all processes, namespaces and interfaces."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.support.emulation import start_netem

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

# A rank with a child that is not waited for and sleeps for minutes
ORPHAN = """
import subprocess, time
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen(["sleep", "300"], start_new_session=True, **quiet)
time.sleep(300)
"""


def descendants(mark: str) -> dict[int, str]:
    """Return the command lines of all processes that have inherited a variable."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(folder.name)] = command.decode()
    return found


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_all_processes(name):
    """Ranks on other hosts, their orphans and the bridge, even with SIGKILL."""
    mark = uuid.uuid4().hex
    words = ("--hosts", 2, "-n", 2, "--delay", "1ms", "--command", "--")
    job = start_netem(*words, sys.executable, "-c", ORPHAN, DADMM_TEST_MARK=mark)
    try:
        job.wait_until(lambda: str(descendants(mark)).count("sleep 300") == 2)
        job.signal(getattr(signal, name))
        assert job.end().code != 0
        deadline = time.monotonic() + 30  # after SIGKILL it cannot wait for their end
        while descendants(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert descendants(mark) == {}
    finally:
        for process in descendants(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    interfaces = {name for _, name in socket.if_nameindex()}
    assert not interfaces & {"bridge", "port0", "port1", "far0", "far1"}
