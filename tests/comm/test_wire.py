"""What is counted against what travels between two hosts: bytes, messages and bits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks.emulation.hosts import OVER_TCP, spread
from benchmarks.emulation.network import AGENT, EmulatedNetwork
from launch.mpi import command_on_hosts
from tests.support.emulation import network
from tests.support.processes import Job, find_mpiexec, variables
from tests.support.runs import summary_of

pytestmark = pytest.mark.mpi

# Dimensions of D-PPCA whose messages have about 100, 1000, 10,000 and 100,000 bytes
DIMENSIONS = (4, 60, 600, 6000)
FEW, MANY = 5, 105  # iterations


class Sent(NamedTuple):
    """What a run counted, and what the interfaces of both hosts sent meanwhile."""

    messages: int
    bytes: int
    all_bytes: int

    def beyond(self, shorter: Sent) -> Sent:
        """Return what this run sent more: no set-up and no results, only iterations."""
        return Sent(*(a - b for a, b in zip(self, shorter, strict=True)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[int, tuple[Sent, Sent]]:
    """A short and a longer run, by dimension."""
    folder = tmp_path_factory.mktemp("wire")
    with network(hosts=2) as pair:
        return {
            each: (run(pair, folder, each, FEW), run(pair, folder, each, MANY))
            for each in DIMENSIONS
        }


def run(pair: EmulatedNetwork, folder: Path, dimension: int, iterations: int) -> Sent:
    """Run a rank on each of two hosts for a number of iterations."""
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
    return Sent(summary["messages"], summary["bytes"], after - before)


def test_interfaces_send_at_least_the_bytes_that_are_counted(runs):
    """Nothing that is counted stays on its host."""
    for pair in runs.values():
        for sent in pair:
            assert sent.all_bytes >= sent.bytes


def test_iterations_send_the_bytes_that_are_counted_and_headers(runs, capsys):
    """Headers are 66 bytes for each 1448, and as much again if each segment is
    acknowledged by itself: between 1.0 and 1.1 bytes for a byte.

    Set-up and end differ by some 10,000 bytes from run to run. This is nothing beside
    the largest messages and more than all of the smallest, so that the line is printed
    and only the largest messages have a bound.
    """
    iterations = [many.beyond(few) for few, many in runs.values()]
    messages = 2 * (MANY - FEW)  # one each way per iteration
    for sent in iterations:
        assert sent.messages == messages
        assert sent.bytes % messages == 0
    counted = [sent.bytes for sent in iterations]
    travelled = [sent.all_bytes for sent in iterations]
    slope, intercept = np.polyfit(counted, travelled, 1)
    with capsys.disabled():
        each = intercept / messages
        print(f"\n{slope:.4f} bytes for a byte, {each:.0f} for a message")

    assert 1.0 <= travelled[-1] / counted[-1] <= 1.15
