"""The network model against a measured run."""

from __future__ import annotations

from statistics import median

import pytest

from benchmarks import check_model
from dadmm.timing.network import Link, Network, Overhead
from dadmm.timing.replay import Replay
from tests.support.emulation import obstacle

# Of emulated hosts without rate and delay, from benchmarks/results/model.csv.
BASE = Network(
    {"host": Link(1e-4, 1e9), "lan": Link(2e-4, 1e9)},
    overhead=Overhead(message=80, packet=66, payload=1448),
)
NARROW = check_model.Setting(
    "narrow", 2, 4, 2 * 10**6, 0.0, check_model.job("ring", 30, 60, 8)
)


@pytest.mark.slow
@pytest.mark.skipif(bool(obstacle()), reason=obstacle())
@pytest.mark.mpi
def test_a_run_on_a_narrow_network_takes_as_long_as_predicted(tmp_path):
    """Two ranks on each of two hosts of 2 Mbit/s; the median of three within 15 %."""
    network = check_model.limited(BASE, NARROW)
    runs = [check_model.run(NARROW, tmp_path / str(k)) for k in range(3)]
    found = [Replay(trace, network, observe=True) for trace in runs]
    ratios = [
        played.loop_seconds / trace.seconds
        for played, trace in zip(found, runs, strict=True)
    ]

    assert min(check_model.network_share(played) for played in found) > 0.8
    assert 1 / 1.15 < median(ratios) < 1.15, ratios
