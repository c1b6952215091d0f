"""The bytes of a message, read by hand, and as they travel between two hosts."""

from __future__ import annotations

import math
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from benchmarks.emulation.hosts import OVER_TCP, spread
from benchmarks.emulation.network import AGENT, EmulatedNetwork
from dadmm.comm import wire
from dadmm.comm.wire import HEADER, NEVER, PAYLOAD, SLEEPY, Box
from launch.mpi import command_on_hosts
from tests.support.processes import Job, find_mpiexec, variables
from tests.support.runs import summary_of


def test_a_message_is_as_long_as_its_table_says():
    assert HEADER.itemsize == struct.calcsize("=IHBB") == 8
    assert wire.length(40, with_eta=False) == 8 + 40
    assert wire.length(40, with_eta=True) == 16 + 40
    assert Box(3, 5, by_row=True).rows.shape == (3, 16 + 40)


def test_the_fields_are_views_of_the_rows():
    """What is written into them is what is sent, at the offsets of the table."""
    box = Box(3, 4, by_row=True)

    box.eta[1] = 2.5
    box.fields[1] = 1234, 5, 7, PAYLOAD | SLEEPY
    box.numbers[1] = [1.0, -2.0, 3.0, math.pi]

    sent = struct.unpack("=dIHBB4d", box.rows[1].tobytes())
    assert sent == (2.5, 1234, 5, 7, 3, 1.0, -2.0, 3.0, math.pi)
    assert_array_equal(box.payload[1], box.rows[1, 16:])
    assert not box.rows[[0, 2]].any()


@pytest.mark.parametrize("by_row", [True, False])
def test_a_header_is_one_number_of_eight_bytes(by_row):
    """Its words are read from the bytes that a neighbour wrote."""
    box = Box(2, 1, by_row)

    box.header[:] = wire.IDLE, np.frombuffer(struct.pack("=IHBB", 7, 3, 4, 2), "u8")[0]

    assert box.fields.tolist() == [(NEVER, 0, 0, PAYLOAD), (7, 3, 4, SLEEPY)]


def sent(pair: EmulatedNetwork, folder: Path, dimension: int, iterations: int):
    """Return what a run of two hosts counts, and what their interfaces send."""
    job = [sys.executable, "-P", "-m", "dadmm.run", "--topology", "chain"]
    job += ["--n-components", "1", "--dimension", str(dimension), "--n-samples", "40"]
    job += ["--tolerance", "0", "--max-iter", str(iterations), "--quiet"]
    job += ["--no-compare-centralised", "--out", str(folder / "run"), "--overwrite"]
    mpiexec = find_mpiexec()
    assert mpiexec is not None
    before = sum(host["tx_bytes"] for host in pair.counters())
    chosen, places = variables(**OVER_TCP), spread(2, 2)
    with command_on_hosts(mpiexec, places, job, chosen, AGENT) as command:
        ended = Job(pair.command(0, command), None, chosen).end()
    after = sum(host["tx_bytes"] for host in pair.counters())
    assert ended.code == 0, ended.err
    summary = summary_of(folder / "run")
    return np.array([summary["messages"], summary["bytes"], after - before])
