"""The monitor names a rank that is stopped, frozen, or keeps all others waiting."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from launch import monitor
from tests.support.processes import mpiexec


class Clock:
    """A clock that moves when it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(monitor, "time", found)
    return found


@pytest.fixture
def watched(clock):
    with monitor.Monitor(stall_seconds=100, spread=True) as found:
        yield found


class Line:
    """The connection of a rank."""

    def __init__(self, watched, **facts) -> None:
        self._watched, self._socket = watched, socket.socket(socket.AF_UNIX)
        self._socket.connect(watched.variables["DADMM_MONITOR"])
        watched._serve(10)
        self.say(**facts)

    @classmethod
    def from_afar(cls, watched, **facts):
        """Connect as a rank of another host does."""
        line = cls.__new__(cls)
        _, port, secret = watched.variables["DADMM_MONITOR_TCP"].split()
        line._watched = watched
        line._socket = connect_with(watched, int(port), secret)
        line.say(**facts)
        return line

    def say(self, **facts) -> None:
        self._socket.sendall(json.dumps(facts).encode() + b"\n")
        self._watched._serve(10)


def connect_with(watched, port, secret):
    line = socket.create_connection(("127.0.0.1", port), timeout=10)
    watched._serve(10)
    line.sendall(f"{secret}\n".encode())
    watched._serve(10)
    return line


def test_a_stopped_process_is_named_with_its_state(watched, clock, capsys):
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        sleeper.send_signal(signal.SIGSTOP)
        os.waitpid(sleeper.pid, os.WUNTRACED)
        Line(watched, rank=3, host="here", process=sleeper.pid)
        clock.now += 10
        watched._check_stall()
    finally:
        sleeper.kill()
        sleeper.wait()
    said = capsys.readouterr().err

    assert "rank 3" in said
    assert f"kill -CONT {sleeper.pid}" in said


def test_a_rank_of_another_host_is_named_with_what_is_known(watched, clock, capsys):
    """Ranks beside it see its process; alone, its host only confirms what arrives."""
    stopped = Line.from_afar(watched, rank=1, host="far", process=12)
    beside = Line.from_afar(watched, rank=2, host="far", states={"12": "T"})
    alone = Line.from_afar(watched, rank=3, host="other", process=7)
    for seconds in (5, 5, 100):
        clock.now += seconds
        beside.say(iteration=1)
        ends = watched._check_stall()
        if seconds == 5:
            assert not ends
    said = capsys.readouterr().err
    del stopped, alone  # until here they were open

    assert ends  # for rank 1 alone: rank 3 may compute, for a while
    assert "rank 1 (process 12 on far) is stopped" in said
    assert "rank 3" in said
    assert monitor.STATES[monitor.ANSWERS] in said
    assert not watched.has_seen(1)  # its end says nothing about who was first


@pytest.mark.parametrize("works", [True, False])
def test_ranks_inside_mpi_wait_for_others_and_end_a_job_if_all_do(
    watched, clock, capsys, works
):
    """MPI_Init and MPI_Finalize keep Python's lock, so that a rank is silent."""
    watched._state = lambda *_: "S"
    lines = [Line(watched, rank=k, inside="MPI_Init") for k in (0, 1)]
    clock.now += 101
    if works:
        lines[1].say(inside="", at="prox (own.py:3)")

    assert watched._check_stall() is not works
    assert "waits in MPI_Init" in capsys.readouterr().err


def test_who_does_not_know_the_secret_is_no_rank(watched):
    _, port, secret = watched.variables["DADMM_MONITOR_TCP"].split()
    line = connect_with(watched, int(port), secret[::-1])

    assert line.recv(1) == b""  # it was closed
    assert watched.ranks == {}


def test_a_rank_that_never_came_is_named(watched, clock, capsys):
    Line(watched, rank=0, size=3)
    Line(watched, rank=2, size=3)
    clock.now += 9
    watched._check_stall()

    assert "rank 1 has" in capsys.readouterr().err


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


PROBLEM = """
import os, sys
import dadmm

class Leaves(dadmm.problems.LeastSquares):
    calls = 0

    def prox(self, *given):
        Leaves.calls += 1
        rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK"))
        if Leaves.calls == 5 and rank == "1":
            {}
        return super().prox(*given)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("what", ["sys.exit(0)", "raise KeyboardInterrupt"])
def test_a_rank_whose_function_leaves_ends_the_job(what, tmp_path):
    """Not only exceptions that are errors: all other ranks would wait for ever."""
    (tmp_path / "own.py").write_text(PROBLEM.format(what))
    words = "--problem own:Leaves --coordinates raw --tolerance 0 --max-iter 500"
    ended = mpiexec(3, "-m", "dadmm.run", *words.split(), "--out", "run", cwd=tmp_path)

    assert ended.code
    assert "own.py" in ended.err


def test_no_rank_is_the_first_if_one_ended_without_a_word(watched):
    """Ranks that end later were ended by the MPI."""
    silent, other = Line(watched), Line(watched, rank=2)
    for line in (silent, other):
        line._socket.close()
        watched._serve(10)

    assert watched.first is None


@pytest.mark.parametrize("facts", [{"iteration": 1}, {"iteration": 0, "at": "x"}])
def test_ranks_that_get_on_are_not_named(facts, watched, clock, capsys):
    """Whether or not they write rows, in set-up and in iterations."""
    line = Line(watched, rank=0)
    for k in range(100):
        clock.now += 5
        line.say(iteration=k * facts["iteration"], at=str(k))
        assert not watched._check_stall()

    assert capsys.readouterr().err == ""
