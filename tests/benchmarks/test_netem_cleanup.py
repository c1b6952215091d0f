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
from tests.support.processes import Job

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

MARK = "DADMM_TEST_MARK"  # a variable that all processes of one test inherit
# A rank with a child that is not waited for and sleeps for minutes
ORPHAN = """
import subprocess, sys, time
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen(["sleep", "300"], start_new_session=True, **quiet)
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


class Traces:
    """All processes that descend from one command, on any host."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.seen: set[str] = set()  # network namespaces

    def processes(self) -> dict[int, str]:
        """Return the command lines of running processes; remember namespaces."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "environ").read_bytes():
                    self.seen.add(os.readlink(folder / "ns" / "net"))
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(folder.name)] = command.decode()
        return found

    def assert_gone(self) -> None:
        """Check that no process, namespace or interface is left."""
        assert self.processes() == {}
        ours = os.readlink("/proc/self/ns/net")
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                assert os.readlink(folder / "ns" / "net") not in self.seen - {ours}
        interfaces = {name for _, name in socket.if_nameindex()}
        assert not interfaces & {"bridge", "port0", "port1", "far0", "far1"}


@pytest.fixture
def traces():
    """Traces of a command, whose remaining processes are killed after the test."""
    traces = Traces()
    yield traces
    for process in traces.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def sleepers(traces: Traces, seconds: float, code: int, *options: object) -> Job:
    """Start ranks with orphans on two hosts."""
    job = ("--command", "--", sys.executable, "-c", ORPHAN, seconds, code)
    return start_netem("--hosts", 2, "-n", 2, *options, *job, **{MARK: traces.mark})


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_a_signal_ends_all_processes(traces, name):
    """Ranks on other hosts, their orphans and the bridge, even with SIGKILL."""
    job = sleepers(traces, 300, 0, "--delay", "1ms")
    job.wait_until(lambda: str(traces.processes()).count("sleep 300") == 2)
    assert len(traces.seen) == 4  # ours, the bridge's and those of two hosts
    job.signal(getattr(signal, name))
    ended = job.end()

    assert ended.code != 0
    if name == "SIGKILL":  # the command cannot wait for their end
        deadline = time.monotonic() + 30
        while traces.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
    traces.assert_gone()
