"""Signals to a launch command, and its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.processes import PROGRAMS, default_signals, variables

pytestmark = pytest.mark.mpi

TIMEOUT = 60
# An mpiexec that logs signals. It ends on USR1 unless STAY is set, and on TERM.
POLITE = """
trap 'echo INT' INT
trap 'echo TERM; exit 9' TERM
trap 'echo USR1; test "$STAY" || exit 0' USR1
echo ready
for i in $(seq 600); do sleep 0.1; done
"""
STAYING = "STAY=1\n" + POLITE
IGNORING_TERM = STAYING.replace("'echo TERM; exit 9'", "''")


class RunningJob:
    """A job under `run_job` whose mpiexec is a script that logs to a file."""

    def __init__(self, folder, script):
        self.log = folder / "log"
        mpiexec = folder / "mpiexec"
        mpiexec.write_text(f"#!/bin/sh\nexec >>{self.log} 2>/dev/null\n{script}")
        mpiexec.chmod(0o755)
        self.command = subprocess.Popen(
            [sys.executable, PROGRAMS / "run_job.py", '{"grace": 1}', mpiexec],
            env=variables(),
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=default_signals,
        )

    def wait_for(self, word):
        end = time.monotonic() + TIMEOUT
        while not (self.log.exists() and word in self.log.read_text().split()):
            assert time.monotonic() < end, f"mpiexec did not log {word}"
            time.sleep(0.02)

    def signal(self, signum):
        """Signal the process group of the command, as a terminal does."""
        os.killpg(self.command.pid, signum)

    def end(self):
        """Return the exit code, the messages and the log of mpiexec."""
        _, messages = self.command.communicate(timeout=TIMEOUT)
        return self.command.returncode, messages, self.log.read_text().split()


@pytest.fixture
def start(tmp_path):
    """A function that starts a job, which is killed after the test."""
    jobs = []

    def start(script):
        jobs.append(RunningJob(tmp_path, script))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.command.poll() is None:
            job.command.kill()
            job.command.communicate(timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 42", 42), ("kill -KILL $$", 128 + signal.SIGKILL), ("cat; exit 0", 0)],
)
def test_the_exit_code_of_mpiexec_is_passed_on(start, script, code):
    """As a shell does for signals; and mpiexec has no input to wait for."""
    assert start(script).end()[0] == code


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_reaches_mpiexec_as_usr1(start, signum):
    """And as nothing else, although the whole process group was signalled."""
    job = start(POLITE)
    job.wait_for("ready")
    job.signal(signum)
    code, messages, log = job.end()

    assert (code, log) == (0, ["ready", "USR1"])
    assert messages.count("a second signal ends the job at once") == 1


@pytest.mark.parametrize("deaf", [False, True])
def test_the_second_signal_terminates_the_job(start, deaf):
    """timeout(1) signals its child and then its group, which counts once.

    A job that ignores TERM is killed after a few seconds.
    """
    job = start(IGNORING_TERM if deaf else STAYING)
    job.wait_for("ready")
    job.command.send_signal(signal.SIGTERM)
    job.signal(signal.SIGTERM)
    job.wait_for("USR1")
    time.sleep(0.5)
    assert job.command.poll() is None
    job.signal(signal.SIGINT)
    code, _, log = job.end()

    assert code == (128 + signal.SIGKILL if deaf else 9)
    assert log == ["ready", "USR1", "TERM"][: 2 if deaf else 3]
