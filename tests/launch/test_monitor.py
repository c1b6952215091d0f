"""The monitor names a rank that is stopped, frozen, or keeps all others waiting."""

import json
import os
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from launch import monitor


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""
    found = SimpleNamespace(now=0.0, monotonic=lambda: found.now)
    monkeypatch.setattr(monitor, "time", found)
    return found


@pytest.fixture
def watched(clock):
    with monitor.Monitor(stall_seconds=100, spread=True) as found:
        yield found


class Line:
    """The connection of a rank, on this host or from afar, with a secret."""

    def __init__(self, watched, afar=False, secret="", **facts):
        self._watched, self.socket = watched, socket.socket(socket.AF_UNIX)
        if afar:
            _, port, known = watched.variables["DADMM_MONITOR_TCP"].split()
            self.socket = socket.create_connection(("127.0.0.1", int(port)), 10)
            watched._serve(10)
            self._send(secret or known)
        else:
            self.socket.connect(watched.variables["DADMM_MONITOR"])
            watched._serve(10)
        if not secret:
            self.say(**facts)

    def say(self, **facts):
        self._send(json.dumps(facts))

    def _send(self, text):
        self.socket.sendall(f"{text}\n".encode())
        self._watched._serve(10)


def test_a_stopped_process_is_named_with_its_state(watched, clock, capsys):
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        sleeper.send_signal(signal.SIGSTOP)
        os.waitpid(sleeper.pid, os.WUNTRACED)
        line = Line(watched, rank=3, host="here", process=sleeper.pid)
        clock.now += 10
        watched._check_stall()
    finally:
        sleeper.kill()
        sleeper.wait()
    said = capsys.readouterr().err

    assert "rank 3" in said
    assert f"kill -CONT {sleeper.pid}" in said
    line.socket.close()


def test_a_rank_of_another_host_is_named_with_what_is_known(watched, clock, capsys):
    """Ranks beside it see its process; alone, its host only confirms what arrives."""
    stopped = Line(watched, afar=True, rank=1, host="far", process=12)
    beside = Line(watched, afar=True, rank=2, host="far", states={"12": "T"})
    alone = Line(watched, afar=True, rank=3, host="other", process=7)
    ends = []
    for seconds in (5, 5, 100):
        clock.now += seconds
        beside.say(iteration=1)
        ends.append(watched._check_stall())
    said = capsys.readouterr().err
    del stopped, alone  # until here they were open

    assert ends == [False, False, True]  # for rank 1; rank 3 may compute, for a while
    assert "rank 1 (process 12 on far) is stopped" in said
    assert "rank 3" in said
    assert monitor.STATES[monitor.ANSWERS] in said
    assert not watched.has_seen(1)  # its end says nothing about who was first


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("state", "SR")
def test_ranks_inside_mpi_wait_for_others_and_end_a_job_if_all_do(
    watched, clock, capsys, state, works
):
    """MPI_Init and MPI_Finalize keep Python's lock, so that a rank is silent.

    MPICH waits in a busy loop.
    """
    watched._state = lambda *_: state
    lines = [Line(watched, rank=k, inside="MPI_Init") for k in (0, 1)]
    clock.now += 101
    if works:
        lines[1].say(inside="", at="prox (own.py:3)")

    assert watched._check_stall() is not works
    assert "waits in MPI_Init" in capsys.readouterr().err


def test_who_does_not_know_the_secret_is_no_rank(watched):
    stranger = Line(watched, afar=True, secret=32 * "0")
    assert stranger.socket.recv(1) == b""  # it was closed
    assert watched.ranks == {}


def test_a_rank_that_is_stopped_before_it_connects_is_named(clock, capsys):
    with monitor.Monitor() as found:
        line = Line(found, rank=0, size=2)
        environment = os.environ | found.variables | {"PMI_RANK": "1"}
        with subprocess.Popen(["sleep", "60"], env=environment) as late:
            late.send_signal(signal.SIGSTOP)
            os.waitpid(late.pid, os.WUNTRACED)
            clock.now += 9
            found._check_stall()
            late.kill()
    line.socket.close()
    said = capsys.readouterr().err
    assert "rank 1 has" in said
    assert f"kill -CONT {late.pid}" in said


@pytest.mark.parametrize("runs", [True, False])
def test_a_rank_that_ended_before_it_connected_ends_the_job(
    clock, capsys, monkeypatch, runs
):
    """A signal may end it while Python starts, and mpiexec may wait for it."""
    monkeypatch.setattr(monitor, "POLL", 0.01)
    ends = []

    def end(reason):
        ends.append((reason, capsys.readouterr().err))
        late.kill()

    def tick():
        clock.now += 1
        if clock.now > 200 and not ends:
            end("")
        return clock.now

    with monitor.Monitor() as found:
        line = Line(found, rank=0, size=2)
        environment = os.environ | found.variables | {"PMI_RANK": "0"}
        environment |= {"OMPI_COMM_WORLD_RANK": "1"} if runs else {}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        clock.monotonic = tick
        with subprocess.Popen(["sleep", "60"], env=environment, **pipes) as late:
            found.watch(late, end)
    line.socket.close()
    reason, said = ends[0]

    assert "rank 1" in said
    assert ("has ended" in said) is (reason > "") is (found.first == 1) is not runs


@pytest.mark.parametrize("t", [7, 0])
def test_a_rank_that_works_while_others_wait_is_named_with_its_place(
    t, watched, clock, capsys
):
    first = Line(watched, rank=0, iteration=t, waits=True, at="swap")
    second = Line(watched, rank=1, iteration=t, waits=False, at="prox (own.py:12)")
    for k in range(50):  # both are in loops of a few lines
        clock.now += 5
        first.say(iteration=t, at=f"wait (mpi.py:{k % 2})")
        second.say(iteration=t, at=f"prox (own.py:{12 - k % 2})")
        assert not watched._check_stall()  # it may only need long
    said = capsys.readouterr().err

    assert "rank 1" in said
    assert "own.py:12" in said
    assert "rank 0" not in said


@pytest.mark.parametrize("iteration", [1, 0])
def test_ranks_that_get_on_are_not_named(iteration, watched, clock, capsys):
    """In iterations, and in set-up by the function in which they are."""
    line = Line(watched, rank=0)
    for k in range(100):
        clock.now += 5
        line.say(iteration=k * iteration, at=str(k))
        assert not watched._check_stall()

    assert capsys.readouterr().err == ""


def test_no_rank_is_the_first_if_one_ended_without_a_word(watched):
    """Ranks that end later were ended by the MPI."""
    lines = Line(watched), Line(watched, rank=2)
    for line in lines:
        line.socket.close()
        watched._serve(10)

    assert watched.first is None
