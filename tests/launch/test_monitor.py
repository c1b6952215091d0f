"""The monitor of a job ends the ranks that mpiexec has left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from launch.mpi import monitor

RANK = """
import signal, sys, time
from dadmm.comm.launch_link import connect_to_launcher
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as a rank that waits for a message
connect_to_launcher()
print("ready", flush=True)
time.sleep(300)
"""


def test_ranks_without_mpiexec_are_killed(monkeypatch):
    monkeypatch.setattr(monitor, "LEFT", 0.2)
    with monitor.Monitor() as seen:
        rank = subprocess.Popen(
            [sys.executable, "-c", RANK],
            env={**os.environ, **seen.variables},
            stdout=subprocess.PIPE,
        )
        try:
            assert select.select([rank.stdout], [], [], 60)[0]
            parent = subprocess.Popen(
                ["true"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            seen.watch(parent, None)  # accepts the connection
            seen.end_left()
            assert rank.wait(60) == -signal.SIGKILL
        finally:
            rank.kill()
            rank.wait(60)
            rank.stdout.close()
            parent.wait(60)
            parent.stdout.close()
            parent.stderr.close()


def test_a_rank_that_has_ended_is_left_alone():
    with monitor.Monitor() as seen:
        seen.end_left()
